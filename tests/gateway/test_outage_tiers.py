"""The store goes away where pages need slots of their own, and beside the page slots (WR-61)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from queueing.config import OnOutage, Unit
from tests.gateway.test_outage import ready, stop
from tests.support.crowd import Visitor, together, until
from tests.support.gate_passes import admitted, age
from tests.support.gateways import Gateways, running_gateways
from tests.support.running import eventually
from tests.support.valkey import Valkey, running_valkey

HOST: dict[str, Any] = {"assets": ("/static/*",), "streams": ("/live/*",)}


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    """A store that can be halted."""
    with running_valkey() as store:
        yield store


@pytest.fixture(scope="module")
def gateways(valkey: Valkey, page_bundle: bytes) -> Iterator[Gateways]:
    with running_gateways(valkey.url, page_bundle, 2) as world:
        yield world


@pytest.fixture
async def shop(gateways: Gateways, valkey: Valkey) -> AsyncIterator[Gateways]:
    gateways.origin.clear()
    yield gateways
    valkey.process.send_signal(signal.SIGCONT)
    await asyncio.to_thread(eventually, lambda: ready(gateways), what="the end of the outage")


async def bye(*people: Visitor) -> None:
    await together(people, lambda v: v.close())


async def test_unit_requests_no_page_reaches_the_origin_because_the_store_died(
    shop: Gateways, valkey: Valkey
) -> None:
    room = shop.room(capacity=1, unit=Unit.REQUESTS, on_outage=OnOutage.CLOSED)
    shop.publish(room, **HOST)
    visitor = await admitted(shop, room)
    shop.origin.seen.clear()
    stop(valkey, shop)
    for method in ("GET", "POST"):
        told = await visitor.get("/page", method, b"a=1" if method == "POST" else b"")
        assert (told.status, told.json["state"]) == (503, "store_down")
        assert told.header("x-waiting-room") == "store_down"
    assert not shop.origin.seen
    for path in ("/static/a.js", "/live/a"):
        assert (await visitor.get(path)).status == 200, "a pass opens what needs no slot"
    stranger = Visitor(shop.one.port)
    assert (await stranger.get("/static/a.js")).status == 403
    await bye(visitor, stranger)


async def test_unit_requests_an_open_room_lets_pages_through_at_its_rate_and_charges_nobody(
    shop: Gateways, valkey: Valkey
) -> None:
    room = shop.room(capacity=1, unit=Unit.REQUESTS, on_outage=OnOutage.OPEN, open_rate=5)
    shop.publish(room, **HOST)
    visitor = await admitted(shop, room)
    await until(lambda: is_empty(shop, room), what="the slot to be given back")
    stop(valkey, shop)
    began = asyncio.get_running_loop().time()
    replies = [await visitor.get("/page") for _ in range(40)]
    took = asyncio.get_running_loop().time() - began
    let_in = [r for r in replies if r.status == 200]
    assert 1 <= len(let_in) <= 5 * took + 2
    assert {r.header("x-waiting-room") for r in let_in} == {"bypass-outage"}
    assert {r.status for r in replies} == {200, 503}
    valkey.process.send_signal(signal.SIGCONT)
    await asyncio.to_thread(eventually, lambda: ready(shop))

    async def is_in() -> bool:
        return (await visitor.get("/page")).status == 200

    await until(is_in, what="the room to serve again")
    await until(lambda: is_empty(shop, room), what="nobody to be left inside")
    await bye(visitor)


async def is_empty(world: Gateways, room: Any) -> bool:
    stats = await asyncio.to_thread(world.operator, room, "stats")
    return bool(stats.counts.active == 0)


@pytest.mark.parametrize("unit", Unit)
async def test_passes_that_were_valid_when_it_began_open_assets_throughout(
    shop: Gateways, valkey: Valkey, unit: Unit
) -> None:
    room = shop.room(capacity=1, unit=unit, on_outage=OnOutage.CLOSED)
    shop.publish(room, **HOST)
    visitor = await admitted(shop, room)
    life_ms = room.active_ttl_ms if unit is Unit.VISITORS else room.admit_ttl_ms
    over = Visitor(shop.one.port, cookies=dict(visitor.cookies))
    age(over, room, life_ms + 60_000)
    age(visitor, room, life_ms // 2 + 1_000)
    stop(valkey, shop)
    for _ in range(3):
        assert (await visitor.get("/static/a.js")).status == 200
        assert (await visitor.get("/static/a.js")).header("set-cookie") is None
    assert (await over.get("/static/a.js")).status == 403
    await bye(visitor, over)


async def test_the_asset_that_notices_the_outage_is_served_by_its_valid_pass(
    shop: Gateways, valkey: Valkey
) -> None:
    room = shop.room(capacity=1, on_outage=OnOutage.CLOSED)
    shop.publish(room, **HOST)
    visitor = await admitted(shop, room)
    age(visitor, room, room.active_ttl_ms // 2 + 1_000)
    valkey.process.send_signal(signal.SIGSTOP)
    assert (await visitor.get("/static/a.js")).status == 200
    await bye(visitor)
