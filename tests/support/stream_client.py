"""Streams of a gateway as a visitor opens them, and a small origin that serves any number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Message

from tests.support.crowd import Reply
from tests.support.origin_socket import accept_token
from tests.support.raw_origin import OriginConnection, RawOrigin

_SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: "
)
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n"
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage"


@dataclass
class StreamOrigin:
    """What an origin of streams has been asked."""

    heads: list[bytes] = field(default_factory=list)
    open: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, connection: OriginConnection) -> None:
        """Open what is asked for and keep it open until the other side ends it."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await connection.head()
                self.heads.append(head)
                if b"upgrade: websocket" in head.lower():
                    await connection.send(_SWITCH + accept_token(head) + b"\r\n\r\n")
                    await self._hold(connection)
                    return
                if b"text/event-stream" in head.lower():
                    await connection.send(_EVENTS + b"data: first\n\n")
                    await self._hold(connection)
                    return
                await connection.send(_PAGE)

    async def _hold(self, connection: OriginConnection) -> None:
        self.open += 1
        try:
            while await connection.reader.read(4096):
                pass
        finally:
            self.open -= 1


@asynccontextmanager
async def stream_origin() -> AsyncIterator[StreamOrigin]:
    """Serve an origin of streams."""
    seen = StreamOrigin()
    async with RawOrigin(seen.serve) as raw:
        seen.port = raw.port
        yield seen


class Stream:
    """One WebSocket or event stream on an own connection to a gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = Connection(ConnectionType.CLIENT)

    async def closed_with(self) -> int:
        """Wait for the close of a WebSocket; gives its code."""
        while True:
            data = await asyncio.wait_for(self._reader.read(65_536), 10)
            self._frames.receive_data(data or None)
            events: list[Event] = list(self._frames.events())
            for event in events:
                if isinstance(event, CloseConnection):
                    return int(event.code)
                assert isinstance(event, Message), event

    async def ended(self) -> bytes:
        """Wait for the last chunk of an event stream; gives what came."""
        return await asyncio.wait_for(self._reader.readuntil(b"\r\n0\r\n\r\n"), 10)

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def open_stream(
    port: int, target: str, cookies: dict[str, str], *, socket: bool = True
) -> tuple[Reply, Stream]:
    """Ask for a WebSocket, or for an event stream; gives the answer's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET {target} HTTP/1.1", "host: shop.example"]
    lines += [f"cookie: {'; '.join(f'{k}={v}' for k, v in cookies.items())}"] if cookies else []
    if socket:
        lines += ["upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13"]
        lines += ["sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="]
    else:
        lines += ["accept: text/event-stream"]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode("latin-1")
    first, *rest = head.rstrip().split("\r\n")
    headers = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in rest)]
    reply = Reply(int(first.split(" ")[1]), headers, b"")
    if (length := reply.header("content-length")) is not None:
        reply.body = await reader.readexactly(int(length))
    return reply, Stream(reader, writer)
