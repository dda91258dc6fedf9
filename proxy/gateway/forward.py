"""One HTTP exchange between an ASGI server and an origin, streamed both ways.

Owns the ASGI events of a forwarded exchange and how it ends. What is sent to the origin was decided
before (`headers.origin_head`); what is answered where an origin fails is decided by who calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from proxy.gateway.drain import Drain, is_event_stream
from proxy.gateway.headers import CorvusHeaders, uncacheable, visitor_headers
from proxy.gateway.running import StopSignal
from proxy.gateway.upstream import BodyMismatch, UpstreamClient, UpstreamResponse
from proxy.gateway.upstream_errors import OriginError
from proxy.gateway.upstream_messages import (
    Header,
    Headers,
    OnInformational,
    Origin,
    RequestHead,
)
from proxy.gateway.upstream_upload import UploadAbandoned

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


OnOriginHeaders = Callable[[int, CorvusHeaders], Headers | None]
"""Hears the status and what the origin said to the gateway; gives lines to add to the answer."""


class Ended(StrEnum):
    """How an exchange ended for the visitor."""

    DELIVERED = "delivered"
    CLIENT_GONE = "client gone"
    CUT = "cut"  # the origin failed inside its answer
    STOPPED = "stopped"  # a stream whose visitor may not be inside any more


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one forwarded exchange."""

    status: int  # of the origin; 0 when the visitor went before there was one
    body_bytes: int  # handed to the server
    ended: Ended


class AnswerCut(ConnectionAbortedError):
    """An answer has to end inside its body; let it reach the server, which cuts the connection.

    Raising is the one way that ASGI has to end a connection without ending the message. Our server
    writes no traceback of a `ConnectionAbortedError`: an origin that dies would fill the log.
    `why` is for the log.
    """

    def __init__(
        self, outcome: Outcome, cause: Exception, why: str = "origin failed within its answer"
    ) -> None:
        super().__init__(str(cause))
        self.outcome = outcome
        self.cause = cause
        self.why = why


class SessionEnded(Exception):
    """The visitor may not be inside any more."""

    def __init__(self) -> None:
        super().__init__("the visitor's session has ended")


class _ClientGone(Exception):
    """The visitor went away: the server said so."""


async def forward(
    *,
    scope: dict[str, Any],
    receive: Receive,
    send: Send,
    origin: Origin,
    head: RequestHead,
    upstream: UpstreamClient,
    stop: StopSignal | None = None,
    is_stream: bool = False,
    is_leased: bool = False,
    extra_headers: Sequence[Header] = (),
    on_origin_headers: OnOriginHeaders | None = None,
) -> Outcome:
    """Send the request to the origin and its answer to the visitor, as both come.

    `extra_headers` are added to the answer; `on_origin_headers` hears status and `Corvus-*` headers
    of the answer before it is sent on, and may give more. Where one of them is a `Set-Cookie`, the
    answer becomes uncacheable (WR-41); otherwise the origin's caching rules stay as they are.

    `stop` ends an event stream (WR-51), and whatever comes from a path of streams (`is_stream`);
    any other answer is delivered to its end.

    Cancelled (the extended server does so when the visitor goes), it closes the origin's connection
    at once. With `is_leased` it first awaits what the origin makes of the request, for
    `response_timeout_s` at most (rule 8), unless `stop` was cut or it is cancelled again. Of a body
    that did not come whole the origin sees the end; it may be at work without having read it.

    Raises:
        OriginError: no answer; nothing has been sent to the visitor.
        BadHead, BodyMismatch: the request cannot be forwarded as it is (400).
        AnswerCut: the origin failed inside the answer, or a stream that is no event stream was
            stopped; pass it on to the server.
    """
    exchange = _Exchange(scope, receive, send, is_leased=is_leased)
    response: UpstreamResponse | None = None
    drain = Drain() if is_leased else None
    try:
        body = await exchange.body(head)
        request = upstream.request(origin, head, body, exchange.on_informational)
        response = await (request if drain is None else drain.ask(request))
        headers, said = visitor_headers(response.headers)
        added = list(extra_headers)
        if on_origin_headers is not None:
            added += on_origin_headers(response.status, said) or ()
        if added:
            if any(name == b"set-cookie" for name, _ in added):
                headers = uncacheable(headers)
            headers += added
        stops = is_stream or is_event_stream(headers)
        return await exchange.deliver(response, headers, stop if stops else None)
    except (_ClientGone, UploadAbandoned):
        await exchange.work_off(drain, origin, stop)
        return exchange.outcome(Ended.CLIENT_GONE)
    except asyncio.CancelledError:
        await exchange.work_off(drain, origin, stop)
        if not exchange.gone:
            raise
        exchange.task.uncancel()
        return exchange.outcome(Ended.CLIENT_GONE)
    except OriginError as error:
        if exchange.left_within_body:
            return exchange.outcome(Ended.CLIENT_GONE)
        if not exchange.started:
            raise
        raise AnswerCut(exchange.outcome(Ended.CUT), error) from error
    except BodyMismatch as error:
        if not exchange.started:
            raise
        raise AnswerCut(exchange.outcome(Ended.CUT), error) from error
    finally:
        exchange.close()
        if drain is not None:
            drain.give_up()
        elif response is not None and not response.complete:
            response.abort()


