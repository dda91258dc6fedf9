"""Gateways that die around a call to the store: no slot is stranded, whatever they had begun."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from queueing.config import RoomConfig, Unit
from queueing.keys import room_key
from tests.support.crowd import Reply, Visitor, together, until
from tests.support.gateways import Gateway, Gateways
from tests.support.halting_relay import HaltingRelay, halting_relay
from tests.support.raw_origin import OriginConnection, RawOrigin

CAPACITY = 3


@pytest.fixture
async def relay(world: Gateways) -> AsyncIterator[HaltingRelay]:
    async with halting_relay(world.store_url) as running:
        yield running


async def start_victim(world: Gateways, relay: HaltingRelay) -> Gateway:
    """Start a gateway that reaches the store through the relay, while the relay carries."""
    return await asyncio.to_thread(world.start, {"CORVUS_STORE_URL": relay.url})


async def enter(visitor: Visitor) -> Reply:
    if not visitor.cookies:
        await visitor.get("/")
    return await visitor.get("/")


Act = Callable[[Gateways, RoomConfig, int], Awaitable[tuple[Visitor, str, str]]]
"""Prepares a visitor at a port and gives it with the target and method that make the call."""


async def entering(world: Gateways, room: RoomConfig, port: int) -> tuple[Visitor, str, str]:
    visitor = Visitor(port)
    await visitor.get("/")
    return visitor, "/", "GET"


async def polling(world: Gateways, room: RoomConfig, port: int) -> tuple[Visitor, str, str]:
    insiders = [Visitor(world.one.port) for _ in range(CAPACITY)]
    assert {r.status for r in await together(insiders, enter)} == {200}
    await together(insiders, lambda v: v.close())
    visitor = Visitor(port)
    assert (await enter(visitor)).json["state"] == "waiting"
    return visitor, f"/__corvus/wr/{room.id}/status", "GET"


async def beating(world: Gateways, room: RoomConfig, port: int) -> tuple[Visitor, str, str]:
    visitor = Visitor(port)
    assert (await enter(visitor)).status == 200
    world.origin.hold.clear()  # what runs long keeps its slot by heartbeats
    return visitor, "/slow", "GET"


async def releasing(world: Gateways, room: RoomConfig, port: int) -> tuple[Visitor, str, str]:
    visitor = Visitor(port)
    assert (await enter(visitor)).status == 200
    world.origin.answer_headers = [("Corvus-Session", "revoke")]
    return visitor, "/sign-out", "GET"


@pytest.mark.parametrize("before", [True, False], ids=["before", "during"])
@pytest.mark.parametrize(
    ("operation", "prepare"),
    [("enter", entering), ("poll", polling), ("heartbeat", beating), ("release", releasing)],
    ids=["enter", "poll", "heartbeat", "release"],
)
async def test_wr_02_a_gateway_killed_around_a_call_strands_no_slot(
    world: Gateways, relay: HaltingRelay, operation: str, prepare: Act, before: bool
) -> None:
    room = world.room(
        capacity=CAPACITY,
        active_ttl_ms=2_000,
        refresh_ms=1_000,
        grant_ttl_ms=6_000,  # the visitor who polled is granted a slot and never comes for it
        entries_per_minute=0,
    )
    victim = await start_victim(world, relay)
    await asyncio.to_thread(world.publish, room)
    try:
        visitor, target, method = await prepare(world, room, victim.port)
        relay.halt_at(operation, before=before)
        asking = asyncio.create_task(visitor.get(target, method))
        await asyncio.wait_for(relay.halted.wait(), 15)
    finally:
        victim.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(victim.process.wait)
        world.gateways.remove(victim)
        world.origin.clear()
    await asyncio.gather(asking, return_exceptions=True)
    await visitor.close()

    others = [Visitor(world.gateways[n % 2].port) for n in range(CAPACITY)]
    await together(others, enter)

    async def all_in() -> bool:
        return {r.status for r in await together(others, lambda v: v.get("/"))} == {200}

    await until(all_in, what="every slot is given again")
    check_books(world, room)
    await together(others, lambda v: v.close())


def check_books(world: Gateways, room: RoomConfig) -> None:
    """No number differs from the set that it counts (I1, I3 and I4 of the script)."""
    with world.redis as store, store.pipeline() as pipeline:
        for part in ("active", "granted", "queue", "seen", "parked"):
            pipeline.zrange(room_key(room.id, part), 0, -1)
        for part in ("visitor", "inside"):
            pipeline.hkeys(room_key(room.id, part))
        pipeline.hgetall(room_key(room.id, "counters"))
        active, granted, queue, seen, parked, visitor, inside, counters = pipeline.execute()
    assert len(active) + len(granted) <= CAPACITY
    assert set(seen) == set(queue)
    assert set(inside) == set(active)
    assert sorted(visitor) == sorted([*queue, *parked, *granted])
    left = sum(int(counters.get(n, 0)) for n in (b"admitted", b"left", b"missed", b"removed"))
    assert int(counters[b"joined"]) == left + len(visitor)


class SlowPages:
    """An origin whose pages take a moment; counts those that it works on at once.

    A page whose gateway has died is worked on to its end, as origins do.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.most_inside = 0
        self.held = asyncio.Event()
        self.held.set()

    async def __call__(self, connection: OriginConnection) -> None:
        while True:
            await connection.head()
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
            try:
                await asyncio.sleep(0.1)
                await self.held.wait()
            finally:
                self.inside -= 1
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def ask(visitor: Visitor, ports: list[int], target: str = "/") -> int:
    """Ask at the visitor's gateway; when that has died, at the next one from then on."""
    try:
        return (await asyncio.wait_for(visitor.get(target), 10)).status
    except (OSError, EOFError):
        await visitor.close()
        visitor.port = ports[(ports.index(visitor.port) + 1) % len(ports)]
        return 0


