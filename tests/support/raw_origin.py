"""An origin made of a raw socket: what it receives and sends are exact bytes, said by each test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType

from proxy.gateway.upstream_messages import Origin

Handler = Callable[["OriginConnection"], Awaitable[None]]


class OriginConnection:
    """One accepted connection, with what a test needs to talk on it."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer
        self._end: asyncio.Future[bool] | None = None

    async def head(self) -> bytes:
        """Read one request head, with its blank line."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def exactly(self, size: int) -> bytes:
        return await self.reader.readexactly(size)

    async def chunked(self) -> list[bytes]:
        """Read a chunked body to its end; one item a chunk."""
        chunks = []
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            chunks.append(await self.reader.readexactly(size))
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return chunks

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ended(self) -> bool:
        """Wait until the other side closes; whatever it still sends is an error of the test.

        Handler and test may both wait.
        """
        if self._end is None:
            self._end = asyncio.ensure_future(self._see_end())
        return await asyncio.wait_for(asyncio.shield(self._end), 10)

    async def _see_end(self) -> bool:
        with suppress(ConnectionError):
            assert await self.reader.read(1) == b""
        return True

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        with suppress(AttributeError):  # asyncio's own, where the transport has ended already
            self.writer.transport.abort()


class RawOrigin:
    """Serves on a free loopback port inside `async with`; a failed handler fails the block."""

    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.connections: list[OriginConnection] = []
        self.port = 0

    async def __aenter__(self) -> RawOrigin:
        self._server = await asyncio.start_server(
            self._accepted, "127.0.0.1", 0, ssl=self._tls, limit=1 << 20
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self.connections:
            connection.reset()
            if connection._end is not None:
                await asyncio.wait({connection._end}, timeout=5)
        if self._failures and kind is None:
            raise self._failures[0]

    def origin(
        self,
        *,
        response_timeout_s: float = 5.0,
        connect_timeout_s: float = 5.0,
        verify: bool = True,
    ) -> Origin:
        """Give the address as the gateway's client wants it."""
        return Origin(
            scheme="https" if self._tls else "http",
            host="127.0.0.1",
            port=self.port,
            verify=verify,
            response_timeout_s=response_timeout_s,
            connect_timeout_s=connect_timeout_s,
        )

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = OriginConnection(len(self.connections) + 1, reader, writer)
        self.connections.append(connection)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._handler(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side closed: what a test expects of that it asserts itself
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._failures.append(error)
            connection.reset()
        finally:
            self._tasks.discard(task)
            connection.close()


def answering(*answers: bytes) -> Handler:
    """Answer the requests without a body on each connection in turn, then wait for its end."""

    async def handle(connection: OriginConnection) -> None:
        for answer in answers:
            await connection.head()
            await connection.send(answer)
        await connection.ended()

    return handle
