"""The origin's end of a WebSocket on a raw connection."""

from __future__ import annotations

from wsproto.connection import Connection, ConnectionType
from wsproto.events import Event, Message, TextMessage
from wsproto.utilities import generate_accept_token

from tests.support.raw_origin import OriginConnection


def accept_token(head: bytes) -> bytes:
    key = head.lower().index(b"sec-websocket-key: ") + 19
    return generate_accept_token(head[key : head.index(b"\r\n", key)])


async def accept_websocket(connection: OriginConnection, lines: bytes = b"") -> OriginSocket:
    """Read the handshake and accept it, with these lines more."""
    head = await connection.head()
    await connection.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept_token(head) + b"\r\n" + lines + b"\r\n"
    )
    return OriginSocket(connection)


class OriginSocket:
    """The origin's end of an open WebSocket."""

    def __init__(self, connection: OriginConnection) -> None:
        self.raw = connection
        self.frames = Connection(ConnectionType.SERVER)
        self._events: list[Event] = []

    async def say(self, event: Event) -> None:
        await self.raw.send(bytes(self.frames.send(event)))

    async def hears(self) -> Event:
        while not self._events:
            data = await self.raw.reader.read(65_536)
            self.frames.receive_data(data or None)
            self._events += self.frames.events()
        return self._events.pop(0)

    async def hears_message(self) -> str | bytes:
        whole = b""
        while True:
            event = await self.hears()
            assert isinstance(event, Message), event
            text = isinstance(event, TextMessage)
            whole += event.data.encode() if text else event.data
            if event.message_finished:
                return whole.decode() if text else whole
