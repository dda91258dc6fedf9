"""One request of an HTTP/1.1 connection and its answer, as the application writes it.

Replaces Daphne's `WebRequest`: `send` waits for the client, and what cannot be framed is refused.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from corvus_site.server.exchange import ClientGone, Exchange, http_scope
from corvus_site.server.head import Refused, RequestHead
from corvus_site.server.house import Message
from corvus_site.server.http1_answer import (
    LAST_CHUNK,
    Body,
    answer_head,
    chunk,
    field_lines,
    informational,
)

if TYPE_CHECKING:
    from corvus_site.server.http1 import Http1Connection

logger = logging.getLogger(__name__)


class Http1Exchange(Exchange):
    """One request of an HTTP/1.1 connection and its answer."""

    __slots__ = (
        "_awaits_trailers",
        "_body",
        "_close",
        "_connection",
        "_expects",
        "_flush",
        "_left",
        "head",
    )

    def __init__(self, connection: Http1Connection, head: RequestHead) -> None:
        scope = http_scope(
            version="1.1" if head.http11 else "1.0",
            method=head.method,
            scheme="https" if connection.secure else "http",
            target=head.target,
            headers=head.headers,
            client=connection.client,
            server=connection.local,
        )
        super().__init__(connection.server, scope, body_done=head.length == 0)
        self.head = head
        self._connection = connection
        self._flush: asyncio.Handle | None = None
        self._expects = head.expects_continue
        self._body = Body.NONE
        self._left = 0
        self._close = False
        self._awaits_trailers = False  # the last body part has been sent, the trailers have not

    def feed(self, data: bytes, *, done: bool) -> None:
        """Take a part of the body; a client that sends one no longer waits for `100 Continue`."""
        self._expects = False
        super().feed(data, done=done)

    async def send(self, message: Message) -> None:
        """ASGI `send`: returns when the network has taken everything.

        Raises ClientGone, and ValueError or RuntimeError for what cannot be sent.
        """
        if self.gone or self.complete:
            raise ClientGone("the client has gone or the answer is complete")
        kind = message["type"]
        size = 0
        if kind == "http.response.body":
            more = bool(message.get("more_body", False))
            body = message.get("body", b"")
            size = len(body)
            self._write(body, more)
            last = not more and not self._awaits_trailers
        elif kind == "http.response.start":
            self._take_start(message)
            # A first part that follows at once shares the packet; a slow one lets the head go.
            self._flush = asyncio.get_running_loop().call_soon(self._flush_head)
            return
        elif kind == "http.response.informational":
            self._inform(message)
            last = False
        elif kind == "http.response.trailers":
            last = self._write_trailers(message)
        else:
            raise ValueError(f"message type {kind!r} is not known to an HTTP exchange")
        connection = self._connection
        if connection.must_settle(size):
            await connection.settled()
            if self.gone:
                raise ClientGone("the client has gone")
        if last:
            self._finish()
            connection.ended(self, close=self._close)

    def _flush_head(self) -> None:
        if self._status and not self.started and not self.gone:
            try:
                self._connection.transport.write(self._head_bytes(None))
            except ValueError:
                logger.exception("an answer's headers cannot be sent")
                self._unanswered()

    def _head_bytes(self, whole: int | None) -> bytes:
        head = self.head
        answer = answer_head(
            status=self._status,
            headers=self._headers,
            whole=whole,
            head_request=head.method == "HEAD",
            http11=head.http11,
            close=not head.keep_alive
            or self.server.draining
            or not (self.body_done or self._may_skip_body()),
        )
        self.started = True
        if self._flush is not None:
            self._flush.cancel()
        self._body, self._left, self._close = answer.body, answer.length, answer.close
        return answer.data

    def _may_skip_body(self) -> bool:
        # A client that waits for `100 Continue` may send the body or not: only closing is clear.
        return not self._expects and self._connection.may_skip()

    def _write(self, data: bytes, more: bool) -> None:
        if not self._status:
            raise RuntimeError("http.response.body was sent before http.response.start")
        start = b""
        if not self.started:
            start = self._head_bytes(None if more or self._trailers else len(data))
        if self._awaits_trailers:
            raise RuntimeError("http.response.body was sent after the last part")
        if not more:
            self._awaits_trailers = self._trailers
        body = self._body
        if body is Body.LENGTH:
            self._left -= len(data)
            if self._left < 0 or (self._left and not more):
                self._connection.transport.abort()
                raise ValueError("the body's length is not what its Content-Length says")
        elif body is Body.CHUNKED:
            data = chunk(data)
            if not more:
                data += b"0\r\n" if self._trailers else LAST_CHUNK
        elif body is Body.NONE:
            data = b""
        if start or data:
            self._connection.transport.write(start + data if start else data)

    def _inform(self, message: Message) -> None:
        if self._status:
            raise RuntimeError("http.response.informational was sent after http.response.start")
        if self.head.http11:  # RFC 9110 15.2: not to HTTP/1.0
            lines = informational(message["status"], message.get("headers", ()))
            self._connection.transport.write(lines)

    def _write_trailers(self, message: Message) -> bool:
        if not self._awaits_trailers:
            raise RuntimeError("http.response.trailers was sent without the last body part")
        last = not message.get("more_trailers", False)
        lines = field_lines(message.get("headers", ()))
        if self._body is Body.CHUNKED:  # no other body can carry them: left out, RFC 9110 6.5.1
            self._connection.transport.write(lines + b"\r\n" if last else lines)
        self._awaits_trailers = not last
        return last

    def _want_body(self) -> None:
        if self._expects and not self.started:
            self._expects = False
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._connection.body_wanted()

    def _body_taken(self, size: int) -> None:
        self._connection.body_taken()

    def _unanswered(self) -> None:
        if self.started:
            self._connection.transport.abort()
        elif self._connection.exchange is self:
            self._connection.refuse(Refused(500, "Internal Server Error"))
