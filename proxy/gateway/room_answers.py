"""What a visitor is told by a room: the page and its JSON twin, the status answer. Pure.

Everything comes from a `Place` (or from the lack of one) and the request; design §5 has the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlsplit

from proxy.gateway.answers import CODES, STATE_HEADER, Answer, json_answer
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.gate import clean_target
from proxy.gateway.selling import sale_to
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, VisitorId
from queueing.estimates import poll_after_s, wait_estimate
from queueing.pages import Eta, PageBundle, PageState, PageView, choose_language
from queueing.passes import Keyring
from queueing.places import Place, Reason, State

MOST_EXTENSIONS = 10
_IN_LINE = frozenset(
    {State.WAITING, State.PARKED, State.PREQUEUE, State.GRANTED, State.PAUSED, State.HOLD}
)
_HINTS: dict[str, str] = {
    State.NONE: "send the cookie back and retry to take a place in the line",
    State.MISSED: "the place has expired: POST to rejoin_url to join again at the back",
    State.RESET: "the line was restarted: retry with the new cookie to join again",
    State.UNSENT: "the form was not sent: it is safe to send it again",
    State.SHARED: "the pass is in use on another network: retry later, or POST to rejoin_url",
}
_KEEP_COOKIE = "keep the cookie and retry to hold your place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What every answer of a room needs besides the place."""

    exchange: Exchange
    room: RoomConfig
    settings: GatewaySettings
    pages: PageBundle
    now_ms: int
    since_ms: int = 0  # when the place expired, as near as the visitor's cookie tells
    keys: Keyring | None = None  # signs offers
    sid: VisitorId | None = None  # whose place it is


def room_url(room: RoomConfig, action: str) -> str:
    """Address a room's endpoint."""
    return f"/__corvus/wr/{room.id}/{action}"


def place_answer(desk: Desk, place: Place, cookies: Headers) -> Answer:
    """Answer a request that may not go on, by what the script said."""
    view = replace(_view(desk, place), state=_page_of(place.state))
    return _answer(desk, place.state, view, cookies, _document(desk, place.state, place))


def state_answer(desk: Desk, state: State | PageState, cookies: Headers) -> Answer:
    """Answer without a place: no store call was made, or none could be."""
    view = replace(_view(desk, None), state=_page_of(state))
    return _answer(desk, state, view, cookies, _document(desk, state, None))


def status_answer(desk: Desk, state: State | str, place: Place | None, cookies: Headers) -> Answer:
    """Answer the waiting page's poll."""
    document = _document(desk, state, place)
    document["server_time"] = place.now_ms if place else desk.now_ms
    document["claim_s"] = _claim_s(place)
    document["reason"] = place.reason if place else ""
    document["rejoin_url"] = room_url(desk.room, "rejoin")
    if state == State.MISSED:
        document["since"] = desk.since_ms
    sale = sale_to(desk.room, desk.keys, desk.sid, place)
    if sale is not None:
        document |= sale.fields
    for name in ("queued", "retry_after", "status_url", "hint"):
        del document[name]
    if state == State.LIMITED and place is not None and place.ticket:
        retry_s = 1  # asked too often: the place is untouched
    else:
        retry_s = _retry_after_s(desk, place)
    extra = [*cookies, (STATE_HEADER, _code_key(state).encode())]
    return json_answer(CODES[state].status, document, retry_after_s=retry_s, extra=extra)


def blank_view(desk: Desk) -> PageView:
    """Give a page of this room without a place."""
    return _view(desk, None)


def eta_of(place: Place | None, room: RoomConfig) -> Eta | None:
    """Estimate the wait from the measured release rate; None when it is not known."""
    if place is None or place.state not in (State.WAITING, State.PARKED) or not room.capacity:
        return None
    return wait_estimate(
        ahead=place.ahead,
        released=place.released,
        released_ms=place.released_ms,
        rate=room.rate,
    )


def _answer(
    desk: Desk,
    state: State | PageState,
    view: PageView,
    cookies: Headers,
    document: dict[str, Any],
) -> Answer:
    exchange, codes = desk.exchange, CODES[_code_key(state)]
    if state == State.UNSENT:
        document |= {"error": "busy", "retry_after_seconds": document["retry_after"]}
    as_page = exchange.is_navigation or not desk.settings.api_json
    status = codes.page if as_page else codes.json
    if not exchange.is_safe:
        status = codes.unsafe
        document["submitted"] = False
        view = replace(view, unsafe=True)
        if status == 429 and state not in (State.LIMITED, State.SHARED):
            view = replace(view, state=PageState.NOT_SENT)
    if state == State.REJECTED:
        status = desk.room.reject_status
    if not as_page:
        return json_answer(status, document, retry_after_s=document["retry_after"], extra=cookies)
    return page_answer(desk, view, status, cookies)


def page_answer(desk: Desk, view: PageView, status: int, cookies: Headers) -> Answer:
    """Render a page in the visitor's language."""
    language = page_language(desk.exchange, desk.pages, desk.settings)
    page = desk.pages.render(view, language)
    headers = [*page.headers, *cookies]
    if status in (429, 503):
        headers.append((b"retry-after", str(max(1, view.retry_after_s)).encode()))
    return Answer(status, headers, page.body)


