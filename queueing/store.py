"""The only door to a room's state in the store: one typed method for each operation of its script.

Owns loading and calling the script. What the words of a call are and what a reply means stands in
`queueing.calls`; sockets, time-outs and the retry are `queueing.connection`'s.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol, TypeVar

from queueing import calls
from queueing.calls import Advance, Call, Promotion, Stats
from queueing.config import RoomConfig, RoomId
from queueing.connection import (
    Connection,
    ScriptMissing,
    StoreBusy,
    StoreError,
    StoreFault,
    StoreUnreachable,
)
from queueing.keys import room_key
from queueing.places import Person, Place, Reason, Session, Tick

__all__ = [
    "Advance",
    "Journal",
    "JournalEntry",
    "Promotion",
    "RoomStore",
    "Stats",
    "StoreBusy",
    "StoreError",
    "StoreFault",
    "StoreUnreachable",
    "SyncRoomStore",
]

T = TypeVar("T")
Clock = Callable[[], int]

BATCH = 100
"""Ids in one heartbeat, adoption, removal or expulsion, so that no call holds the store long."""

JOURNAL_BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One fact that makes passes old (design §4 rule 7)."""

    number: int
    kind: str  # revoke, expel: one visitor; reset, release_all: everybody
    sid: str  # "" for everybody
    at_ms: int  # passes issued at or before this are old


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Entries after a number that the caller has applied; at most 1,000, ask again for more."""

    entries: tuple[JournalEntry, ...]
    gap: bool
    """Entries between the caller's number and the first one given are lost (trimmed, or the store
    lost its data): `entries` then begins with the oldest there is, to be applied from nothing."""


@cache
def script() -> tuple[bytes, str]:
    """Give the script's text (its files in the order of their names) and its digest."""
    parts = sorted(files("queueing").joinpath("lua/room").iterdir(), key=lambda part: part.name)
    text = b"\n".join(part.read_bytes() for part in parts if part.name.endswith(".lua"))
    return text, hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _words(call: Call[Any], clock: Clock | None) -> tuple[calls.Word, ...]:
    now = clock() if clock else ""
    return (len(call.keys), *call.keys, call.operation, now, *call.words)


def _batches(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[i : i + BATCH] for i in range(0, len(ids), BATCH)]


