"""Two-way relay of one WebSocket between an ASGI server and an origin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.gateway.forward import Receive, Send
from proxy.gateway.headers import CorvusHeaders
from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_messages import Header, Headers, Origin, RequestHead


class StopSignal:
    """Lets the gateway close a running stream, e.g. with 4408 when its slot is gone."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.code = 1001
        self.reason = ""

    def close(self, code: int, reason: str = "") -> None:
        """Close both sides with this code; once."""
        self.code, self.reason = code, reason
        self.event.set()


@dataclass(frozen=True, slots=True)
class Relayed:
    """What became of one WebSocket."""

    status: int  # 101, or the origin's refusal
    code: int  # the close code that ended it; 1006 where a side vanished; 0 where it never opened


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
    on_origin_headers: Callable[[int, CorvusHeaders], Headers | None] | None = None,
) -> Relayed:
    """Relay one WebSocket. Raises OriginError before the origin answered (send a denial then)."""
    raise NotImplementedError
