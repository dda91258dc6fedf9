"""What a visitor who has left set going at the origin is worked off before its lease is free.

Reloading must not overload: an origin goes on with a request whose visitor has gone, so the slot
counts until its answer has ended (design §4 rule 8). Only for exchanges that hold a lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from proxy.gateway.upstream import BodyMismatch, Upgraded, UpstreamResponse
from proxy.gateway.upstream_errors import OriginError
from proxy.gateway.upstream_messages import BadHead, Headers
from proxy.gateway.upstream_upload import UploadAbandoned

Answered = TypeVar("Answered", bound=UpstreamResponse | Upgraded)

_NO_ANSWER = (TimeoutError, OriginError, BadHead, BodyMismatch, UploadAbandoned)

MOST_BYTES = 16 * 1024 * 1024
"""Of an answer that nobody hears any more: a longer one is broken off."""


def is_event_stream(headers: Headers) -> bool:
    """Whether an answer is one that lasts until somebody ends it; names in any case."""
    return any(
        name.lower() == b"content-type" and value.lower().startswith(b"text/event-stream")
        for name, value in headers
    )


class Drain:
    """One request at the origin that outlives its visitor."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: asyncio.Future[Any] | None = None

    def ask(self, request: Coroutine[Any, Any, Answered]) -> Awaitable[Answered]:
        """Send the request; cancelling the wait for its answer leaves it under way."""
        asked = asyncio.ensure_future(request)
        self._asked = asked
        return asyncio.shield(asked)

    async def work_off(self, within_s: float) -> None:
        """Await and throw away the origin's answer, `within_s` seconds and 16 MB of it at most.

        An event stream or an open WebSocket is broken off at once; so is whatever is left when the
        call is cancelled.
        """
        if self._asked is None:
            return
        try:
            with suppress(*_NO_ANSWER):
                async with asyncio.timeout(within_s):
                    await _read_on(await self._asked)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Close the origin's connection unless the answer has ended."""
        asked = self._asked
        if asked is None or asked.cancelled():
            return
        if not asked.done():
            asked.cancel()
        elif asked.exception() is None:
            answer: UpstreamResponse | Upgraded = asked.result()
            if isinstance(answer, Upgraded):
                answer.close(at_once=True)
            else:
                answer.abort()


async def _read_on(response: UpstreamResponse | Upgraded) -> None:
    if isinstance(response, Upgraded) or is_event_stream(response.headers):
        return
    left = MOST_BYTES
    while left > 0 and (part := await response.read()):
        left -= len(part)
