"""One WebSocket between an ASGI server and an origin, relayed both ways in pieces.

Owns the handshake towards the origin (RFC 6455), messages, pings and close codes. Compression is
never offered to the origin: the server negotiates its own with the visitor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, generate_accept_token, generate_nonce

from proxy.gateway.drain import Drain
from proxy.gateway.forward import OnOriginHeaders, Receive, Send
from proxy.gateway.headers import CorvusHeaders, visitor_headers
from proxy.gateway.running import StopSignal
from proxy.gateway.upstream import Upgraded, UpstreamClient, UpstreamResponse
from proxy.gateway.upstream_errors import OriginError, OriginProtocolError, OriginTimeout
from proxy.gateway.upstream_messages import Header, Headers, Origin, RequestHead

PIECE = 65_536
"""Bytes or characters of a message that travel together."""

MAX_WHOLE = 16 * 1024 * 1024
"""The longest message towards a server that takes none in pieces; a longer one closes with 1009."""

NO_STATUS = int(CloseReason.NO_STATUS_RCVD)
ABNORMAL = int(CloseReason.ABNORMAL_CLOSURE)
INTERNAL = int(CloseReason.INTERNAL_ERROR)
TOO_BIG = int(CloseReason.MESSAGE_TOO_BIG)


@dataclass(frozen=True, slots=True)
class Relayed:
    """What became of one WebSocket."""

    status: int  # 101, or the status with which the origin refused
    code: int  # the close code that ended it; 1005 without one, 1006 where a side vanished, else 0


async def relay(
    *,
    scope: dict[str, Any],
    receive: Receive,
    send: Send,
    origin: Origin,
    head: RequestHead,
    upstream: UpstreamClient,
    stop: StopSignal | None = None,
    extra_headers: Sequence[Header] = (),
    on_origin_headers: OnOriginHeaders | None = None,
    on_open: Callable[[], None] | None = None,
) -> Relayed:
    """Open the origin's side, then relay until one side ends, `stop` is set or the call is
    cancelled.

    `head` comes from `headers.origin_head` of the scope's lines with method GET; the handshake's
    own lines are replaced here. `extra_headers` and `on_origin_headers` as in `forward`. `on_open`
    hears that the origin has switched: its request has been answered, what follows is a stream. A
    refusal by the origin is passed on where the server offers `websocket.http.response`, else it
    becomes a 403. With `on_open` a slot stands for the handshake: cancelled before the origin has
    answered it, the call first awaits that answer, as `forward` does with a lease (rule 8).

    Raises:
        OriginError: there was no answer; the visitor still waits for one.
    """
    if (await receive())["type"] != "websocket.connect":
        return Relayed(0, ABNORMAL)
    nonce = generate_nonce()
    protocols = list(scope.get("subprotocols") or ())
    asked = upstream.upgrade(origin, _handshake(head, nonce, protocols))
    drain = Drain() if on_open is not None else None
    answer: Upgraded | UpstreamResponse | None = None
    try:
        answer = await (asked if drain is None else drain.ask(asked))
        headers, said = visitor_headers(answer.headers)
        headers += _added(answer.status, said, extra_headers, on_origin_headers)
        if isinstance(answer, UpstreamResponse):
            return await _refuse(scope, send, answer, headers)
        protocol = _agreed(headers, nonce, protocols)
        if on_open is not None:
            on_open()
        headers = [line for line in headers if not line[0].startswith(b"sec-websocket-")]
        await send({"type": "websocket.accept", "subprotocol": protocol, "headers": headers})
    except BaseException as ended:
        if drain is not None:
            if isinstance(ended, asyncio.CancelledError | OSError):
                await _work_off(drain, origin.response_timeout_s, stop)
            drain.give_up()
        elif isinstance(answer, Upgraded):
            answer.close(at_once=True)
        elif answer is not None:
            answer.abort()
        raise
    pieces = "corvus.pieces" in (scope.get("extensions") or {})
    stream = _Stream(receive, send, answer, pieces, origin.response_timeout_s)
    return Relayed(101, await stream.run(stop or StopSignal()))


async def _work_off(drain: Drain, within_s: float, stop: StopSignal | None) -> None:
    """Let the origin end what a visitor has left there; the server cancels once for such a one."""
    task = asyncio.current_task()
    work = asyncio.ensure_future(drain.work_off(within_s))
    try:
        while not work.done():
            if (stop is not None and stop.is_cut) or (task is not None and task.cancelling() > 1):
                return  # the slot is lost, or the server itself is at its end
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
    finally:
        work.cancel()


def _added(
    status: int,
    said: CorvusHeaders,
    extra_headers: Sequence[Header],
    on_origin_headers: OnOriginHeaders | None,
) -> Headers:
    told = on_origin_headers(status, said) if on_origin_headers is not None else None
    return [*extra_headers, *(told or ())]


_REPLACED = frozenset({b"connection", b"te", b"content-length", b"transfer-encoding"})


def _handshake(head: RequestHead, nonce: bytes, protocols: list[str]) -> RequestHead:
    """Replace the visitor's handshake by our own: the key that is echoed must be ours."""
    lines = [
        line
        for line in head.headers
        if not line[0].startswith(b"sec-websocket-") and line[0] not in _REPLACED
    ]
    lines += [
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-version", b"13"),
        (b"sec-websocket-key", nonce),
    ]
    if protocols:
        lines.append((b"sec-websocket-protocol", ", ".join(protocols).encode()))
    return RequestHead(b"GET", head.target, lines)


