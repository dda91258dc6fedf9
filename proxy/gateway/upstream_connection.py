"""One HTTP/1.1 connection to an origin: parsing, framing, bounded buffers, ends.

Owns parsing, the judgement of framing, bounded buffers and the end of each message. Which
connection is used when is `upstream.py`'s business, which hears of the ends as `ConnectionOwner`.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol, cast

import httptools

from proxy.gateway.upstream_errors import (
    OriginError,
    OriginProtocolError,
    OriginTruncated,
    OriginUnreachable,
)
from proxy.gateway.upstream_messages import OnInformational, UpstreamLimits
from proxy.gateway.upstream_response import UpstreamResponse

READ_BYTES = 65_536
_SPACE = frozenset({b" ", b"\t"})


class ClosedBeforeAnswer(OriginUnreachable):
    """The connection ended before any byte of the answer: a kept one may have been stale."""


class ConnectionOwner(Protocol):
    """Who keeps the connections."""

    def on_idle(self, connection: Connection) -> None:
        """Both messages have ended; the connection can carry another exchange."""

    def on_closed(self, connection: Connection) -> None:
        """The connection has ended, for whatever reason; told once."""


class Connection(asyncio.BufferedProtocol):
    """The protocol on one socket; carries one exchange at a time, or raw bytes after 101."""

    def __init__(
        self,
        limits: UpstreamLimits,
        buffer: memoryview,
        loop: asyncio.AbstractEventLoop,
        owner: ConnectionOwner,
    ) -> None:
        self._limits = limits
        self._buffer = buffer  # shared by all connections of a client: filled and read in one step
        self._loop = loop
        self._owner = owner
        self.reused = False  # has carried an exchange before
        self._parser = httptools.HttpResponseParser(self)
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.upload: asyncio.Task[None] | None = None  # sends the rest of a body, see `upstream.py`
        self.closed = False
        self.idle_since = 0.0
        self.deadline = inf  # loop time at which a silent origin is given up
        self._response: UpstreamResponse | None = None
        self._head: asyncio.Future[UpstreamResponse] | None = None
        self._on_informational: OnInformational | None = None
        self._reading_paused = False
        self._writers: list[asyncio.Future[None]] = []  # who waits until the socket takes more
        self._write_paused = False
        self._raw: asyncio.StreamReader | None = None
        self._reset()

    def _reset(self) -> None:
        self._ended = False  # the answer is in
        self._in_head = True
        self._started = False  # a byte of the answer has come
        self._keep = True  # nothing has happened that forbids another exchange
        self._bodiless = False
        self._until_close = False
        self._lengths = 0
        self._codings: list[bytes] = []
        self._head_bytes = 0
        self._unframed = 0  # bytes since the last piece of body: bounds whatever the parser hoards
        self._informational = 0
        self._upgrade_wanted = False
        self._is_head = False

    # What the client does.

    def begin(
        self,
        wire: bytes,
        *,
        is_head: bool,
        upgrade: bool = False,
        on_informational: OnInformational | None = None,
    ) -> asyncio.Future[UpstreamResponse]:
        """Write the head (and what follows in `wire`); the future gives the answer's head."""
        self._reset()
        self._is_head = is_head
        self._upgrade_wanted = upgrade
        self._on_informational = on_informational
        self._response = UpstreamResponse(self)
        self._head = self._loop.create_future()
        if self.closed:
            self._fail(ClosedBeforeAnswer("the origin closed the connection"))
        else:
            self.transport.write(wire)
        return self._head

    def sent(self, response_timeout_s: float) -> None:
        """Note that the request is out; the origin's time runs from here."""
        if self._in_head:
            self.deadline = self._loop.time() + response_timeout_s

    async def drain(self, timeout_s: float) -> None:
        """Wait until the socket takes more; an origin that takes nothing is given up in time.

        Raises:
            OriginError: the connection ended.
        """
        if self._write_paused and not self.closed:
            if self._in_head:
                self.deadline = self._loop.time() + timeout_s
            writable = self._loop.create_future()
            self._writers.append(writable)
            try:
                await writable
            finally:
                self.deadline = (
                    inf  # while the visitor's next part is awaited, the origin owes nothing
                )
        if self.closed:
            raise ClosedBeforeAnswer("the origin closed the connection during the upload")

    def body_taken(self) -> None:
        """Let the socket be read again."""
        if self._reading_paused and not self.closed:
            self._reading_paused = False
            self.transport.resume_reading()

    def abort(self, error: BaseException) -> None:
        """Close at once; who waits for the answer gets `error`."""
        self._fail(error)
        self.close()

    def half_close(self, error: BaseException, response_timeout_s: float) -> None:
        """Send no more, but let the origin answer; over TLS, which has no half, close at once."""
        if self.closed or not self.transport.can_write_eof():
            self.abort(error)
            return
        self._keep = False
        self.transport.write_eof()
        self.sent(response_timeout_s)

    def close(self) -> None:
        """Close the socket without waiting for what is still unsent."""
        if not self.closed:
            self.closed = True
            self.transport.abort()
            self._owner.on_closed(self)
        self._wake_writers()

    def take_over(self) -> asyncio.StreamReader:
        """Give the bytes after a 101 as a stream.

        Raises:
            OriginProtocolError: the 101 did not name what it switches to.
        """
        if self._raw is None:
            self.close()
            raise OriginProtocolError("the origin switched protocols without naming one")
        return self._raw

    # What the socket does.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self._limits.buffer_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._buffer[:nbytes]
        if self._raw is not None:
            self._raw.feed_data(bytes(data))
            return
        if self._response is None:
            self.close()  # a byte that nobody asked for: the next answer could not be told apart
            return
        self._started = True
        self._unframed += nbytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(bytes(data[upgrade.args[0] :]))
            return
        except httptools.HttpParserError as error:
            self._on_parser_error(error)
            return
        if self._ended:
            self._finish()
        elif self._unframed > self._limits.response_head_bytes:
            self.abort(OriginProtocolError("the head of the answer is too large"))

    def eof_received(self) -> bool:
        if self._raw is not None:
            self._raw.feed_eof()
        elif self._response is None:
            self.close()  # at once: no request may be written to what the origin has closed
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        was_closed, self.closed = self.closed, True
        if self._raw is not None:
            self._raw.feed_eof()
        if self._response is not None and not self._ended:
            if not self._started:
                self._fail(ClosedBeforeAnswer("the origin closed the connection without an answer"))
            elif self._in_head:
                self._fail(OriginProtocolError("the origin closed the connection inside the head"))
            elif self._until_close and exc is None:
                self._ended = True
                self._stop_upload()
                self._detach(None)
            else:
                self._fail(OriginTruncated("the origin closed the connection inside the body"))
        self._wake_writers()
        if not was_closed:
            self._owner.on_closed(self)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake_writers()

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, []
        for writable in writers:
            if not writable.done():
                writable.set_result(None)

    # What the parser finds.

    def on_message_begin(self) -> None:
        if self._ended:
            raise OriginProtocolError("bytes after the end of the answer")

    def on_status(self, reason: bytes) -> None:
        assert self._response is not None  # noqa: S101
        self._response.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        response = self._response
        assert response is not None  # noqa: S101
        self._head_bytes += len(name) + len(value) + 4
        if value[-1:] in _SPACE:
            value = value.rstrip(b" \t")  # white space around is no part of it (RFC 9110 5.5)
        if self._head_bytes > self._limits.response_head_bytes:
            raise OriginProtocolError("the head of the answer is too large")
        if b"\n" in value or b"\r" in value or b"\0" in value:
            raise OriginProtocolError("a header of the answer holds a line break")
        if not self._in_head:
            response.trailers.append((name, value))
            return
        response.headers.append((name, value))
        size = len(name)
        if size == 14 and name.lower() == b"content-length":
            self._lengths += 1
        elif size == 17 and name.lower() == b"transfer-encoding":
            self._codings.append(value.strip().lower())

    def on_headers_complete(self) -> None:
        response = self._response
        assert response is not None  # noqa: S101
        status = self._parser.get_status_code()
        if status < 200 and not (status == 101 and self._upgrade_wanted):
            self._on_interim(status, response)
            return
        response.status = status
        response.http_version = self._parser.get_http_version()
        self._judge_framing(response, status)
        self._in_head = False
        self._unframed = 0
        self._ended = self._bodiless
        self.deadline = inf
        if status >= 400:
            self._stop_upload()  # a refusal: the rest would be sent for nothing (RFC 9112 9.5)
        if self._head is not None and not self._head.done():
            self._head.set_result(response)

    def _on_interim(self, status: int, response: UpstreamResponse) -> None:
        self._informational += 1
        if status == 101 or status < 100:
            raise OriginProtocolError(f"status {status} cannot be an answer to this request")
        if self._informational > self._limits.informational:
            raise OriginProtocolError("too many interim answers")
        if self._lengths or self._codings:
            raise OriginProtocolError("an interim answer with a length")
        if status > 100 and self._on_informational is not None:
            self._on_informational(status, response.headers)
        response.headers = []
        response.reason = b""
        self._unframed = 0

    def _judge_framing(self, response: UpstreamResponse, status: int) -> None:
        """Refuse what two readers could cut differently (RFC 9112 6.3, 6.1)."""
        if self._lengths > 1 or (self._lengths and self._codings):
            raise OriginProtocolError("the length of the answer is ambiguous")
        if self._codings and (self._codings != [b"chunked"] or response.http_version != "1.1"):
            raise OriginProtocolError("the transfer coding of the answer is not “chunked” on 1.1")
        if response.http_version not in ("1.1", "1.0"):
            raise OriginProtocolError("the answer is not HTTP/1")
        self._bodiless = self._is_head or status in (204, 304) or status == 101
        self._until_close = not (self._bodiless or self._lengths or self._codings)
        if self._until_close or not self._parser.should_keep_alive():
            self._keep = False

    def on_body(self, data: bytes) -> None:
        if self._bodiless:
            raise OriginProtocolError("a body where none may be")
        assert self._response is not None  # noqa: S101
        self._unframed = 0
        if self._response.feed(data) > self._limits.buffer_bytes and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()

    def on_chunk_header(self) -> None:
        if self._bodiless:
            raise OriginProtocolError("a body where none may be")

    def on_message_complete(self) -> None:
        if self._in_head:
            return  # the end of an interim answer
        self._ended = True

    # Ends.

    def _finish(self) -> None:
        """Let the whole answer go; keep the connection where the request has ended too."""
        self._stop_upload()
        self._detach(None)
        if self.closed:
            return
        if not self._keep:
            self.close()
            return
        if self._bodiless:  # the parser may still expect the body that a HEAD answer announces
            self._parser = httptools.HttpResponseParser(self)
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()
        self._owner.on_idle(self)

    def _stop_upload(self) -> None:
        """Send no more of a request that is unfinished; no other exchange may follow it."""
        upload, self.upload = self.upload, None
        if upload is not None and not upload.done():
            upload.cancel()
            self._keep = False

    def _detach(self, error: BaseException | None) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.end(error)

    def _fail(self, error: BaseException) -> None:
        self.deadline = inf
        self._ended = True
        self._stop_upload()
        if self._head is not None and not self._head.done():
            self._head.set_exception(error)
            self._head.exception()  # who was cancelled meanwhile will not ask
        self._detach(error)

    def _on_parser_error(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if self._ended:  # bytes after a whole answer: the answer stands, the connection does not
            self._keep = False
            self._finish()
        elif isinstance(cause, OriginError):
            self.abort(cause)
        else:
            self.abort(OriginProtocolError(f"the answer is no HTTP/1: {error}"))

    # After 101.

    def _switch(self, rest: bytes) -> None:
        self._raw = asyncio.StreamReader(limit=self._limits.buffer_bytes, loop=self._loop)
        self._raw.set_transport(self.transport)
        self._detach(None)
        if rest:
            self._raw.feed_data(rest)