async def _part(response: UpstreamResponse, stop: StopSignal | None) -> bytes:
    """Wait for the next part of an answer; b"" at its end, or when it is to stop."""
    if stop is None:
        return await response.read()
    read = asyncio.ensure_future(response.read())
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((read, stopped), return_when=asyncio.FIRST_COMPLETED)
        return read.result() if read.done() else b""
    finally:
        read.cancel()
        stopped.cancel()


class _Exchange:
    """The visitor's side: events in, events out."""

    def __init__(
        self, scope: dict[str, Any], receive: Receive, send: Send, *, is_leased: bool
    ) -> None:
        extensions = scope.get("extensions") or {}
        self._receive = receive
        self._send = send
        self._cancels = "corvus.server" in extensions  # the server tells by cancelling who has gone
        self._trailers = "http.response.trailers" in extensions
        self._interim: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self.on_informational: OnInformational | None = (
            self._send_interim if "http.response.informational" in extensions else None
        )
        self.task: asyncio.Task[Any] = cast("asyncio.Task[Any]", asyncio.current_task())
        self.gone = False  # the watcher has seen the visitor go, and cancels the exchange
        self.started = False
        self.left_within_body = False
        self._is_leased = is_leased
        self._status = 0
        self._sent = 0

    async def body(self, head: RequestHead) -> bytes | AsyncIterator[bytes] | None:
        """Give the request's body: what came at once as bytes, else an iterator."""
        if not head.may_have_body:
            self._watch()
            return None
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise _ClientGone
        first: bytes = event.get("body", b"")
        more = bool(event.get("more_body"))
        declared = not head.undeclared
        if not declared:
            head.declare(first, more=more)
        if more:
            return _Body(self._receive, first, self._watch, self._break_off)
        self._watch()
        return first if first or declared else None

    def _break_off(self) -> Exception:
        """Say what the visitor's going within its body means for the request at the origin."""
        self.left_within_body = True
        return UploadAbandoned() if self._is_leased else _ClientGone()

    async def deliver(
        self, response: UpstreamResponse, headers: Headers, stop: StopSignal | None
    ) -> Outcome:
        """Send the answer on; the last event is sent only when the message ended well."""
        if self._interim is not None:
            await self._interim
        trailers = self._trailers and any(name == b"trailer" for name, _ in headers)
        if not trailers:
            headers = [line for line in headers if line[0] != b"trailer"]
        self._status = response.status
        start: dict[str, Any] = {
            "type": "http.response.start",
            "status": response.status,
            "headers": headers,
        }
        if trailers:
            start["trailers"] = True
        send = self._send
        self.started = True
        try:
            await send(start)
            while True:
                part = response.take() if response.complete else await _part(response, stop)
                stopped = stop is not None and stop.closed
                more = not (response.complete or stopped)
                if stopped and not (response.complete or is_event_stream(headers)):
                    raise AnswerCut(self.outcome(Ended.STOPPED), SessionEnded(), "session ended")
                await send({"type": "http.response.body", "body": part, "more_body": more})
                self._sent += len(part)
                if not more:
                    break
            if trailers:
                fields, _ = visitor_headers(response.trailers)
                await send({"type": "http.response.trailers", "headers": fields})
        except AnswerCut:
            raise
        except OSError as error:  # how other servers tell that the visitor has gone
            raise _ClientGone from error
        return self.outcome(Ended.STOPPED if stopped else Ended.DELIVERED)

    async def work_off(self, drain: Drain | None, origin: Origin, stop: StopSignal | None) -> None:
        """Let the origin end what the visitor has left there, where a lease stands for it."""
        if drain is None or (stop is not None and stop.is_cut):
            return
        if self.task.cancelling() < 2:  # else the server itself is at its end
            with suppress(asyncio.CancelledError):
                await drain.work_off(origin.response_timeout_s)

    def outcome(self, ended: Ended) -> Outcome:
        """Say what has become of the exchange so far."""
        return Outcome(self._status, self._sent, ended)

    def close(self) -> None:
        """Stop what still runs beside the exchange."""
        for task in (self._interim, self._watcher):
            if task is not None and not task.done():
                task.cancel()

    def _send_interim(self, status: int, raw: Headers) -> None:
        headers, _ = visitor_headers(raw)
        event = {"type": "http.response.informational", "status": status, "headers": headers}
        self._interim = asyncio.create_task(self._after(self._interim, event))

    async def _after(self, earlier: asyncio.Task[None] | None, event: dict[str, Any]) -> None:
        if earlier is not None:
            await earlier
        with suppress(OSError):  # the answer itself will find out
            await self._send(event)

    def _watch(self) -> None:
        """On a server that does not cancel: listen for the visitor's going once the body is in."""
        if not self._cancels:
            self._watcher = asyncio.create_task(self._watch_visitor())

    async def _watch_visitor(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.task.cancel()


class _Body:
    """A request body, part after part."""

    def __init__(
        self,
        receive: Receive,
        first: bytes,
        on_end: Callable[[], None],
        left: Callable[[], Exception],
    ) -> None:
        self._receive = receive
        self._first = first
        self._more = True
        self._on_end = on_end
        self._left = left  # gives what is raised when the visitor goes

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        while self._more and not self._first:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                raise self._left()
            self._first = event.get("body", b"")
            if not event.get("more_body"):
                self._more = False
                self._on_end()
        part, self._first = self._first, b""
        if not part:
            raise StopAsyncIteration
        return part
