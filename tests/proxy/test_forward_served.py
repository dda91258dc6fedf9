"""Forwarder and relay behind our own server: what a visitor sees on the wire."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Message, TextMessage

from corvus_site.server.gateway_server import GatewayServer, ServerOptions
from proxy.gateway.forward import forward
from proxy.gateway.headers import Sender, origin_head
from proxy.gateway.running import StopSignal
from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_messages import Origin
from proxy.gateway.websocket import relay
from tests.support.origin_socket import accept_websocket
from tests.support.raw_origin import OriginConnection, RawOrigin, answering

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"
OPEN = (
    b"GET /ws HTTP/1.1\r\nHost: shop.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: chat\r\n\r\n"
)


class Visitor:
    """A raw connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = Connection(ConnectionType.CLIENT)
        self._events: list[Event] = []

    async def sends(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 10)

    async def says(self, event: Event) -> None:
        await self.sends(bytes(self.frames.send(event)))

    async def hears(self) -> Event:
        while not self._events:
            data = await asyncio.wait_for(self.reader.read(65_536), 10)
            self.frames.receive_data(data or None)
            self._events += self.frames.events()
        return self._events.pop(0)


@asynccontextmanager
async def served(origin: Origin, stop: StopSignal | None = None) -> AsyncIterator[Any]:
    """Serve the smallest gateway on our server; gives a function that opens connections."""
    upstream = UpstreamClient()
    visitors: list[Visitor] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        peer = scope["client"][0]
        head = origin_head(
            method=scope.get("method", "GET").encode(),
            target=scope["extensions"]["corvus.server"]["target"],
            headers=scope["headers"],
            sender=Sender(peer=peer, client=peer, trusted=False, scheme="http"),
        )
        common = {"scope": scope, "receive": receive, "send": send, "origin": origin}
        if scope["type"] == "websocket":
            await relay(**common, head=head, upstream=upstream, stop=stop)
        else:
            await forward(**common, head=head, upstream=upstream)

    async def connect() -> Visitor:
        visitors.append(Visitor(*await asyncio.open_connection("127.0.0.1", port)))
        return visitors[-1]

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    options = ServerOptions(sockets=(listener,))
    server = GatewayServer(app, replace(options, limits=replace(options.limits, drain_s=0.0)))
    await server.start()
    try:
        yield connect
    finally:
        for visitor in visitors:
            visitor.writer.close()
        await server.drain()
        await upstream.close()


async def test_hints_trailers_and_bytes_arrive_on_the_wire() -> None:
    answer = (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=\xff\r\nTrailer: X-Sum\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n"
    )
    async with RawOrigin(answering(answer)) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(GET.replace(b"Host", b"TE: trailers\r\nConnection: te\r\nHost"))
        assert (await visitor.head()).lower().startswith(b"http/1.1 103")
        head = await visitor.head()
        assert head.index(b"a=1") < head.index(b"b=\xff")
        body = await visitor.reader.readuntil(b"0\r\n")
        assert body == b"2\r\nok\r\n0\r\n"
        assert (await visitor.reader.readuntil(b"\r\n\r\n")).lower() == b"x-sum: 7\r\n\r\n"


async def test_a_truncated_answer_is_cut_and_never_ended() -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")

    async with RawOrigin(handle) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(GET)
        await visitor.head()
        try:
            rest = await visitor.rest()
        except ConnectionResetError:
            rest = b""
        assert not rest.endswith(b"0\r\n\r\n")


async def test_a_visitor_that_goes_frees_the_origin_at_once() -> None:
    arrived = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        arrived.set()
        await connection.ended()

    async with RawOrigin(handle) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(GET)
        await asyncio.wait_for(arrived.wait(), 5)
        visitor.writer.transport.abort()
        assert await raw.connections[0].ended()


