"""The only door to a room's state in the store: one typed method for each operation of `room.lua`.

Owns loading and calling the script. What the words of a call are and what a reply means stands in
`queueing.calls`; sockets, time-outs and the retry are `queueing.connection`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from queueing.config import RoomConfig, RoomId
from queueing.connection import (
    Connection,
    StoreBusy,
    StoreError,
    StoreFault,
    StoreUnreachable,
)
from queueing.places import Counts, Place, Tick

__all__ = [
    "RoomStore",
    "StoreBusy",
    "StoreError",
    "StoreFault",
    "StoreUnreachable",
    "SyncRoomStore",
]


class Promotion(StrEnum):
    """What became of an operator's wish to let one waiter in now."""

    GRANTED = "granted"
    FULL = "full"  # no slot is free
    RATE = "rate"  # the admission rate is spent: try again within a second
    STOPPED = "stopped"  # the room admits nobody (paused, rejecting, held)
    UNKNOWN = "unknown"  # nobody with this sid waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Everything the script counts, for metrics and the portal."""

    now_ms: int
    counts: Counts
    config_version: int
    epoch: int
    reset_ms: int
    journal: int
    hold: bool
    totals: dict[str, int]
    """Since the room began: joined, direct, adopted, restored, admitted, grants, left, missed, removed,
    banned, reset, lapsed, parked, returned, expired, released, revoked, overshoot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One fact that makes passes old (design §4 rule 7)."""

    number: int
    kind: str  # revoke, expel: one visitor; reset, release_all: everybody
    sid: str  # "" for everybody
    at_ms: int  # passes issued at or before this are old


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Entries after a number that the caller has applied."""

    entries: tuple[JournalEntry, ...]
    gap: bool
    """Entries between the caller's number and the first one given are lost (trimmed, or the store lost
    its data): `entries` then holds all that there are, to be applied from nothing."""


class RoomStore:
    """The rooms of one store, for asyncio. Every method raises the errors of `Connection.call`."""

    def __init__(self, connection: Connection, *, clock: Callable[[], int] | None = None) -> None:
        """Take a connection; `clock` (ms) is believed only by rooms marked as test rooms in the store."""
        raise NotImplementedError

    async def enter(
        self,
        room_id: RoomId,
        sid: str,
        *,
        client: str,
        iat_ms: int,
        ticket: int = 0,
        shown: int = 0,
        lease: str = "",
        exempt: bool = False,
    ) -> Place:
        """Ask to be let in: extends, claims, checks in, or makes a new place."""
        raise NotImplementedError

    async def poll(
        self, room_id: RoomId, sid: str, *, client: str, iat_ms: int, ticket: int = 0, shown: int = 0
    ) -> Place:
        """Check in and tell where the visitor stands; never makes a place and never claims."""
        raise NotImplementedError

    async def heartbeat(self, room_id: RoomId, ids: Sequence[str]) -> list[bool]:
        """Extend the slots of sids or leases; says for each whether it is still active."""
        raise NotImplementedError

    async def release(self, room_id: RoomId, holder: str, *, revoke: bool = False) -> bool:
        """Free a slot at once; False when there was none. `revoke` also makes the visitor's passes old."""
        raise NotImplementedError

    async def leave(self, room_id: RoomId, sid: str) -> bool:
        """Give up the place, or the slot (then passes are revoked); False when there was none."""
        raise NotImplementedError

    async def beacon(self, room_id: RoomId, sid: str) -> None:
        """Note that the page was closed: the waiter counts as silent in 15 s unless it checks in."""
        raise NotImplementedError

    async def extend(self, room_id: RoomId, sid: str) -> Place:
        """Lengthen a grant's claim time by `grant_ttl`, at most ten times; tells where the visitor stands."""
        raise NotImplementedError

    async def adopt(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """Count these as inside whatever the capacity; gives how many were not inside before."""
        raise NotImplementedError

    async def tick(self, room_id: RoomId) -> Tick:
        """Do the room's due work and tell its counts."""
        raise NotImplementedError

    async def ticks(self, room_ids: Sequence[RoomId]) -> dict[RoomId, Tick]:
        """Tick several rooms in one round trip."""
        raise NotImplementedError

    async def stats(self, room_id: RoomId) -> Stats:
        """Read every counter; changes nothing."""
        raise NotImplementedError

    async def promote(self, room_id: RoomId, sid: str) -> Promotion:
        """Let one waiter in out of order, within capacity and rate, marked as an operator's act."""
        raise NotImplementedError

    async def remove(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """Take visitors out of the room (operator); gives how many were there."""
        raise NotImplementedError

    async def expel(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """Take banned visitors out of the room; gives how many were there."""
        raise NotImplementedError

    async def reset(self, room_id: RoomId) -> int:
        """Begin a new epoch with an empty room; gives its number."""
        raise NotImplementedError

    async def release_all(self, room_id: RoomId) -> int:
        """Take the slot from everyone inside and revoke their passes; gives how many there were."""
        raise NotImplementedError

    async def configure(self, config: RoomConfig) -> bool:
        """Write a room's configuration; False when the store has this version or a newer one."""
        raise NotImplementedError

    async def recover(self, config: RoomConfig) -> bool:
        """Write the configuration of a room whose data the store has lost; nobody is admitted for a while."""
        raise NotImplementedError

    async def journal(self, room_id: RoomId, after: int) -> Journal:
        """Read what came after entry `after` (0 = from the beginning)."""
        raise NotImplementedError


class SyncRoomStore:
    """The same script and keys for Django's services, through a redis-py client.

    Methods: configure, recover, stats, promote, remove, expel, reset, release_all; as in `RoomStore`.
    """
