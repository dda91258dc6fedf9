"""Forms: sent once or said not to be sent, never queued, never turned into a GET (WR-27, WR-45)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from queueing.config import Mode, RoomConfig, Unit
from queueing.passes import Credential
from tests.support.crowd import Reply, Visitor, together, until
from tests.support.gate_passes import KEYS, admitted, age, held, rank
from tests.support.gateways import BROWSER, Gateways
from tests.support.raw_client import RawClient

BUSY: dict[str, Any] = {"capacity": 1, "priority_cap": 1, "priority_wait_ms": 200}
DAY_MS = 24 * 3_600_000


async def counts(world: Gateways, room: RoomConfig) -> Any:
    return (await asyncio.to_thread(world.operator, room, "stats")).counts


async def is_inside(world: Gateways, count: int) -> bool:
    return await asyncio.to_thread(lambda: world.origin.inside) == count


def forms(world: Gateways) -> list[tuple[str, str, bytes]]:
    return [(s.method, s.target, s.body) for s in world.origin.seen if s.method == "POST"]


async def bye(*people: Visitor) -> None:
    await together(people, lambda v: v.close())


async def idle(world: Gateways, room: RoomConfig, visitor: Visitor, by_ms: int) -> Credential:
    """Let a visitor (unit `visitors`) have been idle for so long: slot and pass are over."""
    sid = held(visitor, room).sid
    with world.redis as store:
        store.zrem(f"corvus:wr:{{{room.id}}}:active", sid)
        store.hdel(f"corvus:wr:{{{room.id}}}:inside", sid)
    return age(visitor, room, by_ms)


async def test_wr_27_an_idle_visitors_payment_goes_through_by_the_lane(world: Gateways) -> None:
    room = world.room(**BUSY)
    world.publish(room)
    buyer = await admitted(world, room)
    rank(buyer, room, "checkout")
    await idle(world, room, buyer, 6 * 60_000)
    other = await admitted(world, room, 1)
    paid = await buyer.get("/pay", "POST", b"card=4111&amount=100")
    assert paid.status == 200
    assert forms(world) == [("POST", "/pay", b"card=4111&amount=100")], "intact, and once"
    found = await counts(world, room)
    assert (found.active, found.lane) == (1, 1)
    await bye(buyer, other)


async def test_wr_27_without_a_rank_too_and_the_lanes_slot_is_given_back(world: Gateways) -> None:
    room = world.room(**BUSY)
    world.publish(room)
    buyer = await admitted(world, room)
    was = await idle(world, room, buyer, 6 * 60_000)
    other = await admitted(world, room, 1)
    assert (await buyer.get("/pay", "POST", b"seat=7")).status == 200
    assert forms(world) == [("POST", "/pay", b"seat=7")]
    assert held(buyer, room) == was, "a form makes nobody an insider again"
    assert (await buyer.get("/next")).json["state"] == "waiting"

    async def is_free() -> bool:
        found = await counts(world, room)
        return (found.active, found.lane) == (1, 0)

    await until(is_free, what="the form's slot to be given back")
    await bye(buyer, other)


@pytest.mark.parametrize("name", ["", "staff"])
@pytest.mark.parametrize("unit", Unit)
async def test_wr_27_a_full_lane_means_503_and_the_body_is_not_taken(
    world: Gateways, unit: Unit, name: str
) -> None:
    room = world.room(unit=unit, **BUSY)
    world.publish(room)
    people = [await admitted(world, room)]
    for number in (1, 0):
        if unit is Unit.VISITORS:
            await idle(world, room, people[-1], 6 * 60_000)
        people.append(await admitted(world, room, number))
    buyer, holder, insider = people
    if unit is Unit.REQUESTS:
        assert name in ("", "staff")
    world.origin.hold.clear()
    inside = asyncio.create_task(insider.get("/slow"))
    await until(lambda: is_inside(world, 1), what="the room to be full")
    lane = asyncio.create_task(holder.get("/slow", "POST", b"x=1"))
    await until(lambda: is_inside(world, 2), what="the lane to be full")
    if name:
        rank(buyer, room, name)
    before = (await counts(world, room)).latest_ticket
    jar = "; ".join(f"{k}={v}" for k, v in buyer.cookies.items())
    lines = [f"cookie: {jar}", "content-type: text/plain", "content-length: 1000000"]
    api = await asyncio.to_thread(post_head, world, [*lines, "accept: application/json"])
    assert api.status == 503
    assert int(dict(api.headers)[b"retry-after"]) >= 5
    assert b'"error":"busy"' in api.body
    assert b'"submitted":false' in api.body
    assert b'"retry_after_seconds":5' in api.body
    assert b'"queued":false' in api.body
    page = await asyncio.to_thread(
        post_head, world, [*lines, *(f"{k}: {v}" for k, v in BROWSER.items())]
    )
    assert page.status == 503
    assert b"Location" not in page.head
    assert b"text/html" in dict(page.headers)[b"content-type"]
    assert int(dict(page.headers)[b"retry-after"]) >= 5
    assert (await counts(world, room)).latest_ticket == before, "nobody is queued for a form"
    world.origin.hold.set()
    assert {r.status for r in await asyncio.gather(inside, lane)} == {200}
    assert [body for _, _, body in forms(world)] == [b"x=1"]
    await bye(*people)


def post_head(world: Gateways, lines: list[str]) -> Any:
    """Send the head of a form and none of its body: the answer has to come all the same."""
    with RawClient(world.one.port) as client:
        head = "".join(f"{line}\r\n" for line in lines)
        client.send(f"POST /pay HTTP/1.1\r\nHost: shop.example\r\n{head}\r\n".encode())
        return client.answer()


async def test_wr_45_without_a_pass_429_not_sent_and_never_redirected(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    visitor = Visitor(world.one.port)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        for _ in range(2):  # without a cookie, then with that of a place
            told = await visitor.get("/order", method, b"seat=7")
            assert (told.status, told.json["submitted"]) == (429, False)
            assert told.header("location") is None
            assert int(told.header("retry-after") or 0) >= 5
    assert not world.origin.seen
    world.publish(replace(room, capacity=1))

    async def is_sent() -> bool:
        return (await visitor.get("/order", "POST", b"seat=7")).status == 200

    await until(is_sent, what="the turn")
    assert forms(world) == [("POST", "/order", b"seat=7")]
    await bye(visitor)


async def test_forms_switched_off_are_requests_like_any(world: Gateways) -> None:
    room = world.room(priority_forms=False, **BUSY)
    world.publish(room)
    buyer = await admitted(world, room)
    await idle(world, room, buyer, 6 * 60_000)
    other = await admitted(world, room, 1)
    told: Reply = await buyer.get("/pay", "POST", b"seat=7")
    assert (told.status, told.json["state"], told.json["submitted"]) == (429, "waiting", False)
    assert not forms(world)
    await bye(buyer, other)


async def test_safe_methods_are_no_forms(world: Gateways) -> None:
    room = world.room(**BUSY)
    world.publish(room)
    visitor = await admitted(world, room)
    await idle(world, room, visitor, 6 * 60_000)
    other = await admitted(world, room, 1)
    assert (await visitor.get("/x", "OPTIONS")).status == 429
    await bye(visitor, other)


@pytest.mark.parametrize("why", ["a day old", "revoked"])
async def test_a_pass_that_is_over_or_was_taken_away_sends_no_form(
    world: Gateways, why: str
) -> None:
    room = world.room(**BUSY)
    world.publish(room)
    buyer = await admitted(world, room)
    if why == "revoked":
        world.operator(room, "expel", [held(buyer, room).sid])
        await until(lambda: is_known(world, room), what="the gateways to know")
    else:
        await idle(world, room, buyer, DAY_MS + 1)
    other = await admitted(world, room, 1)
    told = await buyer.get("/pay", "POST", b"seat=7")
    assert (told.status, told.json["submitted"]) == (429, False)
    assert not forms(world)
    await bye(buyer, other)


async def is_known(world: Gateways, room: RoomConfig) -> bool:
    stats = await asyncio.to_thread(lambda: [world.stats(g) for g in world.gateways])
    return all(found["rooms"][room.id]["journal"] >= 1 for found in stats)


async def test_a_form_of_who_is_inside_needs_no_lane(world: Gateways) -> None:
    room = world.room(mode=Mode.OPEN, **BUSY)
    world.publish(room)
    buyer = await admitted(world, room)
    age(buyer, room, room.refresh_ms + 1)
    assert (await buyer.get("/pay", "POST", b"a=1")).status == 200
    found = await counts(world, room)
    assert (found.active, found.lane) == (1, 0)
    assert KEYS.read(buyer.cookies[f"corvus_{room.id}"].encode(), room.id).credential is not None
    assert (await buyer.get("/next")).status == 200
    await bye(buyer)
