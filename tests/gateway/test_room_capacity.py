"""Capacity and order over several gateway processes, with many visitors at once."""

from __future__ import annotations

import itertools
import signal
from dataclasses import replace

from tests.support.crowd import Reply, Visitor, together, until
from tests.support.gateways import Gateways, eventually


def crowd(world: Gateways, size: int) -> list[Visitor]:
    ports = itertools.cycle(g.port for g in world.gateways)
    return [Visitor(next(ports)) for _ in range(size)]


async def enter(visitor: Visitor) -> Reply:
    if not visitor.cookies:
        await visitor.get("/")
    return await visitor.get("/")


async def leave_all(visitors: list[Visitor]) -> None:
    await together(visitors, lambda v: v.close())


async def test_wr_01_the_last_slot_is_given_once(world: Gateways) -> None:
    room = world.room(capacity=10, entries_per_minute=0)
    world.publish(room)
    visitors = crowd(world, 1000)
    replies = await together(visitors, enter)
    await leave_all(visitors)
    assert [r.status for r in replies].count(200) == 10
    waiting = [r.json for r in replies if r.status == 429]
    assert {w["state"] for w in waiting} == {"waiting"}
    tickets = sorted(
        int(v.cookies[f"corvus_{room.id}"].split(".")[4].partition("~")[2] or 0) for v in visitors
    )
    assert tickets == [0] * 10 + list(range(1, 991))
    counts = world.stats()["rooms"][room.id]
    assert (counts["active"] or 0) <= 10


async def test_visitors_get_in_in_the_order_of_their_tickets(world: Gateways) -> None:
    room = world.room(capacity=1, entries_per_minute=0)
    world.publish(room)
    visitors = crowd(world, 12)
    for visitor in visitors:
        await enter(visitor)
    entered = []
    while len(entered) < len(visitors):
        for number, visitor in enumerate(visitors):
            if number not in entered and (await visitor.get("/")).status == 200:
                entered.append(number)
                await visitor.get(f"/__corvus/wr/{room.id}/leave", method="POST")
                break
    await leave_all(visitors)
    assert entered == sorted(entered)


async def test_wr_04_a_returning_pass_is_checked_when_its_slot_is_gone(world: Gateways) -> None:
    room = world.room(capacity=1, active_ttl_ms=2_000, refresh_ms=1_000, entries_per_minute=0)
    world.publish(room)
    first, second = crowd(world, 2)
    assert (await enter(first)).status == 200
    assert (await enter(second)).status == 429

    async def second_is_in() -> bool:
        return (await second.get("/")).status == 200

    await until(second_is_in)
    back = await first.get("/")
    assert back.status == 429
    assert back.json["state"] == "waiting"
    await leave_all([first, second])


async def test_wr_03_a_pass_never_outlives_its_slot(world: Gateways) -> None:
    room = world.room(capacity=1, active_ttl_ms=4_000, refresh_ms=2_000, entries_per_minute=0)
    world.publish(room)
    (visitor,) = crowd(world, 1)
    await enter(visitor)
    _, _, kind, _, sid, issued, expires, _ = visitor.cookies[f"corvus_{room.id}"].split(".")
    assert kind == "a"
    assert 0 < int(expires) - int(issued) <= 4_000
    slot = world.redis.zscore(f"corvus:wr:{{{room.id}}}:active", sid)
    assert slot is not None
    await leave_all([visitor])


async def test_wr_16_capacity_changes_live(world: Gateways) -> None:
    room = world.room(capacity=20, entries_per_minute=0)
    world.publish(room)
    visitors = crowd(world, 60)
    replies = await together(visitors, enter)
    inside = [v for v, r in zip(visitors, replies, strict=True) if r.status == 200]
    assert len(inside) == 20
    world.publish(replace(room, capacity=5))
    again = await together(inside, lambda v: v.get("/"))
    assert {r.status for r in again} == {200}, "nobody is expelled"
    waiting = [v for v in visitors if v not in inside]
    polls = await together(waiting, lambda v: v.get(f"/__corvus/wr/{room.id}/status"))
    assert {p.json["state"] for p in polls} == {"waiting"}
    world.publish(replace(room, capacity=40))

    async def granted() -> bool:
        polls = await together(waiting, lambda v: v.get(f"/__corvus/wr/{room.id}/status"))
        return [p.json["state"] for p in polls].count("granted") == 20

    await until(granted)
    await leave_all(visitors)


async def test_wr_02_a_killed_gateway_strands_no_slot(world: Gateways) -> None:
    room = world.room(capacity=5, active_ttl_ms=2_000, refresh_ms=1_000, entries_per_minute=0)
    world.publish(room)
    victim = world.start()
    world.publish(room)
    insiders = [Visitor(victim.port) for _ in range(5)]
    assert {r.status for r in await together(insiders, enter)} == {200}
    waiting = crowd(replace_gateways(world, victim), 5)
    assert {r.status for r in await together(waiting, enter)} == {429}
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait()
    world.gateways.remove(victim)
    await leave_all(insiders)

    async def all_in() -> bool:
        return {r.status for r in await together(waiting, lambda v: v.get("/"))} == {200}

    await until(all_in)
    await leave_all(waiting)


def replace_gateways(world: Gateways, without: object) -> Gateways:
    return replace(world, gateways=[g for g in world.gateways if g is not without])


def test_counts_are_told_to_operators(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    with world.one.browser() as first, world.one.browser() as second:
        first.get("/")
        second.get("/")
        eventually(lambda: world.stats()["rooms"][room.id]["waiting"] == 1)
        assert world.stats()["rooms"][room.id]["active"] == 1
