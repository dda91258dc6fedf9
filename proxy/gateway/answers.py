"""What the gateway answers itself: status codes, headers and JSON bodies (design §5). Pure.

Pages come from `queueing.pages`; this module decides the status and builds the JSON twin.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from proxy.gateway.exchange import Headers
from queueing.pages import PageState
from queueing.places import State

NO_STORE: Headers = [
    (b"cache-control", b"no-store, private"),
    (b"vary", b"Cookie, Accept"),
    (b"x-robots-tag", b"noindex"),
]

STATE_HEADER = b"x-waiting-room"
"""Tells scripts what a room said, whatever the body is (WR-50)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete response."""

    status: int
    headers: Headers
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Codes:
    """The three statuses of a state: page, JSON twin, status endpoint; and for unsafe methods."""

    page: int
    json: int
    status: int
    unsafe: int = 429


_WAIT = Codes(200, 429, 200)
_SHUT = Codes(503, 503, 503, 503)

CODES: dict[str, Codes] = {
    State.NONE: Codes(200, 429, 200),
    State.WAITING: _WAIT,
    State.PARKED: _WAIT,
    State.PREQUEUE: _WAIT,
    State.GRANTED: _WAIT,
    State.PAUSED: _WAIT,
    State.ACTIVE: Codes(200, 200, 200),
    State.MISSED: Codes(200, 429, 410),
    State.RESET: Codes(200, 409, 409),
    State.FULL: _SHUT,
    State.CLOSED: _SHUT,
    State.REJECTED: _SHUT,
    State.HOLD: _SHUT,
    State.LIMITED: Codes(429, 429, 429),
    State.SHARED: Codes(429, 429, 429),
    State.UNSENT: _SHUT,
    PageState.BUSY: _SHUT,
    PageState.STORE_DOWN: _SHUT,
}


def json_answer(
    status: int, document: dict[str, Any], *, retry_after_s: int = 0, extra: Headers | None = None
) -> Answer:
    """Build an uncacheable JSON answer; 429 and 503 carry Retry-After."""
    body = json.dumps(document, separators=(",", ":")).encode()
    headers: Headers = [(b"content-type", b"application/json; charset=utf-8"), *NO_STORE]
    if status in (429, 503):
        headers.append((b"retry-after", str(max(1, retry_after_s)).encode()))
    return Answer(status, headers + (extra or []), body)


def redirect(location: str, extra: Headers | None = None, *, status: int = 302) -> Answer:
    """Build an uncacheable redirect."""
    headers: Headers = [(b"location", location.encode("latin-1")), *NO_STORE]
    return Answer(status, headers + (extra or []))


def plain(status: int, text: str, extra: Headers | None = None) -> Answer:
    """Build a one-line answer."""
    headers: Headers = [(b"content-type", b"text/plain; charset=utf-8"), *NO_STORE]
    return Answer(status, headers + (extra or []), text.encode() + b"\n")


def to_head(answer: Answer, method: str) -> tuple[Headers, bytes]:
    """Give headers with the length, and the body that this method may have (RFC 9110 9.3.2)."""
    if answer.status == 204:
        return answer.headers, b""
    length = (b"content-length", str(len(answer.body)).encode())
    return [*answer.headers, length], b"" if method == "HEAD" else answer.body
