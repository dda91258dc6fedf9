"""Several rooms of one site: one governs, some share their passes (WR-71)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queueing.config import RoomConfig, Unit
from tests.support.crowd import Visitor, together, until
from tests.support.gate_passes import admitted, age, held, twin
from tests.support.gateways import Gateways


async def counts(world: Gateways, room: RoomConfig) -> Any:
    return (await asyncio.to_thread(world.operator, room, "stats")).counts


async def bye(*people: Visitor) -> None:
    await together(people, lambda v: v.close())


async def comes_in(visitor: Visitor, target: str) -> None:
    async def is_in() -> bool:
        return (await visitor.get(target)).status == 200

    await until(is_in, what=f"{target} to open")


async def test_wr_71_a_slot_of_the_sale_is_not_charged_on_the_site_around_it(
    world: Gateways,
) -> None:
    site, sale = world.room(capacity=1), world.room(capacity=1)
    world.publish(site, sale)
    visitor = Visitor(world.one.port)
    await comes_in(visitor, f"/{sale.id}/x")
    assert (await counts(world, site)).active == 0
    assert (await counts(world, sale)).active == 1
    assert set(visitor.cookies) == {f"corvus_{sale.id}"}
    await bye(visitor)


@pytest.mark.parametrize("unit", Unit)
async def test_wr_71_with_shared_passes_one_wait_opens_both(world: Gateways, unit: Unit) -> None:
    sale = world.room(capacity=1, unit=unit)
    site = world.room(capacity=0, shares=(sale.id,))
    world.publish(site, sale)
    visitor = Visitor(world.one.port)
    await comes_in(visitor, f"/{sale.id}/x")
    second = twin(visitor, world, 1)
    for client in (visitor, second):
        await comes_in(client, "/around")
    assert (await counts(world, site)).active == 0, "no slot here"
    assert (await counts(world, site)).waiting == 0
    assert f"corvus_{site.id}" not in visitor.cookies
    stranger = Visitor(world.one.port)
    await stranger.get("/around")
    assert (await stranger.get("/around")).json["state"] == "waiting"
    await bye(visitor, second, stranger)


async def test_sharing_goes_one_way(world: Gateways) -> None:
    sale = world.room(capacity=0)
    site = world.room(capacity=5, shares=(sale.id,))
    world.publish(site, sale)
    visitor = await admitted(world, site)
    told = [await visitor.get(f"/{sale.id}/x") for _ in range(2)]
    assert [r.status for r in told] == [429, 429]
    await bye(visitor)


async def test_a_shared_pass_that_is_over_opens_nothing_more(world: Gateways) -> None:
    sale = world.room(capacity=1)
    site = world.room(capacity=0, shares=(sale.id,))
    world.publish(site, sale)
    visitor = Visitor(world.one.port)
    await comes_in(visitor, f"/{sale.id}/x")
    assert (await visitor.get("/around")).status == 200
    sid = held(visitor, sale).sid
    world.operator(sale, "expel", [sid])

    async def is_out() -> bool:
        return (await visitor.get("/around")).status == 429

    await until(is_out, 1.0, "the pass to be dead")
    await bye(visitor)


async def test_the_room_of_the_pass_renews_it_and_is_told_of_ranks(world: Gateways) -> None:
    sale = world.room(capacity=1)
    site = world.room(capacity=0, shares=(sale.id,))
    world.publish(site, sale)
    visitor = Visitor(world.one.port)
    await comes_in(visitor, f"/{sale.id}/x")
    old = age(visitor, sale, sale.refresh_ms + 1)
    world.origin.answer_headers = [("Corvus-Priority", "staff")]
    assert (await visitor.get("/around")).status == 200
    assert held(visitor, sale).iat_ms > old.iat_ms
    assert f"corvus_rank_{sale.id}" in visitor.cookies
    assert f"corvus_rank_{site.id}" not in visitor.cookies
    world.origin.answer_headers = [("Corvus-Session", "revoke")]
    await visitor.get("/logout")
    assert not visitor.cookies
    assert (await counts(world, sale)).active == 0 or await is_empty(world, sale)
    await bye(visitor)


async def is_empty(world: Gateways, room: RoomConfig) -> bool:
    async def ask() -> bool:
        active: int = (await counts(world, room)).active
        return active == 0

    await until(ask, 1.0, "the slot to be free")
    return True
