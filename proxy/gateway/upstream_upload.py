"""The body of a request on its way to an origin, framed as its head says."""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.gateway.upstream_connection import Connection
from proxy.gateway.upstream_errors import OriginError
from proxy.gateway.upstream_messages import RequestHead

LAST_CHUNK = b"0\r\n\r\n"


class BodyMismatch(Exception):
    """The visitor's body is not as long as its head said; the origin's connection is closed."""


class UploadAbandoned(Exception):
    """The visitor left within its body, and what the origin makes of that is still awaited."""


class Upload:
    """The body of one request on its way, framed as its head says."""

    def __init__(self, head: RequestHead, parts: AsyncIterator[bytes]) -> None:
        self._head = head
        self._parts = parts
        self._total = 0
        self.ended = False

    async def first(self) -> bytes:
        """Give the first part, framed."""
        return await self._next()

    async def rest(self, connection: Connection, timeout_s: float) -> None:
        """Send what is left; a failure of the visitor's side ends the connection with it."""
        try:
            await connection.drain(timeout_s)
            while not self.ended:
                connection.transport.write(await self._next())
                await connection.drain(timeout_s)
            connection.sent(timeout_s)
        except OriginError:
            if not connection.closed:
                raise
        except UploadAbandoned as error:
            connection.half_close(error, timeout_s)
        except Exception as error:
            connection.abort(error)

    async def _next(self) -> bytes:
        head = self._head
        try:
            part = await anext(self._parts)
        except StopAsyncIteration:
            self.ended = True
            _check_length(head, self._total, ended=True)
            return LAST_CHUNK if head.chunked else b""
        self._total += len(part)
        self.ended = head.content_length is not None and self._total >= head.content_length
        _check_length(head, self._total, ended=self.ended)
        return _framed(head, part)


def whole_body(head: RequestHead, body: bytes) -> bytes:
    """Frame a body that is here altogether.

    Raises:
        BodyMismatch: its length is not the declared one.
    """
    _check_length(head, len(body), ended=True)
    return _framed(head, body) + LAST_CHUNK if head.chunked else body


def _framed(head: RequestHead, part: bytes) -> bytes:
    if not head.chunked:
        return part
    return b"%x\r\n%b\r\n" % (len(part), part) if part else b""


def _check_length(head: RequestHead, total: int, *, ended: bool) -> None:
    if head.chunked:
        return
    declared = head.content_length or 0
    if total > declared or (ended and total < declared):
        raise BodyMismatch(f"the body holds {total} bytes, its head said {declared}")
