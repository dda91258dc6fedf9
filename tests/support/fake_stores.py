"""What may stand where a store should be: servers that misbehave, relays that lose answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from tests.support.valkey import Valkey

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def free_port() -> int:
    """Find a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Handlers:
    """Keeps the tasks of a server, so that the end of a test can wait for them."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.tasks: list[asyncio.Task[None]] = []

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.ensure_future(self._run(reader, writer)))

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def fake_store(path: Path, serve: Serve) -> AsyncIterator[str]:
    """Listen at a unix socket; gives its URL. Clients must have gone at the end."""
    handlers = _Handlers(serve)
    server = await asyncio.start_unix_server(handlers, path)
    yield f"unix://{path}"
    server.close()
    await asyncio.gather(*handlers.tasks)


@contextlib.asynccontextmanager
async def relayed(
    valkey: Valkey,
    judge: Callable[[bytes, bytes], bytes],
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Pass commands on to a real store; gives the port.

    `judge(command, answer)` gives the answer that the client sees; none cuts the connection.
    """

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(valkey.socket_path)
        while data := await reader.read(65536):
            forth.write(data)
            answer = judge(data, await back.read(65536))
            if not answer:
                break
            writer.write(answer)
        forth.close()
        await forth.wait_closed()

    handlers = _Handlers(relay)
    server = await asyncio.start_server(handlers, "127.0.0.1", 0, ssl=tls)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await asyncio.gather(*handlers.tasks)
