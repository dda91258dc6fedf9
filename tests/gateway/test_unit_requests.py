"""Rooms that count page requests: a slot is a lease, given back after delivery."""

from __future__ import annotations

import itertools

from queueing.config import Unit
from tests.support.crowd import Visitor, together
from tests.support.gateways import Gateways, eventually


async def test_the_origin_never_works_on_more_pages_than_the_capacity(world: Gateways) -> None:
    room = world.room(capacity=3, unit=Unit.REQUESTS, entries_per_minute=0)
    world.publish(room)
    ports = itertools.cycle(g.port for g in world.gateways)
    visitors = [Visitor(next(ports)) for _ in range(40)]

    async def visit(visitor: Visitor) -> int:
        await visitor.get("/")
        for attempt in range(200):
            if (await visitor.get("/page")).status == 200:
                return attempt
        raise AssertionError("never let in")

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
