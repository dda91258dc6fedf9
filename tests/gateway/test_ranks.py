"""Ranks: who may grant them, to whom they belong, how long they last (WR-14)."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, Unit
from queueing.passes import Keyring
from queueing.ranks import read_rank
from tests.support.crowd import Visitor, together, until
from tests.support.gate_passes import KEYS, admitted, age, held, rank, rank_of
from tests.support.gateways import SECRET, Gateways
from tests.support.running import eventually
from tests.support.stream_client import open_stream, stream_origin

HOUR_MS = 3_600_000


def says(world: Gateways, *values: str) -> None:
    world.origin.answer_headers = [("Corvus-Priority", value) for value in values]


async def bye(*people: Visitor) -> None:
    await together(people, lambda v: v.close())


def life_ms(visitor: Visitor, room: RoomConfig) -> int:
    value = visitor.cookies[f"corvus_rank_{room.id}"].encode()
    grant = read_rank(KEYS, value, room.id, held(visitor, room).sid).grant
    assert grant is not None
    return grant.exp_ms - grant.iat_ms


@pytest.mark.parametrize("unit", Unit)
async def test_wr_14_a_page_grants_a_rank_that_the_browser_gets_as_a_cookie_only(
    world: Gateways, unit: Unit
) -> None:
    room = world.room(capacity=5, unit=unit)
    world.publish(room)
    visitor = await admitted(world, room)
    says(world, "Checkout ; ttl = 45m; colour=red")
    page = await visitor.get("/cart")
    assert page.header("corvus-priority") is None
    cookie = next(v for k, v in page.headers if k == "set-cookie" and "rank" in v)
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Max-Age=2700" in cookie
    assert page.header("cache-control") == "no-store, private"
    assert rank_of(visitor, room) == "checkout"
    assert life_ms(visitor, room) == 45 * 60_000
    await bye(visitor)


async def test_wr_14_the_latest_wins_the_last_line_counts_and_guest_clears(
    world: Gateways,
) -> None:
    room = world.room(capacity=5)
    world.publish(room)
    visitor = await admitted(world, room)
    for values, expected in (
        (["staff"], "staff"),
        (["staff", "member"], "member"),
        (["customer; ttl=99h"], "customer"),
        (["king"], "customer"),
        (["staff; ttl=soon"], "customer"),
        (["guest"], ""),
    ):
        says(world, *values)
        await visitor.get("/page")
        assert rank_of(visitor, room) == expected, values
    says(world, "guest")
    world.origin.answer_headers.append(("cache-control", "max-age=60"))
    page = await visitor.get("/page")
    assert page.header("set-cookie") is None
    assert page.header("cache-control") == "max-age=60", "guests' pages stay cacheable"
    log = "".join(gateway.log.read_text() for gateway in world.gateways)
    assert log.count("king") == 1
    assert log.count("staff; ttl=soon") == 1
    await bye(visitor)


async def test_what_is_not_understood_is_logged_at_most_fifty_times(world: Gateways) -> None:
    room = world.room(capacity=5)
    world.publish(room)
    visitor = await admitted(world, room)
    for number in range(70):
        says(world, f"nonsense{number}")
        await visitor.get("/page")
    assert world.one.log.read_text().count("nonsense") <= 50
    await bye(visitor)


async def test_wr_14_assets_bypassed_paths_and_streams_grant_nothing(world: Gateways) -> None:
    room = world.room(capacity=5)
    world.publish(room, assets=("/static/*",), public_assets=("/media/*",), streams=("/live/*",))
    visitor = await admitted(world, room)
    says(world, "staff")
    for path in ("/static/a.js", "/media/a.png", "/live/a", "/robots.txt"):
        answer = await visitor.get(path)
        assert answer.status == 200
        assert answer.header("corvus-priority") is None
        assert rank_of(visitor, room) == "", path
    async with stream_origin() as origin:
        world.publish(room, origin=origin.url, streams=("/live/*",))
        reply, stream = await open_stream(world.one.port, "/live/a", visitor.cookies)
        assert reply.header("set-cookie") is None
        await stream.close()
    await bye(visitor)


async def test_wr_14_a_request_header_of_that_name_grants_nothing_and_goes_nowhere(
    world: Gateways,
) -> None:
    room = world.room(capacity=5)
    world.publish(room)
    visitor = await admitted(world, room)
    rank(visitor, room, "member")
    visitor.headers["Corvus-Priority"] = "staff"
    visitor.cookies["mine"] = "1"
    await visitor.get("/page")
    seen = world.origin.seen[-1]
    assert seen.header("corvus-priority") is None
    assert seen.header("cookie") == "mine=1", "nor does the rank's cookie"
    assert rank_of(visitor, room) == "member"
    await bye(visitor)


async def test_a_grant_outlives_the_pass_and_the_place(world: Gateways) -> None:
    """Eight hours are eight hours, although a pass lapses after some minutes."""
    room = world.room(capacity=1, active_ttl_ms=2_000, refresh_ms=1_000)
    world.publish(room)
    visitor = await admitted(world, room)
    sid = held(visitor, room).sid
    says(world, "subscriber")
    await visitor.get("/page")
    says(world)
    assert life_ms(visitor, room) == 8 * HOUR_MS
    age(visitor, room, 7 * HOUR_MS)
    assert (await visitor.get("/page")).status == 200
    assert (held(visitor, room).sid, rank_of(visitor, room)) == (sid, "subscriber")
    world.operator(room, "reset")
    told = await visitor.get("/page")
    if told.status == 409:
        assert held(visitor, room).sid == sid, "a reset gives a new place, not a new person"
        told = await visitor.get("/page")
    assert (told.status, rank_of(visitor, room)) == (200, "subscriber")
    answer = await visitor.get(f"/__corvus/wr/{room.id}/rejoin?next=%2F", "POST")
    assert answer.status == 303
    assert (held(visitor, room).sid, held(visitor, room).ticket) == (sid, 0)
    assert rank_of(visitor, room) == "subscriber"
    await bye(visitor)


async def test_a_waiting_visitors_cookie_lasts_as_long_as_its_rank_may(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    visitor = Visitor(world.one.port)
    for _ in range(2):
        reply = await visitor.get("/")
        assert "Max-Age=86400;" in (reply.header("set-cookie") or "")
    await bye(visitor)


@pytest.mark.parametrize("kind", ["forged", "stale"])
async def test_a_forged_or_stale_cookie_gives_its_bearer_no_identity(
    world: Gateways, kind: str
) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    visitor = await admitted(world, room)
    sid = held(visitor, room).sid
    name = f"corvus_{room.id}"
    value = visitor.cookies[name]
    mine = held(visitor, room)
    other = Keyring(b"another secret", 1).sign(mine)
    visitor.cookies[name] = other if kind == "stale" else value[:-4] + "AAAA"
    await visitor.get(f"/__corvus/wr/{room.id}/rejoin?next=%2F", "POST")
    assert held(visitor, room).sid != sid
    await bye(visitor)


async def test_a_rank_signed_by_the_previous_key_is_signed_anew_at_the_next_page(
    world: Gateways,
) -> None:
    room = world.room(capacity=1, unit=Unit.REQUESTS)
    world.publish(room)
    visitor = await admitted(world, room)
    rank(visitor, room, "staff")
    before = visitor.cookies[f"corvus_rank_{room.id}"]
    sid = held(visitor, room).sid
    world.publish(room, key_generation=2)

    async def is_new() -> bool:
        await visitor.get("/page")
        return visitor.cookies[f"corvus_rank_{room.id}"] != before

    await until(is_new, what="the rank to be signed by the new key")
    keys = Keyring(SECRET.encode(), 2)
    value = visitor.cookies[f"corvus_rank_{room.id}"].encode()
    reading = read_rank(keys, value, room.id, sid)
    old = read_rank(keys, before.encode(), room.id, sid)
    assert reading.current_key
    assert reading.grant == old.grant, "it lasts no longer for that"
    await bye(visitor)


async def test_revoking_a_session_takes_its_rank_too(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    visitor = await admitted(world, room)
    rank(visitor, room, "staff")
    world.origin.answer_headers = [("Corvus-Session", "revoke"), ("Corvus-Priority", "staff")]
    answer = await visitor.get("/logout")
    gone = [v for k, v in answer.headers if k == "set-cookie" and "Max-Age=0" in v]
    assert {v.partition("=")[0] for v in gone} == {
        f"corvus_{room.id}",
        f"corvus_rank_{room.id}",
    }
    assert f"corvus_rank_{room.id}" not in visitor.cookies
    await bye(visitor)


async def test_ranks_are_counted(world: Gateways) -> None:
    room = world.room(capacity=5, unit=Unit.REQUESTS)
    world.publish(room, settings=GatewaySettings(access_log=False))
    visitor = await admitted(world, room)
    rank(visitor, room, "checkout")
    await visitor.get("/page")

    def counted() -> Any:
        return world.stats()["rooms"][room.id]["counters"].get("priority_requests_checkout")

    assert eventually(counted) == 1
    await bye(visitor)
