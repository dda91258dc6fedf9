"""The lane: a few slots beside the room's, for ranks; highest first, and never for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from queueing.config import RoomConfig, Unit
from tests.support.crowd import Reply, Visitor, together, until
from tests.support.gate_passes import admitted, held, rank
from tests.support.gateways import Gateways

BUSY: dict[str, Any] = {"capacity": 1, "priority_cap": 1, "entries_per_minute": 0}


async def counts(world: Gateways, room: RoomConfig) -> Any:
    return (await asyncio.to_thread(world.operator, room, "stats")).counts


def holds(world: Gateways, room: RoomConfig, **wanted: int) -> Callable[[], Awaitable[bool]]:
    """Ask whether the room holds so many of each."""

    async def ask() -> bool:
        found = await counts(world, room)
        return all(getattr(found, name) == number for name, number in wanted.items())

    return ask


async def visitors(world: Gateways, room: RoomConfig, count: int) -> list[Visitor]:
    """Give people who have been inside and hold no slot now (unit `requests`)."""
    found = []
    for number in range(count):
        found.append(await admitted(world, room, number % 2))
        await until(holds(world, room, active=0), what="the slot to be given back")
    return found


@asynccontextmanager
async def full(world: Gateways, room: RoomConfig, *people: Visitor) -> AsyncIterator[list[Any]]:
    """Let people fill the room, and the lane if they have a rank, with slow pages."""
    world.origin.hold.clear()
    pages = []
    for number, person in enumerate(people, 1):
        pages.append(asyncio.create_task(person.get("/slow")))
        await until(lambda n=number: is_inside(world, n), what="the page to be with the origin")
    try:
        yield pages
    finally:
        world.origin.hold.set()
        replies = await asyncio.gather(*pages)
        assert {reply.status for reply in replies} == {200}


async def is_inside(world: Gateways, count: int) -> bool:
    return await asyncio.to_thread(lambda: world.origin.inside) == count


async def bye(*people: Visitor) -> None:
    await together(people, lambda v: v.close())


async def test_wr_14_a_rank_skips_a_full_room_by_the_lane_and_no_lower_one_does(
    world: Gateways,
) -> None:
    room = world.room(unit=Unit.REQUESTS, **BUSY)
    world.publish(room)
    first, customer, prospect = people = await visitors(world, room, 3)
    rank(customer, room, "customer")
    rank(prospect, room, "prospect")
    async with full(world, room, first):
        assert (await customer.get("/buy")).status == 200
        waits = await prospect.get("/buy")
        assert (waits.status, waits.json["state"], waits.json["position"]) == (429, "waiting", 1)
        assert (await customer.get("/buy")).status == 200, "also past who waits"
        assert (await counts(world, room)).waiting == 1
    assert world.origin.most_inside == 2
    await bye(*people)


async def test_the_lane_rank_decides_and_seven_is_nobodys(world: Gateways) -> None:
    for lane_rank, name, status in ((2, "prospect", 200), (7, "staff", 429)):
        room = world.room(unit=Unit.REQUESTS, lane_rank=lane_rank, **BUSY)
        world.publish(room)
        first, ranked = people = await visitors(world, room, 2)
        rank(ranked, room, name)
        async with full(world, room, first):
            assert (await ranked.get("/buy")).status == status
        await bye(*people)


async def test_wr_14_the_highest_rank_first_over_both_processes(world: Gateways) -> None:
    room = world.room(unit=Unit.REQUESTS, priority_wait_ms=20_000, **BUSY)
    world.publish(room)
    people = await visitors(world, room, 6)
    first, holder, *ranked = people
    rank(holder, room, "customer")
    names = ("customer", "checkout", "staff", "checkout")
    world.origin.seen.clear()
    async with full(world, room, first, holder):
        waiting = []
        for number, (person, name) in enumerate(zip(ranked, names, strict=True), 1):
            rank(person, room, name)
            waiting.append(asyncio.create_task(person.get(f"/{number}-{name}")))
            await until(holds(world, room, lane_waiting=number), what="it to wait for the lane")
        assert not any(task.done() for task in waiting)
        assert world.origin.inside == 2, "capacity and lane, whatever the number of processes"
    replies = await asyncio.gather(*waiting)
    assert {reply.status for reply in replies} == {200}
    served = [s.target for s in world.origin.seen if s.target[1].isdigit()]
    assert served == ["/3-staff", "/2-checkout", "/4-checkout", "/1-customer"]
    assert world.origin.most_inside <= 2
    await bye(*people)


async def test_wr_14_who_gets_no_slot_of_the_lane_in_time_joins_the_line_in_arrival_order(
    world: Gateways,
) -> None:
    room = world.room(unit=Unit.REQUESTS, priority_wait_ms=300, **BUSY)
    world.publish(room)
    first, holder, early, staff = people = await visitors(world, room, 4)
    rank(holder, room, "customer")
    rank(staff, room, "staff")
    async with full(world, room, first, holder):
        assert (await early.get("/")).json["position"] == 1
        began = asyncio.get_running_loop().time()
        told = await staff.get("/")
        assert 0.25 < asyncio.get_running_loop().time() - began < 5
        assert (told.status, told.json["state"], told.json["position"]) == (429, "waiting", 2)
        sealed = held(staff, room)
        assert (sealed.kind, sealed.ticket > 0) == ("a", True), "the place stands beside the pass"
        found = await counts(world, room)
        assert (found.lane, found.lane_waiting, found.waiting) == (1, 0, 2)
    await bye(*people)


async def test_who_goes_away_while_waiting_for_the_lane_is_struck_off(world: Gateways) -> None:
    room = world.room(unit=Unit.REQUESTS, priority_wait_ms=20_000, **BUSY)
    world.publish(room)
    first, holder, leaver = people = await visitors(world, room, 3)
    for person in (holder, leaver):
        rank(person, room, "staff")
    async with full(world, room, first, holder):
        asked = asyncio.create_task(leaver.get("/page"))
        await until(holds(world, room, lane_waiting=1))
        await leaver.close()
        await until(holds(world, room, lane_waiting=0), 3.0, "it to be struck off")
        await asyncio.wait([asked])
        assert asked.exception() is not None
    await until(holds(world, room, lane=0, active=0), what="every slot to be free")
    assert "/page" not in [s.target for s in world.origin.seen]
    await bye(*people)


async def test_unit_visitors_a_rank_gets_a_session_in_the_lane(world: Gateways) -> None:
    room = world.room(**BUSY)
    world.publish(room)
    insider = await admitted(world, room)
    newcomer = Visitor(world.gateways[1].port)
    assert (await newcomer.get("/")).json["state"] == "none"
    rank(newcomer, room, "checkout")
    assert (await newcomer.get("/")).status == 200
    assert held(newcomer, room).kind == "a"
    assert (await newcomer.get("/next")).status == 200, "its pass opens the next page by itself"
    found = await counts(world, room)
    assert (found.active, found.lane) == (1, 1)
    second = Visitor(world.one.port)
    await second.get("/")
    assert (await second.get("/")).json["position"] == 1, "without a rank: the line"
    await bye(insider, newcomer, second)


async def test_below_the_lane_rank_people_wait_in_the_order_of_their_coming(
    world: Gateways,
) -> None:
    room = world.room(capacity=0, lane_rank=3)
    world.publish(room)
    people = [Visitor(world.gateways[n % 2].port) for n in range(3)]
    for position, (visitor, name) in enumerate(
        zip(people, ("guest", "member", "prospect"), strict=True), 1
    ):
        await visitor.get("/")
        if name != "guest":
            rank(visitor, room, name)
        assert (await visitor.get("/")).json["position"] == position
    assert [(await v.get("/")).json["position"] for v in people] == [1, 2, 3]
    await bye(*people)


async def test_a_blocked_path_is_blocked_at_every_rank(world: Gateways) -> None:
    room = world.room(capacity=5)
    world.publish(room, ban_paths=("/.env",))
    visitor = await admitted(world, room)
    rank(visitor, room, "staff")
    world.origin.seen.clear()
    assert (await visitor.get("/.env")).status == 403
    assert not world.origin.seen
    await bye(visitor)


async def test_the_lane_is_not_used_while_slots_are_free(world: Gateways) -> None:
    room = world.room(capacity=3, priority_cap=1)
    world.publish(room)
    visitor = Visitor(world.one.port)
    await visitor.get("/")
    rank(visitor, room, "staff")
    assert (await visitor.get("/")).status == 200
    found = await counts(world, room)
    assert (found.active, found.lane) == (1, 0)
    await bye(visitor)


@pytest.mark.parametrize("act", ["forged", "anothers", "expired"])
async def test_wr_14_only_the_visitors_own_living_grant_counts(world: Gateways, act: str) -> None:
    room = world.room(**BUSY)
    world.publish(room)
    insider = await admitted(world, room)
    thief = Visitor(world.one.port)
    await thief.get("/")
    name = f"corvus_rank_{room.id}"
    if act == "anothers":
        rank(insider, room, "staff")
        thief.cookies[name] = insider.cookies[name]
    else:
        rank(thief, room, "staff", life_ms=3_600_000 if act == "forged" else -1)
    if act == "forged":
        thief.cookies[name] = thief.cookies[name].replace(".6.", ".5.")
    told: Reply = await thief.get("/")
    assert (told.status, told.json["state"]) == (429, "waiting")
    counters = world.stats()["rooms"][room.id]["counters"]
    assert counters.get("forged", 0) == (1 if act == "forged" else 0)
    await bye(insider, thief)
