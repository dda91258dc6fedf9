"""Streams end within a second, on every gateway, when their visitor may not be inside any more."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, TextMessage

from queueing.config import RoomConfig, Unit
from queueing.store import SyncRoomStore
from tests.support.crowd import Visitor, until
from tests.support.gateways import Gateways
from tests.support.origin_socket import OriginSocket, accept_token
from tests.support.raw_origin import OriginConnection, RawOrigin
from tests.support.running import eventually

STREAMS = ("/live/*",)
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Site:
    """An origin with streams of every kind, and pages."""

    def __init__(self) -> None:
        self.open = 0
        self.go_on = asyncio.Event()
        self.heads: list[bytes] = []
        self.lines = b""  # more header lines for every page

    async def __call__(self, connection: OriginConnection) -> None:
        head = await connection.head()
        self.heads.append(head)
        target = head.split(b" ")[1]
        if b"upgrade: websocket" in head.lower():
            await connection.send(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Corvus-Priority: staff\r\n"
                b"Sec-WebSocket-Accept: " + accept_token(head) + b"\r\n\r\n"
            )
            socket = OriginSocket(connection)
            await socket.say(TextMessage("news"))
            self.open += 1
            await socket.hears()
            self.open -= 1
        elif target.startswith((b"/live/events", b"/live/lines", b"/page/long")):
            kind = {b"/live/events": b"text/event-stream", b"/live/lines": b"application/x-ndjson"}
            await connection.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: " + kind.get(target, b"text/html") + b"\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n5\r\nnews\n\r\n"
            )
            self.open += 1
            told = asyncio.create_task(self.go_on.wait())
            gone = asyncio.create_task(connection.ended())
            await asyncio.wait({told, gone}, return_when=asyncio.FIRST_COMPLETED)
            self.open -= 1
            told.cancel()
            if not gone.done():
                gone.cancel()
                await connection.send(b"5\r\nrest\n\r\n0\r\n\r\n")
        else:
            await connection.send(
                b"HTTP/1.1 200 OK\r\n" + self.lines + b"Connection: close\r\n"
                b"Content-Length: 2\r\n\r\nok"
            )


class Watcher:
    """One open stream of a visitor, read until it ends."""

    def __init__(self, port: int, target: str, visitor: Visitor) -> None:
        self.target = target
        self.head = b""
        self.body = b""
        self.ended_at = 0.0
        self.close_code = 0
        self.heard = asyncio.Event()
        self.task = asyncio.create_task(self._read(port, visitor))

    async def _read(self, port: int, visitor: Visitor) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        jar = "; ".join(f"{k}={v}" for k, v in visitor.cookies.items())
        lines = [f"GET {self.target} HTTP/1.1", "host: shop.example", f"cookie: {jar}"]
        socket = "/ws" in self.target
        if socket:
            lines += ["connection: Upgrade", "upgrade: websocket"]
            lines += ["sec-websocket-version: 13", f"sec-websocket-key: {KEY}"]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        frames = Connection(ConnectionType.CLIENT)
        try:
            self.head = await reader.readuntil(b"\r\n\r\n")
            while data := await reader.read(65_536):
                self.body += data
                self.heard.set()
                if self.ended_cleanly:
                    return
                if socket and b" 101 " in self.head:
                    frames.receive_data(data)
                    for event in frames.events():
                        if isinstance(event, CloseConnection):
                            self.close_code = int(event.code)
                            return
        except ConnectionResetError:
            pass
        finally:
            self.ended_at = time.monotonic()
            self.heard.set()
            writer.close()

    @property
    def ended_cleanly(self) -> bool:
        return self.body.endswith(b"\r\n0\r\n\r\n")


class Scene:
    """A visitor who is inside a site, and everything that the test opens there."""

    def __init__(self, world: Gateways, origin: Site) -> None:
        self.world = world
        self.origin = origin
        self.visitors: list[Visitor] = []
        self.streams: list[Watcher] = []

    @property
    def visitor(self) -> Visitor:
        return self.visitors[0]

    def somebody(self, gateway: int = 0, cookies: dict[str, str] | None = None) -> Visitor:
        port = self.world.gateways[gateway].port
        self.visitors.append(Visitor(port, cookies=dict(cookies or {})))
        return self.visitors[-1]

    async def opens(self, *targets: str, gateway: int = 0) -> list[Watcher]:
        """Open these as the visitor; gives them when each has said something."""
        port = self.world.gateways[gateway].port
        opened = [Watcher(port, target, self.visitor) for target in targets]
        self.streams += opened
        await asyncio.gather(*(asyncio.wait_for(s.heard.wait(), 10) for s in opened))
        return opened

    async def close(self) -> None:
        self.origin.go_on.set()
        for stream in self.streams:
            stream.task.cancel()
        await asyncio.gather(*(s.task for s in self.streams), return_exceptions=True)
        for visitor in self.visitors:
            await visitor.close()


@asynccontextmanager
async def site(world: Gateways, room: RoomConfig, *others: RoomConfig) -> AsyncIterator[Scene]:
    """Put the gateways before the site, and a visitor inside."""
    scene = Scene(world, Site())
    async with RawOrigin(scene.origin) as raw:
        url = f"http://127.0.0.1:{raw.port}"
        await asyncio.to_thread(world.publish, room, *others, origin=url, streams=STREAMS)
        visitor = scene.somebody()
        try:
            await visitor.get("/")
            assert (await visitor.get("/")).status == 200
            yield scene
        finally:
            await scene.close()


def sid_of(visitor: Visitor, room: RoomConfig) -> str:
    """Read the visitor's id out of its pass."""
    return re.split(r"[.~]", visitor.cookies[f"corvus_{room.id}"])[4]


