"""Gateways that die around a call to the store: no slot is stranded, whatever they had begun."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from queueing.config import RoomConfig
from queueing.keys import room_key
from tests.support.crowd import Reply, Visitor, together, until
from tests.support.gateways import Gateway, Gateways
from tests.support.halting_relay import HaltingRelay, halting_relay

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
