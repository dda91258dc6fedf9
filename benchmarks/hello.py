"""The smallest ASGI application: what the server alone costs."""

from __future__ import annotations

from typing import Any

BODY = b"x" * 200
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", b"200")]


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer 200 with 200 bytes."""
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
