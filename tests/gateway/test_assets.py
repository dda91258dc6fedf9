"""Assets: who gets them, how many at once, and what a pass costs the store."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, Unit
from queueing.passes import Kind, new_sid
from tests.support.crowd import Reply, Visitor, together, until
from tests.support.gate_passes import KEYS, admitted, age, held, twin
from tests.support.gateways import Gateways

ASSETS = {"assets": ("/static/*",), "public_assets": ("/media/*",)}
QUIET: dict[str, Any] = {"access_log": False}


def counted(world: Gateways, name: str) -> int:
    return sum(world.stats(g)["requests"].get(name, 0) for g in world.gateways)


def forgeries(world: Gateways, room: RoomConfig) -> int:
    return sum(
        world.stats(g)["rooms"][room.id]["counters"].get("forged", 0) for g in world.gateways
    )


async def calls(world: Gateways) -> int:
    """Count the scripts that the store has run for visitors: ticks are not among them."""
    with world.redis as store:
        stats = await asyncio.to_thread(store.info, "commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


async def bye(*visitors: Visitor) -> None:
    await together(visitors, lambda v: v.close())


@pytest.mark.parametrize("unit", Unit)
async def test_without_a_pass_403_at_once_and_the_origin_is_not_asked(
    world: Gateways, unit: Unit
) -> None:
    room = world.room(capacity=0, unit=unit)
    world.publish(room, **ASSETS)
    visitor = Visitor(world.one.port)
    refused = await visitor.get("/static/app.js")
    assert refused.status == 403
    assert refused.header("cache-control") == "no-store, private"
    assert refused.header("x-waiting-room") == "none"
    assert refused.header("set-cookie") is None
    await visitor.get("/")
    await visitor.get("/")
    assert held(visitor, room).kind is Kind.QUEUED
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        assert (await visitor.get("/static/app.js", method)).status == 403, "who waits has no pass"
    assert not world.origin.seen
    await bye(visitor)


@pytest.mark.parametrize("unit", Unit)
async def test_a_pass_opens_assets_on_every_gateway_while_the_room_is_full(
    world: Gateways, unit: Unit
) -> None:
    room = world.room(capacity=1, unit=unit)
    world.publish(room, **ASSETS)
    visitor = await admitted(world, room)
    world.publish(replace(room, capacity=0), **ASSETS)
    second = twin(visitor, world, 1)
    world.origin.seen.clear()
    for client in (visitor, second):
        served = await client.get("/static/app.js")
        assert (served.status, served.header("set-cookie")) == (200, None)
    assert not [s.header("cookie") for s in world.origin.seen if s.header("cookie")], "not leaked"
    await bye(visitor, second)


async def test_public_assets_and_bypassed_paths_need_no_pass(world: Gateways) -> None:
    world.publish(
        world.room(capacity=0),
        settings=GatewaySettings(debug_decisions=True, **QUIET),
        **ASSETS,
    )
    visitor = Visitor(world.one.port)
    for path, decision in (("/media/a.png", "public asset"), ("/favicon.ico", "bypass")):
        served = await visitor.get(path)
        assert (served.status, served.header("x-corvus-decision")) == (200, decision)
    refused = await visitor.get("/static/app.js")
    assert refused.header("x-corvus-decision") == "asset: no pass"
    await bye(visitor)


async def test_a_host_without_rooms_needs_no_pass_for_its_assets(world: Gateways) -> None:
    world.publish(**ASSETS)
    visitor = Visitor(world.one.port)
    assert (await visitor.get("/static/app.js")).status == 200
    await bye(visitor)


async def test_wr_36_forged_is_counted_and_stale_or_anothers_is_not(world: Gateways) -> None:
    room, other = world.room(capacity=5), world.room(capacity=5)
    world.publish(room, other, **ASSETS)
    visitor = await admitted(world, room)
    good = visitor.cookies[f"corvus_{room.id}"]
    name = f"corvus_{room.id}"
    before = forgeries(world, room)
    thief = Visitor(world.one.port)

    async def shows(value: str) -> int:
        thief.cookies = {name: value}
        return (await thief.get("/static/app.js")).status

    another = replace(held(visitor, room), room=other.id)
    assert await shows(KEYS.sign(another)) == 403, "another room's pass under this one's name"
    head, _kid, *rest = good.split(".")
    assert await shows(".".join([head, "AAAAAA", *rest])) == 403, "an unknown key"
    assert await shows("") == 403
    assert forgeries(world, room) == before
    assert await shows(good[:-1] + ("A" if good[-1] != "A" else "B")) == 403
    assert forgeries(world, room) == before + 1
    assert await shows(good) == 200
    await bye(visitor, thief)


async def test_a_pass_of_any_room_of_the_host_opens_its_assets(world: Gateways) -> None:
    """Who was let in to the sale needs the style sheets of the site around it."""
    room, sale = world.room(capacity=0), world.room(capacity=5)
    world.publish(room, sale, **ASSETS)
    visitor = Visitor(world.one.port)
    await visitor.get(f"/{sale.id}/x")
    assert (await visitor.get(f"/{sale.id}/x")).status == 200
    assert (await visitor.get("/static/app.js")).status == 200
    await bye(visitor)


async def test_in_the_first_half_of_its_life_a_pass_costs_the_store_nothing(
    world: Gateways,
) -> None:
    room = world.room(capacity=1)
    world.publish(room, **ASSETS)
    visitor = await admitted(world, room)
    age(visitor, room, room.active_ttl_ms // 2 - 20_000)
    beats = len(await scripts(world, "heartbeat"))
    for _ in range(20):
        assert (await visitor.get("/static/app.js")).status == 200
    assert len(await scripts(world, "heartbeat")) == beats
    await bye(visitor)


async def scripts(world: Gateways, operation: str) -> list[dict[str, Any]]:
    """Look up which calls of one operation the store remembers."""
    with world.redis as store:
        seen = await asyncio.to_thread(store.slowlog_get, 10_000)
    return [call for call in seen if operation.encode() in call["command"].split()]


@pytest.mark.parametrize("expired", [False, True])
async def test_past_half_its_life_one_check_in_renews_the_pass_of_who_holds_a_slot(
    world: Gateways, expired: bool
) -> None:
    room = world.room(capacity=1)
    world.publish(room, **ASSETS)
    visitor = await admitted(world, room)
    old = age(visitor, room, room.active_ttl_ms + 10 if expired else room.active_ttl_ms // 2)
    jar = dict(visitor.cookies)
    with world.redis as store:
        store.config_set("slowlog-log-slower-than", 0)
        store.config_set("slowlog-max-len", 20_000)
        store.slowlog_reset()
    renewed = await visitor.get("/static/app.js")
    assert renewed.status == 200
    assert renewed.header("cache-control") == "no-store, private", "it carries a cookie"
    new = held(visitor, room)
    assert new.sid == old.sid
    assert new.exp_ms > old.exp_ms
    assert new.iat_ms > old.iat_ms
    page = [Visitor(world.one.port, cookies=dict(jar)) for _ in range(6)]
    rest = await together(page, lambda v: v.get("/static/b.js"))
    assert [(r.status, r.header("set-cookie")) for r in rest] == [(200, None)] * 6, "once a page"
    assert len(await scripts(world, "heartbeat")) == 1
    await bye(visitor, *page)


@pytest.mark.parametrize("expired", [False, True])
async def test_a_pass_whose_slot_is_gone_opens_nothing(world: Gateways, expired: bool) -> None:
    room = world.room(capacity=1)
    world.publish(room, **ASSETS)
    visitor = await admitted(world, room)
    with world.redis as store:
        store.zrem(f"corvus:wr:{{{room.id}}}:active", held(visitor, room).sid)
    age(visitor, room, room.active_ttl_ms + 10 if expired else room.active_ttl_ms // 2 + 10)
    world.origin.seen.clear()
    assert (await visitor.get("/static/app.js")).status == 403
    assert not world.origin.seen
    await bye(visitor)


async def test_unit_requests_a_pass_past_half_its_life_is_written_anew_without_the_store(
    world: Gateways,
) -> None:
    room = world.room(capacity=1, unit=Unit.REQUESTS)
    world.publish(room, **ASSETS)
    visitor = await admitted(world, room)
    first = age(visitor, room, room.admit_ttl_ms // 2 - 20_000)
    assert (await visitor.get("/static/app.js")).header("set-cookie") is None
    age(visitor, room, 40_000)
    assert (await visitor.get("/static/app.js")).status == 200
    new = held(visitor, room)
    assert (new.sid, new.kind) == (first.sid, Kind.ADMITTED)
    assert new.exp_ms - first.exp_ms > room.admit_ttl_ms // 2 - 30_000
    age(visitor, room, room.admit_ttl_ms + 10)
    assert (await visitor.get("/static/app.js")).status == 403, "an expired one holds no slot"
    await bye(visitor)


@pytest.mark.parametrize("unit", Unit)
async def test_wr_53_a_revoked_pass_opens_no_asset_anywhere_within_a_second(
    world: Gateways, unit: Unit
) -> None:
    room = world.room(capacity=1, unit=unit)
    world.publish(room, **ASSETS)
    visitor = await admitted(world, room)
    other = twin(visitor, world, 1)
    assert (await other.get("/static/a.js")).status == 200
    world.origin.answer_headers = [("Corvus-Session", "revoke")]
    answer = await visitor.get("/static/logout.js")
    assert answer.header("corvus-session") is None
    assert "Max-Age=0" in (answer.header("set-cookie") or "")
    world.origin.answer_headers = []

    async def is_dead() -> bool:
        return (await other.get("/static/a.js")).status == 403

    await until(is_dead, 1.0, "the pass to be dead on the other gateway")
    await bye(visitor, other)


async def held_up(world: Gateways, clients: list[Visitor], path: str) -> list[asyncio.Task[Reply]]:
    """Let these ask for what the origin holds back; wait until it has all of them."""
    world.origin.hold.clear()
    before = world.origin.inside
    tasks = [asyncio.create_task(client.get(path)) for client in clients]
    await until(lambda: is_inside(world, before + len(clients)), what="the origin to be asked")
    return tasks


async def is_inside(world: Gateways, count: int) -> bool:
    return await asyncio.to_thread(lambda: world.origin.inside) == count


async def test_one_pass_has_eight_assets_at_once_and_then_429_after_the_wait(
    world: Gateways,
) -> None:
    room = world.room(capacity=5)
    settings = GatewaySettings(asset_user_wait_s=0.3, **QUIET)
    world.publish(room, settings=settings, **ASSETS)
    visitor = await admitted(world, room)
    before = counted(world, "pass_pool_full")
    crowd = [twin(visitor, world, n % 2) for n in range(8)]
    tasks = await held_up(world, crowd, "/static/slow.js")
    ninth = twin(visitor, world, 1)
    refused = await ninth.get("/static/a.js")
    assert (refused.status, refused.header("retry-after")) == (429, "1")
    assert refused.header("cache-control") == "no-store, private"
    assert counted(world, "pass_pool_full") == before + 1
    stranger = await admitted(world, room)
    assert (await stranger.get("/static/a.js")).status == 200, "each pass has a pool of its own"
    waiting = asyncio.create_task(ninth.get("/static/a.js"))
    world.origin.hold.set()
    assert (await waiting).status == 200, "a place that comes free within the wait is taken"
    assert {r.status for r in await asyncio.gather(*tasks)} == {200}
    assert counted(world, "pass_pool_full") == before + 1
    await bye(visitor, ninth, stranger, *crowd)


async def test_the_pool_of_http_2_is_larger_and_its_own(world: Gateways) -> None:
    room = world.room(capacity=5)
    settings = GatewaySettings(
        asset_user_cap_h1=1,
        asset_user_cap_h2=3,
        asset_user_wait_s=0.1,
        client_proto_header="x-client-proto",
        **QUIET,
    )
    world.publish(room, settings=settings, **ASSETS)
    visitor = await admitted(world, room)
    modern = [twin(visitor, world) for _ in range(4)]
    for client in modern:
        client.headers["x-client-proto"] = "HTTP/2.0"
    tasks = await held_up(world, modern[:3], "/static/slow.js")
    assert (await modern[3].get("/static/a.js")).status == 429
    assert (await visitor.get("/static/a.js")).status == 200, "the pool of HTTP/1.1 is free"
    world.origin.hold.set()
    await asyncio.gather(*tasks)
    await bye(visitor, *modern)


async def test_all_together_are_bounded_over_both_processes_public_ones_too(
    world: Gateways,
) -> None:
    room = world.room(capacity=9)
    settings = GatewaySettings(asset_cap=3, asset_wait_s=0.2, **QUIET)
    world.publish(room, settings=settings, **ASSETS)
    visitor = await admitted(world, room)
    inside = [twin(visitor, world, n % 2) for n in range(2)] + [Visitor(world.gateways[1].port)]
    tasks = await held_up(world, inside[:2], "/static/slow.js")
    tasks += await held_up(world, inside[2:], "/media/slow.png")
    strikes = counted(world, "pass_pool_full")
    for path in ("/static/a.js", "/media/a.png"):
        refused = await visitor.get(path)
        assert (refused.status, refused.header("retry-after")) == (503, "1")
        assert refused.header("cache-control") == "no-store, private"
    assert counted(world, "pass_pool_full") == strikes, "nobody's fault"
    assert world.origin.most_inside == 3
    world.origin.hold.set()
    await asyncio.gather(*tasks)
    assert (await visitor.get("/static/a.js")).status == 200
    await bye(visitor, *inside)


async def test_who_goes_away_gives_the_place_back_and_waiting_earns_no_strike(
    world: Gateways,
) -> None:
    room = world.room(capacity=5)
    settings = GatewaySettings(asset_user_cap_h1=1, asset_user_wait_s=20, **QUIET)
    world.publish(room, settings=settings, **ASSETS)
    visitor = await admitted(world, room)
    before = counted(world, "pass_pool_full")
    first, second, third = (twin(visitor, world) for _ in range(3))
    (held_task,) = await held_up(world, [first], "/static/slow.js")
    queued = asyncio.create_task(second.get("/static/a.js"))
    await until(lambda: waits(world), what="the second to wait for a place")
    await second.close()  # while it waits
    await asyncio.wait([queued])
    await first.close()  # while the origin works
    await asyncio.wait([held_task])
    assert (await third.get("/static/a.js")).status == 200
    assert counted(world, "pass_pool_full") == before
    world.origin.hold.set()
    assert isinstance(queued.exception() or held_task.exception(), Exception)
    await bye(visitor, third)


async def waits(world: Gateways) -> bool:
    stats = await asyncio.to_thread(lambda: [world.stats(g) for g in world.gateways])
    return any(found["machine"]["pools"]["waiting_here"] for found in stats)


async def test_wr_35_a_pass_used_by_fifty_clients_shares_one_limit_for_pages_and_assets(
    world: Gateways,
) -> None:
    room = world.room(capacity=9)
    settings = GatewaySettings(asset_user_wait_s=0.2, **QUIET)
    world.publish(room, settings=settings, **ASSETS)
    visitor = await admitted(world, room)
    world.origin.clear()
    clients = [twin(visitor, world, n % 2) for n in range(50)]
    world.origin.hold.clear()
    paths = [("/slow", "/static/slow.js")[n % 2] for n in range(50)]
    tasks = [
        asyncio.create_task(client.get(path)) for client, path in zip(clients, paths, strict=True)
    ]
    await until(lambda: is_inside(world, 8), what="eight of them to be with the origin")
    done, pending = await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    while len(pending) > 8:
        more, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    world.origin.hold.set()
    await asyncio.gather(*tasks)
    found = Counter(task.result().status for task in tasks)
    assert found == {200: 8, 429: 42}
    assert {t.result().header("retry-after") for t in done} == {"1"}
    assert world.origin.most_inside == 8
    stranger = await admitted(world, room)
    assert (await stranger.get("/page")).status == 200
    assert (await visitor.get("/page")).status == 200, "the first is undisturbed afterwards"
    await bye(visitor, stranger, *clients)


async def test_ban_paths_are_blocked_for_everybody_and_counted(world: Gateways) -> None:
    room = world.room(capacity=5)
    world.publish(room, ban_paths=("/.env", "/wp-admin/*"), **ASSETS)
    visitor = await admitted(world, room)
    world.origin.seen.clear()
    before = counted(world, "ban_path")
    refused = await visitor.get("/.env")
    assert (refused.status, refused.json["error"]) == (403, "blocked")
    assert refused.header("cache-control") == "no-store, private"
    with world.one.browser() as browser:
        page = browser.get("/wp-admin/x")
    assert page.status_code == 403
    assert page.headers["content-type"].startswith("text/html")
    assert counted(world, "ban_path") == before + 2
    assert not world.origin.seen
    await bye(visitor)


async def test_an_invented_sid_with_a_pass_of_before_a_reset_opens_nothing(
    world: Gateways,
) -> None:
    room = world.room(capacity=5, unit=Unit.REQUESTS)
    world.publish(room, **ASSETS)
    visitor = await admitted(world, room)
    world.operator(room, "reset")

    async def is_dead() -> bool:
        return (await visitor.get("/static/a.js")).status == 403

    await until(is_dead, 1.0, "the pass of before to be dead")
    assert new_sid() != held(visitor, room).sid
    await bye(visitor)


async def test_the_access_log_holds_no_assets(world: Gateways) -> None:
    room = world.room(capacity=5)
    world.publish(room, settings=GatewaySettings(), **ASSETS)
    visitor = await admitted(world, room)
    stranger = Visitor(world.one.port)
    for path in ("/static/a.js", "/media/logo.png"):
        assert (await visitor.get(path)).status == 200
    assert (await stranger.get("/static/b.js")).status == 403
    assert (await visitor.get("/last-page")).status == 200

    async def is_written() -> bool:
        return "/last-page" in await asyncio.to_thread(world.one.log.read_text)

    await until(is_written, what="the access log to be written")
    log = world.one.log.read_text()
    assert "/static/" not in log
    assert "/media/" not in log
    await bye(visitor, stranger)
