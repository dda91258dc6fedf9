"""Rooms that count page requests: a slot is a lease, given back after delivery."""

from __future__ import annotations

import asyncio
import itertools

from queueing.config import RoomConfig, Unit
from tests.support.crowd import Visitor, together, until
from tests.support.gateways import Gateways
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
