"""One HTTP exchange between an ASGI server and an origin, streamed both ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proxy.gateway.headers import CorvusHeaders
from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_errors import OriginError
from proxy.gateway.upstream_messages import Header, Headers, Origin, RequestHead

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Ended(StrEnum):
    """How an exchange ended for the visitor."""

    DELIVERED = "delivered"
    CLIENT_GONE = "client gone"
    CUT = "cut"  # the origin failed inside its answer


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one forwarded exchange."""

    status: int  # of the origin; 0 when the visitor went before there was one
    body_bytes: int  # handed to the server
    ended: Ended


class AnswerCut(Exception):
    """The origin failed after its headers had been sent on; let it reach the server, which cuts.

    Raising is the one way that ASGI has to end a connection without ending the message.
    """

    def __init__(self, outcome: Outcome, cause: OriginError) -> None:
        super().__init__(str(cause))
        self.outcome = outcome
        self.cause = cause


async def forward(
    *,
    scope: dict[str, Any],
    receive: Receive,
    send: Send,
    origin: Origin,
    head: RequestHead,
    upstream: UpstreamClient,
    extra_headers: Sequence[Header] = (),
    on_origin_headers: Callable[[int, CorvusHeaders], Headers | None] | None = None,
) -> Outcome:
    """Forward one exchange."""
    raise NotImplementedError