def _agreed(headers: Headers, nonce: bytes, protocols: list[str]) -> str | None:
    """Check the origin's 101 (RFC 6455 4.1), give the sub-protocol that it chose."""
    said = dict(headers)
    if said.get(b"sec-websocket-accept", b"").strip() != generate_accept_token(nonce):
        raise OriginProtocolError("the origin's WebSocket handshake has a wrong key")
    if said.get(b"sec-websocket-extensions"):
        raise OriginProtocolError("the origin chose a WebSocket extension that was not offered")
    raw = said.get(b"sec-websocket-protocol")
    if raw is None:
        return None
    protocol = raw.decode("latin-1").strip()
    if protocol not in protocols:
        raise OriginProtocolError("the origin chose a WebSocket sub-protocol that was not offered")
    return protocol


async def _refuse(
    scope: dict[str, Any], send: Send, answer: UpstreamResponse, headers: Headers
) -> Relayed:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        answer.abort()
        await send({"type": "websocket.close", "code": 1000})
        return Relayed(answer.status, 0)
    kind = "websocket.http.response"
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    while True:
        part = answer.take() if answer.complete else await answer.read()
        more = not answer.complete
        await send({"type": f"{kind}.body", "body": part, "more_body": more})
        if not more:
            return Relayed(answer.status, 0)


@dataclass(frozen=True, slots=True)
class _End:
    """How one direction ended: what the other side is told."""

    code: int
    reason: str = ""
    by_visitor: bool = False


