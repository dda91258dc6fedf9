"""What the protocols know of the server around them, and the shapes that ASGI passes about.

The protocols depend on this module, never on the server itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Protocol

from corvus_site.server.limits import ServerLimits

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Address = tuple[str, int]


class Swept(Protocol):
    """What the server asks of every connection."""

    def sweep(self, now: float) -> None: ...
    def drain(self) -> None: ...
    def cut(self) -> None: ...


class House(Protocol):
    """What a connection asks of its server."""

    limits: ServerLimits
    connections: set[Swept]
    draining: bool

    @property
    def application(self) -> Application: ...
    def now(self) -> float: ...
    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def admit(self, transport: asyncio.Transport) -> str | None: ...
    def release(self, key: str | None) -> None: ...
    def protocol_for(self, alpn: str | None) -> Any: ...
