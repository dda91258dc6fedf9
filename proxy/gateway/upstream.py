"""The pooled HTTP/1.1 client of the byte path: which connection carries which request, and retries.

Made for streaming without objects in between (docs/decisions/0005-upstream-client.md). A client
belongs to one event loop. Bytes on one connection are `upstream_connection.py`'s.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache

from proxy.gateway.upstream_connection import READ_BYTES, ClosedBeforeAnswer, Connection
from proxy.gateway.upstream_errors import (
    OriginError,
    OriginRefused,
    OriginTimeout,
    OriginUnreachable,
)
from proxy.gateway.upstream_messages import (
    Headers,
    OnInformational,
    Origin,
    RequestHead,
    UpstreamLimits,
)
from proxy.gateway.upstream_names import Names
from proxy.gateway.upstream_pool import Pool
from proxy.gateway.upstream_response import UpstreamResponse
from proxy.gateway.upstream_upload import BodyMismatch, Upload, whole_body

__all__ = ["BodyMismatch", "Upgraded", "UpstreamClient", "UpstreamResponse"]

SWEEP_S = 0.1
FOREVER = float("inf")
RETRIED = frozenset({b"GET", b"HEAD"})
FRESH_S = 1.0
"""A request that cannot be repeated takes no connection that has been idle for longer: the origin
may be closing it at this moment, and the request would be lost."""


class Upgraded:
    """A connection after 101: raw bytes both ways, with back-pressure."""

    def __init__(self, connection: Connection, response: UpstreamResponse) -> None:
        self.status = response.status
        self.headers: Headers = response.headers
        self._connection = connection
        self._stream = connection.take_over()

    async def read(self) -> bytes:
        """Wait for bytes; b"" when the origin has closed."""
        try:
            return await self._stream.read(READ_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes, timeout_s: float) -> None:
        """Send, and wait while the origin takes nothing.

        Raises:
            OriginError: the connection ended, or nothing was taken for `timeout_s`.
        """
        if not self._connection.closed:
            self._connection.transport.write(data)
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.drain(timeout_s)
        except TimeoutError:
            raise OriginTimeout("the origin takes no more bytes") from None

    def send_last(self, data: bytes) -> None:
        """Send without waiting: for what `close()` follows."""
        if not self._connection.closed:
            self._connection.transport.write(data)

    def close(self, *, at_once: bool = False) -> None:
        """End the connection, after what is still to be sent unless `at_once`."""
        if at_once:
            self._connection.close()
        else:
            self._connection.transport.close()


class UpstreamClient:
    """Sends requests to origins over kept connections; see `request()`."""

    def __init__(self, limits: UpstreamLimits | None = None) -> None:
        self._limits = limits or UpstreamLimits()
        self._names = Names(self._limits.dns_s)
        self._pools: dict[tuple[str, str, int, bool], Pool] = {}
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._sweeper: asyncio.TimerHandle | None = None
        self._overdue: dict[Connection, float] = {}
        self._closed = False

    async def request(
        self,
        origin: Origin,
        head: RequestHead,
        body: bytes | AsyncIterator[bytes] | None = None,
        on_informational: OnInformational | None = None,
    ) -> UpstreamResponse:
        """Send a request; give the answer as soon as its head is here.

        A body given as bytes goes out with the head; an iterator is read as fast as the origin
        takes it, and no further once the answer has ended or refuses. GET and HEAD without a body
        are sent once more, on a new connection, when a kept one ended before any byte of the
        answer. Cancelling the call closes the connection.

        Raises:
            OriginError: the subclasses say what happened; nothing of an answer exists then.
            BadHead: a header value holds a line break.
            BodyMismatch: the body is longer or shorter than its Content-Length.
            Exception: whatever the body's iterator raised.
        """
        if body is not None and not isinstance(body, bytes):
            return await self._upload(origin, head, body, on_informational)
        wire = head.encode() if body is None else head.encode() + whole_body(head, body)
        repeatable = body is None and head.method in RETRIED
        connection = self._idle(origin, FOREVER if repeatable else FRESH_S)
        if connection is None:
            connection = await self._connect(origin)
        is_head = head.method == b"HEAD"
        while True:
            waiter = connection.begin(wire, is_head=is_head, on_informational=on_informational)
            connection.sent(origin.response_timeout_s)
            try:
                return await _answer(connection, waiter)
            except ClosedBeforeAnswer:
                if not (repeatable and connection.reused):
                    raise
            repeatable = False
            connection = await self._connect(origin)

    async def upgrade(self, origin: Origin, head: RequestHead) -> Upgraded | UpstreamResponse:
        """Ask for another protocol on a connection of its own; the head says which.

        Gives the answer instead where the origin refuses. Raises OriginError as `request()`.
        """
        wire = head.encode()
        connection = await self._connect(origin)
        waiter = connection.begin(wire, is_head=False, upgrade=True)
        connection.sent(origin.response_timeout_s)
        response = await _answer(connection, waiter)
        return Upgraded(connection, response) if response.status == 101 else response

    async def close(self) -> None:
        """Close every connection; who waits for an answer gets OriginUnreachable."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for pool in self._pools.values():
            for connection in list(pool.open):
                connection.abort(OriginUnreachable("the gateway is stopping"))
        self._pools.clear()

    async def _upload(
        self,
        origin: Origin,
        head: RequestHead,
        body: AsyncIterator[bytes],
        on_informational: OnInformational | None,
    ) -> UpstreamResponse:
        """Send the head together with the first part, and the rest while the answer may come."""
        wire = head.encode()
        parts = aiter(body)
        upload = Upload(head, parts)
        wire += await upload.first()  # a slow visitor holds no connection before the first part
        connection = self._idle(origin, FRESH_S) or await self._connect(origin)
        waiter = connection.begin(
            wire, is_head=head.method == b"HEAD", on_informational=on_informational
        )
        if upload.ended:
            connection.sent(origin.response_timeout_s)
        else:
            connection.upload = asyncio.create_task(
                upload.rest(connection, origin.response_timeout_s)
            )
        return await _answer(connection, waiter)

    # Connections.

    def _pool(self, origin: Origin) -> Pool:
        key = (origin.scheme, origin.host, origin.port, origin.verify)
        pool = self._pools.get(key)
        if pool is None:
            if self._closed:
                raise OriginUnreachable("the gateway is stopping")
            pool = self._pools[key] = Pool(asyncio.get_running_loop())
        return pool

    def _idle(self, origin: Origin, longest_s: float) -> Connection | None:
        pool = self._pool(origin)
        if not pool.idle:
            return None
        if longest_s < FOREVER:
            oldest = asyncio.get_running_loop().time() - longest_s
            if pool.idle[-1].idle_since < oldest:
                return None
        return pool.idle.pop()

    async def _connect(self, origin: Origin) -> Connection:
        """Open a connection, or take one that comes free where the pool is full."""
        pool = self._pool(origin)
        try:
            async with asyncio.timeout(origin.connect_timeout_s) as time:
                while pool.size >= self._limits.max_connections:
                    if pool.idle:
                        pool.idle[0].close()
                        continue
                    handed = await pool.wait()
                    if handed is not None and not handed.closed:
                        return handed
                pool.opening += 1
                try:
                    connection = await self._open(origin, pool, time.when() or 0.0)
                    pool.open[connection] = None
                except BaseException:
                    pool.wake(None)
                    raise
                finally:
                    pool.opening -= 1
        except TimeoutError:
            raise OriginTimeout(f"no connection to {_name(origin)} in time") from None
        if self._closed:
            connection.close()
            raise OriginUnreachable("the gateway is stopping")
        self._start_sweeping()
        return connection

    async def _open(self, origin: Origin, pool: Pool, until: float) -> Connection:
        """Try the origin's addresses one after the other, each with its share of the time."""
        loop = asyncio.get_running_loop()
        addresses = await self._names.addresses(origin.host, origin.port)
        failure: OriginError = OriginUnreachable(f"{_name(origin)} has no address")
        tls = _tls(origin.verify) if origin.scheme == "https" else None
        for number, address in enumerate(addresses):
            share = (until - loop.time()) / (len(addresses) - number)
            try:
                async with asyncio.timeout(share):
                    _, connection = await loop.create_connection(
                        lambda: Connection(self._limits, self._buffer, loop, pool),
                        address,
                        origin.port,
                        ssl=tls,
                        server_hostname=origin.host if tls else None,
                    )
            except TimeoutError:
                failure = OriginTimeout(f"no connection to {_name(origin)} in time")
            except ConnectionRefusedError:
                failure = OriginRefused(f"{_name(origin)} refused the connection")
            except OSError as error:  # ssl.SSLError is one
                failure = OriginUnreachable(f"{_name(origin)} cannot be reached: {error}")
            else:
                self._names.worked(origin.host, origin.port, address)
                sock: socket.socket | None = connection.transport.get_extra_info("socket")
                if sock is not None:
                    with suppress(OSError):
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return connection
        raise failure

    # Time. One sweep for all connections costs a request nothing.

    def _start_sweeping(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        overdue: dict[Connection, float] = {}
        now = asyncio.get_running_loop().time()
        for key, pool in list(self._pools.items()):
            for connection in list(pool.open):
                if connection.deadline < now:
                    # Seen twice before it counts: after a stall of this process the answer may
                    # lie in the socket already.
                    if self._overdue.get(connection) == connection.deadline:
                        connection.abort(OriginTimeout("the origin did not answer in time"))
                    else:
                        overdue[connection] = connection.deadline
            oldest = now - self._limits.idle_s
            for connection in [idle for idle in pool.idle if idle.idle_since < oldest]:
                connection.close()
            if not pool.size and not pool.waiters:
                del self._pools[key]
        self._overdue = overdue
        if self._pools and not self._closed:
            self._start_sweeping()


async def _answer(
    connection: Connection, waiter: asyncio.Future[UpstreamResponse]
) -> UpstreamResponse:
    try:
        return await waiter
    except asyncio.CancelledError:
        connection.abort(OriginUnreachable("given up"))
        raise


def _name(origin: Origin) -> str:
    return f"{origin.scheme}://{origin.host}:{origin.port}"


@cache
def _tls(verify: bool) -> ssl.SSLContext:
    """Give the TLS settings; reading the system's authorities takes 20 ms, so once a process."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
