"""Streams: WebSockets and event streams beside the page slots, of who has a pass (WR-51).

They last, so they are counted by themselves (`stream_cap`), and a refused one is told at once. Also
for a WebSocket outside the stream paths: it gives its page slot back when it opens.
"""

from __future__ import annotations

from typing import Any

from proxy.gateway.admission import Entry, Refusal
from proxy.gateway.answers import STATE_HEADER, Answer, json_answer
from proxy.gateway.decide import ToOrigin
from proxy.gateway.live import LiveRoom
from proxy.gateway.passage import Passage
from proxy.gateway.plan import Site
from proxy.gateway.pools import STREAMS
from queueing.config import RoomId
from queueing.places import State

FULL_RETRY_S = 5
TOO_MANY = "stream: too many"


async def serve_stream(passage: Passage, route: ToOrigin) -> str:
    """Serve a path of streams; gives the decision's reason."""
    resources = passage.resources
    checks = passage.in_force.rooms.passes
    rooms = checks.rooms(route.site, route.room, resources.live)
    entry, live = Entry(reason=route.reason, tier=route.tier), None
    if rooms and passage.exchange.is_preflight:  # it never carries a cookie
        decision = passage.in_force.rooms.preflight(passage.exchange, resources.live[rooms[0]])
        if isinstance(decision, Refusal):
            await passage.answer(decision.answer, decision.reason)
        else:
            await passage.forward(route.site, decision, None)
        return decision.reason
    if rooms:
        shown = await checks.find(passage.exchange, [resources.live[room] for room in rooms])
        if shown is None:
            resources.counters["stream_denied"] += 1
            await passage.answer(_without_pass(passage, rooms[0]), "stream: no pass")
            return "stream: no pass"
        live = shown.live
        entry = Entry(
            reason=route.reason,
            credential=shown.credential,
            headers=shown.headers,
            tier=route.tier,
        )
    if await carry_stream(passage, route.site, entry, live):
        return route.reason
    return TOO_MANY


async def carry_stream(passage: Passage, site: Site, entry: Entry, live: LiveRoom | None) -> bool:
    """Forward as one of the machine's streams; False where there are too many, which is said."""
    resources = passage.resources
    most = resources.machines.share(passage.in_force.plan.snapshot.settings.stream_cap)
    if not resources.pools.try_take(STREAMS, most):
        resources.counters["stream_throttled"] += 1
        document = {"error": "too many streams are open", "retry_after_seconds": FULL_RETRY_S}
        answer = json_answer(503, document, retry_after_s=FULL_RETRY_S)
        await passage.answer(answer, TOO_MANY)
        return False
    try:
        resources.counters["stream_served"] += 1
        await passage.forward(site, entry, live)
    finally:
        resources.pools.give_back(STREAMS)
    return True


def _without_pass(passage: Passage, room: RoomId) -> Answer:
    """Say, before any upgrade, that a page of the site comes first."""
    retry_s = max(1, passage.in_force.plan.snapshot.settings.retry_after_s)
    document: dict[str, Any] = {
        "error": "a pass is needed",
        "state": State.NONE,
        "queued": False,
        "retry_after": retry_s,
        "status_url": f"/__corvus/wr/{room}/status",
        "room": room,
        "hint": "open a page of the site first",
    }
    state: list[tuple[bytes, bytes]] = [(STATE_HEADER, State.NONE.encode())]
    return json_answer(429, document, retry_after_s=retry_s, extra=state)
