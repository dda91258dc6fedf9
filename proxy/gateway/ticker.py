"""The gateway's heartbeat: room ticks, journals, outage trials, keeping slots of long exchanges.

One task a process. Slots, parking and promotion never wait for somebody's poll (rule 1); resets and
revocations reach this process within a second (rule 7); only this task tries a store that was away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from proxy.gateway.breaker import Breaker
from proxy.gateway.leases import Leases
from proxy.gateway.live import LiveRoom, StoreClock
from proxy.gateway.running import Running
from queueing.config import RoomId, VisitorId
from queueing.places import Tick
from queueing.store import Journal, RoomStore, StoreError, StoreUnreachable

log = structlog.get_logger("corvus.gateway")

PACE_S = 0.2
IDLE_PACE_S = 0.5
_MOST_ROUNDS = 50  # in a row without a pause, while the script says that work remains


class Ticker:
    """Drives the rooms of the configuration in force."""

    def __init__(
        self,
        store: RoomStore,
        breaker: Breaker,
        clock: StoreClock,
        running: Running,
        leases: Leases,
        is_published: Callable[[], bool],
    ) -> None:
        """`is_published`: the store holds a configuration: a room without one is new, not lost."""
        self._store = store
        self._breaker = breaker
        self._clock = clock
        self._running = running
        self._leases = leases
        self._is_published = is_published

    async def run(self, rooms: dict[RoomId, LiveRoom]) -> None:
        """Tick for ever; `rooms` is looked at anew each time."""
        while True:
            started = time.monotonic()
            try:
                await self.step(rooms.values())
            except StoreUnreachable as error:
                if not self._breaker.is_open:
                    log.warning("store unreachable", error=str(error))
                self._breaker.trip()
            except Exception:
                log.exception("tick failed")  # the rooms need the next one all the more
            await asyncio.sleep(max(0.02, PACE_S - (time.monotonic() - started)))

    async def step(self, rooms: Iterable[LiveRoom]) -> None:
        """Do what is due now for these rooms."""
        away = self._breaker.is_open
        if away and not self._breaker.may_try():
            return
        now = time.monotonic()
        due = [room for room in rooms if away or room.due_at <= now]
        driven = [self._drive(room) for room in due]
        outcomes = await asyncio.gather(*driven, return_exceptions=True)
        failures = [(r, o) for r, o in zip(due, outcomes, strict=True) if o is not None]
        for room, failure in failures:
            if not isinstance(failure, StoreError) or isinstance(failure, StoreUnreachable):
                raise failure
            # One room that the store cannot serve stops no other.
            room.due_at = now + IDLE_PACE_S
            log.error("store refused a tick", room=room.id, error=str(failure))
        if away and len(failures) < len(due):
            self._breaker.close()
            log.info("store answers again")

    async def _drive(self, room: LiveRoom) -> None:
        """Do one room's due work; rooms driven side by side share the round trips."""
        await self._adopt(room)
        for _ in range(_MOST_ROUNDS):
            tick = await self._store.tick(room.id)
            await self._apply(room, tick)
            if not tick.more_work:
                return

    async def _adopt(self, room: LiveRoom) -> None:
        """Count those in who were let in without the script, before anybody is promoted."""
        if not room.outage_entries:
            return
        if not (await self._store.stats(room.id)).config_version:
            await self._store.recover(room.config)  # it came back empty: nobody is promoted yet
        entrants = list(room.outage_entries)
        await self._store.adopt(room.id, entrants)
        for sid in entrants:
            del room.outage_entries[sid]
        log.warning("adopted after an outage", room=room.id, visitors=len(entrants))

    async def _apply(self, room: LiveRoom, tick: Tick) -> None:
        self._clock.learn(tick.now_ms)
        room.tick = tick
        room.note_use()
        room.reset_ms = max(room.reset_ms, tick.reset_ms)
        pace = PACE_S if room.has_people else IDLE_PACE_S
        room.due_at = time.monotonic() + pace - PACE_S / 2
        await self._configure(room, tick)
        if tick.journal != room.journal:
            await self._read_journal(room, tick)
        await self._leases.renew(room)

    async def _configure(self, room: LiveRoom, tick: Tick) -> None:
        """Bring the store up to the configuration in force, or back to it after a loss."""
        if tick.config_version >= room.config.version:
            room.configured = tick.config_version
        elif not tick.config_version and (room.configured or not self._is_published()):
            log.error("the store has lost the room", room=room.id)
            await self._store.recover(room.config)
        else:
            await self._store.configure(room.config)

    async def _read_journal(self, room: LiveRoom, tick: Tick) -> None:
        """Apply all entries up to the tick's, batch by batch, in their order."""
        first = room.journal < 0
        if first or tick.journal < room.journal:
            room.journal = 0  # or the store began anew
        while room.journal < tick.journal:
            journal = await self._store.journal(room.id, room.journal)
            if not journal.entries:
                room.journal = tick.journal
                break
            if journal.gap and not first:
                # What is lost may have been anybody's revocation: everybody asks the store once.
                room.reset_ms = max(room.reset_ms, journal.entries[0].at_ms)
            self._apply_journal(room, journal)
            first = False
        room.forget_old_revocations(self._clock.now_ms())

    def _apply_journal(self, room: LiveRoom, journal: Journal) -> None:
        for entry in journal.entries:
            if entry.sid:
                sid = VisitorId(entry.sid)
                room.revoked[sid] = max(entry.at_ms, room.revoked.get(sid, 0))
                self._running.close_streams(room.id, sid)
            else:
                room.reset_ms = max(room.reset_ms, entry.at_ms)
                self._running.close_streams(room.id, None)
            room.journal = max(room.journal, entry.number)
