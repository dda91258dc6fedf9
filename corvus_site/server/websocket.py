"""A WebSocket on an HTTP/1.1 connection (RFC 6455): handshake, denial, pieces, close codes.

Replaces Daphne's `WebSocketProtocol`, whose Autobahn base collects whole messages: here a message
travels in pieces (`"more": True`) with back-pressure, so that its size does not matter.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from corvus_site.server.exchange import BODY_HIGH_WATER, ClientGone, Signal, http_scope
from corvus_site.server.head import Refused, RequestHead
from corvus_site.server.house import Message, Scope
from corvus_site.server.http1_answer import (
    LAST_CHUNK,
    Body,
    answer_head,
    chunk,
    field_lines,
    refusal,
)

if TYPE_CHECKING:
    from corvus_site.server.http1 import Http1Connection

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = BODY_HIGH_WATER
"""A message up to this size reaches the application whole; a longer one in pieces of about it."""

EVENT_BYTES: Final = 256
"""What a message costs while it waits, however short it is: empty ones are counted too."""

CLOSE_GRACE_S: Final = 2.0
PING_AFTER_S: Final = 20.0
DEAD_AFTER_S: Final = 60.0
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class _State(Enum):
    CONNECTING = auto()
    OPEN = auto()
    DENYING = auto()
    CLOSED = auto()


def handshake_refusal(head: RequestHead) -> Refused | None:
    """Say what is wrong with an opening handshake (RFC 6455 4.2.1), None when it is right."""
    if head.method != "GET" or head.length:
        return Refused(400, "a WebSocket handshake must be a GET without a body")
    versions = [value for name, value in head.headers if name == b"sec-websocket-version"]
    if versions != [b"13"]:
        return Refused(426, "WebSocket version 13 is needed", b"Sec-WebSocket-Version: 13\r\n")
    if _key(head) is None:
        return Refused(400, "an invalid Sec-WebSocket-Key")
    return None


def _key(head: RequestHead) -> bytes | None:
    keys = [value for name, value in head.headers if name == b"sec-websocket-key"]
    try:
        valid = len(keys) == 1 and len(base64.b64decode(keys[0], validate=True)) == 16
    except binascii.Error:
        valid = False
    return keys[0] if valid else None


def websocket_scope(connection: Http1Connection, head: RequestHead) -> Scope:
    """Build the ASGI scope of a WebSocket."""
    scope = http_scope(
        version="1.1",
        method="GET",
        scheme="wss" if connection.secure else "ws",
        target=head.target,
        headers=head.headers,
        client=connection.client,
        server=connection.local,
    )
    del scope["method"]
    scope["type"] = "websocket"
    scope["subprotocols"] = [
        name.strip().decode("latin-1")
        for header, value in head.headers
        if header == b"sec-websocket-protocol"
        for name in value.split(b",")
        if name.strip()
    ]
    scope["extensions"] = {
        "corvus.server": {"target": head.target},
        "corvus.pieces": {},
        "websocket.http.response": {},
    }
    return scope


class WebSocketExchange:
    """One WebSocket, from the handshake to the close."""

    def __init__(self, connection: Http1Connection, head: RequestHead) -> None:
        self.server = connection.server
        self.scope = websocket_scope(connection, head)
        self.task: asyncio.Task[None] | None = None
        self.started = False  # a final answer (101 or a denial) has been written
        self._connection = connection
        self._head = head
        self._state = _State.CONNECTING
        self._frames = Frames(ConnectionType.SERVER)
        self._early = b""  # what the client sent before it was accepted
        self._events: deque[tuple[Message, int]] = deque([({"type": "websocket.connect"}, 0)])
        self._buffered = 0
        self._arrived = Signal()
        self._pieces: list[bytes | str] = []
        self._piece_size = 0
        self._disconnected = False
        self._sending: str | None = None  # kind of the message that the application is sending
        self._heard_at = self.server.now()
        self._pinged = False
        self._denial: tuple[int, list[tuple[bytes, bytes]]] | None = None
        self._denial_body = Body.NONE

    def start(self) -> None:
        """Call the application in a task of its own."""
        self.task = self.server.spawn(self._run())

    async def _run(self) -> None:
        try:
            await self.server.application(self.scope, self._receive, self._send)
        except (asyncio.CancelledError, ClientGone):
            failed = False
        except Exception:
            failed = not self._disconnected
            if failed:
                logger.exception("the application failed on a WebSocket")
        else:
            failed = False
        if self._state is _State.CONNECTING and not self._disconnected:
            self._refuse(500, "Internal Server Error")
        elif self._state is _State.DENYING:
            self._connection.transport.abort()
        elif self._state is _State.OPEN:
            self._close(1011 if failed else 1000, "")

    # From the client

    def feed(self, data: bytes) -> None:
        """Take bytes from the network."""
        if self._state is _State.CONNECTING:
            self._early += data
            if len(self._early) >= BODY_HIGH_WATER:
                self._connection.pause_reading()
            return
        if self._state is _State.DENYING or self._frames.state is ConnectionState.CLOSED:
            self._connection.discard(data)
            return
        self._heard_at = self.server.now()
        self._pinged = False
        self._frames.receive_data(data)
        for event in self._frames.events():
            if isinstance(event, TextMessage | BytesMessage):
                if not self._disconnected:
                    self._piece(event.data, last=event.message_finished)
            elif isinstance(event, Ping):
                # RFC 6455 5.5.3 lets a slow client's pings go unanswered but for the latest
                if self._state is _State.OPEN and not self._connection.write_paused:
                    self._connection.transport.write(self._frames.send(event.response()))
            elif isinstance(event, CloseConnection):
                self._client_closes(event)
                break
        if self._buffered >= BODY_HIGH_WATER:
            self._connection.pause_reading()

    def _piece(self, data: bytes | bytearray | str, *, last: bool) -> None:
        if data or last:  # empty fragments could be sent for ever without filling a piece
            self._pieces.append(data if isinstance(data, str) else bytes(data))
            self._piece_size += len(data)
        if not last and self._piece_size < PIECE_BYTES:
            return
        size, self._piece_size = self._piece_size, 0
        pieces, self._pieces = self._pieces, []
        message: Message = {"type": "websocket.receive"}
        if isinstance(data, str):
            message["text"] = "".join(piece for piece in pieces if isinstance(piece, str))
        else:
            message["bytes"] = b"".join(piece for piece in pieces if isinstance(piece, bytes))
        if not last:
            message["more"] = True
        self._put(message, size + EVENT_BYTES)

    def _put(self, message: Message, size: int) -> None:
        self._events.append((message, size))
        self._buffered += size
        self._arrived.wake()

    def _client_closes(self, event: CloseConnection) -> None:
        """Answer the client's close frame, or its violation of the protocol, with a close frame."""
        unanswered = self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING)
        if unanswered and not self._connection.write_paused:
            self._connection.transport.write(self._frames.send(event.response()))
        self._disconnect(event.code, event.reason or "")
        self._state = _State.CLOSED
        self._connection.transport.close()

    def _disconnect(self, code: int, reason: str) -> None:
        if self._disconnected:
            return
        self._disconnected = True
        self._put({"type": "websocket.disconnect", "code": int(code), "reason": reason}, 0)
        if self.task is not None and not self.task.done():
            asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self.task.cancel)

    def lost(self) -> None:
        """Tell the application that the client has gone without a close frame."""
        self._disconnect(1006, "")
        self._state = _State.CLOSED

    def going_away(self) -> None:
        """Close because the server stops (RFC 6455 7.4.1: 1001)."""
        if self._state is _State.OPEN:
            self._close(1001, "")
        self._connection.transport.close()

    def sweep(self, now: float) -> None:
        """Ping a silent client, and drop one that does not answer."""
        connection = self._connection
        if self._state is not _State.OPEN or connection.reading_paused or connection.write_paused:
            self._heard_at = now
            return
        silent = now - self._heard_at
        if silent >= DEAD_AFTER_S:
            connection.client_gone()
            connection.transport.abort()
        elif silent >= PING_AFTER_S and not self._pinged:
            self._pinged = True
            connection.transport.write(self._frames.send(Ping()))

    # ASGI

    async def _receive(self) -> Message:
        while not self._events:
            await self._arrived.wait()
        message, size = self._events.popleft()
        self._buffered -= size
        if self._buffered < BODY_HIGH_WATER and self._state is _State.OPEN:
            self._connection.resume_reading()
        return message

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if self._disconnected or self._state is _State.CLOSED:
            raise ClientGone("the client has gone or the WebSocket is closed")
        if kind == "websocket.send":
            self._send_piece(message)
        elif kind == "websocket.accept":
            self._accept(message)
        elif kind == "websocket.close":
            if self._state is _State.CONNECTING:
                self._refuse(403, "Forbidden")
                self._disconnect(1006, "")
            else:
                self._close(message.get("code") or 1000, message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            self._start_denial(message)
        elif kind == "websocket.http.response.body":
            await self._deny(message)
            return
        else:
            raise ValueError(f"message type {kind!r} is not known to a WebSocket")
        if self._connection.must_settle(len(message.get("bytes") or message.get("text") or "")):
            await self._connection.settled()

    def _accept(self, message: Message) -> None:
        if self._state is not _State.CONNECTING or self._denial is not None:
            raise RuntimeError("websocket.accept was sent after the handshake was answered")
        key = _key(self._head) or b""  # handshake_refusal has checked it
        accepted = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        headers = list(message.get("headers", ()))
        if message.get("subprotocol"):
            headers.append((b"Sec-WebSocket-Protocol", message["subprotocol"].encode("ascii")))
        lines = field_lines(headers)
        self._state = _State.OPEN
        self.started = True
        self._connection.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n%b\r\n" % (accepted, lines)
        )
        early, self._early = self._early, b""
        if early:
            self._connection.resume_reading()
            self.feed(early)

    def _send_piece(self, message: Message) -> None:
        if self._state is not _State.OPEN:
            raise RuntimeError("websocket.send was sent before websocket.accept")
        more = bool(message.get("more", False))
        text, data = message.get("text"), message.get("bytes")
        if (text is None) == (data is None):
            raise ValueError("websocket.send needs exactly one of text and bytes")
        kind = "text" if data is None else "bytes"
        if self._sending not in (None, kind):
            raise ValueError("a WebSocket message cannot change between text and bytes")
        self._sending = kind if more else None
        event: TextMessage | BytesMessage
        if data is None:
            event = TextMessage(data=str(text), message_finished=not more)
        else:
            event = BytesMessage(data=data, message_finished=not more)
        self._connection.transport.write(self._frames.send(event))

    def _close(self, code: int, reason: str) -> None:
        """Send a close frame and give the client some time to answer it."""
        if self._frames.state is not ConnectionState.OPEN:
            return
        self._connection.transport.write(
            self._frames.send(CloseConnection(code=code, reason=reason))
        )
        self._state = _State.CLOSED
        self._connection.deadline = self.server.now() + CLOSE_GRACE_S
        self._connection.resume_reading()
        self._disconnect(code, reason)

    # Denial

    def _refuse(self, status: int, reason: str) -> None:
        self.started = True
        self._state = _State.CLOSED
        self._connection.transport.write(refusal(status, reason))
        self._connection.end_websocket()

    def _start_denial(self, message: Message) -> None:
        if self._state is not _State.CONNECTING or self._denial is not None:
            raise RuntimeError("websocket.http.response.start was sent after an answer")
        self._denial = (int(message["status"]), list(message.get("headers", ())))

    async def _deny(self, message: Message) -> None:
        if self._denial is None:
            raise RuntimeError("websocket.http.response.body was sent before its start")
        more = bool(message.get("more_body", False))
        data = message.get("body", b"")
        start = b""
        if self._state is _State.CONNECTING:
            status, headers = self._denial
            head = answer_head(
                status=status,
                headers=headers,
                whole=None if more else len(data),
                head_request=False,
                http11=True,
                close=True,
            )
            start, self._denial_body = head.data, head.body
            self._state = _State.DENYING
            self.started = True
        if self._denial_body is Body.CHUNKED:
            data = chunk(data) + (b"" if more else LAST_CHUNK)
        elif self._denial_body is Body.NONE:
            data = b""
        self._connection.transport.write(start + data)
        await self._connection.settled()
        if not more:
            self._state = _State.CLOSED
            self._disconnect(1006, "")
            self._connection.end_websocket()
