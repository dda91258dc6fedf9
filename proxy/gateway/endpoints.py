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

import structlog

from proxy.gateway.answers import NO_STORE, Answer, json_answer, plain, redirect
from proxy.gateway.cookies import preference_cookie
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.forgery import is_own_page
from proxy.gateway.gate import read_cookie
from proxy.gateway.helper_script import helper_answer
from proxy.gateway.live import LiveRoom
from proxy.gateway.payments import take_order, take_stripe_event
from proxy.gateway.plan import Site
from proxy.gateway.request_body import RequestBody
from proxy.gateway.revocation import take_revocation
from proxy.gateway.room_answers import (
    Desk,
    blank_view,
    page_answer,
    state_answer,
    status_answer,
)
from proxy.gateway.rooms import Rooms
from proxy.gateway.session_answers import session_document
from queueing.config import RoomId, Unit
from queueing.pages import PageState
from queueing.pages.view import local_address
from queueing.passes import Credential, Kind
from queueing.places import Session, State
from queueing.store import StoreError, StoreUnreachable

log = structlog.get_logger("corvus.gateway")

_ROOM_METHODS = {
    "status": ("GET", "HEAD"),
    "session": ("GET", "HEAD", "POST"),
    "lang": ("GET", "HEAD"),
    "refresh": ("GET", "HEAD"),
    "leave": ("POST",),
    "beacon": ("POST",),
    "extend": ("POST",),
    "rejoin": ("POST",),
}
_SERVERS_METHODS = ("promote", "stripe", "revoke")
"""What programs call, with a secret of theirs: POST only."""

_REFRESHES = ("0", "30", "120")
_MOST_FIELDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What the gateway's own endpoints can tell; given by the process."""

    admin_token: str
    readiness: Callable[[], dict[str, str]]  # part → what is wrong; empty = ready
    stats: Callable[[], dict[str, Any]]
    promote_secret: str = ""
    stripe_secret: str = ""


