"""Everything under `/__corvus/`: answered here, whatever the method (design §5).

A room's endpoints work on the visitor's cookie alone, so that the waiting page can call them
without any other state. What changes something takes POST only.
"""

from __future__ import annotations

import hmac
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote

from proxy.gateway.answers import NO_STORE, Answer, json_answer, plain, redirect
from proxy.gateway.cookies import preference_cookie
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.forgery import is_own_page
from proxy.gateway.gate import read_cookie
from proxy.gateway.live import LiveRoom
from proxy.gateway.room_answers import Desk, blank_view, page_answer, status_answer
from proxy.gateway.rooms import Rooms
from queueing.config import RoomId
from queueing.pages import PageState
from queueing.pages.view import local_address
from queueing.passes import Credential, Kind
from queueing.places import State
from queueing.store import StoreBusy, StoreUnreachable

_ROOM_METHODS = {
    "status": ("GET", "HEAD"),
    "session": ("GET", "HEAD"),
    "lang": ("GET", "HEAD"),
    "refresh": ("GET", "HEAD"),
    "leave": ("POST",),
    "beacon": ("POST",),
    "extend": ("POST",),
    "rejoin": ("POST",),
}
_REFRESHES = ("0", "30", "120")
_MOST_FIELDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What the gateway's own endpoints can tell; given by the process."""

    admin_token: str
    readiness: Callable[[], dict[str, str]]  # part → what is wrong; empty = ready
    stats: Callable[[], dict[str, Any]]


async def reserved(
    exchange: Exchange,
    rooms: Rooms,
    live: dict[RoomId, LiveRoom],
    operations: Operations,
) -> Answer:
    """Answer a request for a reserved path."""
    parts = exchange.path.decode("latin-1").split("/")[2:]
    match parts:
        case ["healthz"]:
            return _only(exchange, ("GET", "HEAD"), lambda: plain(200, "ok"))
        case ["readyz"]:
            return _only(exchange, ("GET", "HEAD"), lambda: _ready(exchange, operations))
        case ["stats"]:
            return _only(exchange, ("GET", "HEAD"), lambda: _stats(exchange, operations))
        case ["wr", room_id, action] if action in _ROOM_METHODS and RoomId(room_id) in live:
            allowed = _ROOM_METHODS[action]
            if exchange.method not in allowed:
                return _wrong_method(allowed)
            return await _room(exchange, rooms, live[RoomId(room_id)], action)
    return plain(404, "there is nothing here")


def _only(exchange: Exchange, allowed: tuple[str, ...], answer: Callable[[], Answer]) -> Answer:
    return answer() if exchange.method in allowed else _wrong_method(allowed)


def _wrong_method(allowed: tuple[str, ...]) -> Answer:
    return plain(405, "method not allowed", [(b"allow", ", ".join(allowed).encode())])


def _ready(exchange: Exchange, operations: Operations) -> Answer:
    wrong = operations.readiness()
    status = 503 if wrong else 200
    if wrong and is_admin(exchange, operations.admin_token):
        return json_answer(status, {"ready": False, "wrong": wrong}, retry_after_s=1)
    return json_answer(status, {"ready": not wrong}, retry_after_s=1)


def _stats(exchange: Exchange, operations: Operations) -> Answer:
    if not operations.admin_token:
        return plain(404, "there is nothing here")
    if not is_admin(exchange, operations.admin_token):
        return plain(401, "the admin token is wrong", [(b"www-authenticate", b"Bearer")])
    return json_answer(200, operations.stats())


def is_admin(exchange: Exchange, token: str) -> bool:
    """Whether the request carries the admin token; compared in constant time."""
    sent = exchange.found.get(b"authorization", b"")
    scheme, _, value = sent.partition(b" ")
    return bool(token) and hmac.compare_digest(
        value.strip() if scheme.lower() == b"bearer" else b"", token.encode()
    )


