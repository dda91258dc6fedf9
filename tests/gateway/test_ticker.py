"""The gateway's heartbeat on a real store: journals of any length, rooms that fail, outages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.gateway.breaker import Breaker
from proxy.gateway.leases import Leases
from proxy.gateway.live import LiveRoom, StoreClock
from proxy.gateway.running import Running
from proxy.gateway.ticker import Ticker
from queueing.config import RoomConfig, RoomId, Unit
from queueing.connection import Connection
from queueing.keys import room_key
from queueing.store import RoomStore, StoreUnreachable
from tests.support.crowd import until
from tests.support.fake_stores import free_port
from tests.support.stage import sid
from tests.support.valkey import Valkey


@dataclass
class Heart:
    """A ticker with what it touches."""

    store: RoomStore
    breaker: Breaker
    running: Running
    leases: Leases
    ticker: Ticker

    async def beat(self, *rooms: LiveRoom) -> None:
        """Drive these rooms now, due or not."""
        for live in rooms:
            live.due_at = 0.0
        await self.ticker.step(rooms)


@contextlib.asynccontextmanager
async def beating(url: str, folder: Path) -> AsyncIterator[Heart]:
    connection = Connection(url, timeout_s=10)
    store, breaker, running = RoomStore(connection), Breaker(folder), Running()
    clock = StoreClock()
    leases = Leases(store, running)
    ticker = Ticker(store, breaker, clock, running, leases, lambda: True)
    try:
        yield Heart(store, breaker, running, leases, ticker)
    finally:
        await connection.close()


def room(name: str, **values: object) -> LiveRoom:
    return LiveRoom(RoomConfig(id=RoomId(name), **values))  # type: ignore[arg-type]


async def revoke(heart: Heart, live: LiveRoom, numbers: range) -> None:
    await asyncio.gather(*(heart.store.release(live.id, sid(n), revoke=True) for n in numbers))


async def test_wr_53_no_revocation_is_skipped_however_many_there_were(
    valkey: Valkey, tmp_path: Path
) -> None:
    async with beating(valkey.url, tmp_path) as heart:
        known = room("long", unit=Unit.REQUESTS)
        await heart.beat(known)
        for start in (0, 1_000, 2_000):
            await revoke(heart, known, range(start, min(start + 1_000, 2_300)))
        await heart.beat(known)
        assert set(known.revoked) == {sid(n) for n in range(2_300)}
        started = room("long", unit=Unit.REQUESTS)  # a process that has read nothing yet
        await heart.beat(started)
        assert started.revoked == known.revoked
        assert started.journal == known.journal == 2_300


async def test_a_gap_in_the_journal_makes_every_older_pass_old(
    valkey: Valkey, tmp_path: Path
) -> None:
    async with beating(valkey.url, tmp_path) as heart:
        live = room("gap", unit=Unit.REQUESTS)
        await heart.beat(live)
        await revoke(heart, live, range(5))
        valkey.client.xtrim(room_key(live.id, "journal"), maxlen=2, approximate=False)
        await heart.beat(live)
        assert set(live.revoked) == {sid(3), sid(4)}
        assert live.reset_ms == live.revoked[sid(3)], "passes of before may have been revoked"


async def test_a_room_that_the_store_cannot_serve_stops_no_other(
    valkey: Valkey, tmp_path: Path
) -> None:
    async with beating(valkey.url, tmp_path) as heart:
        rooms = [room("broken"), room("sound", capacity=1)]
        await heart.beat(*rooms)
        valkey.client.set(room_key(rooms[0].id, "granted"), "of another kind")
        now = (await heart.store.stats(rooms[1].id)).now_ms
        for number in range(2):
            await heart.store.enter(rooms[1].id, sid(number), client="c", iat_ms=now)
        await heart.store.release(rooms[1].id, sid(0))
        heart.breaker.trip()
        heart.breaker.may_try()
        await trial(heart, rooms)
        assert not heart.breaker.is_open, "the store answers, whatever ails one room"
        assert rooms[1].tick is not None
        assert rooms[1].tick.counts.granted == 1


async def trial(heart: Heart, rooms: list[LiveRoom]) -> None:
    """Step until the pause after a failure is over."""
    async with asyncio.timeout(10):
        while heart.breaker.is_open:
            await heart.beat(*rooms)
            await asyncio.sleep(0.05)


async def test_a_store_that_is_away_stays_away(tmp_path: Path) -> None:
    async with beating(f"redis://127.0.0.1:{free_port()}", tmp_path) as heart:
        rooms = [room("one"), room("two")]
        with pytest.raises(StoreUnreachable):
            await heart.beat(*rooms)
        heart.breaker.trip()
        await heart.beat(*rooms)
        assert heart.breaker.is_open


async def test_wr_61_who_came_in_during_an_outage_is_counted_once_and_then_forgotten(
    valkey: Valkey, tmp_path: Path
) -> None:
    async with beating(valkey.url, tmp_path) as heart:
        live = room("open", capacity=2)
        await heart.beat(live)
        for number in (1, 2, 3, 1, 2):
            live.note_outage_entry(sid(number))
        await heart.beat(live)
        totals = (await heart.store.stats(live.id)).totals
        assert (totals["adopted"], totals["overshoot"]) == (3, 1)
        assert not live.outage_entries


async def test_an_error_that_nobody_foresaw_does_not_end_the_heartbeat(
    valkey: Valkey, tmp_path: Path
) -> None:
    class Odd(dict[RoomId, LiveRoom]):
        failures = 0

        def values(self) -> Any:
            if not self.failures:
                self.failures += 1
                raise ValueError("nobody foresaw this")
            return super().values()

    async with beating(valkey.url, tmp_path) as heart:
        live = room("odd")
        task = asyncio.create_task(heart.ticker.run(Odd({live.id: live})))

        async def has_ticked() -> bool:
            await asyncio.sleep(0.02)
            return live.tick is not None

        await until(has_ticked, what="the tick after the error")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