async def test_a_chunked_upload_streams_through_and_the_connection_lives_on() -> None:
    first = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        assert await connection.exactly(10) == b"5\r\nfirst\r\n"
        first.set()
        assert b"".join(await connection.chunked()) == b"second"
        await connection.send(OK)
        await connection.head()
        await connection.send(OK)

    async with RawOrigin(handle) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(
            b"POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nfirst\r\n"
        )
        await asyncio.wait_for(first.wait(), 5)
        await visitor.sends(b"6\r\nsecond\r\n0\r\n\r\n")
        for number in range(2):
            await visitor.head()
            assert await visitor.reader.readexactly(2) == b"ok"
            if number == 0:
                await visitor.sends(GET)
        assert len(raw.connections) == 1


async def test_a_websocket_passes_5_mb_both_ways_and_its_sub_protocol() -> None:
    message = "ä€😀x" * 500_000

    async def handle(connection: OriginConnection) -> None:
        ws = await accept_websocket(connection, b"Sec-WebSocket-Protocol: chat\r\n")
        await ws.say(TextMessage(await ws.hears_message()))
        await ws.hears()

    async with RawOrigin(handle) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(OPEN)
        head = (await visitor.head()).lower()
        assert head.startswith(b"http/1.1 101")
        assert b"\r\nsec-websocket-protocol: chat\r\n" in head
        await visitor.says(TextMessage(message))
        got = ""
        while True:
            event = await visitor.hears()
            assert isinstance(event, Message), event
            got += event.data
            if event.message_finished:
                break
        assert got == message


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4408])
async def test_close_codes_of_the_origin_arrive_on_the_wire(code: int) -> None:
    async def handle(connection: OriginConnection) -> None:
        ws = await accept_websocket(connection)
        await ws.say(CloseConnection(code=code, reason="why"))
        await ws.hears()

    async with RawOrigin(handle) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(OPEN)
        await visitor.head()
        event = await visitor.hears()
        assert isinstance(event, CloseConnection)
        assert (int(event.code), event.reason) == (code, "why")


@pytest.mark.parametrize("code", [1000, 1001, 4001])
async def test_close_codes_of_the_visitor_reach_the_origin(code: int) -> None:
    closed: asyncio.Queue[Event] = asyncio.Queue()

    async def handle(connection: OriginConnection) -> None:
        ws = await accept_websocket(connection)
        closed.put_nowait(await ws.hears())

    async with RawOrigin(handle) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(OPEN)
        await visitor.head()
        await visitor.says(CloseConnection(code=code, reason="bye"))
        event = await asyncio.wait_for(closed.get(), 5)
        assert isinstance(event, CloseConnection)
        assert (int(event.code), event.reason) == (code, "bye")


async def test_the_gateways_own_close_arrives_on_both_sides() -> None:
    stop = StopSignal()
    closed: asyncio.Queue[Event] = asyncio.Queue()

    async def handle(connection: OriginConnection) -> None:
        ws = await accept_websocket(connection)
        closed.put_nowait(await ws.hears())

    async with RawOrigin(handle) as raw, served(raw.origin(), stop) as connect:
        visitor = await connect()
        await visitor.sends(OPEN)
        await visitor.head()
        stop.close(4408, "time over")
        event = await visitor.hears()
        assert isinstance(event, CloseConnection)
        assert int(event.code) == 4408
        told = await asyncio.wait_for(closed.get(), 5)
        assert isinstance(told, CloseConnection)
        assert int(told.code) == 4408


async def test_a_refused_handshake_arrives_with_status_and_body() -> None:
    answer = (
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 6\r\n\r\nplease"
    )
    async with RawOrigin(answering(answer)) as raw, served(raw.origin()) as connect:
        visitor = await connect()
        await visitor.sends(OPEN)
        head = await visitor.head()
        assert head.startswith(b"HTTP/1.1 401")
        assert b"www-authenticate: basic" in head.lower()
        assert await visitor.reader.readexactly(6) == b"please"