async def _room(exchange: Exchange, rooms: Rooms, live: LiveRoom, action: str) -> Answer:
    if exchange.method == "POST" and not is_own_page(exchange):
        return plain(403, "only this site's own pages may ask for this")
    try:
        fields = parse_qs(exchange.query.decode("latin-1"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return plain(400, f"more than {_MOST_FIELDS} parameters")
    target = _next(fields)
    if action == "lang":
        chosen = fields.get("to", [""])[0]
        return _prefer(exchange, rooms, "corvus_lang", chosen, rooms.pages.languages, target)
    if action == "refresh":
        chosen = fields.get("every", [""])[0]
        return _prefer(exchange, rooms, "corvus_refresh", chosen, _REFRESHES, target)
    if action == "rejoin":
        cookie = rooms.new_cookie(exchange, live.config, live.reset_ms)
        return redirect(exchange.base_url + target, [cookie], status=303)
    credential = read_cookie(exchange, live.config, rooms.keys).credential
    handle = _HANDLERS[action]
    try:
        if rooms.breaker.is_open:
            raise StoreUnreachable("the store is being left alone")
        return await handle(exchange, rooms, live, credential, fields)
    except StoreBusy:
        return status_answer(rooms.desk(exchange, live.config), "busy", None, [])
    except StoreUnreachable:
        if not rooms.breaker.is_open:
            rooms.breaker.trip()
        return status_answer(rooms.desk(exchange, live.config), "store_down", None, [])


def _prefer(
    exchange: Exchange,
    rooms: Rooms,
    name: str,
    chosen: str,
    allowed: tuple[str, ...],
    target: str,
) -> Answer:
    if chosen not in allowed:
        return plain(400, f"“{chosen[:20]}” is not allowed: {', '.join(allowed)}")
    cookie = preference_cookie(exchange, rooms.settings, name, chosen)
    return redirect(exchange.base_url + target, [cookie], status=303)


Fields = dict[str, list[str]]


def _next(fields: Fields) -> str:
    """Where the visitor goes on: a path of this host, in ASCII (RFC 3986 2.5)."""
    return quote(local_address(fields.get("next", ["/"])[0]), safe=string.printable)


async def _status(
    exchange: Exchange, rooms: Rooms, live: LiveRoom, credential: Credential | None, fields: Fields
) -> Answer:
    room = live.config
    if credential is None:
        return status_answer(rooms.desk(exchange, room), State.NONE, None, [])
    place = await rooms.store.poll(
        room.id,
        credential.sid,
        client=exchange.client.client_key,
        iat_ms=credential.iat_ms,
        ticket=credential.ticket,
        shown=_number(fields, "shown"),
    )
    rooms.clock.learn(place.now_ms)
    cookies: Headers = []
    if place.state is State.RESET:
        cookies = [rooms.new_cookie(exchange, room, place.reset_ms)]
    elif place.ticket and _wants_resealing(credential, place.now_ms, place.ticket):
        cookies = [rooms.place_cookie(exchange, room, credential, place)]
    since_ms = min(place.now_ms, credential.iat_ms + room.return_window_ms)
    return status_answer(rooms.desk(exchange, room, since_ms), place.state, place, cookies)


RESEAL_MS = 60_000
"""A waiting visitor's cookie is written anew this often: it then tells when the visitor was last
here, and a rotation of the signing key never catches up with it."""


def _wants_resealing(credential: Credential, now_ms: int, ticket: int) -> bool:
    if credential.kind is not Kind.QUEUED:
        return True
    return credential.ticket != ticket or now_ms - credential.iat_ms >= RESEAL_MS


async def _session(
    exchange: Exchange, rooms: Rooms, live: LiveRoom, credential: Credential | None, fields: Fields
) -> Answer:
    now = rooms.clock.now_ms()
    if (
        credential is None
        or credential.kind is Kind.QUEUED
        or credential.exp_ms <= now
        or live.revocations.covers(credential)
    ):
        return json_answer(200, {"state": "none", "expires_in": None, "server_time": now})
    left_s = (credential.exp_ms - now) // 1000
    return json_answer(200, {"state": "active", "expires_in": left_s, "server_time": now})


async def _leave(
    exchange: Exchange, rooms: Rooms, live: LiveRoom, credential: Credential | None, fields: Fields
) -> Answer:
    if credential is not None:
        await rooms.store.leave(live.id, credential.sid)
    desk = rooms.desk(exchange, live.config)
    cookies = [rooms.forget(exchange, live.config)]
    if not exchange.is_navigation:
        return json_answer(200, {"state": "left"}, extra=cookies)
    return page_answer(desk, _left_view(desk, fields), 200, cookies)


def _left_view(desk: Desk, fields: Fields) -> Any:
    target = _next(fields)
    return replace(blank_view(desk), state=PageState.LEFT, continue_url=target)


async def _beacon(
    exchange: Exchange, rooms: Rooms, live: LiveRoom, credential: Credential | None, fields: Fields
) -> Answer:
    if credential is not None:
        await rooms.store.beacon(live.id, credential.sid)
    return Answer(204, list(NO_STORE))


async def _extend(
    exchange: Exchange, rooms: Rooms, live: LiveRoom, credential: Credential | None, fields: Fields
) -> Answer:
    desk = rooms.desk(exchange, live.config)
    if credential is None:
        return status_answer(desk, State.NONE, None, [])
    place = await rooms.store.extend(live.id, credential.sid)
    if exchange.is_navigation:
        return redirect(exchange.base_url + _next(fields), status=303)
    return status_answer(desk, place.state, place, [])


_Handler = Callable[
    [Exchange, Rooms, LiveRoom, Credential | None, Fields],
    Awaitable[Answer],
]
_HANDLERS: dict[str, _Handler] = {
    "status": _status,
    "session": _session,
    "leave": _leave,
    "beacon": _beacon,
    "extend": _extend,
}


def _number(fields: Fields, name: str) -> int:
    text = fields.get(name, ["0"])[0]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
