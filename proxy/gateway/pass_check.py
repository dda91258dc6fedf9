"""Whether a visitor's pass opens assets and streams, which hold no slot of their own (rule 6).

Most of them cost no store call: a pass in the first half of its life is believed. Later it is
renewed here (unit `requests`), or by one check-in of the visitor's slot (unit `visitors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from proxy.gateway.breaker import Breaker
from proxy.gateway.cookie_lines import CookieLines
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.gate import read_cookie, was_valid
from proxy.gateway.live import LiveRoom
from proxy.gateway.outages import outage_since_ms
from proxy.gateway.papers import Papers
from proxy.gateway.plan import Site
from queueing.config import RoomId, Unit
from queueing.passes import Credential, Kind, Verdict
from queueing.store import RoomStore, StoreError, StoreUnreachable

log = structlog.get_logger("corvus.gateway")


@dataclass(frozen=True, slots=True)
class Shown:
    """A pass that is good now."""

    live: LiveRoom  # whose pass it is
    credential: Credential
    headers: Headers | None = None  # it was renewed


@dataclass(frozen=True, slots=True)
class _Known:
    shown: Shown
    until_ms: int  # store time: then it is judged anew


class PassCheck:
    """Judges passes for what lies beside the page slots; one for each configuration in force."""

    def __init__(self, papers: Papers, store: RoomStore, breaker: Breaker) -> None:
        self._papers = papers
        self._store = store
        self._breaker = breaker
        self._known: CookieLines[_Known] = CookieLines()
        self._renewing: set[bytes] = set()
        self._rooms: dict[tuple[int, RoomId | None], tuple[RoomId, ...]] = {}

    def rooms(
        self, site: Site, governing: RoomId | None, live: Mapping[RoomId, LiveRoom]
    ) -> tuple[RoomId, ...]:
        """Name the rooms whose pass is good for a path: the governing one and those that it shares
        with, then the other rooms of the host; none where the host has no room."""
        key = (site.host.id, governing)
        found = self._rooms.get(key)
        if found is None:
            order: dict[RoomId, None] = {}
            for room in (governing, *(rule.room for rule in site.host.rooms)):
                if room is not None and room in live:
                    order[room] = None
                    order |= dict.fromkeys(r for r in live[room].config.shares if r in live)
            found = self._rooms[key] = tuple(order)
        return found

    async def find(self, exchange: Exchange, rooms: Sequence[LiveRoom]) -> Shown | None:
        """Give the first good pass for one of these rooms; None = there is none."""
        line = exchange.found.get(b"cookie")
        if line is None:
            return None
        known = self._known.get(line)
        if known is not None and self._holds(known, rooms):
            return known.shown
        for live in rooms:
            shown = await self._judge(exchange, line, live)
            if shown is not None:
                return shown
        return None

    def _holds(self, known: _Known, rooms: Sequence[LiveRoom]) -> bool:
        shown = known.shown
        return (
            self._papers.clock.now_ms() < known.until_ms
            and shown.live in rooms
            and not shown.live.revocations.covers(shown.credential)
            and not self._breaker.is_open
        )

    async def _judge(self, exchange: Exchange, line: bytes, live: LiveRoom) -> Shown | None:
        papers, room = self._papers, live.config
        reading = read_cookie(exchange, room, papers.keys)
        if reading.verdict is Verdict.FORGED:
            live.counters["forged"] += 1
        held = reading.credential
        if held is None or held.kind is Kind.QUEUED or live.revocations.covers(held):
            return None
        network = papers.network(exchange, room)
        if room.share_guard and held.network != network:
            return None  # only a page may say that the visitor has moved (WR-35)
        since_ms = outage_since_ms(self._breaker, papers.clock)
        if since_ms is not None:
            valid = was_valid(held, since_ms, network=network, revoked=live.revocations)
            return Shown(live, held) if valid else None
        now_ms = papers.clock.now_ms()
        in_first_half = 2 * now_ms < held.iat_ms + held.exp_ms
        # Before the journal has been read, any pass may be a revoked one: a slot tells.
        is_read = live.journal >= 0 or room.unit is Unit.REQUESTS
        if in_first_half and held.network == network and is_read:
            return self._remember(line, Shown(live, held), (held.iat_ms + held.exp_ms) // 2)
        if room.unit is Unit.REQUESTS:
            return self._signed_anew(exchange, line, live, held)
        if (
            now_ms < held.exp_ms
            and is_read
            and (line in self._renewing or held.kind is Kind.OUTAGE)
        ):
            return Shown(live, held)
        self._renewing.add(line)
        try:
            return await self._checked_in(exchange, line, live, held)
        finally:
            self._renewing.discard(line)

    def _signed_anew(
        self, exchange: Exchange, line: bytes, live: LiveRoom, held: Credential
    ) -> Shown | None:
        """Renew a living pass that holds no slot."""
        papers, room = self._papers, live.config
        now_ms = papers.clock.now_ms()
        if now_ms >= held.exp_ms:
            return None
        iat_ms = min(now_ms, live.known_until_ms)
        if iat_ms <= held.iat_ms:
            return Shown(live, held)  # not now: a revocation may be on its way
        exp_ms = now_ms + room.admit_ttl_ms
        renewed = papers.pass_until(exchange, room, held.sid, iat_ms, exp_ms)
        # Without the ticket of who waits: the answer may come after that of the page that was let
        # in, and an old number would be taken for a missed place. The next poll seals it again.
        return self._renewed(exchange, line, live, renewed)

    async def _checked_in(
        self, exchange: Exchange, line: bytes, live: LiveRoom, held: Credential
    ) -> Shown | None:
        """Renew a pass whose visitor still holds the slot, also one that has expired."""
        papers, room = self._papers, live.config
        iat_ms = papers.clock.now_ms()  # before the call: what is revoked later makes it old
        try:
            (end_ms,) = await self._store.heartbeat(room.id, [held.sid])
        except StoreError as error:
            if isinstance(error, StoreUnreachable):
                self._breaker.trip()
            log.warning("pass not renewed", room=room.id, error=str(error))
            return Shown(live, held) if iat_ms < held.exp_ms else None
        if not end_ms or end_ms <= iat_ms:
            return None
        renewed = papers.pass_until(exchange, room, held.sid, iat_ms, end_ms)
        return self._renewed(exchange, line, live, renewed)

    def _renewed(
        self, exchange: Exchange, line: bytes, live: LiveRoom, renewed: Credential
    ) -> Shown:
        """Hand the new pass out once; the rest of a page's assets still come with the old one."""
        room = live.config
        until_ms = min(renewed.iat_ms + room.refresh_ms, renewed.exp_ms)
        self._remember(line, Shown(live, renewed), until_ms)
        return Shown(live, renewed, self._papers.cookie(exchange, room, renewed))

    def _remember(self, line: bytes, shown: Shown, until_ms: int) -> Shown:
        self._known.keep(line, _Known(shown, until_ms), shown.credential)
        return shown
