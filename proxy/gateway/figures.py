"""What a gateway process can tell an operator in numbers; the words are those of the option table.

Pure. Three kinds, kept apart: what *this process* did since it started, what is in use on *this
machine* (the pools), and what a *room* holds for all gateways together (its last tick, and its
totals as of the last second). Whoever adds up processes adds the first kind alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

from proxy.gateway.live import LiveRoom
from proxy.gateway.pools import ASSETS, STREAMS
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RANKS, RoomConfig
from queueing.places import Counts

_PROCESS_COUNTERS = (
    "asset_served",
    "asset_denied",
    "asset_user_throttled",
    "asset_global_throttled",
    "stream_served",
    "stream_denied",
    "stream_throttled",
    "priority_lane_full",
    "priority_forms",
    "priority_forms_refused",
    "priority_grants",
    "priority_grants_cleared",
    "priority_grants_rejected",
    *(f"priority_requests_{rank}" for rank in RANKS),
)


class PoolsInUse(Protocol):
    """What is asked of the machine's pools."""

    def in_use(self, key: bytes) -> int: ...

    def figures(self) -> dict[str, int]: ...


def process_figures(counters: Counter[str], rooms: Iterable[LiveRoom]) -> dict[str, int]:
    """Count what this process did since it started, for all rooms and hosts together."""
    total = Counter(counters)
    for room in rooms:
        total += room.counters
    figures = {f"{name}_total": total[name] for name in _PROCESS_COUNTERS}
    # Told by rank as the option table names them, without the ending.
    for rank in RANKS:
        figures[f"priority_requests_{rank}"] = figures.pop(f"priority_requests_{rank}_total")
    return figures | {"leases_cut_total": total["leases_cut"]}


def machine_figures(settings: GatewaySettings, pools: PoolsInUse, machines: int) -> dict[str, Any]:
    """Tell what is in use on this machine, and the limits, which all machines share."""
    found = pools.figures()
    return {
        "machines": machines,
        "asset_cap": settings.asset_cap,
        "asset_in_flight": pools.in_use(ASSETS),
        "asset_user_cap_h1": settings.asset_user_cap_h1,
        "asset_user_cap_h2": settings.asset_user_cap_h2,
        "stream_cap": settings.stream_cap,
        "stream_active": pools.in_use(STREAMS),
        "asset_users": found.get("passes_here", 0),  # of this process alone
        "pools": found,
    }


def room_figures(room: LiveRoom) -> dict[str, Any]:
    """Tell what a room holds for all gateways together; None: not known yet."""
    config, counts = room.config, room.tick.counts if room.tick else None
    return {
        "configured": room.configured,
        "journal": room.journal,  # the newest revocation that this process has applied
        "counters": dict(room.counters),
        "waiting": counts.waiting if counts else None,
        "parked": counts.parked if counts else None,
        "granted": counts.granted if counts else None,
        "active": counts.active if counts else None,
        "latest_ticket": counts.latest_ticket if counts else None,
        "cap": config.capacity,
        "max_queue_depth": config.max_queue,
        "priority_lane_cap": lane_size(config),
        "utilization": round(room.utilization, 4),
    } | (_people(counts) | _totals(room.totals) if counts else {})


def lane_size(config: RoomConfig) -> int:
    """Slots of the lane: as set, or a quarter of the capacity."""
    if config.capacity <= 0:
        return 0
    return config.priority_cap or max(1, config.capacity // 4)


def _people(counts: Counts) -> dict[str, int]:
    return {
        "occupancy": counts.active,
        "queue_depth": counts.waiting + counts.parked + counts.granted,
        "live_queue_depth": counts.waiting,
        "priority_lane_in_flight": counts.lane,
        "priority_lane_waiting": counts.lane_waiting,
    }


def _totals(totals: dict[str, int]) -> dict[str, int]:
    def total(name: str) -> int:
        return totals.get(name, 0)

    return {
        "queued_total": total("joined") - total("direct") - total("lane"),
        "evicted_total": total("missed"),
        "promoted_total": total("advanced"),
        "removed_total": total("removed"),
        "priority_lane_served_total": total("lane"),
        "admitted_total": total("admitted"),
        "overshoot_total": total("overshoot"),
    }
