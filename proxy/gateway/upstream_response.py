"""An origin's answer as its reader holds it; `upstream_connection.py` fills it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from proxy.gateway.upstream_errors import OriginError, OriginUnreachable
from proxy.gateway.upstream_messages import Headers

PART_OVERHEAD = 64
"""Bytes that a part costs beside its content: chunks of one byte are bounded too."""


class BodySource(Protocol):
    """The connection that a body comes from."""

    def body_taken(self) -> None:
        """Hear that there is room for more."""

    def abort(self, error: BaseException) -> None:
        """Hear that nobody will read the rest."""


class UpstreamResponse:
    """An origin's answer: the head at once, the body as it is read, in parts of any size.

    Read it to its end or `aclose()` it; a body not read holds its connection (paused, bounded).
    """

    __slots__ = (
        "_connection",
        "_error",
        "_parts",
        "_size",
        "_waiter",
        "complete",
        "headers",
        "http_version",
        "reason",
        "status",
        "trailers",
    )

    def __init__(self, connection: BodySource) -> None:
        self.status = 0
        self.reason = b""
        self.http_version = "1.1"
        self.headers: Headers = []
        self.trailers: Headers = []
        self.complete = False
        """The whole message is here: `read()` will not wait."""
        self._connection: BodySource | None = connection
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._error: OriginError | BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def take(self) -> bytes:
        """Give what has arrived, b"" where nothing has; never waits."""
        parts = self._parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._size = 0
        if self._connection is not None:
            self._connection.body_taken()
        return data

    async def read(self) -> bytes:
        """Wait for the next part of the body; b"" at its end.

        Raises:
            OriginTruncated: the connection ended inside the body; whatever was read is incomplete.
            OriginProtocolError: the rest is no HTTP/1.
        """
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self.complete:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Give the body part after part; raises as `read()`."""
        while part := await self.read():
            yield part

    def abort(self) -> None:
        """Give up the rest; unless the message had ended, its connection closes at once."""
        self._parts.clear()
        if self._connection is not None:
            self._connection.abort(OriginUnreachable("given up"))

    async def aclose(self) -> None:
        """Give up the rest, see `abort()`."""
        self.abort()

    def feed(self, data: bytes) -> int:
        """Take a part from the connection; give how much waits to be read."""
        self._parts.append(data)
        self._size += len(data) + PART_OVERHEAD
        self._wake()
        return self._size

    def end(self, error: BaseException | None) -> None:
        """Hear from the connection that nothing more comes."""
        self._connection = None
        if error is None:
            self.complete = True
        else:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