async def reserved(
    exchange: Exchange,
    site: Site | None,
    rooms: Rooms,
    live: dict[RoomId, LiveRoom],
    operations: Operations,
    body: RequestBody,
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
        case ["helper.js"]:
            encodings = body.header(b"accept-encoding")
            return _only(
                exchange,
                ("GET", "HEAD"),
                lambda: helper_answer(exchange, rooms.pages, encodings),
            )
        case ["wr", room_id, action] if action in _SERVERS_METHODS and RoomId(room_id) in live:
            if exchange.method != "POST":
                return _wrong_method(("POST",))
            return await _called(exchange, rooms, live[RoomId(room_id)], action, operations, body)
        case ["wr", room_id, action] if action in _ROOM_METHODS and RoomId(room_id) in live:
            allowed = _ROOM_METHODS[action]
            if exchange.method not in allowed:
                return _wrong_method(allowed)
            if exchange.method == "POST" and not _may_ask(exchange, site):
                return plain(403, "only this site's own pages may ask for this")
            return await _room(exchange, rooms, live[RoomId(room_id)], action)
    return _nothing()


def _nothing() -> Answer:
    return plain(404, "there is nothing here")


def _may_ask(exchange: Exchange, site: Site | None) -> bool:
    """Whether a request that changes something comes from a page that may ask for it: one of this
    host, or of an origin whose scripts the host allows (WR-50)."""
    if is_own_page(exchange):
        return True
    return site is not None and exchange.found.get(b"origin") in site.allowed_origins


async def _called(
    exchange: Exchange,
    rooms: Rooms,
    live: LiveRoom,
    action: str,
    operations: Operations,
    body: RequestBody,
) -> Answer:
    """Answer a program that proves itself by a secret; without one there is nothing here."""
    match action:
        case "promote" if secret := operations.promote_secret:
            return await take_order(body, rooms, live, secret)
        case "stripe" if secret := operations.stripe_secret:
            return await take_stripe_event(body, rooms, live, secret)
        case "revoke" if operations.admin_token:
            if not is_admin(exchange, operations.admin_token):
                return _unauthorised()
            return await take_revocation(body, rooms, live)
    return _nothing()


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
        return _nothing()
    if not is_admin(exchange, operations.admin_token):
        return _unauthorised()
    return json_answer(200, operations.stats())


def _unauthorised() -> Answer:
    return plain(401, "the admin token is wrong", [(b"www-authenticate", b"Bearer")])


def is_admin(exchange: Exchange, token: str) -> bool:
    """Whether the request carries the admin token; compared in constant time."""
    sent = exchange.found.get(b"authorization", b"")
    scheme, _, value = sent.partition(b" ")
    return bool(token) and hmac.compare_digest(
        value.strip() if scheme.lower() == b"bearer" else b"", token.encode()
    )


Fields = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class _Ask:
    """One request to a room's endpoint."""

    exchange: Exchange
    rooms: Rooms
    live: LiveRoom
    fields: Fields

    @property
    def credential(self) -> Credential | None:
        """What the visitor's cookie says."""
        return read_cookie(self.exchange, self.live.config, self.rooms.keys).credential

    @property
    def next(self) -> str:
        """Where the visitor goes on: a path of this host, in ASCII (RFC 3986 2.5)."""
        wanted = local_address(self.fields.get("next", ["/"])[0])
        return quote(wanted, safe=string.printable)

    def desk(self) -> Desk:
        """Lay out what the answer needs."""
        return self.rooms.desk(self.exchange, self.live.config)

    def go_on(self, cookies: Headers) -> Answer:
        """Lead back to what the visitor wanted."""
        return redirect(self.exchange.base_url + self.next, cookies, status=303)


async def _room(exchange: Exchange, rooms: Rooms, live: LiveRoom, action: str) -> Answer:
    try:
        fields = parse_qs(exchange.query.decode("latin-1"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return plain(400, f"more than {_MOST_FIELDS} parameters")
    ask = _Ask(exchange, rooms, live, fields)
    match action:
        case "lang":
            return _prefer(ask, "to", "corvus_lang", rooms.pages.languages)
        case "refresh":
            return _prefer(ask, "every", "corvus_refresh", _REFRESHES)
        case "rejoin":
            if "own" in ask.fields:
                return ask.go_on(rooms.another_cookie(exchange, live.config))
            return ask.go_on(rooms.new_cookie(exchange, live.config, live.reset_ms))
        case "session":
            return await _session(ask)
    if rooms.breaker.is_open:
        return _cannot(ask, action, PageState.STORE_DOWN)
    try:
        return await _STORE_CALLS[action](ask)
    except StoreUnreachable as error:
        rooms.breaker.trip()
        log.warning("store unreachable", room=live.id, error=str(error))
        return _cannot(ask, action, PageState.STORE_DOWN)
    except StoreError as error:
        log.warning("store busy", room=live.id, error=str(error))
        return _cannot(ask, action, PageState.BUSY)


def _cannot(ask: _Ask, action: str, state: PageState) -> Answer:
    """Answer without the store: a page to who pressed a button, else what a poll understands."""
    if action != "status" and ask.exchange.is_navigation:
        return state_answer(ask.desk(), state, [])
    return status_answer(ask.desk(), state, None, [])


def _prefer(ask: _Ask, field: str, cookie: str, allowed: tuple[str, ...]) -> Answer:
    chosen = ask.fields.get(field, [""])[0]
    if chosen not in allowed:
        return plain(400, f"“{chosen[:20]}” is not allowed: {', '.join(allowed)}")
    embed = ask.live.config.embed
    return ask.go_on(
        preference_cookie(ask.exchange, ask.rooms.settings, cookie, chosen, embed=embed)
    )


async def _session(ask: _Ask) -> Answer:
    """Tell how long the visitor may stay; a POST lengthens its absolute limit (WR-26)."""
    rooms, room, held = ask.rooms, ask.live.config, ask.credential
    now_ms = rooms.clock.now_ms()
    if (
        held is None
        or held.kind is Kind.QUEUED
        or held.exp_ms <= now_ms
        or ask.live.revocations.covers(held)
    ):
        return json_answer(
            200, session_document(room, now_ms=now_ms, expires_ms=None, session=None)
        )
    wanted = ask.exchange.method == "POST" and not room.essential_limit
    session = await _stay(ask, held, lengthen=wanted)
    expires_ms, cookies = held.exp_ms, NO_COOKIES
    if session is not None and wanted and session.expires_ms > held.exp_ms:
        expires_ms = session.expires_ms
        renewed = rooms.pass_until(ask.exchange, room, held.sid, session.now_ms, expires_ms)
        cookies = rooms.cookie(ask.exchange, room, renewed)
    document = session_document(room, now_ms=now_ms, expires_ms=expires_ms, session=session)
    return json_answer(200, document, extra=cookies)


NO_COOKIES: Headers = []


async def _stay(ask: _Ask, held: Credential, *, lengthen: bool) -> Session | None:
    """Ask the script of the visitor's absolute limit; None where there is none to be told."""
    rooms, room = ask.rooms, ask.live.config
    if not room.absolute_ttl_ms or room.unit is not Unit.VISITORS or rooms.breaker.is_open:
        return None
    call = rooms.store.prolong if lengthen else rooms.store.session
    try:
        return await call(room.id, held.sid)
    except StoreError as error:
        log.warning("session's limit not known", room=room.id, error=str(error))
        return None


async def _status(ask: _Ask) -> Answer:
    exchange, rooms, room, credential = ask.exchange, ask.rooms, ask.live.config, ask.credential
    if credential is None:
        return status_answer(ask.desk(), State.NONE, None, [])
    place = await rooms.store.poll(
        room.id,
        credential.sid,
        iat_ms=credential.iat_ms,
        ticket=credential.ticket,
        shown=_number(ask.fields, "shown"),
    )
    rooms.clock.learn(place.now_ms)
    cookies: Headers = []
    if place.state is State.RESET:
        cookies = rooms.new_cookie(exchange, room, place.reset_ms)
    elif place.ticket and _wants_resealing(credential, place.now_ms, place.ticket):
        cookies = rooms.place_cookie(exchange, room, credential, place)
    desk = rooms.desk_at(exchange, room, credential, place)
    return status_answer(desk, place.state, place, cookies)


RESEAL_MS = 60_000
"""A waiting visitor's cookie is written anew this often: it then tells when the visitor was last
here, and a rotation of the signing key never catches up with it."""


def _wants_resealing(credential: Credential, now_ms: int, ticket: int) -> bool:
    if credential.kind is not Kind.QUEUED:
        return credential.ticket != ticket or now_ms >= credential.exp_ms
    return credential.ticket != ticket or now_ms - credential.iat_ms >= RESEAL_MS


async def _leave(ask: _Ask) -> Answer:
    credential = ask.credential
    if credential is not None:
        await ask.rooms.store.leave(ask.live.id, credential.sid)
    cookies = ask.rooms.forget(ask.exchange, ask.live.config)
    if not ask.exchange.is_navigation:
        return json_answer(200, {"state": "left"}, extra=cookies)
    desk = ask.desk()
    view = replace(blank_view(desk), state=PageState.LEFT, continue_url=ask.next)
    return page_answer(desk, view, 200, cookies)


async def _beacon(ask: _Ask) -> Answer:
    credential = ask.credential
    if credential is not None:
        await ask.rooms.store.beacon(ask.live.id, credential.sid)
    return Answer(204, list(NO_STORE))


async def _extend(ask: _Ask) -> Answer:
    credential = ask.credential
    if credential is None:
        return status_answer(ask.desk(), State.NONE, None, [])
    place = await ask.rooms.store.extend(ask.live.id, credential.sid)
    if ask.exchange.is_navigation:
        return ask.go_on([])
    return status_answer(ask.desk(), place.state, place, [])


_STORE_CALLS: dict[str, Callable[[_Ask], Awaitable[Answer]]] = {
    "status": _status,
    "leave": _leave,
    "beacon": _beacon,
    "extend": _extend,
}


def _number(fields: Fields, name: str) -> int:
    text = fields.get(name, ["0"])[0]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