def revoke(world: Gateways, room: RoomConfig, sid: str) -> None:
    with world.redis as store:
        SyncRoomStore(store).release(room.id, sid, revoke=True)


Act = Callable[[Gateways, RoomConfig, str], object]
ACTS: dict[str, Act] = {
    "revoke": lambda world, room, sid: revoke(world, room, sid),
    "ban": lambda world, room, sid: world.operator(room, "expel", [sid]),
    "reset": lambda world, room, sid: world.operator(room, "reset"),
    "release all": lambda world, room, sid: world.operator(room, "release_all"),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("unit", Unit)
async def test_wr_51_wr_39_every_stream_ends_within_a_second_and_pages_are_delivered(
    world: Gateways, unit: Unit, act: str
) -> None:
    room = world.room(capacity=5, unit=unit, entries_per_minute=0)
    async with site(world, room) as scene:
        streams = []
        for number in range(2):
            streams += await scene.opens("/live/ws", "/live/events", "/live/lines", gateway=number)
        (page,) = await scene.opens("/page/long")
        began = time.monotonic()
        await asyncio.to_thread(ACTS[act], world, room, sid_of(scene.visitor, room))
        await asyncio.wait_for(asyncio.gather(*(s.task for s in streams)), 5)
        took = [s.ended_at - began for s in streams]
        assert max(took) <= 1.0, took
        for stream in streams:
            if "/ws" in stream.target:
                assert stream.close_code == 4408
            else:
                assert stream.ended_cleanly is ("events" in stream.target), stream.target
        assert not page.task.done()
        scene.origin.go_on.set()
        await asyncio.wait_for(page.task, 5)
        assert page.ended_cleanly
        assert b"rest" in page.body


async def test_wr_51_an_open_stream_keeps_the_slot_of_its_visitor(world: Gateways) -> None:
    room = world.room(capacity=1, active_ttl_ms=2_000, refresh_ms=1_000, entries_per_minute=0)
    async with site(world, room) as scene:
        (stream,) = await scene.opens("/live/events", gateway=1)
        other = scene.somebody()
        await other.get("/")
        end = time.monotonic() + 4
        while time.monotonic() < end:
            assert (await other.get("/")).status == 429
        stream.task.cancel()

        async def is_in() -> bool:
            return (await other.get("/")).status == 200

        await until(is_in, 6, "the slot of the stream that has ended")


async def taken(world: Gateways, room: RoomConfig, slots: int) -> bool:
    stats = await asyncio.to_thread(world.operator, room, "stats")
    active: int = stats.counts.active
    return active == slots


async def test_wr_51_streams_take_no_slot_of_a_room_that_counts_requests(world: Gateways) -> None:
    room = world.room(capacity=1, unit=Unit.REQUESTS, entries_per_minute=0)
    async with site(world, room) as scene:
        await scene.opens("/live/ws", "/live/events", "/live/ws")
        await until(lambda: taken(world, room, 0), what="no slot to be taken")
        assert (await scene.visitor.get("/")).status == 200


async def test_a_page_that_becomes_a_websocket_gives_its_slot_back(world: Gateways) -> None:
    room = world.room(capacity=1, unit=Unit.REQUESTS, lease_ttl_ms=2_000, entries_per_minute=0)
    async with site(world, room) as scene:
        await until(lambda: taken(world, room, 0), what="the first page's slot to be free")
        (socket,) = await scene.opens("/page/ws")
        await until(lambda: taken(world, room, 0), 1.0, "the slot to be given back")
        assert (await scene.visitor.get("/")).status == 200
        await until(lambda: taken(world, room, 0), what="the page's slot to be free")
        end = time.monotonic() + 2.5  # longer than the lease would have lasted
        while time.monotonic() < end:
            assert await taken(world, room, 0)
            assert not socket.task.done()
        began = time.monotonic()
        await asyncio.to_thread(revoke, world, room, sid_of(scene.visitor, room))
        await asyncio.wait_for(socket.task, 5)
        assert socket.ended_at - began <= 1.0
        assert socket.close_code == 4408


@pytest.mark.parametrize("unit", Unit)
async def test_wr_53_the_origin_ends_a_session_once_and_everywhere(
    world: Gateways, unit: Unit
) -> None:
    room = world.room(capacity=1, unit=unit, entries_per_minute=0)
    async with site(world, room) as scene:
        streams = await scene.opens("/live/ws")
        streams += await scene.opens("/live/ws", gateway=1)
        old = dict(scene.visitor.cookies)
        scene.origin.lines = b"Corvus-Session: revoke\r\nCorvus-Priority: staff\r\n"
        began = time.monotonic()
        reply = await scene.visitor.get("/live/sign-out")
        assert reply.status == 200
        assert not [name for name, _ in reply.headers if name.startswith("corvus")]
        cleared = [v for n, v in reply.headers if n == "set-cookie" and "Max-Age=0" in v]
        names = {f"corvus_{room.id}", f"corvus_rank_{room.id}"}
        assert {c.partition("=")[0] for c in cleared} == names
        await scene.somebody(cookies=old).get("/live/sign-out")
        await asyncio.wait_for(asyncio.gather(*(s.task for s in streams)), 5)
        assert max(s.ended_at - began for s in streams) <= 1.0
        for number in range(2):
            again = scene.somebody(number, old)
            assert (await again.get("/live/sign-out")).status == 429, "the pass is dead"
        stats = await asyncio.to_thread(world.operator, room, "stats")
        assert stats.totals["revoked"] == 1


async def test_wr_53_the_next_waiter_is_let_in_in_the_same_second(world: Gateways) -> None:
    room = world.room(capacity=1, entries_per_minute=0)
    async with site(world, room) as scene:
        waiting = scene.somebody(gateway=1)
        await waiting.get("/")
        assert (await waiting.get("/")).status == 429
        scene.origin.lines = b"Corvus-Session: revoke\r\n"
        began = time.monotonic()
        await asyncio.gather(scene.visitor.get("/a"), scene.somebody().get("/", "HEAD"))
        scene.origin.lines = b""
        await until(lambda: is_granted(world, room), what="the next waiter's turn")
        assert time.monotonic() - began <= 1.0
        assert (await waiting.get("/")).status == 200


async def is_granted(world: Gateways, room: RoomConfig) -> bool:
    stats = await asyncio.to_thread(world.operator, room, "stats")
    return bool(stats.counts.granted)


async def test_wr_14_ranks_are_granted_by_pages_alone_and_shown_to_nobody(world: Gateways) -> None:
    room = world.room(capacity=5, entries_per_minute=0)
    rank = f"corvus_rank_{room.id}"
    async with site(world, room) as scene:
        scene.origin.lines = b"Corvus-Priority: guest\r\nCorvus-Priority: checkout\r\n"
        stream = await scene.visitor.get("/live/plain")
        assert stream.status == 200
        assert rank not in scene.visitor.cookies
        page = await scene.visitor.get("/page")
        assert rank in scene.visitor.cookies, "the last line counts"
        (socket,) = await scene.opens("/live/ws")
        told = [name for reply in (stream, page) for name, _ in reply.headers]
        assert not [name for name in told if name.startswith("corvus-")]
        assert b"corvus-" not in socket.head.lower()


async def test_wr_71_a_stream_opened_by_another_rooms_pass_ends_with_that_pass(
    world: Gateways,
) -> None:
    main = world.room(capacity=5, entries_per_minute=0)
    side = world.room(capacity=5, entries_per_minute=0, shares=(main.id,))
    async with site(world, main, side) as scene:
        (socket,) = await scene.opens(f"/{side.id}/ws", gateway=1)
        assert b" 101 " in socket.head
        await asyncio.to_thread(revoke, world, main, sid_of(scene.visitor, main))
        await asyncio.wait_for(socket.task, 2)
        assert socket.close_code == 4408


def test_the_figures_tell_process_machine_and_room_apart(world: Gateways) -> None:
    room = world.room(capacity=8, max_queue=50, unit=Unit.REQUESTS)
    world.publish(room)
    with world.one.api() as visitor:
        visitor.get("/")
        assert visitor.get("/").status_code == 200
    figures = eventually(
        lambda: f if (f := world.stats())["rooms"][room.id]["admitted_total"] else None
    )
    found = figures["rooms"][room.id]
    assert (found["cap"], found["max_queue_depth"], found["priority_lane_cap"]) == (8, 50, 2)
    assert (found["occupancy"], found["queue_depth"], found["live_queue_depth"]) == (0, 0, 0)
    assert found["queued_total"] == 0
    assert 0 <= found["utilization"] <= 1
    machine = figures["machine"]
    assert (machine["asset_cap"], machine["asset_in_flight"]) == (434 * 128, 0)
    assert machine["asset_users"] == 0
    assert (machine["stream_cap"], machine["stream_active"]) == (1_000, 0)
    assert machine["machines"] >= 1
    assert figures["process"]["priority_requests_guest"] >= 1
