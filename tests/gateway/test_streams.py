"""Streams: who may open one, how many there may be, and when they end (WR-51)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, Unit
from tests.support.crowd import Visitor, until
from tests.support.gate_passes import admitted, age, held
from tests.support.gateways import Gateways
from tests.support.stream_client import StreamOrigin, open_stream, stream_origin

STREAMS: dict[str, Any] = {"streams": ("/live/*",)}
QUIET: dict[str, Any] = {"access_log": False}


async def inside(world: Gateways, room: RoomConfig) -> int:
    stats = await asyncio.to_thread(world.operator, room, "stats")
    active: int = stats.counts.active
    return active


async def is_open(origin: StreamOrigin, count: int) -> bool:
    await asyncio.sleep(0)
    return origin.open == count


def in_use(world: Gateways) -> int:
    active: int = world.stats()["machine"]["stream_active"]
    return active


@pytest.mark.parametrize("socket", [True, False])
async def test_wr_51_without_a_pass_429_before_the_upgrade(world: Gateways, socket: bool) -> None:
    async with stream_origin() as origin:
        room = world.room(capacity=5)
        world.publish(room, origin=origin.url, **STREAMS)
        reply, stream = await open_stream(world.one.port, "/live/a", {}, socket=socket)
        assert reply.status == 429
        assert int(reply.header("retry-after") or 0) >= 5
        assert reply.header("x-waiting-room") == "none"
        assert reply.json["state"] == "none"
        assert not origin.heads
        await stream.close()


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("socket", [True, False])
async def test_wr_51_with_a_pass_streams_flow_while_the_room_is_full(
    world: Gateways, socket: bool, unit: Unit
) -> None:
    async with stream_origin() as origin:
        room = world.room(capacity=1, unit=unit)
        world.publish(room, origin=origin.url, **STREAMS)
        visitor = await admitted(world, room)
        opened = [
            await open_stream(g.port, "/live/a", visitor.cookies, socket=socket)
            for g in world.gateways
        ]
        assert {reply.status for reply, _ in opened} == {101 if socket else 200}
        assert await inside(world, room) == (1 if unit is Unit.VISITORS else 0)
        for _, stream in opened:
            await stream.close()
        await until(lambda: is_open(origin, 0), what="the origin's ends to be closed")
        await visitor.close()


async def test_wr_51_over_the_cap_503_at_once_over_both_processes(world: Gateways) -> None:
    async with stream_origin() as origin:
        room = world.room(capacity=5)
        settings = GatewaySettings(stream_cap=3, **QUIET)
        world.publish(room, origin=origin.url, settings=settings, **STREAMS)
        visitor = await admitted(world, room)
        ports = [g.port for g in world.gateways]
        streams = []
        for port, target in ((ports[0], "/live/a"), (ports[1], "/live/b"), (ports[0], "/page")):
            reply, stream = await open_stream(port, target, visitor.cookies)
            assert reply.status == 101, "a WebSocket outside the stream paths counts, too"
            streams.append(stream)
        for port, target, socket in (
            (ports[0], "/live/a", True),
            (ports[1], "/live/a", False),
            (ports[1], "/page", True),
        ):
            reply, stream = await open_stream(port, target, visitor.cookies, socket=socket)
            assert (reply.status, reply.header("retry-after")) == (503, "5")
            await stream.close()
        assert origin.open == 3
        await streams.pop().close()
        await until(lambda: is_open(origin, 2), what="one stream to end")

        async def opens() -> bool:
            reply, stream = await open_stream(ports[1], "/live/a", visitor.cookies)
            streams.append(stream)
            return reply.status == 101

        await until(opens, what="the place to be free")
        for stream in streams:
            await stream.close()
        await until(lambda: is_open(origin, 0))
        await visitor.close()


async def test_unit_requests_a_socket_outside_the_stream_paths_gives_its_page_slot_back(
    world: Gateways,
) -> None:
    async with stream_origin() as origin:
        room = world.room(capacity=1, unit=Unit.REQUESTS)
        settings = GatewaySettings(stream_cap=1, **QUIET)
        world.publish(room, origin=origin.url, settings=settings)
        visitor = await admitted(world, room)
        await until(lambda: is_free(world, room), what="the first page's slot")
        reply, stream = await open_stream(world.one.port, "/page", visitor.cookies)
        assert reply.status == 101
        await until(lambda: is_free(world, room), 5.0, "the slot to be given back")
        assert (await visitor.get("/other")).status == 200
        refused, second = await open_stream(world.one.port, "/page", visitor.cookies)
        assert refused.status == 503
        await until(lambda: is_free(world, room), 5.0, "the refused one's slot")
        await stream.close()
        await second.close()
        await visitor.close()


async def is_free(world: Gateways, room: RoomConfig) -> bool:
    return await inside(world, room) == 0


async def test_wr_51_an_open_stream_keeps_the_visitors_slot(world: Gateways) -> None:
    async with stream_origin() as origin:
        room = world.room(capacity=1, active_ttl_ms=2_000, refresh_ms=1_000)
        world.publish(room, origin=origin.url, **STREAMS)
        visitor = await admitted(world, room)
        slot = held(visitor, room)
        reply, stream = await open_stream(world.one.port, "/live/a", visitor.cookies)
        assert reply.status == 101
        key = f"corvus:wr:{{{room.id}}}:active"

        async def outlived() -> bool:
            with world.redis as store:
                end = await asyncio.to_thread(store.zscore, key, slot.sid)
                assert end is not None, "the slot is kept"
                now = (await asyncio.to_thread(store.time))[0] * 1000
            return now > slot.exp_ms + 2_000

        await until(outlived, what="the slot to outlive two of its lives")
        assert (await visitor.get("/")).status == 200
        await stream.close()
        await visitor.close()


async def test_an_expired_pass_opens_a_stream_while_its_slot_lives(world: Gateways) -> None:
    async with stream_origin() as origin:
        room = world.room(capacity=1)
        world.publish(room, origin=origin.url, **STREAMS)
        visitor = await admitted(world, room)
        age(visitor, room, room.active_ttl_ms + 10)
        reply, stream = await open_stream(world.one.port, "/live/a", visitor.cookies, socket=False)
        assert reply.status == 200
        assert "corvus_" in (reply.header("set-cookie") or ""), "its pass is renewed"
        await stream.close()
        await visitor.close()


@pytest.mark.parametrize("act", ["revoke", "reset"])
async def test_wr_51_streams_of_who_may_not_be_inside_end_within_a_second_everywhere(
    world: Gateways, act: str
) -> None:
    async with stream_origin() as origin:
        room = world.room(capacity=1)
        world.publish(room, origin=origin.url, **STREAMS)
        visitor = await admitted(world, room)
        sid = held(visitor, room).sid
        _, socket = await open_stream(world.one.port, "/live/a", visitor.cookies)
        _, events = await open_stream(
            world.gateways[1].port, "/live/b", visitor.cookies, socket=False
        )
        await until(lambda: is_open(origin, 2))
        if act == "reset":
            await asyncio.to_thread(world.operator, room, "reset")
        else:
            await asyncio.to_thread(world.operator, room, "expel", [sid])
        began = asyncio.get_running_loop().time()
        assert await socket.closed_with() == 4408
        assert b"data: first" in await events.ended()
        assert asyncio.get_running_loop().time() - began < 1.0
        await until(lambda: is_open(origin, 0), 2.0)
        assert in_use(world) == 0
        for stream in (socket, events):
            await stream.close()
        await visitor.close()


async def test_a_host_without_rooms_opens_streams_to_everybody_within_the_cap(
    world: Gateways,
) -> None:
    async with stream_origin() as origin:
        settings = GatewaySettings(stream_cap=1, **QUIET)
        world.publish(origin=origin.url, settings=settings, **STREAMS)
        first, stream = await open_stream(world.one.port, "/live/a", {})
        second, other = await open_stream(world.gateways[1].port, "/live/a", {})
        assert (first.status, second.status) == (101, 503)
        await stream.close()
        await other.close()
        visitor = Visitor(world.one.port)
        assert (await visitor.get("/")).status == 200
        await visitor.close()


async def test_a_preflight_of_a_stream_passes_as_one_of_a_page_does(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room, **STREAMS)
    visitor = Visitor(world.one.port)
    visitor.headers |= {"origin": "https://a.example", "access-control-request-method": "GET"}
    assert (await visitor.get("/live/a", "OPTIONS")).status == 200
    del visitor.headers["access-control-request-method"]
    assert (await visitor.get("/live/a", "OPTIONS")).status == 429
    await visitor.close()
