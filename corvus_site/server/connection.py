"""What every client connection has, whatever it speaks: transport, flow control, stalls, leaving.

The transport's high-water mark is 0, so that "writing is paused" means "not all has been handed to
the kernel": one mechanism both bounds the memory and tells when the last byte has gone out.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import socket
import struct
import termios
from typing import Final, Protocol

from corvus_site.server.exchange import Signal
from corvus_site.server.house import Address, House

TURN_BYTES: Final = 32 * 1024
"""A sender of a part of this size lets other exchanges run before its next one."""

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 1024 * 1024
_TCP_ESTABLISHED: Final = 1
_TCP_FIN_WAIT: Final = (4, 5)  # we have ended our side, the peer has not


class Transport(Protocol):
    """The part of `asyncio.Transport` that connections use; TLS gives the same."""

    def write(self, data: bytes, /) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def get_extra_info(self, name: str, default: object = None, /) -> object: ...


def address_of(value: object) -> Address | None:
    """Give host and port of a socket address; None for a unix socket.

    An IPv4 peer of a socket for both families is told as IPv4 (`::ffff:192.0.2.1` → `192.0.2.1`).
    """
    if isinstance(value, tuple) and len(value) >= 2:
        host = str(value[0])
        return (host[7:] if host.startswith("::ffff:") and "." in host else host), int(value[1])
    return None


class Connection(asyncio.Protocol):
    """Base of the HTTP/1.1 and HTTP/2 connections."""

    def __init__(self, server: House, *, secure: bool) -> None:
        self.server = server
        self.secure = secure
        self.transport: Transport
        self.client: Address | None = None
        self.local: Address | None = None
        self.write_paused = False
        self.reading_paused = False
        self.lost = False
        self.deadline = math.inf  # of the loop's clock; then `expired` is called
        self._writable = Signal()
        self._stalled_size = 0
        self._stalled_since = 0.0
        self._client_key: str | None = None
        self._lingers = False
        self._discard_left = LINGER_BYTES

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin; TLS calls it with its own transport when the handshake is over."""
        self.transport = transport
        if isinstance(transport, asyncio.Transport):  # TLS has counted and set its own
            transport.set_write_buffer_limits(0)
            self._client_key = self.server.admit(transport)
            if self._client_key is None:
                return
        self.client = address_of(transport.get_extra_info("peername"))
        self.local = address_of(transport.get_extra_info("sockname"))
        self.server.connections.add(self)
        self.opened()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: free whoever waits."""
        self.lost = True
        self.server.connections.discard(self)
        self.server.release(self._client_key)
        self.client_gone()
        self._writable.wake()

    def eof_received(self) -> bool:
        """Take the client's end of sending as its going, as proxies do."""
        if self._lingers:
            self.transport.close()
        elif not self.transport.is_closing():
            self.client_gone()
            self.transport.abort()
        return False

    def pause_writing(self) -> None:
        """Know that the kernel has not taken everything."""
        self.write_paused = True
        self._stalled_size = self.transport.get_write_buffer_size()
        self._stalled_since = self.server.now()

    def resume_writing(self) -> None:
        """Know that the kernel has taken everything."""
        self.write_paused = False
        self._writable.wake()
        if self._lingers:
            # not now: asyncio is in the middle of its own writing
            asyncio.get_running_loop().call_soon(self._end_sending)

    def must_settle(self, size: int) -> bool:
        """Whether the sender of `size` bytes has to wait for `settled` before it goes on."""
        return self.write_paused or size >= TURN_BYTES or self.transport.is_closing()

    async def settled(self) -> None:
        """Wait until everything written has been handed to the kernel or the connection is lost.

        Others get their turn even when the kernel takes everything, and a loss is noticed.
        """
        await asyncio.sleep(0)
        while self.write_paused and not self.lost:
            await self._writable.wait()

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        if not self.reading_paused and not self.transport.is_closing():
            self.reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the client again."""
        if self.reading_paused and not self.transport.is_closing():
            self.reading_paused = False
            self.transport.resume_reading()

    def sweep(self, now: float) -> None:
        """Look at the deadlines; called by the server several times a second."""
        if self.reading_paused and self._peer_has_left():
            self.client_gone()
            self.transport.abort()
        elif self.write_paused:
            size = self.transport.get_write_buffer_size()
            if size < self._stalled_size:
                self._stalled_since = now
            elif now - self._stalled_since >= self.server.limits.write_timeout_s:
                self.client_gone()
                self.transport.abort()
            self._stalled_size = size
        if now >= self.deadline:
            self.deadline = math.inf
            self.expired()

    def linger(self) -> None:
        """Close so that the client can still read the answer: a bounded part of what it sends is
        read and thrown away first (RFC 9112 9.6), for data that nobody read would reset it.
        """
        self._lingers = True
        if not self.write_paused:
            self._end_sending()

    def _end_sending(self) -> None:
        if self.transport.is_closing():
            return
        try:
            self.transport.write_eof()
        except OSError:  # the client has gone in this moment
            self.transport.abort()
            return
        self.deadline = self.server.now() + LINGER_S
        self.resume_reading()

    def discard(self, data: bytes) -> None:
        """Throw away what comes while lingering."""
        self._discard_left -= len(data)
        if self._discard_left < 0:
            self.transport.abort()

    def has_unread(self) -> bool:
        """Whether bytes of the client wait in the kernel."""
        sock = self.transport.get_extra_info("socket")
        try:
            answer = fcntl.ioctl(sock.fileno(), termios.FIONREAD, b"\0\0\0\0")  # type: ignore[attr-defined]
        except OSError:
            return False
        return bool(struct.unpack("i", answer)[0])

    def _peer_has_left(self) -> bool:
        """Ask the kernel, since a paused transport does not notice (on Linux; elsewhere False)."""
        option = getattr(socket, "TCP_INFO", None)
        if option is None or self.client is None:
            return False
        sock = self.transport.get_extra_info("socket")
        try:
            state = sock.getsockopt(socket.IPPROTO_TCP, option, 1)[0]  # type: ignore[attr-defined]
        except OSError:
            return True
        return state != _TCP_ESTABLISHED and state not in _TCP_FIN_WAIT

    def cut(self) -> None:
        """End the connection whatever runs on it."""
        self.client_gone()
        self.transport.abort()

    def opened(self) -> None:
        """Do what the protocol does first."""
        raise NotImplementedError

    def client_gone(self) -> None:
        """Tell every exchange."""
        raise NotImplementedError

    def expired(self) -> None:
        """Act on a passed deadline."""
        raise NotImplementedError

    def drain(self) -> None:
        """Take no further exchange; leave at once if none runs."""
        raise NotImplementedError
