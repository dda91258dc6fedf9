"""One stream of an HTTP/2 connection: a request and its answer, with the stream's flow control."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from corvus_site.server.exchange import ClientGone, Exchange, Signal, http_scope
from corvus_site.server.head import Refused, RequestHead
from corvus_site.server.house import Message, Scope
from corvus_site.server.http1_answer import date_value

if TYPE_CHECKING:
    from corvus_site.server.http2 import Http2Connection

logger = logging.getLogger(__name__)

# RFC 9113 8.2.2
_CONNECTION_SPECIFIC: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\x00\x0a\x0d]*")

Fields = list[tuple[bytes, bytes]]


class Http2Exchange(Exchange):
    """A request that came on a stream; `head` is None when no application may see it."""

    __slots__ = (
        "_blocked_since",
        "_connection",
        "_expects",
        "_flush",
        "_left",
        "_no_body",
        "_progressed_at",
        "_window",
        "counted",
        "stream",
    )

    def __init__(
        self, connection: Http2Connection, stream: int, head: RequestHead | None, *, body_done: bool
    ) -> None:
        scope: Scope = {}
        if head is not None:
            scope = http_scope(
                version="2",
                method=head.method,
                scheme="https" if connection.secure else "http",
                target=head.target,
                headers=head.headers,
                client=connection.client,
                server=connection.local,
            )
        super().__init__(connection.server, scope, body_done=body_done)
        self.stream = stream
        self.counted = 0  # bytes of the request body so far
        self._connection = connection
        self._expects = head is not None and head.expects_continue
        self._flush: asyncio.Handle | None = None
        self._no_body = head is not None and head.method == "HEAD"
        self._left: int | None = None  # of the answer's declared Content-Length
        self._window = Signal()
        self._blocked_since: float | None = None
        self._progressed_at = self.server.now()

    def feed(self, data: bytes, *, done: bool) -> None:
        """Take a part of the body."""
        self._expects = False
        self._progressed_at = self.server.now()
        super().feed(data, done=done)

    def lost(self) -> None:
        """End; whoever waits for the window goes on and sees it. Unread body is acknowledged."""
        unread = self._buffered
        super().lost()
        self._window.wake()
        if unread:
            self._buffered = 0
            self._connection.acknowledge(unread, self.stream)

    def window_opened(self) -> None:
        """Know that more may be sent."""
        self._window.wake()

    def refuse(self, refused: Refused) -> None:
        """Answer an error in the place of the application."""
        if not self.started:
            self.started = True
            body = f"{refused.status} {refused.reason}\n".encode("ascii")
            fields = [
                (b":status", b"%d" % refused.status),
                (b"date", date_value()),
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(body)),
                (b"cache-control", b"no-store"),
            ]
            try:
                self._connection.h2.send_headers(self.stream, fields, end_stream=self._no_body)
                if not self._no_body:
                    self._connection.h2.send_data(self.stream, body, end_stream=True)
            except ProtocolError:
                self._connection.reset(self.stream, ErrorCodes.PROTOCOL_ERROR)
            self._connection.flush()
        else:
            self._connection.reset(self.stream, ErrorCodes.INTERNAL_ERROR)
            self.body_done = True
        self.lost()
        self._connection.ended(self)

    def sweep(self, now: float) -> None:
        """End a request whose body does not come, and an answer that the client does not take."""
        limits = self.server.limits
        if self._blocked_since is not None and now - self._blocked_since >= limits.write_timeout_s:
            self._connection.reset(self.stream, ErrorCodes.CANCEL)
            self.lost()
            self._connection.ended(self)
        elif self.body_done or self.is_full or self._expects:
            self._progressed_at = now
        elif now - self._progressed_at >= limits.body_timeout_s:
            self.refuse(Refused(408, "the request took too long"))

    async def send(self, message: Message) -> None:
        """ASGI `send`: returns when the network has taken everything.

        Raises ClientGone, and ValueError or RuntimeError for what cannot be sent.
        """
        if self.gone or self.complete:
            raise ClientGone("the client has gone or the answer is complete")
        kind = message["type"]
        try:
            if kind == "http.response.start":
                self._take_start(message)
                self._flush = asyncio.get_running_loop().call_soon(self._flush_head)
                return
            if kind == "http.response.body":
                last = await self._send_body(message)
            elif kind == "http.response.informational":
                self._inform(message)
                last = False
            elif kind == "http.response.trailers":
                last = self._send_trailers(message)
            else:
                raise ValueError(f"message type {kind!r} is not known to an HTTP exchange")
        except ProtocolError as error:
            raise ClientGone("the stream is closed") from error
        await self._settled(0)
        if last:
            self._finish()
            self._connection.ended(self)

    async def _send_body(self, message: Message) -> bool:
        if not self._status:
            raise RuntimeError("http.response.body was sent before http.response.start")
        more = bool(message.get("more_body", False))
        data = memoryview(message.get("body", b""))
        last = not more and not self._trailers
        if not self.started:
            empty = self._no_body or self._status in (204, 304) or not data
            if self._send_head(end_stream=last and empty):
                return True
        if self._no_body:
            return last
        self._count(len(data), more)
        while data:
            size = self._room()
            if size <= 0:
                await self._wait_for_room()
                continue
            piece, data = data[:size], data[size:]
            self._connection.h2.send_data(self.stream, bytes(piece), end_stream=last and not data)
            self._connection.flush()
            await self._settled(2 * size)  # a frame holds 16 KiB as a rule: every one is a turn
            if last and not data:
                return True
        if last:
            self._connection.h2.end_stream(self.stream)
            self._connection.flush()
        return last

    def _room(self) -> int:
        h2 = self._connection.h2
        return min(h2.local_flow_control_window(self.stream), h2.max_outbound_frame_size)

    async def _wait_for_room(self) -> None:
        self._blocked_since = self.server.now()
        await self._window.wait()
        self._blocked_since = None
        self._check_gone()

    async def _settled(self, size: int) -> None:
        if self._connection.must_settle(size):
            await self._connection.settled()
        self._check_gone()

    def _check_gone(self) -> None:
        if self.gone:
            raise ClientGone("the client has gone")

    def _count(self, size: int, more: bool) -> None:
        if self._left is not None:
            self._left -= size
            if self._left < 0 or (self._left and not more):
                raise ValueError("the body's length is not what its Content-Length says")

    def _flush_head(self) -> None:
        if self._status and not self.started and not self.gone:
            try:
                self._send_head(end_stream=False)
            except ValueError:
                logger.exception("an answer's headers cannot be sent")
                self._unanswered()
            except ProtocolError:
                self.lost()

    def _send_head(self, *, end_stream: bool) -> bool:
        fields, length = answer_fields(self._headers)
        if self._status == 204:
            fields = [field for field in fields if field[0] != b"content-length"]
        if not any(name == b"date" for name, _ in fields):
            fields.append((b"date", date_value()))
        self.started = True
        if self._flush is not None:
            self._flush.cancel()
        self._no_body = self._no_body or self._status in (204, 304)
        self._left = None if self._no_body else length
        if end_stream and self._left:
            raise ValueError("the body's length is not what its Content-Length says")
        self._connection.h2.send_headers(
            self.stream, [(b":status", b"%d" % self._status), *fields], end_stream=end_stream
        )
        self._connection.flush()
        return end_stream

    def _inform(self, message: Message) -> None:
        status = message["status"]
        if self._status:
            raise RuntimeError("http.response.informational was sent after http.response.start")
        if not 102 <= status <= 199:
            raise ValueError(f"status {status!r} is not allowed: 102 to 199 for an interim answer")
        fields, _ = answer_fields(message.get("headers", ()))
        self._connection.h2.send_headers(self.stream, [(b":status", b"%d" % status), *fields])
        self._connection.flush()

    def _send_trailers(self, message: Message) -> bool:
        if not (self.started and self._trailers):
            raise RuntimeError("http.response.trailers was sent without the last body part")
        fields, _ = answer_fields(message.get("headers", ()))
        if message.get("more_trailers", False):
            raise ValueError("trailers in several parts are not sent over HTTP/2")
        if fields and not self._no_body:
            self._connection.h2.send_headers(self.stream, fields, end_stream=True)
        else:
            self._connection.h2.end_stream(self.stream)
        self._connection.flush()
        return True

    def _want_body(self) -> None:
        if self._expects and not self.started:
            self._expects = False
            self._progressed_at = self.server.now()
            self._connection.h2.send_headers(self.stream, [(b":status", b"100")])
            self._connection.flush()

    def _body_taken(self, size: int) -> None:
        self._connection.acknowledge(size, self.stream)

    def _unanswered(self) -> None:
        self.refuse(Refused(500, "Internal Server Error"))


def answer_fields(headers: Fields) -> tuple[Fields, int | None]:
    """Give answer headers in HTTP/2 form, and the declared length. Raises ValueError."""
    fields: Fields = []
    length: int | None = None
    for raw_name, value in headers:
        name = raw_name.lower()
        if name in _CONNECTION_SPECIFIC:
            continue
        if not _NAME.fullmatch(name):
            raise ValueError(f"header name {raw_name!r} is not allowed: a token (RFC 9110 5.6.2)")
        if not _VALUE.fullmatch(value):
            raise ValueError("a header value holds a line break or NUL")
        if name == b"content-length":
            if length is not None or not value.isdigit():
                raise ValueError(f"Content-Length {value!r} is not allowed: one whole number")
            length = int(value)
        fields.append((name, value.strip(b" \t")))  # RFC 9113 8.2.1
    return fields, length