class RoomStore:
    """The rooms of one store, for asyncio. Every method raises the errors of `Connection.call`."""

    def __init__(self, connection: Connection, *, clock: Clock | None = None) -> None:
        """Take a connection; `clock` (ms) is believed only by rooms marked as test rooms."""
        self._connection = connection
        self._clock = clock

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
        rank: int = 0,
        form: bool = False,
        lane_wait: bool = False,
        network: str = "",
    ) -> Place:
        """Ask to be let in: extends the slot, claims the grant, checks in, or makes a new place.

        `iat_ms` and `ticket` come from the visitor's cookie (0 = it never held a ticket); `shown`
        is the last position that the visitor saw (0 = none). In unit `requests` the slot is held
        by `lease`; in unit `visitors` a `lease` may hold a slot of the lane for a form. `exempt`
        clients have no limit of new places. A `form` gets no ticket: it is let in, told to wait
        for the lane (state `lane`, only with `lane_wait`; ask on by `lane`), or `unsent`.
        `network` tells a room with a share guard where the pass is used.
        """
        return await self._run(
            calls.enter(
                room_id,
                sid,
                client=client,
                iat_ms=iat_ms,
                ticket=ticket,
                shown=shown,
                lease=lease,
                exempt=exempt,
                rank=rank,
                form=form,
                lane_wait=lane_wait,
                network=network,
            )
        )

    async def poll(
        self,
        room_id: RoomId,
        sid: str,
        *,
        iat_ms: int,
        ticket: int = 0,
        shown: int = 0,
    ) -> Place:
        """Check in and tell where the visitor stands; never makes a place and never claims."""
        return await self._run(calls.poll(room_id, sid, iat_ms=iat_ms, ticket=ticket, shown=shown))

    async def heartbeat(self, room_id: RoomId, ids: Sequence[str]) -> list[int]:
        """Extend the slots of sids or leases; gives the end of each in store ms, 0 = it is gone."""
        ends: list[int] = []
        for batch in _batches(ids):
            found: list[int] = await self._run(calls.heartbeat(room_id, batch))
            ends += found
        return ends

    async def lane(self, room_id: RoomId, holders: Sequence[str]) -> list[int]:
        """Ask for those that wait for the lane: 2 = has a slot now, 1 = waits on, 0 = neither."""
        news: list[int] = []
        for batch in _batches(holders):
            found: list[int] = await self._run(calls.lane(room_id, batch))
            news += found
        return news

    async def session(self, room_id: RoomId, sid: str) -> Session:
        """Tell how long somebody inside may stay; extends nothing."""
        return await self._run(calls.session(room_id, sid))

    async def prolong(self, room_id: RoomId, sid: str) -> Session:
        """Begin the longest stay anew, ten times at most; tells how long it is now."""
        return await self._run(calls.prolong(room_id, sid))

    async def advance(
        self, room_id: RoomId, sid: str, *, reason: Reason, payment: str = "", vip_ms: int = 0
    ) -> Advance:
        """Move a waiter to the front, behind those who are there (`reason`: paid or operator).

        A `payment` counts once, however often it is reported within 30 days. For `vip_ms` every
        new place of this visitor goes to the front as well.
        """
        return await self._run(
            calls.advance(room_id, sid, reason=reason, payment=payment, vip_ms=vip_ms)
        )

    async def release(self, room_id: RoomId, holder: str, *, revoke: bool = False) -> bool:
        """Free a slot at once; False when there was none. `revoke` makes passes of `holder` old."""
        return await self._run(calls.release(room_id, holder, revoke=revoke))

    async def leave(self, room_id: RoomId, sid: str) -> bool:
        """Give up the place, or the slot (then passes are revoked); False when there was none."""
        return await self._run(calls.leave(room_id, sid))

    async def beacon(self, room_id: RoomId, sid: str) -> None:
        """Note that the page was closed: who waits is silent in 15 s unless it checks in."""
        await self._run(calls.beacon(room_id, sid))

    async def extend(self, room_id: RoomId, sid: str) -> Place:
        """Lengthen a grant's claim time by `grant_ttl`, at most ten times; tells the place."""
        return await self._run(calls.extend(room_id, sid))

    async def adopt(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """Count these as inside whatever the capacity; gives how many were not inside before."""
        return sum([await self._run(calls.adopt(room_id, batch)) for batch in _batches(sids)])

    async def tick(self, room_id: RoomId) -> Tick:
        """Do the room's due work and tell its counts."""
        return await self._run(calls.tick(room_id))

    async def stats(self, room_id: RoomId) -> Stats:
        """Read every counter; changes nothing."""
        return await self._run(calls.stats(room_id))

    async def promote(self, room_id: RoomId, sid: str) -> Promotion:
        """Let one waiter in out of order, within capacity and rate, marked as an operator's act."""
        return await self._run(calls.promote(room_id, sid))

    async def remove(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """Take visitors out of the room (operator); gives how many were there."""
        return sum([await self._run(calls.remove(room_id, batch)) for batch in _batches(sids)])

    async def expel(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """Take banned visitors out of the room; gives how many were there."""
        return sum([await self._run(calls.expel(room_id, batch)) for batch in _batches(sids)])

    async def reset(self, room_id: RoomId) -> int:
        """Begin a new epoch with an empty room; gives its number."""
        return await self._run(calls.reset(room_id))

    async def release_all(self, room_id: RoomId) -> int:
        """Take the slot from everyone inside and revoke their passes; gives how many there were."""
        return await self._run(calls.release_all(room_id))

    async def configure(self, config: RoomConfig) -> bool:
        """Write a room's configuration; False when the store has this version or a newer one."""
        return await self._run(calls.configure(config))

    async def recover(self, config: RoomConfig) -> bool:
        """Write the configuration of a room whose data the store has lost.

        Nobody is admitted for `max(refresh, 60 s)` then (WR-63). Where the store still has the room
        this is `configure`.
        """
        return await self._run(calls.recover(config))

    async def journal(self, room_id: RoomId, after: int) -> Journal:
        """Read what came after entry `after` (0 = from the beginning); see `Tick.journal`."""
        key = room_key(room_id, "journal")
        first, newest, raw = await asyncio.gather(
            self._connection.call("XRANGE", key, "-", "+", "COUNT", 1, repeatable=True),
            self._connection.call("XREVRANGE", key, "+", "-", "COUNT", 1, repeatable=True),
            self._connection.call(
                "XRANGE", key, f"({after}-0", "+", "COUNT", JOURNAL_BATCH, repeatable=True
            ),
        )
        oldest = _entry(first[0]).number if first else 1
        latest = _entry(newest[0]).number if newest else 0
        if oldest > after + 1 or latest < after:
            raw = await self._connection.call(
                "XRANGE", key, "-", "+", "COUNT", JOURNAL_BATCH, repeatable=True
            )
            return Journal(entries=tuple(_entry(item) for item in raw), gap=True)
        return Journal(entries=tuple(_entry(item) for item in raw), gap=False)

    async def _run(self, call: Call[T]) -> T:
        text, digest = script()
        words = _words(call, self._clock)
        try:
            reply = await self._connection.call(
                "EVALSHA", digest, *words, repeatable=call.repeatable
            )
        except ScriptMissing:
            await self._connection.call("SCRIPT", "LOAD", text, repeatable=True)
            reply = await self._connection.call(
                "EVALSHA", digest, *words, repeatable=call.repeatable
            )
        return call.read(reply)


def _entry(item: list[Any]) -> JournalEntry:
    number, flat = item
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return JournalEntry(
        number=int(number.partition(b"-")[0]),
        kind=fields[b"kind"].decode(),
        sid=fields[b"sid"].decode(),
        at_ms=int(fields[b"at"]),
    )


class _SyncClient(Protocol):
    """What is used of redis-py's client; replies must be bytes."""

    def execute_command(self, *words: Any) -> Any: ...


class SyncRoomStore:
    """The same script and keys for Django's services, through redis-py; raises its errors."""

    def __init__(self, client: _SyncClient, *, clock: Clock | None = None) -> None:
        """Take `redis.Redis(…)`, with `decode_responses` off."""
        self._client = client
        self._clock = clock

    def tick(self, room_id: RoomId) -> Tick:
        """See `RoomStore.tick`."""
        return self._run(calls.tick(room_id))

    def silence_ms(self, room_id: RoomId) -> int | None:
        """Give how long nobody has called the room's script; None: the store has no such room."""
        clock = self._client.execute_command("HGET", room_key(room_id, "config"), "clock")
        if clock is None:
            return None
        seconds, micros = self._client.execute_command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000 - int(clock.partition(b",")[2])

    def stats(self, room_id: RoomId) -> Stats:
        """See `RoomStore.stats`."""
        return self._run(calls.stats(room_id))

    def release(self, room_id: RoomId, holder: str, *, revoke: bool = False) -> bool:
        """See `RoomStore.release`."""
        return self._run(calls.release(room_id, holder, revoke=revoke))

    def people(self, room_id: RoomId, *, inside: bool, first: int, count: int) -> list[Person]:
        """Read who is inside (by end of the slot; leases are nobody) or in line (by ticket)."""
        order, records = ("active", "inside") if inside else ("queue", "visitor")
        run = self._client.execute_command
        sids = run("ZRANGE", room_key(room_id, order), first, first + count - 1)
        if not sids:
            return []
        found = zip(sids, run("HMGET", room_key(room_id, records), *sids), strict=True)
        return [calls.read_person(s, r, inside=inside) for s, r in found if r is not None]

    def advance(
        self, room_id: RoomId, sid: str, *, reason: Reason, payment: str = "", vip_ms: int = 0
    ) -> Advance:
        """See `RoomStore.advance`."""
        call = calls.advance(room_id, sid, reason=reason, payment=payment, vip_ms=vip_ms)
        return self._run(call)

    def promote(self, room_id: RoomId, sid: str) -> Promotion:
        """See `RoomStore.promote`."""
        return self._run(calls.promote(room_id, sid))

    def remove(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """See `RoomStore.remove`."""
        return sum(self._run(calls.remove(room_id, batch)) for batch in _batches(sids))

    def expel(self, room_id: RoomId, sids: Sequence[str]) -> int:
        """See `RoomStore.expel`."""
        return sum(self._run(calls.expel(room_id, batch)) for batch in _batches(sids))

    def reset(self, room_id: RoomId) -> int:
        """See `RoomStore.reset`."""
        return self._run(calls.reset(room_id))

    def release_all(self, room_id: RoomId) -> int:
        """See `RoomStore.release_all`."""
        return self._run(calls.release_all(room_id))

    def configure(self, config: RoomConfig) -> bool:
        """See `RoomStore.configure`."""
        return self._run(calls.configure(config))

    def recover(self, config: RoomConfig) -> bool:
        """See `RoomStore.recover`."""
        return self._run(calls.recover(config))

    def _run(self, call: Call[T]) -> T:
        text, _ = script()
        return call.read(self._client.execute_command("EVAL", text, *_words(call, self._clock)))
