"""Drives an ASGI application in-process: scopes, events both ways, a slow or vanished client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Event = dict[str, Any]
App = Callable[[dict[str, Any], Callable[..., Any], Callable[..., Any]], Awaitable[Any]]

EXTENDED = {
    "corvus.server": {"target": b""},
    "http.response.informational": {},
    "http.response.trailers": {},
}
"""What the gateway's own server offers to HTTP exchanges."""


def http_scope(
    method: str = "GET",
    target: bytes = b"/",
    headers: Iterable[tuple[bytes, bytes]] = ((b"host", b"shop.example"),),
    *,
    client: tuple[str, int] | None = ("203.0.113.9", 4711),
    scheme: str = "http",
    http_version: str = "1.1",
    extensions: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Give an HTTP scope as a server would make it; `extensions` None: those of our own server."""
    path, _, query = target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": http_version,
        "method": method,
        "scheme": scheme,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
        "client": client,
        "server": ("127.0.0.1", 80),
        "extensions": EXTENDED | {"corvus.server": {"target": target}}
        if extensions is None
        else extensions,
    }


def websocket_scope(
    target: bytes = b"/",
    headers: Iterable[tuple[bytes, bytes]] = ((b"host", b"shop.example"),),
    *,
    subprotocols: Iterable[str] = (),
    extensions: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Give a WebSocket scope; `extensions` None: those of our own server."""
    offered = {"corvus.server": {"target": target}, "corvus.pieces": {}}
    scope = http_scope(target=target, headers=headers, scheme="ws")
    del scope["method"]
    return scope | {
        "type": "websocket",
        "subprotocols": list(subprotocols),
        "extensions": offered | {"websocket.http.response": {}}
        if extensions is None
        else extensions,
    }


class Conversation:
    """One exchange with an application that runs in a task of its own."""

    def __init__(self, app: App, scope: dict[str, Any], events: Iterable[Event] = ()) -> None:
        self.sent: list[Event] = []
        self._inbox: asyncio.Queue[Event] = asyncio.Queue()
        self._outbox: asyncio.Queue[Event] = asyncio.Queue()
        self._open = asyncio.Event()
        self._open.set()
        self.received = 0
        for event in events:
            self._inbox.put_nowait(event)
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def say(self, event: Event) -> None:
        """Give the application another event."""
        self._inbox.put_nowait(event)

    def hold(self) -> None:
        """Be a client that takes nothing more."""
        self._open.clear()

    def go_on(self) -> None:
        """Take again."""
        self._open.set()

    async def hears(self, kind: str) -> Event:
        """Wait for the application's next event, which must be of this kind."""
        next_event = asyncio.ensure_future(self._outbox.get())
        await asyncio.wait({next_event, self.task}, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        if not next_event.done():
            next_event.cancel()
            if self.task.done():
                self.task.result()
            raise AssertionError(f"no {kind}; sent so far: {[e['type'] for e in self.sent]}")
        event = next_event.result()
        assert event["type"] == kind, event
        return event

    async def result(self) -> Any:
        """Wait until the application returns."""
        return await asyncio.wait_for(self.task, 20)

    @property
    def status(self) -> int:
        return int(next(e["status"] for e in self.sent if e["type"] == "http.response.start"))

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return list(next(e["headers"] for e in self.sent if e["type"] == "http.response.start"))

    @property
    def body(self) -> bytes:
        return b"".join(e.get("body", b"") for e in self.sent if e["type"] == "http.response.body")

    @property
    def ended_cleanly(self) -> bool:
        """Say whether the application said that the body is complete."""
        bodies = [e for e in self.sent if e["type"] == "http.response.body"]
        return bool(bodies) and not bodies[-1].get("more_body", False)

    async def _receive(self) -> Event:
        event = await self._inbox.get()
        self.received += len(event.get("body") or event.get("bytes") or b"")
        return event

    async def _send(self, event: Event) -> None:
        await self._open.wait()
        self.sent.append(event)
        self._outbox.put_nowait(event)


def request_body(*parts: bytes) -> list[Event]:
    """Give the events of a body that comes in these parts."""
    last = len(parts) - 1
    return [
        {"type": "http.request", "body": part, "more_body": number < last}
        for number, part in enumerate(parts)
    ]
