"""Slots that running exchanges hold: kept alive in batches, given back once, cut when lost.

A *lease* is the slot of one request (unit `requests`, and forms in the lane). The origin must never
work on more of them than the room allows, so an exchange whose lease could not be renewed for 80 %
of its life is broken off before the store may give the slot to somebody else (design §4 rule 8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import structlog

from proxy.gateway.live import LiveRoom
from proxy.gateway.running import Run, Running
from queueing.config import RoomConfig, RoomId
from queueing.store import RoomStore, StoreBusy, StoreError

log = structlog.get_logger("corvus.gateway")

WATCH_S = 0.1
CUT_AFTER = 0.8
"""Part of a lease's life after which an exchange without a renewal is cut."""

RENEWALS = 3
"""In a lease's life, while the store answers."""


class LeaseLost(Exception):
    """The exchange was broken off because its slot could not be kept."""

    def __init__(self) -> None:
        super().__init__("the request's slot could not be kept")


class Leases:
    """The slots of this process's exchanges."""

    def __init__(self, store: RoomStore, running: Running) -> None:
        self._store = store
        self._running = running
        self._failing: set[RoomId] = set()

    def hold(self, run: Run, config: RoomConfig) -> None:
        """Keep the run's slot alive from now until `give_back`; the store has just given it."""
        now = time.monotonic()
        run.due_at = now + renewal_s(config, run)
        if run.is_lease:
            run.cut_at = now + CUT_AFTER * config.lease_ttl_ms / 1000
        self._running.begin(run)

    def give_back(self, run: Run) -> None:
        """Let go of the run's slot; a lease is free for others at once. Once is enough."""
        lease = run.let_go()
        if lease:
            self.free(run.room, lease)

    def free(self, room: RoomId, holder: str) -> None:
        """Free a slot, or strike a waiter for the lane off; nobody waits for it."""
        self._running.spawn(self._release(room, holder))

    def end(self, run: Run) -> None:
        """Know that the exchange has ended."""
        self.give_back(run)
        self._running.finished(run)

    async def _release(self, room: RoomId, holder: str) -> None:
        try:
            await self._store.release(room, holder)
        except StoreError as error:
            # It runs out by itself; nobody waits for it longer than a lease lasts.
            log.warning("slot not given back", room=room, error=str(error))

    async def renew(self, room: LiveRoom) -> None:
        """Keep alive what is due, in one batch, right after the room's tick; what fails is tried
        again at the next one.

        Raises:
            StoreUnreachable: the store is away; the next tick that reaches it does the work.
        """
        began = time.monotonic()
        due = [(run, run.holder) for run in self._running.holding(room.id) if run.due_at <= began]
        if not due:
            return
        try:
            ends = await self._store.heartbeat(room.id, [holder for _, holder in due])
        except StoreBusy as error:
            if room.id not in self._failing:
                self._failing.add(room.id)
                log.warning("slots not kept alive", room=room.id, error=str(error))
            return
        self._failing.discard(room.id)
        now_ms = room.tick.now_ms if room.tick else 0  # the store's own, whatever its clock does
        for (run, holder), end_ms in zip(due, ends, strict=True):
            if run.holder != holder:
                continue  # given back meanwhile
            if end_ms:
                self._renewed(run, room.config, began, (end_ms - now_ms) / 1000)
            elif run.is_lease:
                self._cut(run, room, "the room has given the slot away")
            else:
                run.due_at = began + renewal_s(room.config, run)
                run.end()

    def _renewed(self, run: Run, config: RoomConfig, began: float, left_s: float) -> None:
        run.due_at = began + renewal_s(config, run)
        if run.is_lease:  # the store may know a newer configuration, with a shorter life
            life_s = min(left_s, config.lease_ttl_ms / 1000)
            run.due_at = began + life_s / RENEWALS
            run.cut_at = began + CUT_AFTER * life_s

    async def watch(self, rooms: dict[RoomId, LiveRoom]) -> None:
        """Cut, for ever, what has not been renewed in time, however long the store takes."""
        while True:
            self.cut_overdue(rooms.values())
            await asyncio.sleep(WATCH_S)

    def cut_overdue(self, rooms: Iterable[LiveRoom]) -> None:
        """Cut the exchanges of these rooms whose lease counts as lost."""
        now = time.monotonic()
        for room in rooms:
            for run in list(self._running.holding(room.id)):
                if run.cut_at <= now:
                    self._cut(run, room, "no renewal in time")

    def _cut(self, run: Run, room: LiveRoom, why: str) -> None:
        room.counters["leases_cut"] += 1
        log.error("exchange cut: its slot is lost", room=room.id, reason=why)
        run.let_go()  # nothing to give back: whoever holds the slot now keeps it
        run.cut()


def renewal_s(config: RoomConfig, run: Run) -> float:
    """How often a running exchange keeps its slot: a lease three times in its life; a visitor's as
    a busy visitor does, and well within its life."""
    if run.is_lease:
        return config.lease_ttl_ms / RENEWALS / 1000
    return min(config.refresh_ms, config.active_ttl_ms / 3) / 1000