class _Stream:
    """Both directions of an open WebSocket."""

    def __init__(
        self, receive: Receive, send: Send, origin: Upgraded, pieces: bool, timeout_s: float
    ) -> None:
        self._receive = receive
        self._send = send
        self._origin = origin
        self._pieces = pieces
        self._timeout_s = timeout_s
        self._frames = Connection(ConnectionType.CLIENT)
        self._whole: list[str | bytes] = []
        self._whole_size = 0

    async def run(self, stop: StopSignal) -> int:
        """Relay until the first end, then tell the other side; give the close code."""
        to_origin = asyncio.create_task(self._to_origin())
        to_visitor = asyncio.create_task(self._to_visitor())
        stopped = asyncio.create_task(stop.wait())
        tasks = (to_origin, to_visitor, stopped)
        at_once = True
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if to_visitor.done():
                end = to_visitor.result()
            elif to_origin.done():
                end = to_origin.result()
            else:
                end = _End(stop.code, stop.reason)
            if not end.by_visitor:
                await self._close_visitor(end)
            elif end.code == ABNORMAL:
                return end.code  # the visitor vanished: so do we
            self._close_origin(end)
            at_once = False
            return end.code
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._origin.close(at_once=at_once)

    async def _to_origin(self) -> _End:
        """Pass the visitor's messages on, until the visitor closes."""
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                code, reason = event.get("code") or NO_STATUS, event.get("reason") or ""
                return _End(code, reason, by_visitor=True)
            text = event.get("text")
            data: str | bytes = text if text is not None else event.get("bytes") or b""
            try:
                await self._message(data, more=bool(event.get("more")))
            except OriginTimeout:
                return _End(ABNORMAL)
            except OriginError:
                await asyncio.Event().wait()  # the other direction reads to the end and says why

    async def _message(self, data: str | bytes, *, more: bool) -> None:
        """Send one event's data in frames of a bounded size, as fast as the origin takes them."""
        for start in range(0, len(data) or 1, PIECE):
            piece = data[start : start + PIECE]
            finished = not more and start + PIECE >= len(data)
            message: Message[Any] = (
                TextMessage(piece, message_finished=finished)
                if isinstance(piece, str)
                else BytesMessage(piece, message_finished=finished)
            )
            await self._origin.write(self._frames.send(message), self._timeout_s)

    async def _to_visitor(self) -> _End:
        """Pass the origin's messages on, answer its pings, until it closes."""
        try:
            return await self._read_origin()
        except OriginError:
            return _End(ABNORMAL)
        except OSError:  # how some servers tell that the visitor has gone
            return _End(ABNORMAL, by_visitor=True)

    async def _read_origin(self) -> _End:
        frames = self._frames
        while True:
            data = await self._origin.read()
            if not data:
                return _End(ABNORMAL)
            frames.receive_data(data)
            for event in frames.events():
                if isinstance(event, Message):
                    if not await self._piece(event):
                        return _End(TOO_BIG, "message too big")
                elif isinstance(event, Ping):
                    await self._origin.write(frames.send(event.response()), self._timeout_s)
                elif isinstance(event, CloseConnection):
                    if frames.state is ConnectionState.OPEN:  # not a close but a broken frame
                        return _End(INTERNAL, "the origin broke the WebSocket protocol")
                    return _End(int(event.code), event.reason or "")

    async def _piece(self, event: Message[Any]) -> bool:
        """Pass one piece on; False where a server without pieces would hold too much."""
        data, finished = event.data, event.message_finished
        data = data if isinstance(data, str) else bytes(data)
        if self._pieces:
            if data or finished:
                kind = "text" if isinstance(data, str) else "bytes"
                await self._send({"type": "websocket.send", kind: data, "more": not finished})
            return True
        self._whole.append(data)
        self._whole_size += len(data)
        if self._whole_size > MAX_WHOLE:
            return False
        if finished:
            whole, self._whole, self._whole_size = self._whole, [], 0
            if isinstance(data, str):
                await self._send({"type": "websocket.send", "text": "".join(map(str, whole))})
            else:
                await self._send({"type": "websocket.send", "bytes": b"".join(map(bytes, whole))})  # type: ignore[arg-type]
        return True

    async def _close_visitor(self, end: _End) -> None:
        code = {NO_STATUS: 1000, ABNORMAL: INTERNAL}.get(end.code, end.code)
        await self._send({"type": "websocket.close", "code": code, "reason": end.reason})

    def _close_origin(self, end: _End) -> None:
        """Send or answer the close; an origin that is gone already is told nothing."""
        if end.code == ABNORMAL:
            return
        code = None if end.code == NO_STATUS else end.code
        try:
            frame = self._frames.send(CloseConnection(code=code, reason=end.reason or None))  # type: ignore[arg-type]
        except LocalProtocolError:
            return
        self._origin.send_last(bytes(frame))
