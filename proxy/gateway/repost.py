"""The way back from another site's form, such as a bank's: 3-D Secure returns (WR-47).

The browser sends such a form without our cookie, nor the site's own (`SameSite=Lax`). On paths that
the host declares we answer it with a page of our own, which sends the same fields once more: now
the cookies come along. That request is no longer another site's, so there is never a second page.
"""

from __future__ import annotations

import re
import string
from dataclasses import replace
from urllib.parse import quote, unquote_to_bytes

from proxy.gateway.answers import Answer
from proxy.gateway.decide import ToOrigin
from proxy.gateway.exchange import Exchange
from proxy.gateway.forgery import is_foreign_form
from proxy.gateway.gate import clean_target
from proxy.gateway.passage import Passage
from proxy.gateway.paths import readings
from proxy.gateway.request_body import BodyRefused, RequestBody
from proxy.gateway.room_answers import Desk, blank_view, page_answer, state_answer
from queueing.config import RoomId
from queueing.pages import PageState
from queueing.passes import cookie_name
from queueing.places import State

LONGEST = 64 * 1024
MOST_FIELDS = 1_000

_FORM = re.compile(
    rb"\s*application/x-www-form-urlencoded\s*(?:;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE
)

Fields = tuple[tuple[str, str], ...]


async def passed_on(passage: Passage, route: ToOrigin) -> str:
    """Answer with the page where this is such a return; gives the reason, or "" where it is not."""
    exchange = passage.exchange
    if route.room is None or not is_return(exchange, route, route.room):
        return ""
    body = RequestBody(passage.scope["headers"], passage.receive)
    if body.header(b"content-encoding") or not _FORM.fullmatch(body.header(b"content-type")):
        return ""
    live = passage.resources.live[route.room]
    try:
        fields = form_fields(await body.read(LONGEST))
    except BodyRefused:
        fields = None
    answer = again(passage.in_force.rooms.desk(exchange, live.config), fields)
    reason = "another site's form" if fields is None else "another site's form, passed on"
    live.counters["foreign" if fields is None else "reposted"] += 1
    await passage.answer(answer, reason)
    return reason


def is_return(exchange: Exchange, route: ToOrigin, room: RoomId) -> bool:
    """Whether another site sends a visitor back here by a form, to a path that is for that."""
    if exchange.method != "POST" or not is_foreign_form(exchange):
        return False
    if next(exchange.cookies(cookie_name(room).encode()), None) is not None:
        return False
    site = route.site
    return site.return_paths.hold(readings(exchange.path, insensitive=site.insensitive))


def form_fields(body: bytes) -> Fields | None:
    """Read a form's fields (WHATWG URL, urlencoded parsing); None when it cannot be sent again as
    it was: no UTF-8, a NUL, too many fields."""
    pieces = [piece for piece in body.split(b"&") if piece]
    if len(pieces) > MOST_FIELDS:
        return None
    try:
        fields = tuple(_field(piece) for piece in pieces)
    except UnicodeDecodeError:
        return None
    return None if any("\0" in text for field in fields for text in field) else fields


def _field(piece: bytes) -> tuple[str, str]:
    name, _, value = piece.replace(b"+", b" ").partition(b"=")
    return unquote_to_bytes(name).decode(), unquote_to_bytes(value).decode()


def again(desk: Desk, fields: Fields | None) -> Answer:
    """Give the page that sends the fields once more; without any, say that nothing was sent."""
    if fields is None:
        return state_answer(desk, State.NONE, [])
    target = quote(clean_target(desk.exchange), safe=string.printable)
    view = replace(blank_view(desk), state=PageState.REPOST, continue_url=target, fields=fields)
    return page_answer(desk, view, 200, [])
