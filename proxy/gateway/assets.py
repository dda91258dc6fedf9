"""Assets: served to who has a pass (public ones to everybody), in bounded numbers at once.

They never wait in line: no pass is 403 at once, a pass that is used too much is 429, and too many
of all visitors together is 503. What is exact and what is shared among machines: decision 0011.
"""

from __future__ import annotations

from proxy.gateway.admission import Entry
from proxy.gateway.answers import STATE_HEADER, plain
from proxy.gateway.decide import ToOrigin
from proxy.gateway.live import LiveRoom
from proxy.gateway.passage import Passage
from proxy.gateway.pools import ASSETS, pass_key
from proxy.gateway.snapshot import GatewaySettings
from queueing.places import State

_SOON = (b"retry-after", b"1")
_NO_PASS = plain(403, "a pass is needed: open a page first", [(STATE_HEADER, State.NONE.encode())])
_TOO_MANY_OF_ONE = plain(429, "too many requests at once of one visitor", [_SOON])
_TOO_MANY = plain(503, "too many requests at once", [_SOON])


def most_of_one(settings: GatewaySettings, family: str) -> int:
    """How many requests one pass may have under way, by the client's protocol."""
    return settings.asset_user_cap_h2 if family == "h2" else settings.asset_user_cap_h1


async def serve_asset(passage: Passage, route: ToOrigin) -> str:
    """Serve what needs a pass; gives the decision's reason."""
    resources, exchange = passage.resources, passage.exchange
    checks = passage.in_force.rooms.passes
    rooms = checks.rooms(route.site, route.room, resources.live)
    if not rooms:
        return await serve_public_asset(passage, route)
    shown = await checks.find(exchange, [resources.live[room] for room in rooms])
    if shown is None:
        resources.counters["asset_denied"] += 1
        await passage.answer(_NO_PASS, "asset: no pass")
        return "asset: no pass"
    held = shown.credential
    entry = Entry(reason=route.reason, credential=held, headers=shown.headers, tier=route.tier)
    settings = passage.in_force.plan.snapshot.settings
    key = pass_key(held.room, held.sid, exchange.family)
    most = most_of_one(settings, exchange.family)
    if not await resources.pools.take(key, most, settings.asset_user_wait_s):
        resources.counters["asset_user_throttled"] += 1
        resources.counters["pass_pool_full"] += 1
        await passage.answer(_TOO_MANY_OF_ONE, "asset: too many of one pass")
        return "asset: too many of one pass"
    try:
        return await _within_all(passage, route, entry, shown.live)
    finally:
        resources.pools.give_back(key)


async def serve_public_asset(passage: Passage, route: ToOrigin) -> str:
    """Serve what everybody may have; gives the decision's reason."""
    return await _within_all(passage, route, Entry(reason=route.reason, tier=route.tier), None)


async def _within_all(
    passage: Passage, route: ToOrigin, entry: Entry, live: LiveRoom | None
) -> str:
    """Forward it as one of all the machine's assets."""
    resources = passage.resources
    settings = passage.in_force.plan.snapshot.settings
    most = resources.machines.share(settings.asset_cap)
    if not await resources.pools.take(ASSETS, most, settings.asset_wait_s):
        resources.counters["asset_global_throttled"] += 1
        reason = f"{route.reason}: too many"
        await passage.answer(_TOO_MANY, reason)
        return reason
    try:
        resources.counters["asset_served"] += 1
        await passage.forward(route.site, entry, live)
    finally:
        resources.pools.give_back(ASSETS)
    return route.reason
