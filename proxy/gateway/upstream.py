"""The pooled HTTP/1.1 client of the byte path."""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.gateway.upstream_messages import (
    Headers,
    OnInformational,
    Origin,
    RequestHead,
    UpstreamLimits,
)


class UpstreamResponse:
    """An origin's answer: the head at once, the body as it comes."""

    status: int
    reason: bytes
    headers: Headers
    http_version: str
    trailers: Headers

    async def read(self) -> bytes:
        """Give the next part, b"" at the end."""
        raise NotImplementedError

    def chunks(self) -> AsyncIterator[bytes]:
        """Give the parts one after the other."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Give up what has not been read; the connection closes."""


class UpstreamClient:
    """Connections to origins."""

    def __init__(self, limits: UpstreamLimits | None = None) -> None:
        raise NotImplementedError

    async def request(
        self,
        origin: Origin,
        head: RequestHead,
        body: bytes | AsyncIterator[bytes] | None = None,
        on_informational: OnInformational | None = None,
    ) -> UpstreamResponse:
        """Send a request, give the answer when its head is here. Raises OriginError."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close every connection."""
