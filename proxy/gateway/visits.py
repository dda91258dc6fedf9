"""Pages: through the room's stage, then as one of the visitor's own requests to the origin."""

from __future__ import annotations

from dataclasses import replace

from proxy.gateway.admission import Entry, Refusal
from proxy.gateway.answers import Answer, json_answer
from proxy.gateway.assets import most_of_one
from proxy.gateway.decide import ToOrigin
from proxy.gateway.live import LiveRoom
from proxy.gateway.passage import Passage
from proxy.gateway.plan import Site
from proxy.gateway.pools import pass_key
from proxy.gateway.room_answers import blank_view, page_answer
from proxy.gateway.streams import TOO_MANY, carry_stream
from queueing.config import RoomId, Unit
from queueing.pages import PageState
from queueing.passes import Credential

_RETRY_S = 1


async def serve_page(passage: Passage, route: ToOrigin, room_id: RoomId) -> str:
    """Serve a page that a room governs; gives the decision's reason."""
    resources = passage.resources
    live = resources.live[room_id]
    decision = await passage.in_force.rooms.admit(
        passage.exchange, route.site, live, resources.live
    )
    if isinstance(decision, Refusal):
        await passage.answer(decision.answer, decision.reason)
        return decision.reason
    inside = decision.credential
    if inside is None:  # a CORS preflight
        await passage.forward(route.site, decision, live)
        return decision.reason
    live = resources.live.get(inside.room, live)  # another's pass may have opened this room
    if passage.exchange.is_websocket:
        return await _serve_socket(passage, route.site, decision, live)
    if live.config.unit is Unit.REQUESTS:
        await passage.forward(route.site, decision, live)
        return decision.reason
    return await _serve_within_pass(passage, route.site, decision, live, inside)


async def _serve_within_pass(
    passage: Passage, site: Site, entry: Entry, live: LiveRoom, inside: Credential
) -> str:
    """Forward as one of those that the pass may have at once, whoever carries it (WR-35)."""
    pools, family = passage.resources.pools, passage.exchange.family
    settings = passage.in_force.plan.snapshot.settings
    key, most = pass_key(inside.room, inside.sid, family), most_of_one(settings, family)
    if not pools.try_take(key, most):
        taken = False
        try:
            taken = await pools.take(key, most, settings.asset_user_wait_s)
        finally:
            if not taken and entry.lease:
                passage.resources.leases.free(live.id, entry.lease)
        if not taken:
            passage.resources.counters["pass_pool_full"] += 1
            reason = "page: too many of one pass"
            await passage.answer(_too_many(passage, live, entry), reason)
            return reason
    try:
        await passage.forward(site, entry, live)
    finally:
        pools.give_back(key)
    return entry.reason


async def _serve_socket(passage: Passage, site: Site, entry: Entry, live: LiveRoom) -> str:
    if await carry_stream(passage, site, entry, live):
        return entry.reason
    if entry.lease:
        passage.resources.leases.free(live.id, entry.lease)
    return TOO_MANY


def _too_many(passage: Passage, live: LiveRoom, entry: Entry) -> Answer:
    """Say that one pass has too many requests under way; the slot and the pass stay as they are."""
    rooms, exchange, cookies = passage.in_force.rooms, passage.exchange, entry.headers or []
    if exchange.is_navigation or not rooms.settings.api_json:
        desk = rooms.desk(exchange, live.config)
        view = replace(blank_view(desk), state=PageState.LIMITED, retry_after_s=_RETRY_S)
        return page_answer(desk, view, 429, cookies)
    document = {
        "error": "too many requests at once of one visitor",
        "retry_after_seconds": _RETRY_S,
        "room": live.id,
    }
    return json_answer(429, document, retry_after_s=_RETRY_S, extra=cookies)
