"""The pass: when it is written, what it is worth elsewhere, and who may carry it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, Unit
from tests.support.crowd import Visitor, together, until
from tests.support.gate_passes import KEYS, admitted, age, held, twin
from tests.support.gateways import Gateways

HOME, MOBILE = "198.51.100.7", "203.0.113.9"


async def bye(*people: Visitor) -> None:
    await together(people, lambda v: v.close())


def at(visitor: Visitor, address: str) -> Visitor:
    visitor.headers["x-forwarded-for"] = address
    return visitor


async def test_unit_requests_a_page_renews_the_pass_only_past_half_its_life(
    world: Gateways,
) -> None:
    room = world.room(capacity=2, unit=Unit.REQUESTS)
    world.publish(room)
    visitor = await admitted(world, room)
    first = held(visitor, room)
    assert first.exp_ms - first.iat_ms == room.admit_ttl_ms
    age(visitor, room, room.admit_ttl_ms // 2 - 20_000)
    assert (await visitor.get("/page")).header("set-cookie") is None
    age(visitor, room, 40_000)
    answer = await visitor.get("/page")
    assert answer.header("cache-control") == "no-store, private"
    assert held(visitor, room).sid == first.sid
    assert held(visitor, room).iat_ms >= first.iat_ms
    await bye(visitor)


async def test_who_waits_gets_no_pass(world: Gateways) -> None:
    for unit in Unit:
        room = world.room(capacity=0, unit=unit)
        world.publish(room)
        visitor = Visitor(world.one.port)
        for _ in range(3):
            await visitor.get("/")
            assert held(visitor, room).kind == "q"
        await bye(visitor)


async def test_a_changed_life_holds_for_passes_from_then_on(world: Gateways) -> None:
    room = world.room(capacity=2, unit=Unit.REQUESTS)
    world.publish(room)
    visitor = await admitted(world, room)
    before = held(visitor, room)
    world.publish(replace(room, admit_ttl_ms=60_000))
    assert (await visitor.get("/page")).status == 200
    newcomer = await admitted(world, room)
    new = held(newcomer, room)
    assert new.exp_ms - new.iat_ms == 60_000
    assert KEYS.read(KEYS.sign(before).encode(), room.id).credential == before
    await bye(visitor, newcomer)


async def test_unit_requests_a_revocation_on_its_way_catches_a_pass_written_meanwhile(
    world: Gateways,
) -> None:
    """A gateway that signs anew without asking the store must not make a revoked pass young."""
    room = world.room(capacity=2, unit=Unit.REQUESTS)
    world.publish(room, assets=("/static/*",))
    visitor = await admitted(world, room)
    age(visitor, room, room.admit_ttl_ms // 2 + 1_000)
    old = dict(visitor.cookies)
    sid = held(visitor, room).sid
    clients = [Visitor(g.port, cookies=dict(old)) for g in world.gateways for _ in range(10)]
    revoked = asyncio.create_task(asyncio.to_thread(world.operator, room, "expel", [sid]))
    await together(clients, lambda v: v.get("/static/a.js"))
    await revoked

    async def all_dead() -> bool:
        replies = await together(clients, lambda v: v.get("/static/a.js"))
        return {r.status for r in replies} == {403}

    await until(all_dead, 1.5, "every copy to be dead, also the youngest")
    await bye(visitor, *clients)


async def test_wr_53_a_revocation_frees_the_slot_at_once_and_counts_once(
    world: Gateways,
) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    visitor = await admitted(world, room)
    copy = twin(visitor, world, 1)
    waiting = Visitor(world.one.port)
    await waiting.get("/")
    assert (await waiting.get("/")).json["position"] == 1
    world.origin.answer_headers = [("Corvus-Session", "revoke")]
    replies = await together([visitor, copy], lambda v: v.get("/logout"))
    assert {r.status for r in replies} == {200}
    assert all(r.header("corvus-session") is None for r in replies)
    world.origin.answer_headers = []

    async def is_in() -> bool:
        return (await waiting.get("/")).status == 200

    await until(is_in, 1.5, "the next waiter to be granted")
    assert (await copy.get("/")).json["state"] in ("none", "waiting")
    totals = (await asyncio.to_thread(world.operator, room, "stats")).totals
    assert totals["revoked"] == 1, "once, whoever else revoked it"
    await bye(visitor, copy, waiting)


async def test_wr_35_a_shared_pass_is_asked_to_queue_on_the_second_network(
    world: Gateways,
) -> None:
    room = world.room(capacity=5, share_guard=True)
    world.publish(room, assets=("/static/*",))
    owner = at(Visitor(world.one.port), HOME)
    await owner.get("/")
    assert (await owner.get("/")).status == 200
    pages = len(world.origin.seen)
    thief = at(twin(owner, world, 1), MOBILE)
    refused = await thief.get("/")
    assert (refused.status, refused.json["state"]) == (429, "shared")
    assert refused.header("x-waiting-room") == "shared"
    assert refused.header("retry-after") == "30", "after two renewals it counts as moved"
    assert (await thief.get("/static/a.js")).status == 403
    assert len(world.origin.seen) == pages
    assert (await owner.get("/")).status == 200, "the first is undisturbed"
    assert (await owner.get("/static/a.js")).status == 200
    answer = await thief.get(f"/__corvus/wr/{room.id}/rejoin?own=1&next=%2F", "POST")
    assert answer.status == 303
    assert held(thief, room).sid != held(owner, room).sid, "somebody else from now on"
    await thief.get("/")
    assert held(thief, room).sid != held(owner, room).sid
    await bye(owner, thief)


async def test_wr_29_who_moved_for_good_keeps_the_slot_under_the_guard(world: Gateways) -> None:
    room = world.room(capacity=1, share_guard=True, active_ttl_ms=60_000, refresh_ms=1_000)
    world.publish(room)
    visitor = at(Visitor(world.one.port), HOME)
    await visitor.get("/")
    assert (await visitor.get("/")).status == 200
    sid = held(visitor, room).sid
    at(visitor, MOBILE)

    async def is_in() -> bool:
        return (await visitor.get("/")).status == 200

    await until(is_in, 6.0, "the move to be believed")
    assert held(visitor, room).sid == sid
    await bye(visitor)


async def test_wr_29_a_bound_pass_is_checked_once_on_another_network_also_for_assets(
    world: Gateways,
) -> None:
    room = world.room(capacity=1, bind_network=True)
    world.publish(room, assets=("/static/*",))
    visitor = at(Visitor(world.one.port), HOME)
    await visitor.get("/")
    assert (await visitor.get("/")).status == 200
    at(visitor, MOBILE)
    moved = await visitor.get("/static/a.js")
    assert moved.status == 200
    assert moved.header("set-cookie") is not None
    assert (await visitor.get("/static/a.js")).header("set-cookie") is None
    await bye(visitor)


@pytest.mark.parametrize(
    ("embed", "scheme", "expected"),
    [
        (True, "https", {"SameSite=None", "Secure", "Partitioned", "HttpOnly"}),
        (True, "http", {"SameSite=Lax", "HttpOnly"}),
        (False, "https", {"SameSite=Lax", "Secure", "HttpOnly"}),
    ],
)
async def test_wr_55_in_another_sites_frame_cookies_say_so(
    world: Gateways, embed: bool, scheme: str, expected: set[str]
) -> None:
    room: RoomConfig = world.room(capacity=1, embed=embed)
    world.publish(room)
    visitor = Visitor(world.one.port)
    visitor.headers["x-forwarded-proto"] = scheme
    replies = [await visitor.get("/")]
    world.origin.answer_headers = [("Corvus-Priority", "staff")]
    replies.append(await visitor.get("/"))
    replies.append(await visitor.get(f"/__corvus/wr/{room.id}/leave", "POST"))
    cookies = [v for reply in replies for k, v in reply.headers if k == "set-cookie"]
    assert len(cookies) >= 4, "place, pass, rank, and the cookie taken back"
    known = {"SameSite=None", "SameSite=Lax", "Secure", "Partitioned", "HttpOnly"}
    for cookie in cookies:
        assert set(cookie.split("; ")) & known == expected, cookie
    await bye(visitor)


async def test_wr_35_a_pages_pool_is_given_back_when_its_visitor_goes(world: Gateways) -> None:
    room = world.room(capacity=5)
    settings: dict[str, Any] = {"asset_user_cap_h1": 1, "asset_user_wait_s": 0.2}
    world.publish(room, settings=GatewaySettings(access_log=False, **settings))
    visitor = await admitted(world, room)
    second = twin(visitor, world, 1)
    world.origin.hold.clear()
    slow = asyncio.create_task(visitor.get("/slow"))

    async def is_inside() -> bool:
        return await asyncio.to_thread(lambda: world.origin.inside) == 1

    await until(is_inside, what="the page to be with the origin")
    refused = await second.get("/page")
    assert (refused.status, refused.header("retry-after")) == (429, "1")
    assert refused.json["error"]
    with world.one.browser() as browser:
        browser.cookies.set(f"corvus_{room.id}", visitor.cookies[f"corvus_{room.id}"])
        page = browser.get("/page")
    assert (page.status_code, page.headers["retry-after"]) == (429, "1")
    assert page.headers["content-type"].startswith("text/html")
    await visitor.close()
    await asyncio.wait([slow])
    assert slow.exception() is not None

    async def opens() -> bool:
        return (await second.get("/page")).status == 200

    await until(opens, what="the place to be given back")
    world.origin.hold.set()
    await bye(visitor, second)


async def test_unit_requests_a_pass_stays_beside_the_place_of_who_waits_for_another_page(
    world: Gateways,
) -> None:
    """The page that the visitor still sees loads its images, and its form is not lost."""
    room = world.room(capacity=1, priority_cap=1, unit=Unit.REQUESTS)
    world.publish(room, assets=("/static/*",))
    visitor, other = await admitted(world, room), await admitted(world, room, 1)
    world.origin.hold.clear()
    slow = asyncio.create_task(other.get("/slow"))

    async def is_inside() -> bool:
        return await asyncio.to_thread(lambda: world.origin.inside) == 1

    await until(is_inside, what="the room to be full")
    told = await visitor.get("/next")
    assert (told.status, told.json["position"]) == (429, 1)
    sealed = held(visitor, room)
    assert (sealed.kind, sealed.ticket > 0) == ("a", True)
    status = await visitor.get(f"/__corvus/wr/{room.id}/status")
    assert (status.json["position"], status.header("set-cookie")) == (1, None)
    assert (await visitor.get("/static/a.js")).status == 200
    assert (await visitor.get("/pay", "POST", b"seat=7")).status == 200, "by the lane"
    assert (await visitor.get("/next")).json["position"] == 1, "the place is kept"
    age(visitor, room, room.admit_ttl_ms)
    assert (await visitor.get("/static/a.js")).status == 403
    assert (await visitor.get("/next")).json["position"] == 1
    assert held(visitor, room).kind == "q", "it has run out: only the place is left"
    world.origin.hold.set()
    assert (await slow).status == 200

    async def is_in() -> bool:
        return (await visitor.get("/next")).status == 200

    await until(is_in, what="the turn")
    assert (held(visitor, room).kind, held(visitor, room).ticket) == ("a", 0)
    assert (await visitor.get("/again")).status == 200
    await bye(visitor, other)
