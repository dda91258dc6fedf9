"""Many visitors at once on raw sockets; each keeps its cookie and one connection."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class Reply:
    """One answer."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Give a header's first value."""
        return next((v for k, v in self.headers if k == name), None)

    @property
    def json(self) -> dict[str, Any]:
        """Read the body."""
        document: dict[str, Any] = json.loads(self.body)
        return document


@dataclass
class Visitor:
    """One API client of one gateway port."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=lambda: {"accept": "application/json"})
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def get(self, target: str = "/", method: str = "GET", body: bytes = b"") -> Reply:
        """Ask, on the connection that is open; keep the cookies of the answer."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self._reader is not None
        jar = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        lines = [f"{method} {target} HTTP/1.1", "host: shop.example"]
        lines += [f"{k}: {v}" for k, v in self.headers.items()]
        lines += [f"cookie: {jar}"] if jar else []
        lines += [f"content-length: {len(body)}"] if body else []
        self._writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        reply = await _read(self._reader, method)
        self._keep(reply)
        if reply.header("connection") == "close":
            await self.close()
        return reply

    async def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _keep(self, reply: Reply) -> None:
        for name, value in reply.headers:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                content = rest.partition(";")[0]
                if "Max-Age=0" in value:
                    self.cookies.pop(key, None)
                else:
                    self.cookies[key] = content


async def _read(reader: asyncio.StreamReader, method: str) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    headers = [
        (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)
    ]
    reply = Reply(int(first.split(" ")[1]), headers, b"")
    if method == "HEAD" or reply.status in (204, 304):
        return reply
    if (length := reply.header("content-length")) is not None:
        reply.body = await reader.readexactly(int(length))
    elif reply.header("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            reply.body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    else:
        reply.body = await reader.read()
    return reply


async def together(
    things: Iterable[T], act: Callable[[T], Awaitable[Any]], width: int = 200
) -> list[Any]:
    """Act on all things, `width` of them at a time; results in order."""
    gate = asyncio.Semaphore(width)

    async def one(thing: T) -> Any:
        async with gate:
            return await act(thing)

    return list(await asyncio.gather(*(one(thing) for thing in things)))


async def until(ask: Callable[[], Awaitable[bool]], within_s: float = 15.0, what: str = "") -> None:
    """Ask again and again, as a visitor's page does, until it is so."""
    deadline = time.monotonic() + within_s
    while not await ask():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
