"""What a visitor inside is told of the time that is left to it (WR-26). Pure."""

from __future__ import annotations

from typing import Any

from queueing.config import RoomConfig
from queueing.places import Session

WARNING_MS = 120_000
"""So long before the absolute limit a page warns: at least a minute is left when it has asked."""

MOST_EXTENSIONS = 10


def session_document(
    room: RoomConfig, *, now_ms: int, expires_ms: int | None, session: Session | None
) -> dict[str, Any]:
    """Give the JSON of `/session`; times are store ms.

    `expires_ms` is the end of the pass (None = not inside). Without an absolute limit, or when the
    store cannot be asked, there is no `session`, and nothing to warn of.
    """
    limit_ms = session.limit_ms if session is not None else 0
    inside = expires_ms is not None
    return {
        "state": "active" if inside else "none",
        "expires_in": max(0, expires_ms - now_ms) // 1000 if expires_ms is not None else None,
        "ends_at": limit_ms or None,
        "warn_at": _warn_at(room, session) if session is not None and limit_ms else None,
        "extensions_left": _left(room, session) if session is not None and limit_ms else 0,
        "essential": bool(inside and room.essential_limit and limit_ms),
        "server_time": now_ms,
    }


def _warn_at(room: RoomConfig, session: Session) -> int:
    began_ms = session.limit_ms - room.absolute_ttl_ms * (1 + session.extensions)
    if room.essential_limit:
        return began_ms  # it cannot be lengthened: known from the start
    return max(began_ms, session.limit_ms - WARNING_MS)


def _left(room: RoomConfig, session: Session) -> int:
    return 0 if room.essential_limit else max(0, MOST_EXTENSIONS - session.extensions)
