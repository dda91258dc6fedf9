"""Clears away in the store what nobody drives any more; the background worker does it.

Gateways tick the rooms that they serve. What is left: rooms that no gateway serves at the moment,
and the keys of rooms that were deleted. The list of machines is kept by the machines themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import structlog

from queueing.config import OnOutage, RoomId
from queueing.keys import ANY_ROOM, room_key, room_of
from queueing.models import Room
from queueing.queries import room_store, store_client

_log = structlog.get_logger("corvus.rooms")

LEFT_ALONE_MS = 5_000
"""Longer than any gateway pauses; after it the script lets room time stand still, so that a tick of
ours never lets time pass for people who cannot check in (design §4 rule 11)."""

FORGOTTEN_MS = 60_000
"""A room of a store that other databases use too is driven by their gateways: it is not ours."""

ROUNDS = 400
BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """What one run did."""

    ticked: int = 0  # rooms without a gateway whose due work was done
    dropped: int = 0  # deleted rooms whose keys were removed
    keys: int = 0  # how many keys those were


def reap() -> Reaped:
    """Do the due work of rooms that no gateway drives, and remove what deleted rooms left.

    May run at any time, in several workers at once: each step is one act of the store.

    Raises:
        redis.RedisError: the store cannot be reached, or refuses.
    """
    ticked = sum(_tick(room.pk, room.on_outage) for room in Room.objects.order_by("id"))
    dropped = {room: _drop(room) for room in _forgotten()}
    reaped = Reaped(ticked=ticked, dropped=len(dropped), keys=sum(dropped.values()))
    if ticked or dropped:
        _log.info("reaped", ticked=ticked, dropped=sorted(dropped), keys=reaped.keys)
    return reaped


def _tick(room_id: str, on_outage: str) -> bool:
    """Tick a room that nobody else does.

    Not one that lets people in during an outage: there the silence tells the first gateway that
    comes back to wait until all have said whom they let in.
    """
    store, room = room_store(), RoomId(room_id)
    silence = store.silence_ms(room)
    if on_outage == OnOutage.OPEN or silence is None or silence <= LEFT_ALONE_MS:
        return False
    for _ in range(ROUNDS):
        if not store.tick(room).more_work:
            break
    return True


def _forgotten() -> list[RoomId]:
    """Name the rooms of the store that the database does not know and that nobody calls."""
    keys = store_client().scan_iter(match=room_key(ANY_ROOM, "config"), count=BATCH)
    found = {room for key in keys if (room := room_of(key))}
    # Asked after the scan: what was made meanwhile is known.
    found -= set(Room.objects.filter(pk__in=found).values_list("pk", flat=True))
    store = room_store()
    silent = {room: store.silence_ms(room) for room in sorted(found)}
    return [room for room, ms in silent.items() if ms is None or ms >= FORGOTTEN_MS]


def _drop(room: RoomId) -> int:
    """Remove a room's keys; its configuration last, so that a run that is cut off is made up for.

    Gives how many there were.
    """
    client, config = store_client(), room_key(room, "config").encode()
    keys = (k for k in client.scan_iter(match=room_key(room, "*"), count=BATCH) if k != config)
    removed = 0
    while batch := list(islice(keys, BATCH)):
        removed += client.unlink(*batch)
    return removed + int(client.unlink(config))