@contextlib.asynccontextmanager
async def pages_before(
    world: Gateways, more: int, **values: object
) -> AsyncIterator[tuple[SlowPages, RoomConfig, list[Gateway]]]:
    """Put the world's gateways and `more` others before slow pages of a room that counts requests;
    the others are given, and may be killed."""
    pages = SlowPages()
    room = world.room(
        capacity=CAPACITY, unit=Unit.REQUESTS, lease_ttl_ms=2_000, entries_per_minute=0, **values
    )
    async with RawOrigin(pages) as origin:
        others = [await asyncio.to_thread(world.start) for _ in range(more)]
        try:
            url = f"http://127.0.0.1:{origin.port}"
            await asyncio.to_thread(world.publish, room, origin=url)
            yield pages, room, others
        finally:
            pages.held.set()
            for gateway in others:
                gateway.process.kill()
                await asyncio.to_thread(gateway.process.wait)
                world.gateways.remove(gateway)


async def test_wr_02_whatever_gateway_is_killed_the_origin_never_gets_too_many_pages(
    world: Gateways,
) -> None:
    async with pages_before(world, 2) as (pages, room, mortal):
        ports = [g.port for g in world.gateways]
        visitors = [Visitor(ports[n % len(ports)]) for n in range(24)]
        served: Counter[int] = Counter()
        enough = asyncio.Event()

        async def browse(visitor: Visitor) -> None:
            while not enough.is_set():
                served[await ask(visitor, ports)] += 1

        browsing = [asyncio.create_task(browse(visitor)) for visitor in visitors]
        for gateway in mortal:
            since = served[200]

            async def more_served(since: int = since) -> bool:
                await asyncio.sleep(0.02)
                return served[200] >= since + 12

            await until(more_served, what="pages to be served")
            gateway.process.send_signal(signal.SIGKILL)
        since = served[200]
        await until(more_served, what="pages to be served after both have died")
        enough.set()
        await asyncio.gather(*browsing)
        await together(visitors, lambda v: v.close())
        assert 1 <= pages.most_inside <= CAPACITY

        async def nobody_inside() -> bool:
            stats = await asyncio.to_thread(world.operator, room, "stats")
            return bool(stats.counts.active == 0)

        await until(nobody_inside, what="every lease to be given back or to run out")
        check_books(world, room)


async def test_wr_02_the_capacity_is_whole_again_when_the_leases_of_the_dead_have_run_out(
    world: Gateways,
) -> None:
    async with pages_before(world, 1, return_window_ms=600_000) as (pages, _, mortal):
        ports = [g.port for g in world.gateways]
        doomed = [Visitor(mortal[0].port) for _ in range(CAPACITY)]
        await together(doomed, lambda v: v.get("/"))
        pages.held.clear()
        asking = [asyncio.create_task(ask(v, ports)) for v in doomed]

        async def all_inside() -> bool:
            await asyncio.sleep(0.02)
            return pages.inside == CAPACITY

        await until(all_inside, what="the room to be full")
        mortal[0].process.send_signal(signal.SIGKILL)
        died_at = time.monotonic()
        assert await asyncio.gather(*asking) == [0] * CAPACITY
        pages.held.set()
        others = [Visitor(world.gateways[n % 2].port) for n in range(CAPACITY)]
        await together(others, lambda v: v.get("/"))
        assert {(await v.get("/")).status for v in others} == {429}, "the leases still stand"

        async def is_in(visitor: Visitor) -> bool:
            return (await visitor.get("/")).status == 200

        async def all_in() -> bool:
            return all(await together(others, is_in))

        await until(all_in, what="every slot to be free")
        assert time.monotonic() - died_at < 5
        assert pages.most_inside <= CAPACITY
        await together([*others, *doomed], lambda v: v.close())


@pytest.mark.parametrize("in_time", [True, False], ids=["page ends in time", "page is cut"])
async def test_wr_74_a_gateway_that_is_stopped_leaves_no_slot_taken(
    world: Gateways, in_time: bool
) -> None:
    room = world.room(
        capacity=CAPACITY, unit=Unit.REQUESTS, lease_ttl_ms=60_000, entries_per_minute=0
    )
    pages = SlowPages()
    async with RawOrigin(pages) as origin:
        drain = {"CORVUS_DRAIN": "10" if in_time else "0.3"}
        leaving = await asyncio.to_thread(world.start, drain)
        try:
            url = f"http://127.0.0.1:{origin.port}"
            await asyncio.to_thread(world.publish, room, origin=url)
            visitor = Visitor(leaving.port)
            await visitor.get("/")
            pages.held.clear()
            asking = asyncio.create_task(ask(visitor, [leaving.port]))
            await until(lambda: _after(pages.inside == 1), what="the page to be under way")
            leaving.process.send_signal(signal.SIGTERM)
            if in_time:
                await until(lambda: _after(_refuses(leaving)), what="the gateway to be leaving")
                pages.held.set()
            assert await asking == (200 if in_time else 0)
        finally:
            code = await asyncio.to_thread(leaving.process.wait, 20)
            pages.held.set()
            world.gateways.remove(leaving)
            await visitor.close()
    assert code == 0
    assert world.operator(room, "stats").counts.active == 0


async def _after(fact: bool) -> bool:
    await asyncio.sleep(0.02)
    return fact


def _refuses(gateway: Gateway) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", gateway.port)) != 0
