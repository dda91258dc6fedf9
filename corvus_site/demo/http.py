"""Just enough HTTP/1.1 for the demo origin, on asyncio streams; shares no code with the gateway."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

MOST_HEAD = 64 * 1024
MOST_BODY = 1024 * 1024
IDLE_S = 75.0


class BadRequest(Exception):
    """What came is no request that this server understands."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request with its whole body. Header names are as they came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    head: bytes  # the raw request line and headers

    @property
    def path(self) -> str:
        """The path without the query."""
        return urlsplit(self.target).path

    def query(self, name: str, default: str = "") -> str:
        """Give the first value of a query parameter."""
        return parse_qs(urlsplit(self.target).query).get(name, [default])[0]

    def header(self, name: str) -> str:
        """Give the first value of a header, or ""."""
        return next((v for n, v in self.headers if n.lower() == name), "")

    def cookie(self, name: str) -> str:
        """Give a cookie's value, or ""."""
        for part in self.header("cookie").split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                return value
        return ""

    def form(self) -> dict[str, str]:
        """Give the fields of an URL-encoded body, the first value of each."""
        fields = parse_qs(self.body.decode(errors="replace"), keep_blank_values=True)
        return {name: values[0] for name, values in fields.items()}


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer."""

    body: str
    status: int = 200
    kind: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = field(default=())

    def encode(self, *, head_only: bool, keep: bool) -> bytes:
        """Write it as bytes."""
        body = self.body.encode()
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(body)}",
            f"Connection: {'keep-alive' if keep else 'close'}",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        return head if head_only else head + body


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    """Read the next request; None when the connection has ended or been idle for too long.

    Raises:
        BadRequest: it cannot be understood, or is too big.
    """
    try:
        async with asyncio.timeout(IDLE_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest("the head is too long") from None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    try:
        method, target, version = first.split(" ")
        pairs = (line.split(":", 1) for line in lines)
        headers = tuple((name, value.strip()) for name, value in pairs)
    except ValueError:
        raise BadRequest("the head is malformed") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest("the version is unknown")
    request = Request(method, target, headers, b"", head)
    if request.header("expect").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        async with asyncio.timeout(IDLE_S):
            body = await _read_body(request, reader)
    except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
        return None
    return Request(method, target, headers, body, head)


async def _read_body(request: Request, reader: asyncio.StreamReader) -> bytes:
    if request.header("transfer-encoding").lower() == "chunked":
        return await _read_chunks(reader)
    length = request.header("content-length") or "0"
    if not length.isdecimal() or int(length) > MOST_BODY:
        raise BadRequest("the length is odd, or the body too big")
    return await reader.readexactly(int(length))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise BadRequest("a chunk size is odd") from None
        if size < 0 or len(body) + size > MOST_BODY:
            raise BadRequest("the body is too big")
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return body
        body += await reader.readexactly(size)
        await reader.readexactly(2)


def keeps_alive(request: Request) -> bool:
    """Tell whether the client wants to send another request on this connection."""
    return (
        request.header("connection").lower() != "close"
        and b" HTTP/1.1\r\n" in request.head.split(b"\n", 1)[0] + b"\n"
    )