def page_language(exchange: Exchange, pages: PageBundle, settings: GatewaySettings) -> str:
    """Choose by the visitor's own choice, then its browser's, then the operator's."""
    chosen = next(exchange.cookies(b"corvus_lang"), b"")
    return choose_language(
        exchange.found.get(b"accept-language", b"").decode("latin-1"),
        chosen.decode("latin-1"),
        pages.languages,
        settings.default_language,
    )


def _code_key(state: State | PageState | str) -> str:
    return State.NONE if state in (PageState.COOKIES, PageState.COOKIES_BROKEN) else state


_PAGES = {State.NONE: PageState.COOKIES, State.UNSENT: PageState.UNSENT_FORM}


def _page_of(state: State | PageState) -> PageState:
    return _PAGES[state] if isinstance(state, State) and state in _PAGES else PageState(state)


def _document(desk: Desk, state: State | PageState | str, place: Place | None) -> dict[str, Any]:
    # While the line is restored, only who has checked in again has a position.
    in_line = place is not None and place.ticket > 0 and state in _IN_LINE
    eta = eta_of(place, desk.room)
    document: dict[str, Any] = {
        "state": _code_key(state),
        "queued": in_line,
        "position": place.position if place and in_line else None,
        "ahead": place.ahead if place and in_line else None,
        "waiting": place.counts.waiting if place else None,
        "eta": {"p10": eta.p10, "p50": eta.p50, "p90": eta.p90} if eta else None,
        "poll_after": _poll_after_s(place),
        "retry_after": _retry_after_s(desk, place),
        "status_url": room_url(desk.room, "status"),
        "room": desk.room.id,
        "hint": _HINTS.get(_code_key(state), _KEEP_COOKIE),
    }
    if state == State.MISSED:
        document["rejoin_url"] = room_url(desk.room, "rejoin")
    if state == State.SHARED:
        document["rejoin_url"] = f"{room_url(desk.room, 'rejoin')}?own=1"
    return document


def _view(desk: Desk, place: Place | None) -> PageView:
    """Fill what pages show; the state is set by the caller."""
    exchange, room = desk.exchange, desk.room
    wanted = _wanted(desk)
    after = f"next={quote(wanted, safe='')}"
    extensions = place.extensions if place else 0
    sale = sale_to(room, desk.keys, desk.sid, place)
    return PageView(
        state=PageState.WAITING,
        site=exchange.visited_host,
        room=room.name,
        message=room.message,
        position=place.position if place and place.ticket else 0,
        ahead=place.ahead if place else 0,
        waiting=place.counts.waiting if place else 0,
        ticket=place.ticket if place else 0,
        eta=eta_of(place, room),
        poll_after=_poll_after_s(place),
        claim_s=_claim_s(place),
        keep_s=room.return_window_ms // 1000,
        reason=place.reason if place else Reason.NONE,
        since_ms=desk.since_ms,
        now_ms=place.now_ms if place else desk.now_ms,
        retry_after_s=_retry_after_s(desk, place),
        status_url=room_url(room, "status"),
        leave_url=f"{room_url(room, 'leave')}?{after}",
        beacon_url=room_url(room, "beacon"),
        extend_url=f"{room_url(room, 'extend')}?{after}" if extensions < MOST_EXTENSIONS else "",
        rejoin_url=_rejoin_url(room, place, after),
        continue_url=wanted,
        refresh_s=_refresh_s(exchange),
        language_url=f"{room_url(room, 'lang')}?{after}&to=",
        refresh_url=f"{room_url(room, 'refresh')}?{after}&every=",
        incident=exchange.request_id,
        sells=sale is not None and not sale.has_pass,
        skip=sale.skip if sale else None,
        embed=room.embed,
    )


def _rejoin_url(room: RoomConfig, place: Place | None, after: str) -> str:
    shared = place is not None and place.state is State.SHARED
    return f"{room_url(room, 'rejoin')}?{after}{'&own=1' if shared else ''}"


def _wanted(desk: Desk) -> str:
    """Where the visitor goes on: the page it asked for, or the page that its form stood on."""
    exchange = desk.exchange
    if exchange.is_safe:
        return clean_target(exchange).decode("latin-1")
    try:
        parts = urlsplit(exchange.found.get(b"referer", b"").decode("latin-1"))
    except ValueError:
        return "/"
    if parts.netloc != exchange.authority.decode("latin-1"):
        return "/"
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _refresh_s(exchange: Exchange) -> int:
    """Give the visitor's choice for reloads without JavaScript; 0 = stopped."""
    chosen = next(exchange.cookies(b"corvus_refresh"), b"")
    return int(chosen) if chosen in (b"0", b"30", b"120") else 30


def _poll_after_s(place: Place | None) -> int:
    if place is None:
        return 30
    return poll_after_s(ahead=place.ahead, released=place.released, released_ms=place.released_ms)


def _retry_after_s(desk: Desk, place: Place | None) -> int:
    if place is not None and place.state is State.LIMITED:
        return max(1, -(-place.retry_ms // 1000))
    if place is not None and place.state is State.SHARED:  # then it has moved (WR-35)
        return max(1, -(-2 * desk.room.refresh_ms // 1000))
    if place is not None and place.state is State.UNSENT:
        return max(1, desk.settings.retry_after_s)
    return max(desk.settings.retry_after_s, _poll_after_s(place) if place else 0)


def _claim_s(place: Place | None) -> int:
    if place is None or place.state is not State.GRANTED:
        return 0
    return max(0, (place.expires_ms - place.now_ms) // 1000)
