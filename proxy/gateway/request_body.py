"""A small request body, read whole by the gateway itself: bounded in bytes and in time."""

from __future__ import annotations

import asyncio

from proxy.gateway.exchange import Headers
from proxy.gateway.forward import Receive

PATIENCE_S = 10.0


class ClientGone(ConnectionError):
    """The client went away before its body had come."""


class BodyRefused(Exception):
    """The body is not taken; `status` is 413 (too large) or 408 (too slow)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestBody:
    """One request's headers and body; the body can be read once."""

    __slots__ = ("_headers", "_receive")

    def __init__(self, headers: Headers, receive: Receive) -> None:
        self._headers = headers
        self._receive = receive

    def header(self, name: bytes) -> bytes:
        """Give the value of a header that was sent exactly once; else nothing."""
        values = [value for key, value in self._headers if key == name]
        return values[0] if len(values) == 1 else b""

    async def read(self, most: int) -> bytes:
        """Read it all.

        Raises:
            BodyRefused: more than `most` bytes, or not all of them within ten seconds.
            ClientGone: the client went away.
        """
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared[:20]) > most:
            raise BodyRefused(413, f"more than {most} bytes")
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._read(most)
        except TimeoutError:
            raise BodyRefused(408, f"the body did not come within {PATIENCE_S:g} s") from None

    async def _read(self, most: int) -> bytes:
        body = bytearray()
        while True:
            event = await self._receive()
            if event["type"] != "http.request":
                raise ClientGone
            body += event.get("body", b"")
            if len(body) > most:
                raise BodyRefused(413, f"more than {most} bytes")
            if not event.get("more_body", False):
                return bytes(body)
