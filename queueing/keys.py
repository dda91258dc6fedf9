"""The names of a room's keys in the store, and nothing else.

Pure. All keys of a room carry the hash tag `{room}`, so that a Redis Cluster keeps them on one node
and one script call may touch them all. Only `queueing.calls` and `queueing.store` use this module.
"""

from __future__ import annotations

import re
from functools import lru_cache

from queueing.config import RoomId

PREFIX = "corvus:wr:"

ANY_ROOM = RoomId("*")
"""In a pattern of keys: each room's."""

PARTS = (
    "active",  # zset: sid or lease -> end of the slot, room time
    "granted",  # zset: sid -> claim deadline, room time
    "queue",  # zset: sid -> ticket
    "seen",  # zset: sid -> last check-in of who waits in `queue`, room time
    "parked",  # zset: sid -> end of the return window, room time
    "lane",  # zset: sid or lease -> end of a slot of the lane, room time
    "visitor",  # hash: sid -> packed record of who is in queue, parked or granted
    "inside",  # hash: sid -> packed record of who is active
    "seq",  # number: the newest ticket
    "rate",  # list: room times of the last admissions, newest first
    "config",  # hash: configuration, version, room clock, epoch
    "counters",  # hash: totals since the room began (I3)
    "events",  # stream: every transition, capped
    "journal",  # stream: revocations, expulsions, resets; ids `<n>-0`, contiguous
    "lanewait",  # zset: holder -> its order among those who wait for a slot of the lane
    "lanedue",  # zset: the same holders -> until when they are believed to wait, room time
    "lanewho",  # hash: the same holders -> rank, form, sid, client, network
    "ranked",  # zset: of `queue`, who does not stand by arrival -> level and number
    "vip",  # zset: sid -> until when its new places go to the front, room time; survives a reset
    "served",  # zset, unit requests: sid whose ticket was served -> end of the return window
)
"""The script's KEYS in their order; `client`, `checks`, `paid` or `revoked` follows as the call
needs it."""

_OF_A_ROOM = re.compile(rb"corvus:wr:\{([a-z0-9][a-z0-9-]{0,31})\}:")


@lru_cache(maxsize=1024)
def room_keys(room_id: RoomId) -> tuple[str, ...]:
    """Give the room's fixed keys in the order of `PARTS`."""
    return tuple(room_key(room_id, part) for part in PARTS)


def room_key(room_id: RoomId, part: str) -> str:
    """Give one key of a room."""
    return f"{PREFIX}{{{room_id}}}:{part}"


def room_of(key: bytes) -> RoomId | None:
    """Give the room that a key belongs to; None for what is no room's key."""
    match = _OF_A_ROOM.match(key)
    return RoomId(match[1].decode()) if match else None


def client_key(room_id: RoomId, client: str) -> str:
    """Give the key that counts a client's new places in the last minute; it expires."""
    return room_key(room_id, f"addr:{client}")


def paid_key(room_id: RoomId, payment: str) -> str:
    """Give the key that remembers a payment for 30 days, so that it moves nobody twice."""
    return room_key(room_id, f"paid:{payment}")


def revoked_key(room_id: RoomId, sid: str) -> str:
    """Give the key that says that a visitor was just revoked; it expires after a minute."""
    return room_key(room_id, f"revoked:{sid}")


def checks_key(room_id: RoomId, sid: str) -> str:
    """Give the key that counts a visitor's status checks in the last second; it expires."""
    return room_key(room_id, f"checks:{sid}")
