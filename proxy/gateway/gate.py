"""What a room's gate makes of a request before the store is asked. Pure.

The fast path of an admitted visitor, the cookie check of a first visit, and everything that needs
no store call end here; the rest is `AskStore` (design §4 rules 6, 9 and 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from proxy.gateway.exchange import Exchange
from queueing.config import RoomConfig, Unit, VisitorId
from queueing.passes import MISSING, Credential, Keyring, Kind, Reading, Verdict, cookie_name

MARK = b"__wr="
CHECK = b"__wr=1"
STALE = b"__wr=t"
"""Our page asks with this when a cache has given it an old copy of itself (WR-41)."""
VALID_IN_OUTAGE = "pass, store down"


@dataclass(frozen=True, slots=True)
class Revocations:
    """What the room's journal has told this gateway: passes of before these times are old."""

    reset_ms: int = 0
    visitors: Mapping[VisitorId, int] = field(default_factory=dict)

    def covers(self, credential: Credential) -> bool:
        """Whether the credential is of an earlier epoch, or its visitor was revoked since."""
        return credential.iat_ms <= self.reset_ms or credential.iat_ms <= self.visitors.get(
            credential.sid, -1
        )


class FirstVisit(Enum):
    """What a request without a usable cookie gets (rule 9)."""

    REDIRECT = "redirect"  # a cookie, and the same URL with the mark
    COOKIES_NEEDED = "cookies"  # the mark came back without the cookie
    NO_TICKET = "none"  # not a navigation: 429 with the cookie, no place


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Forward at once."""

    reason: str
    credential: Credential


@dataclass(frozen=True, slots=True)
class AskStore:
    """Only the room's script can tell."""

    credential: Credential
    resign: bool = False  # the cookie is signed by the previous key


@dataclass(frozen=True, slots=True)
class CleanUrl:
    """The cookie works: back to the URL without the mark."""

    location: str


Step = PassThrough | AskStore | CleanUrl | FirstVisit


def read_cookie(exchange: Exchange, room: RoomConfig, keys: Keyring) -> Reading:
    """Judge the room's cookie: the first valid one of those sent, else the worst."""
    worst = MISSING
    for value in exchange.cookies(cookie_name(room.id).encode()):
        reading = keys.read(value, room.id)
        if reading.verdict is Verdict.VALID:
            return reading
        if worst.verdict is not Verdict.FORGED:
            worst = reading
    return worst


def gate(
    exchange: Exchange,
    room: RoomConfig,
    reading: Reading,
    *,
    now_ms: int,
    network: str,
    revoked: Revocations,
    outage_since_ms: int | None,
) -> Step:
    """Decide without the store where that is possible.

    `network` is the tag of the visitor's network ("" unless the room binds passes). While the store
    cannot be asked, `outage_since_ms` says since when (store time): passes that were valid then
    stay valid (rule 11).
    """
    credential = reading.credential
    if credential is None:
        return _first_visit(exchange)
    if _is_marked(exchange) and exchange.is_safe and exchange.is_navigation:
        return CleanUrl(clean_url(exchange))
    if outage_since_ms is not None:
        # Unit `requests`: a pass holds no slot, so no page without the store (decision 0012).
        if room.unit is Unit.VISITORS and was_valid(
            credential, outage_since_ms, network=network, revoked=revoked
        ):
            return PassThrough(VALID_IN_OUTAGE, credential)
    elif _is_fresh(credential, room, now_ms) and was_valid(
        credential, now_ms, network=network, revoked=revoked
    ):
        return PassThrough("pass", credential)
    if credential.kind is Kind.QUEUED and now_ms >= credential.exp_ms:
        credential = replace(credential, ticket=0)  # long gone: it is told of that turn no more
    return AskStore(credential, resign=not reading.current_key)


def was_valid(credential: Credential, at_ms: int, *, network: str, revoked: Revocations) -> bool:
    """Whether a credential was a pass that opened the room at a time (store ms).

    Who has moved to another network is asked about anew; the place is kept (WR-29).
    """
    return (
        credential.kind is not Kind.QUEUED
        and credential.network == network
        and at_ms < credential.exp_ms
        and not revoked.covers(credential)
    )


def _is_fresh(credential: Credential, room: RoomConfig, now_ms: int) -> bool:
    # Unit `requests`: every page needs a slot of its own; a pass holds none (rule 6).
    return (
        room.unit is Unit.VISITORS
        and credential.kind is Kind.ADMITTED
        and now_ms < credential.iat_ms + room.refresh_ms
    )


def _first_visit(exchange: Exchange) -> FirstVisit:
    if not exchange.is_safe or not exchange.is_navigation:
        return FirstVisit.NO_TICKET
    return FirstVisit.COOKIES_NEEDED if _is_marked(exchange) else FirstVisit.REDIRECT


def _is_marked(exchange: Exchange) -> bool:
    return CHECK in exchange.query and CHECK in exchange.query.split(b"&")


def marked_url(exchange: Exchange) -> str:
    """The same URL with the mark added, absolute and on the same host."""
    query = exchange.query + b"&" + CHECK if exchange.query else CHECK
    return f"{exchange.base_url}{(exchange.path + b'?' + query).decode('latin-1')}"


def clean_url(exchange: Exchange) -> str:
    """The same URL without the mark; every other byte of it stays."""
    return f"{exchange.base_url}{clean_target(exchange).decode('latin-1')}"


def clean_target(exchange: Exchange) -> bytes:
    """The request target for the origin: without our mark or our page's cache-buster (WR-41)."""
    if MARK not in exchange.query:
        return exchange.target
    parts = exchange.query.split(b"&")
    rest = b"&".join(part for part in parts if not part.startswith(MARK))
    return exchange.path + b"?" + rest if rest else exchange.path
