"""Ending one visitor's session on an operator's call (WR-53); the admin token was checked."""

from __future__ import annotations

import json
import re

import structlog

from proxy.gateway.answers import Answer, json_answer
from proxy.gateway.live import LiveRoom
from proxy.gateway.request_body import BodyRefused, RequestBody
from proxy.gateway.rooms import Rooms
from queueing.config import VisitorId
from queueing.store import StoreError

log = structlog.get_logger("corvus.gateway")

_MOST = 4 * 1024
_VISITOR = re.compile(r"[A-Za-z0-9_-]{16}", re.ASCII)


async def take_revocation(body: RequestBody, rooms: Rooms, live: LiveRoom) -> Answer:
    """End a visitor's session, as the origin may by its header (WR-53)."""
    try:
        document = json.loads(await body.read(_MOST))
    except BodyRefused as refused:
        return json_answer(refused.status, {"error": str(refused)})
    except (ValueError, RecursionError):
        document = None
    visitor = document.get("visitor") if isinstance(document, dict) else None
    if not isinstance(visitor, str) or not _VISITOR.fullmatch(visitor):
        allowed = "a visitor's id is 16 of A-Z a-z 0-9 _ -"
        return json_answer(400, {"error": allowed, "field": "visitor"})
    sid = VisitorId(visitor)
    live.revoked[sid] = rooms.clock.now_ms()  # here at once; the journal tells the others
    try:
        freed = await rooms.store.release(live.id, sid, revoke=True)
    except StoreError as error:
        log.warning("session not revoked", room=live.id, error=str(error))
        return json_answer(503, {"error": "the store is not available"}, retry_after_s=2)
    return json_answer(200, {"revoked": freed})
