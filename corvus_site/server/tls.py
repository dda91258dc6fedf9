"""TLS on a client connection: handshake, ALPN, records; gives the inner protocol a transport.

Ours instead of asyncio's because there the encrypted bytes lie in a buffer of their own, so that
nobody can say when the last was handed to the kernel; here every record goes to the socket at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from pathlib import Path
from typing import Final

from corvus_site.server.connection import Connection
from corvus_site.server.house import House

READ_BYTES: Final = 64 * 1024


def tls_context(certificate: Path, key: Path, protocols: list[str]) -> ssl.SSLContext:
    """Build a server context: TLS 1.2 or newer, ALPN. Raises OSError naming the files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(protocols)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise OSError(f"the certificate {certificate} or its key {key}: {error}") from error
    return context


class TlsConnection(asyncio.Protocol):
    """The TLS side of one connection, and the transport of the protocol inside."""

    def __init__(self, server: House, context: ssl.SSLContext) -> None:
        self.server = server
        self.transport: asyncio.Transport
        self.deadline = math.inf
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._inner: Connection | None = None
        self._client_key: str | None = None
        self._reading_paused = False
        self._ended = False  # our close_notify has been sent

    # Below: the socket

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the client's first record, no longer than for a request's head."""
        self.transport = transport
        transport.set_write_buffer_limits(0)
        self._client_key = self.server.admit(transport)
        if self._client_key is None:
            return
        self.server.connections.add(self)
        self.deadline = self.server.now() + self.server.limits.header_timeout_s

    def data_received(self, data: bytes) -> None:
        """Take encrypted bytes."""
        if self._ended:
            if self._inner is not None:
                self._inner.data_received(data)
            return
        self._incoming.write(data)
        if self._inner is None:
            self._shake_hands()
        if self._inner is not None:
            self._read(self._inner)

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ValueError):
            self._flush()  # the alert
            self.transport.close()
            return
        self._flush()
        self.server.connections.discard(self)
        inner = self._inner = self.server.protocol_for(self._tls.selected_alpn_protocol())
        inner.connection_made(self)

    def _read(self, inner: Connection) -> None:
        while not (self._reading_paused or self._ended or self.transport.is_closing()):
            try:
                data = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                self._flush()
                inner.client_gone()
                self.transport.abort()
                return
            if not data:  # close_notify
                inner.eof_received()
                return
            inner.data_received(data)
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self.transport.is_closing():
            self.transport.write(self._outgoing.read())

    def eof_received(self) -> bool:
        """Pass the end of the client's sending on."""
        if self._inner is not None:
            self._inner.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end of the connection on."""
        self.server.connections.discard(self)
        self.server.release(self._client_key)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass the kernel's refusal on."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass the kernel's readiness on."""
        if self._inner is not None:
            self._inner.resume_writing()

    def sweep(self, now: float) -> None:
        """End a handshake that takes too long."""
        if now >= self.deadline:
            self.transport.abort()

    def cut(self) -> None:
        """End the handshake."""
        self.transport.abort()

    def drain(self) -> None:
        """Let the handshake end: what follows sees that the server drains."""

    # Above: the transport of the protocol inside

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if data and not (self._ended or self.transport.is_closing()):
            self._tls.write(data)
            self._flush()

    def write_eof(self) -> None:
        """Say that nothing more will be sent (close_notify), and end our half of the connection."""
        if not self._ended:
            self._notify_close()
            if not self.transport.is_closing():
                self.transport.write_eof()

    def _notify_close(self) -> None:
        self._ended = True
        # It would wait for the client's own close_notify, which we do not need.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        self._flush()

    def close(self) -> None:
        """Close after what was written has been sent."""
        if not self._ended:
            self._notify_close()
        self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closed or closing."""
        return self.transport.is_closing()

    def pause_reading(self) -> None:
        """Stop reading from the socket and decrypting."""
        self._reading_paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, first what has been received already."""
        self._reading_paused = False
        self.transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._read_again)

    def _read_again(self) -> None:
        if self._inner is not None:
            self._read(self._inner)

    def get_write_buffer_size(self) -> int:
        """Bytes that the kernel has not taken."""
        return self.transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Ask the socket's transport."""
        return self.transport.get_extra_info(name, default)
