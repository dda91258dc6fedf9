"""Rooms that count page requests: a slot is a lease, given back after delivery."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

from queueing.config import RoomConfig, Unit
from tests.support.crowd import Visitor, together, until
from tests.support.gateways import Gateway, Gateways
from tests.support.running import eventually


async def test_the_origin_never_works_on_more_pages_than_the_capacity(world: Gateways) -> None:
    room = world.room(capacity=3, unit=Unit.REQUESTS, entries_per_minute=0)
    world.publish(room)
    ports = itertools.cycle(g.port for g in world.gateways)
    visitors = [Visitor(next(ports)) for _ in range(40)]

    async def visit(visitor: Visitor) -> None:
        await visitor.get("/")

        async def is_in() -> bool:
            return (await visitor.get("/page")).status == 200

        await until(is_in, 40, "everybody is let in")

    await together(visitors, visit, width=40)
    await together(visitors, lambda v: v.close())
    assert 1 <= world.origin.most_inside <= 3
    eventually(lambda: world.operator(room, "stats").counts.active == 0, what="leases given back")


def test_a_visitor_holds_no_slot_between_two_pages(world: Gateways) -> None:
    room = world.room(capacity=1, unit=Unit.REQUESTS)
    world.publish(room)
    with world.one.browser() as first, world.one.browser() as second:
        assert first.get("/").text == "<h1>the shop</h1>"
        eventually(lambda: second.get("/").text == "<h1>the shop</h1>")
        eventually(lambda: first.get("/").text == "<h1>the shop</h1>")


async def test_a_pass_lets_no_second_page_past_a_full_room(world: Gateways) -> None:
    """The pass of a visitor who was let in a moment ago holds no slot: each page needs its own."""
    room = world.room(capacity=1, unit=Unit.REQUESTS)
    world.publish(room)
    visitor = Visitor(world.one.port)
    await visitor.get("/")
    assert (await visitor.get("/")).status == 200
    second = Visitor(world.gateways[1].port, cookies=visitor.cookies)
    await until(lambda: is_free(world, room), what="the lease to be given back")
    world.origin.hold.clear()
    slow = asyncio.create_task(visitor.get("/slow"))
    await until(lambda: is_free(world, room, taken=1), what="the page to be under way")
    refused = await second.get("/page")
    world.origin.hold.set()
    assert (refused.status, refused.json["state"]) == (429, "waiting")
    assert (await slow).status == 200
    await together([visitor, second], lambda v: v.close())


async def is_free(world: Gateways, room: RoomConfig, taken: int = 0) -> bool:
    stats = await asyncio.to_thread(world.operator, room, "stats")
    active: int = stats.counts.active
    return active == taken


def test_a_pass_is_written_anew_only_past_half_its_life(world: Gateways) -> None:
    """Else every page of an admitted visitor would lose its own caching rules (WR-41)."""
    room = world.room(capacity=5, unit=Unit.REQUESTS, admit_ttl_ms=30_000)
    world.publish(room)
    world.origin.answer_headers = [("cache-control", "public, max-age=600")]
    with world.one.browser() as visitor:
        assert "set-cookie" in visitor.get("/").headers
        later = visitor.get("/")
        assert "set-cookie" not in later.headers
        assert later.headers["cache-control"] == "public, max-age=600"
        world.publish(room, key_generation=2)
        assert "set-cookie" in visitor.get("/").headers, "signed by the previous key"
        assert "set-cookie" not in visitor.get("/").headers
        world.operator(room, "release_all")
        eventually(lambda: "set-cookie" in visitor.get("/").headers, 1.0, "the pass to be old")


async def slow_pages(world: Gateways, visitors: list[Visitor]) -> list[asyncio.Task[int]]:
    """Let visitors in who read a page that does not end before the origin is told to go on."""
    world.origin.hold.clear()

    async def read(visitor: Visitor) -> int:
        return (await visitor.get("/slow")).status

    pages = [asyncio.create_task(read(visitor)) for visitor in visitors]
    await until(lambda: _fact(world.origin.inside == len(visitors)), what="the pages to begin")
    return pages


async def _fact(is_so: bool) -> bool:
    await asyncio.sleep(0.01)
    return is_so


async def crowd(world: Gateways, count: int) -> list[Visitor]:
    """Make visitors who have their cookies, on both gateways in turn."""
    visitors = [Visitor(world.gateways[n % 2].port) for n in range(count)]
    for visitor in visitors:
        await visitor.get("/")
    return visitors


async def test_wr_16_a_lowered_capacity_lets_nobody_in_and_a_raised_one_in_ticket_order(
    world: Gateways,
) -> None:
    room = world.room(capacity=4, unit=Unit.REQUESTS, entries_per_minute=0)
    await asyncio.to_thread(world.publish, room)
    inside, waiting = await crowd(world, 4), await crowd(world, 6)
    pages = await slow_pages(world, inside)
    for visitor in waiting:
        assert (await visitor.get("/")).status == 429
    await asyncio.to_thread(world.publish, replace(room, capacity=1))
    assert not [page for page in pages if page.done()], "who is inside stays"
    world.origin.hold.set()
    assert await asyncio.gather(*pages) == [200] * 4
    await until(lambda: granted(world, room, 1), what="the one slot to be granted")
    assert world.origin.most_inside <= 4
    began = time.monotonic()
    raising = asyncio.create_task(
        asyncio.to_thread(world.publish, replace(room, capacity=4, version=2))
    )
    await until(lambda: granted(world, room, 4), what="the raised capacity to be granted")
    assert time.monotonic() - began < 3
    await raising
    states = [(await v.get(f"/__corvus/wr/{room.id}/status")).json["state"] for v in waiting]
    assert states == ["granted"] * 4 + ["waiting"] * 2
    await together([*inside, *waiting], lambda v: v.close())


async def granted(world: Gateways, room: RoomConfig, count: int) -> bool:
    stats = await asyncio.to_thread(world.operator, room, "stats")
    found: int = stats.counts.granted
    return found == count


async def test_who_does_not_come_for_a_turn_is_parked_and_not_lost(world: Gateways) -> None:
    room = world.room(capacity=1, unit=Unit.REQUESTS, grant_ttl_ms=6_000, entries_per_minute=0)
    await asyncio.to_thread(world.publish, room)
    first, silent, patient, late = await crowd(world, 4)
    pages = await slow_pages(world, [first])
    for visitor in (silent, patient, late):
        assert (await visitor.get("/")).status == 429
    ticket = (await silent.get("/")).json["position"]
    assert ticket == 1
    world.origin.hold.set()
    await asyncio.gather(*pages)
    await until(lambda: granted(world, room, 1), what="the silent one's turn")

    world.origin.hold.clear()

    async def is_in() -> bool:
        return (await patient.get("/slow")).status == 200

    page = asyncio.create_task(until(is_in, 20, "the next one's turn after the lapsed one"))
    await until(lambda: _fact(world.origin.inside == 1), what="the next one to be inside")
    stats = await asyncio.to_thread(world.operator, room, "stats")
    assert (stats.totals["lapsed"], stats.counts.parked) == (1, 1)
    back = (await silent.get("/")).json
    assert (back["state"], back["position"]) == ("waiting", 1), "ahead of who came later"
    assert (await late.get("/")).json["position"] == 2
    world.origin.hold.set()
    await page

    async def returned() -> bool:
        return (await silent.get("/")).status == 200

    await until(returned, what="the turn of who came back")
    await together([first, silent, patient, late], lambda v: v.close())


def test_wr_53_a_session_is_revoked_once_however_often_it_is_said(world: Gateways) -> None:
    room = world.room(capacity=5, unit=Unit.REQUESTS, entries_per_minute=0)
    world.publish(room)
    with world.one.api() as visitor:
        visitor.get("/")
        assert visitor.get("/").status_code == 200
        held = dict(visitor.cookies)
        world.origin.answer_headers = [("Corvus-Session", "revoke")]
        with world.one.api() as copy:
            copy.cookies.update(held)
            assert copy.get("/").status_code == 200
        world.origin.answer_headers = []
        for gateway in world.gateways:
            eventually(lambda g=gateway: is_dead(g, held), 1.0, "the pass to be dead")
    assert world.operator(room, "stats").totals["revoked"] == 1


def is_dead(gateway: Gateway, cookies: dict[str, str]) -> bool:
    """Whether a pass is written anew for these cookies, as for whoever has none that counts."""
    with gateway.api() as client:
        client.cookies.update(cookies)
        return "set-cookie" in client.get("/").headers
