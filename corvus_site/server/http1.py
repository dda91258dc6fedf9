"""HTTP/1.1 (and 1.0) on one connection: head, body, answer, next request (RFC 9112).

Replaces Twisted's `HTTPChannel`: the application is called when the head is in, the body comes as
it arrives, pipelined requests are answered in order. The attribute `_on_data` is the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from corvus_site.server.chunks import ChunkedBody
from corvus_site.server.connection import Connection
from corvus_site.server.head import (
    CHUNKED,
    Refused,
    RequestHead,
    check_unfinished,
    parse_head,
)
from corvus_site.server.house import House
from corvus_site.server.http1_answer import refusal
from corvus_site.server.http1_exchange import Http1Exchange
from corvus_site.server.websocket import WebSocketExchange, handshake_refusal

PIPELINE_HIGH_WATER: Final = 64 * 1024
SKIPPED_BODY: Final = 64 * 1024
"""What an application left unread of a body is dropped up to this size, to keep the connection."""


class Http1Connection(Connection):
    """One client connection that speaks HTTP/1.1, and WebSocket after an upgrade."""

    def __init__(self, server: House, *, secure: bool) -> None:
        super().__init__(server, secure=secure)
        self.exchange: Http1Exchange | WebSocketExchange | None = None
        self._on_data: Callable[[bytes], None] = self._read_head
        self._held = b""  # bytes of a head that is not whole yet, or of pipelined requests
        self._head_began = False
        self._left = 0  # of a body with Content-Length
        self._counted = 0  # of a chunked body
        self._chunks: ChunkedBody | None = None

    def opened(self) -> None:
        """Give the first request as long as a head may take."""
        self.deadline = self.server.now() + self.server.limits.header_timeout_s

    def data_received(self, data: bytes) -> None:
        """Take bytes from the network."""
        self._on_data(data)

    # Reading a request

    def _read_head(self, data: bytes) -> None:
        held = self._held
        if held:
            searched = max(0, len(held) - 3)
            data = held + data
        else:
            searched = 0
        if data.startswith(b"\r\n"):  # RFC 9112 2.2
            data = data[2:]
            searched = 0
        end = data.find(b"\r\n\r\n", searched)
        try:
            if end < 0:
                self._held = data
                if not self._head_began:
                    self._head_began = True
                    self.deadline = self.server.now() + self.server.limits.header_timeout_s
                check_unfinished(data, self.server.limits)
                return
            self._held = b""
            head = parse_head(data[: end + 2], self.server.limits)
            self._begin(head, data[end + 4 :])
        except Refused as refused:
            self.refuse(refused)

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        limits = self.server.limits
        if limits.max_body_bytes and head.length > limits.max_body_bytes:
            raise Refused(413, "the body is too large")
        self.deadline = math.inf
        self._head_began = True
        if head.websocket:
            problem = handshake_refusal(head)
            if problem is not None:
                raise problem
            websocket = self.exchange = WebSocketExchange(self, head)
            self._on_data = websocket.feed
            websocket.start()
            if rest:
                websocket.feed(rest)
            return
        exchange = self.exchange = Http1Exchange(self, head)
        if head.length == 0:
            self._on_data = self._hold
            if rest:
                self._hold(rest)
        else:
            if head.length == CHUNKED:
                self._chunks = ChunkedBody(limits)
                self._counted = 0
                self._on_data = self._read_chunks
            else:
                self._left = head.length
                self._on_data = self._read_length
            if not head.expects_continue:
                self._await_body()
            if rest:
                self._on_data(rest)
                if self.exchange is not exchange:
                    return
        exchange.start()

    def _await_body(self) -> None:
        self.deadline = self.server.now() + self.server.limits.body_timeout_s

    def _read_length(self, data: bytes) -> None:
        rest = b""
        if len(data) > self._left:
            data, rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self._body_arrived(data, done=not self._left, rest=rest)

    def _read_chunks(self, data: bytes) -> None:
        chunks = self._chunks or ChunkedBody(self.server.limits)
        limit = self.server.limits.max_body_bytes
        try:
            body = chunks.feed(data)
            self._counted += len(body)
            if limit and self._counted > limit:
                raise Refused(413, "the body is too large")
        except Refused as refused:
            self.refuse(refused)
            return
        self._body_arrived(body, done=chunks.done, rest=chunks.rest)

    def _body_arrived(self, data: bytes, *, done: bool, rest: bytes) -> None:
        exchange = self.exchange
        if done:
            self.deadline = math.inf
            self._on_data = self._hold
        else:
            self._await_body()
        if isinstance(exchange, Http1Exchange):
            exchange.feed(data, done=done)
            if exchange.is_full and not done:
                self.deadline = math.inf
                self.pause_reading()
            if rest:
                self._hold(rest)
        elif done:  # the body of an exchange that ended without reading it
            self._held = rest
            self._next()

    def _hold(self, data: bytes) -> None:
        self._held = self._held + data if self._held else data
        if len(self._held) >= PIPELINE_HIGH_WATER:
            self.pause_reading()

    def body_wanted(self) -> None:
        """Begin to expect a body whose client waited for `100 Continue`."""
        self._await_body()

    def body_taken(self) -> None:
        """Read on after the application took what waited for it."""
        if self.reading_paused and self._on_data != self._hold:
            self._await_body()
            self.resume_reading()

    # Ending an exchange

    def may_skip(self) -> bool:
        """Whether what is missing of the body is short enough to be read and dropped."""
        return self._chunks is None and self._left <= SKIPPED_BODY

    def ended(self, exchange: Http1Exchange, *, close: bool) -> None:
        """Go on to the next request, or close."""
        if self.exchange is not exchange:
            return
        self.exchange = None
        if close or (not exchange.body_done and not self.may_skip()):
            self._close(unread=bool(self._held) or not exchange.body_done)
        elif exchange.body_done:
            self._next()
        else:
            self._await_body()
            self.resume_reading()

    def _next(self) -> None:
        self._chunks = None
        self._on_data = self._read_head
        self._head_began = False
        self.deadline = self.server.now() + self.server.limits.idle_timeout_s
        if self.reading_paused:
            self.resume_reading()
        if self._held:
            held, self._held = self._held, b""
            self._read_head(held)
        elif self.server.draining:
            self._close(unread=False)

    def refuse(self, refused: Refused) -> None:
        """Answer an error in the place of the application, and close."""
        exchange = self.exchange
        self.exchange = None
        started = exchange is not None and exchange.started
        if exchange is not None:
            exchange.lost()
        if started:
            self.transport.abort()
            return
        self.transport.write(refusal(refused.status, refused.reason, refused.lines))
        self._close(unread=True)

    def _close(self, *, unread: bool) -> None:
        self._held = b""
        self._on_data = self.discard
        self.deadline = math.inf
        if unread:
            self.linger()
        else:
            self.transport.close()

    def end_websocket(self) -> None:
        """Close after a handshake was answered with an error."""
        self.exchange = None
        self._close(unread=True)

    def client_gone(self) -> None:
        """End the exchange that runs."""
        if self.exchange is not None:
            self.exchange.lost()

    def expired(self) -> None:
        """Answer 408 to a request that did not come to its end; close a silent connection."""
        if isinstance(self.exchange, WebSocketExchange):
            self.transport.abort()
        elif self._on_data == self.discard or not self._head_began or self.lost:
            self.transport.close()
        elif self.exchange is not None or self._on_data == self._read_head:
            self.refuse(Refused(408, "the request took too long"))
        else:
            self._close(unread=True)

    def sweep(self, now: float) -> None:
        """Look at the deadlines, a WebSocket's too."""
        super().sweep(now)
        if isinstance(self.exchange, WebSocketExchange):
            self.exchange.sweep(now)

    def drain(self) -> None:
        """Close now when no request has begun; else its answer will say `Connection: close`."""
        if self.exchange is None and not self._head_began and not self.has_unread():
            self._close(unread=False)

    def cut(self) -> None:
        """End the connection whatever runs on it; a WebSocket is told why."""
        if isinstance(self.exchange, WebSocketExchange):
            self.exchange.going_away()
        else:
            super().cut()
