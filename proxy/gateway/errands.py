"""One request's asking for a slot: with which rank, as a form or not, and how long for the lane.

Owns the `enter` calls of a room's script and the wait between them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.lane import Free
from proxy.gateway.live import LiveRoom
from queueing.config import RoomConfig, Unit
from queueing.passes import Credential
from queueing.places import Place, State
from queueing.store import RoomStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """With what a request asks for a slot."""

    rank: int
    form: bool
    lease: str  # what holds the slot where the visitor's session does not; "" = it always does
    network: str  # tag of the visitor's network, where the room looks for shared passes
    headers: Headers  # for whatever answer comes of it

    def lane_holder(self, room: RoomConfig, credential: Credential) -> str:
        """Say what would stand in the lane: a ranked visitor's session, else this request."""
        if room.unit is Unit.VISITORS and self.rank >= room.lane_rank:
            return credential.sid
        return self.lease


async def enter(
    store: RoomStore,
    free: Free,
    exchange: Exchange,
    live: LiveRoom,
    credential: Credential,
    errand: Errand,
) -> Place:
    """Ask for a slot, waiting for one of the lane where the script says that this is worth it.

    Whoever goes away meanwhile holds nothing.

    Raises:
        StoreError: the store cannot tell.
    """
    room = live.config
    holder = errand.lane_holder(room, credential)
    try:
        place = await _enter(store, exchange, room, credential, errand, room.priority_wait_ms > 0)
        if place.state is State.LANE:
            await live.lane.wait(store, free, room.id, holder, room.priority_wait_ms / 1000)
            place = await _enter(store, exchange, room, credential, errand, False)
            live.counters["priority_lane_full"] += place.state is not State.ACTIVE
        return place
    except asyncio.CancelledError:
        if errand.lease:  # it may have been given to us in the reply that nobody reads now
            free(room.id, errand.lease)
        raise


async def _enter(
    store: RoomStore,
    exchange: Exchange,
    room: RoomConfig,
    credential: Credential,
    errand: Errand,
    lane_wait: bool,
) -> Place:
    return await store.enter(
        room.id,
        credential.sid,
        client=exchange.client.client_key,
        iat_ms=credential.iat_ms,
        ticket=credential.ticket,
        lease=errand.lease,
        exempt=exchange.client.is_proxy,
        rank=errand.rank,
        form=errand.form,
        lane_wait=lane_wait,
        network=errand.network,
    )
