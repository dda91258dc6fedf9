"""Capacity and order over several gateway processes, with many visitors at once."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from dataclasses import replace

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import Mode, RoomConfig
from queueing.keys import room_key
from tests.support.crowd import Reply, Visitor, together, until
from tests.support.gateways import Gateways
from tests.support.running import eventually


def crowd(world: Gateways, size: int) -> list[Visitor]:
    ports = itertools.cycle(g.port for g in world.gateways)
    return [Visitor(next(ports)) for _ in range(size)]


async def enter(visitor: Visitor) -> Reply:
    if not visitor.cookies:
        await visitor.get("/")
    return await visitor.get("/")


async def leave_all(visitors: list[Visitor]) -> None:
    await together(visitors, lambda v: v.close())


def events(world: Gateways, room: RoomConfig) -> list[dict[str, str]]:
    """Read the room's event log, oldest first."""
    with world.redis as store:
        return [
            {name.decode(): value.decode() for name, value in fields.items()}
            for _, fields in store.xrange(room_key(room.id, "events"))
        ]


async def test_wr_01_the_last_slot_is_given_once(world: Gateways) -> None:
    room = world.room(capacity=10, entries_per_minute=0)
    world.publish(room)
    visitors = crowd(world, 2_000)
    replies = await together(visitors, enter)
    await leave_all(visitors)
    assert [r.status for r in replies].count(200) == 10
    waiting = [r.json for r in replies if r.status == 429]
    assert {w["state"] for w in waiting} == {"waiting"}
    assert sorted(w["position"] for w in waiting) == list(range(1, 1_991))
    tickets = sorted(
        int(v.cookies[f"corvus_{room.id}"].split(".")[4].partition("~")[2] or 0) for v in visitors
    )
    assert tickets == [0] * 10 + list(range(1, 1_991))
    log = events(world, room)
    assert [e["kind"] for e in log].count("admitted") == 10
    assert max(int(e["active"]) + int(e["granted"]) for e in log) == 10


async def test_wr_13_no_second_holds_more_admissions_than_the_rate(world: Gateways) -> None:
    room = world.room(capacity=1_000, rate=30, entries_per_minute=0)
    world.publish(room)
    visitors = crowd(world, 120)
    await together(visitors, enter)

    async def all_admitted() -> bool:
        await together(visitors[::10], lambda v: v.get("/"))  # claims do not count again
        return world.operator(room, "stats").counts.waiting == 0

    await until(all_admitted)
    await leave_all(visitors)
    admissions = [
        int(e["at"])
        for e in events(world, room)
        if e["kind"] == "granted" or (e["kind"], e["reason"]) == ("admitted", "direct")
    ]
    assert len(admissions) == 120
    for first, beyond in zip(admissions, admissions[30:], strict=False):
        assert beyond - first >= 1_000


async def test_wr_60_off_lets_the_line_in_by_number_under_the_rate(world: Gateways) -> None:
    room = world.room(capacity=0, entries_per_minute=0)
    world.publish(room)
    visitors = crowd(world, 30)
    for visitor in visitors:
        await enter(visitor)
    world.publish(replace(room, mode=Mode.OFF, rate=10))
    late = crowd(world, 1)[0]
    reply = await enter(late)
    assert (reply.status, reply.json["position"] > 1) == (429, True), "nobody jumps the line"

    async def all_inside() -> bool:
        everybody = [*visitors, late]
        return {r.status for r in await together(everybody, lambda v: v.get("/"))} == {200}

    await until(all_inside)
    await leave_all([*visitors, late])
    granted = [e for e in events(world, room) if e["kind"] == "granted"]
    assert [int(e["ticket"]) for e in granted] == list(range(1, 32))
    times = [int(e["at"]) for e in granted]
    assert all(b - a >= 1_000 for a, b in zip(times, times[10:], strict=False))


async def test_wr_60_slots_are_kept_alive_while_paused(world: Gateways) -> None:
    room = world.room(
        capacity=2, active_ttl_ms=2_000, refresh_ms=1_000, mode=Mode.OPEN, entries_per_minute=0
    )
    world.publish(room)
    browsing, downloading, waiting = crowd(world, 3)
    for visitor in (browsing, downloading, waiting):
        await enter(visitor)
    world.publish(replace(room, mode=Mode.PAUSED))
    world.origin.hold.clear()
    download = asyncio.create_task(downloading.get("/slow"))
    begun = time.monotonic()
    while time.monotonic() < begun + 5:  # more than two lives of a slot
        assert (await browsing.get("/")).status == 200
        assert world.operator(room, "stats").counts.active == 2
    world.origin.hold.set()
    assert (await download).status == 200
    assert (await waiting.get("/")).json["state"] == "paused"
    await leave_all([browsing, downloading, waiting])


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
    world.publish(room, settings=GatewaySettings(access_log=False, debug_decisions=True))
    (visitor,) = crowd(world, 1)
    assert (await enter(visitor)).header("x-corvus-decision") == "slot"
    sid, expires = slot_of(visitor, room)
    room_time, store_time = map(
        int, world.redis.hget(room_key(room.id, "config"), "clock").split(b",")
    )
    ends = world.redis.zscore(room_key(room.id, "active"), sid)
    assert expires <= ends + store_time - room_time
    assert (await visitor.get("/")).header("x-corvus-decision") == "pass"

    async def has_ended() -> bool:
        return world.redis.zscore(room_key(room.id, "active"), sid) is None

    await until(has_ended)
    back = await visitor.get("/")
    assert (back.status, back.header("x-corvus-decision")) == (200, "slot"), "asked, not assumed"
    assert slot_of(visitor, room)[1] > expires
    await leave_all([visitor])


def slot_of(visitor: Visitor, room: RoomConfig) -> tuple[str, int]:
    """Read who a pass is for and when it ends."""
    _, _, kind, _, sid, _, expires, _ = visitor.cookies[f"corvus_{room.id}"].split(".")
    assert kind == "a"
    return sid, int(expires)


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
