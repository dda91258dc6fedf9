"""Visitors who go away while the origin works for them: their slot counts until it has done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, Unit
from tests.support.crowd import Visitor, until
from tests.support.gateways import Gateways
from tests.support.halting_relay import halting_relay
from tests.support.raw_origin import OriginConnection, RawOrigin

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


class Origin:
    """Answers at once, but for `/slow`: there it begins as told and goes on when told."""

    def __init__(self, begin: bytes = b"", then: bytes = OK) -> None:
        self.begin, self.then = begin, then
        self.go_on = asyncio.Event()
        self.working = asyncio.Event()
        self.broken_off = asyncio.Event()
        self.heads: list[bytes] = []

    async def __call__(self, connection: OriginConnection) -> None:
        head = await connection.head()
        self.heads.append(head.partition(b"\r\n")[0])
        if b"/slow" not in head:
            await connection.send(OK)
            return
        await connection.send(self.begin)
        self.working.set()
        told = asyncio.create_task(self.go_on.wait())
        gone = asyncio.create_task(connection.ended())
        await asyncio.wait({told, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self.broken_off.set()
        else:
            await connection.send(self.then)
        told.cancel()
        gone.cancel()


@asynccontextmanager
async def before(
    world: Gateways, origin: Origin, room: RoomConfig, timeout_s: float = 30.0
) -> AsyncIterator[tuple[Visitor, Visitor]]:
    """Put the gateways before an origin; gives two visitors who have been inside."""
    async with RawOrigin(origin) as raw:
        settings = GatewaySettings(upstream_timeout_s=timeout_s, access_log=False)
        url = f"http://127.0.0.1:{raw.port}"
        await asyncio.to_thread(world.publish, room, settings=settings, origin=url)
        pair = Visitor(world.gateways[0].port), Visitor(world.gateways[1].port)
        for visitor in pair:
            await visitor.get("/")
        await let_in(pair[0])
        await until(lambda: is_taken(world, room, 0), what="nobody to be inside")
        yield pair
        for visitor in pair:
            await visitor.close()


async def let_in(visitor: Visitor) -> None:
    async def is_in() -> bool:
        return (await visitor.get("/page")).status == 200

    await until(is_in, what="the slot")


async def is_taken(world: Gateways, room: RoomConfig, slots: int) -> bool:
    stats = await asyncio.to_thread(world.operator, room, "stats")
    taken: int = stats.counts.active
    return taken == slots


async def leave(visitor: Visitor, asking: asyncio.Task[object]) -> None:
    """Hang up in the middle of an answer."""
    assert visitor._writer is not None
    visitor._writer.transport.abort()
    await asyncio.gather(asking, return_exceptions=True)
    visitor._writer = None


def requests_room(world: Gateways, **values: object) -> RoomConfig:
    return world.room(capacity=1, unit=Unit.REQUESTS, entries_per_minute=0, **values)


@pytest.mark.parametrize(
    ("begin", "then"),
    [(b"", OK), (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha", b"lf")],
    ids=["before the answer", "within it"],
)
async def test_reloading_gets_no_second_request_to_an_origin_that_is_full(
    world: Gateways, begin: bytes, then: bytes
) -> None:
    origin = Origin(begin, then)
    room = requests_room(world)
    async with before(world, origin, room) as (visitor, other):
        asking = asyncio.create_task(visitor.get("/slow"))
        await origin.working.wait()
        await leave(visitor, asking)
        for someone in (other, visitor, other):
            assert (await someone.get("/page")).status == 429
        assert not origin.broken_off.is_set()
        assert origin.heads.count(b"GET /page HTTP/1.1") == 1
        origin.go_on.set()
        await let_in(other)
        await until(lambda: is_taken(world, room, 0), what="the slot to be free")


async def test_the_slot_of_a_departed_visitor_is_renewed_while_the_origin_works(
    world: Gateways,
) -> None:
    origin = Origin()
    room = requests_room(world, lease_ttl_ms=2_000)
    async with before(world, origin, room) as (visitor, other):
        asking = asyncio.create_task(visitor.get("/slow"))
        await origin.working.wait()
        await leave(visitor, asking)
        loop = asyncio.get_running_loop()
        end = loop.time() + 3
        while loop.time() < end:
            assert (await other.get("/page")).status == 429
        origin.go_on.set()
        await let_in(other)


async def test_an_origin_that_never_answers_keeps_a_departed_visitors_slot_for_its_time_alone(
    world: Gateways,
) -> None:
    origin = Origin(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nbegun")
    async with before(world, origin, requests_room(world), timeout_s=1.0) as (visitor, other):
        asking = asyncio.create_task(visitor.get("/slow"))
        await origin.working.wait()
        loop = asyncio.get_running_loop()
        left_at = loop.time()
        await leave(visitor, asking)
        await let_in(other)
        assert loop.time() - left_at > 0.8
        assert origin.broken_off.is_set()


async def stream(world: Gateways, visitor: Visitor, origin: Origin) -> asyncio.Task[object]:
    origin.begin = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"
    return asyncio.create_task(visitor.get("/slow"))


async def upload(world: Gateways, visitor: Visitor, origin: Origin) -> asyncio.Task[object]:
    jar = "; ".join(f"{k}={v}" for k, v in visitor.cookies.items())
    await visitor.close()
    visitor._reader, visitor._writer = await asyncio.open_connection("127.0.0.1", visitor.port)
    head = f"POST /slow HTTP/1.1\r\nhost: shop.example\r\ncookie: {jar}\r\ncontent-length: 900\r\n"
    visitor._writer.write(head.encode() + b"\r\npart")
    return asyncio.create_task(visitor._reader.read())  # type: ignore[arg-type]


@pytest.mark.parametrize("act", [stream, upload])
async def test_what_has_no_end_by_itself_ends_with_its_visitor(
    world: Gateways, act: Callable[..., Awaitable[asyncio.Task[object]]]
) -> None:
    origin = Origin()
    async with before(world, origin, requests_room(world)) as (visitor, other):
        asking = await act(world, visitor, origin)
        await origin.working.wait()
        await leave(visitor, asking)
        await asyncio.wait_for(origin.broken_off.wait(), 5)
        await let_in(other)


async def test_in_unit_visitors_the_origin_is_told_at_once(world: Gateways) -> None:
    origin = Origin()
    async with before(world, origin, visitors_room(world)) as (visitor, _):
        asking = asyncio.create_task(visitor.get("/slow"))
        await origin.working.wait()
        await leave(visitor, asking)
        await asyncio.wait_for(origin.broken_off.wait(), 2)


def visitors_room(world: Gateways) -> RoomConfig:
    return world.room(capacity=2, active_ttl_ms=2_000, refresh_ms=1_000, entries_per_minute=0)


async def test_who_leaves_while_the_store_is_asked_keeps_no_slot(world: Gateways) -> None:
    """Else anybody could lock everybody out by opening connections and closing them."""
    room = requests_room(world)
    async with halting_relay(world.store_url) as relay:
        alone = {"CORVUS_STORE_URL": relay.url, "CORVUS_MACHINE_DIR": str(world.folder / "other")}
        gateway = await asyncio.to_thread(world.start, alone)
        try:
            await asyncio.to_thread(world.publish, room)
            visitor = Visitor(gateway.port)
            await visitor.get("/")
            jar = "; ".join(f"{k}={v}" for k, v in visitor.cookies.items())
            ask = f"GET /page HTTP/1.1\r\nhost: shop.example\r\ncookie: {jar}\r\n\r\n".encode()
            for _ in range(60):
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                writer.write(ask)
                seen = len(relay.asked)

                async def asked(since: int = seen) -> bool:
                    await asyncio.sleep(0)
                    return "enter" in relay.asked[since:]

                await until(asked, what="the store to be asked")
                writer.transport.abort()
            assert (await asyncio.wait_for(let_in_with(visitor), 5)) == 200
            await until(lambda: is_taken(world, room, 0), 5, "every slot to be given back")
            await visitor.close()
        finally:
            gateway.process.kill()
            await asyncio.to_thread(gateway.process.wait)
            world.gateways.remove(gateway)


async def let_in_with(visitor: Visitor) -> int:
    await let_in(visitor)
    return 200
