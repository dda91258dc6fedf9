"""What a page shows, as plain data, and the addresses that are safe to put into it.

Pure. The gateway fills a `PageView`; nothing here knows a room's store or an HTTP request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from queueing.places import Reason


class PageState(StrEnum):
    """Which page a visitor sees. The first nine are one live page, the others are notices."""

    WAITING = "waiting"
    PARKED = "parked"
    PAUSED = "paused"
    PREQUEUE = "prequeue"
    HOLD = "hold"
    GRANTED = "granted"
    MISSED = "missed"
    RESET = "reset"
    LEFT = "left"
    FULL = "full"
    CLOSED = "closed"
    REJECTED = "rejected"
    COOKIES = "cookies"
    COOKIES_BROKEN = "cookies_broken"
    BUSY = "busy"
    STORE_DOWN = "store_down"
    LIMITED = "limited"
    NOT_SENT = "not_sent"
    UNSENT_FORM = "unsent_form"
    SHARED = "shared"
    REPOST = "repost"  # passes another site's form on once more, as our own (WR-47)
    BANNED = "banned"
    BLOCKED = "blocked"
    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    BAD_GATEWAY = "bad_gateway"
    GATEWAY_TIMEOUT = "gateway_timeout"
    SERVER_ERROR = "server_error"


IN_LINE = frozenset(
    {
        PageState.WAITING,
        PageState.PARKED,
        PageState.PAUSED,
        PageState.PREQUEUE,
        PageState.HOLD,
    }
)
"""A place is held: an operator's own template is used for these."""

REJOINABLE = frozenset({PageState.MISSED, PageState.RESET, PageState.LEFT})
"""The place is gone; one button joins again."""

LIVE = IN_LINE | REJOINABLE | {PageState.GRANTED}

RETRYING = frozenset(
    {
        PageState.FULL,
        PageState.BUSY,
        PageState.STORE_DOWN,
        PageState.LIMITED,
        PageState.SHARED,
    }
)
"""Notices that look again by themselves after `retry_after_s`."""


@dataclass(frozen=True, slots=True)
class Eta:
    """An estimate of the wait, in seconds."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Skip:
    """What it costs this visitor to go to the front now, and where that is paid."""

    cost: str  # decimal, in the currency's main unit
    currency: str  # ISO 4217
    url: str  # the payment page, with the offer in it


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """Everything one page shows. Empty text, 0 and None leave the part out.

    The addresses are paths on the visitor's own host. `language_url` and `refresh_url` are
    prefixes: the page appends a language code, or a number of seconds (0 = stop).
    """

    state: PageState
    site: str = ""
    room: str = ""
    message: str = ""  # the operator's, plain text
    position: int = 0
    ahead: int = 0
    waiting: int = 0
    ticket: int = 0
    eta: Eta | None = None
    poll_after: float = 30  # seconds
    claim_s: int = 0  # granted: seconds left to enter
    keep_s: int = 600  # how long a silent visitor's place is kept
    reason: Reason = Reason.NONE
    since_ms: int = 0  # missed: when the place expired
    now_ms: int = 0  # server time
    retry_after_s: int = 0
    status_url: str = ""
    leave_url: str = ""
    beacon_url: str = ""
    extend_url: str = ""  # empty: the claim time cannot be extended any more
    rejoin_url: str = ""
    continue_url: str = "/"  # the clean address of what the visitor wanted
    refresh_s: int = 30  # reload without JavaScript, in seconds; 0 = the visitor stopped it
    language_url: str = ""
    refresh_url: str = ""
    unsafe: bool = False  # the request was a POST or the like, and was not forwarded
    incident: str = ""  # request id, also in the log
    sells: bool = False  # the front of the line is for sale to this visitor: a place for the card
    skip: Skip | None = None  # what is on the card at the moment
    embed: bool = False  # other sites may show the page in a frame (WR-55)
    fields: tuple[tuple[str, str], ...] = ()  # REPOST: the form's fields in their order


def local_address(address: str) -> str:
    """Make an address that a browser can only read as a path of the same host.

    `//other.example/` and `/\\other.example` are legal request targets here but other hosts in a
    link, and a browser drops tabs and line ends before it looks; so a visitor who follows such a
    link from a waiting page would land elsewhere.
    """
    cleaned = "".join(
        "%5C" if c == "\\" else c for c in address if c.isprintable() and not c.isspace()
    )
    if not cleaned.startswith("/"):
        return "/"
    return "/." + cleaned if cleaned.startswith("//") else cleaned
