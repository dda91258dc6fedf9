"""What the words of each call of a room's script are, and what its flat reply means.

Pure: no socket, no script text. `queueing.store` sends these, asynchronously or not, so that the
two ways cannot differ. The script's side of the contract stands at the head of
`queueing/lua/room/01-room.lua`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from queueing.config import RoomConfig, RoomId
from queueing.keys import checks_key, client_key, paid_key, revoked_key, room_keys
from queueing.places import Counts, Person, Place, Reason, Session, State, Tick

T = TypeVar("T")
Word = bytes | str | int

EVENTS_KEPT = 10_000
"""How many transitions a room's `events` stream keeps, about 100 B each."""

_CONFIG_FIELDS = (
    "mode",
    "unit",
    "capacity",
    "rate",
    "active_ttl_ms",
    "absolute_ttl_ms",
    "refresh_ms",
    "grant_ttl_ms",
    "queue_ttl_ms",
    "return_window_ms",
    "max_queue",
    "entries_per_minute",
    "polls_per_second",
    "on_outage",
    "lease_ttl_ms",
    "priority_cap",
    "lane_rank",
    "priority_wait_ms",
    "priority_forms",
    "order",
    "max_overtake",
    "share_guard",
)


class Promotion(StrEnum):
    """What became of an operator's wish to let one waiter in now."""

    GRANTED = "granted"
    FULL = "full"  # no slot is free
    RATE = "rate"  # the admission rate is spent: try again within a second
    STOPPED = "stopped"  # the room admits nobody (paused, rejecting, held)
    UNKNOWN = "unknown"  # nobody living with this sid waits


class Advance(StrEnum):
    """What became of moving somebody to the front of the line."""

    MOVED = "moved"
    ALREADY = "already"  # this payment was taken before: nothing was done
    GRANTED = "granted"  # its turn had come
    INSIDE = "inside"
    UNKNOWN = "unknown"  # nobody with this sid is here; a payment for it was not taken


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
    """Since the room began: joined, direct, adopted, admitted, grants, left, missed, removed,
    banned, reset, lapsed, parked, returned, expired, released, revoked, overshoot, lane, forms,
    unsent, advanced; absent = it never was."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of the script: its keys, its words after the time, how to read the reply."""

    keys: tuple[str, ...]
    operation: str
    words: tuple[Word, ...]
    read: Callable[[Any], T]
    repeatable: bool = True
    """A second run after a lost reply does no harm (see docs/room-script.md)."""


def enter(
    room_id: RoomId,
    sid: str,
    *,
    client: str,
    iat_ms: int,
    ticket: int,
    shown: int,
    lease: str,
    exempt: bool,
    rank: int = 0,
    form: bool = False,
    lane_wait: bool = False,
    network: str = "",
) -> Call[Place]:
    client = client[:64].replace(",", "")
    keys = (*room_keys(room_id), client_key(room_id, client))
    words = (sid, client, iat_ms, ticket, shown, lease, int(exempt), rank, int(form))
    return Call(keys, "enter", (*words, int(lane_wait), network), read_place)


def poll(room_id: RoomId, sid: str, *, iat_ms: int, ticket: int, shown: int) -> Call[Place]:
    keys = (*room_keys(room_id), checks_key(room_id, sid))
    return Call(keys, "poll", (sid, iat_ms, ticket, shown), read_place)


def heartbeat(room_id: RoomId, ids: Sequence[str]) -> Call[list[int]]:
    return Call(room_keys(room_id), "heartbeat", tuple(ids), list)


def lane(room_id: RoomId, holders: Sequence[str]) -> Call[list[int]]:
    return Call(room_keys(room_id), "lane", tuple(holders), list)


def session(room_id: RoomId, sid: str) -> Call[Session]:
    return Call(room_keys(room_id), "session", (sid,), read_session)


def prolong(room_id: RoomId, sid: str) -> Call[Session]:
    return Call(room_keys(room_id), "prolong", (sid,), read_session, repeatable=False)


def advance(
    room_id: RoomId, sid: str, *, reason: Reason, payment: str, vip_ms: int
) -> Call[Advance]:
    keys = (*room_keys(room_id), paid_key(room_id, payment)) if payment else room_keys(room_id)
    words = (sid, reason, payment, vip_ms)
    return Call(keys, "advance", words, lambda word: Advance(word.decode()), bool(payment))


def release(room_id: RoomId, holder: str, *, revoke: bool) -> Call[bool]:
    keys = (*room_keys(room_id), revoked_key(room_id, holder)) if revoke else room_keys(room_id)
    return Call(keys, "release", (holder, int(revoke)), bool)


def leave(room_id: RoomId, sid: str) -> Call[bool]:
    return Call(room_keys(room_id), "leave", (sid,), bool)


def beacon(room_id: RoomId, sid: str) -> Call[bool]:
    return Call(room_keys(room_id), "beacon", (sid,), bool)


def extend(room_id: RoomId, sid: str) -> Call[Place]:
    return Call(room_keys(room_id), "extend", (sid,), read_place, repeatable=False)


def adopt(room_id: RoomId, sids: Sequence[str]) -> Call[int]:
    return Call(room_keys(room_id), "adopt", tuple(sids), int)


def tick(room_id: RoomId) -> Call[Tick]:
    return Call(room_keys(room_id), "tick", (), read_tick)


def stats(room_id: RoomId) -> Call[Stats]:
    return Call(room_keys(room_id), "stats", (), read_stats)


def promote(room_id: RoomId, sid: str) -> Call[Promotion]:
    return Call(room_keys(room_id), "promote", (sid,), lambda word: Promotion(word.decode()))


def remove(room_id: RoomId, sids: Sequence[str]) -> Call[int]:
    return Call(room_keys(room_id), "remove", tuple(sids), int)


def expel(room_id: RoomId, sids: Sequence[str]) -> Call[int]:
    return Call(room_keys(room_id), "expel", tuple(sids), int)


def reset(room_id: RoomId) -> Call[int]:
    return Call(room_keys(room_id), "reset", (), int, repeatable=False)


def release_all(room_id: RoomId) -> Call[int]:
    return Call(room_keys(room_id), "release_all", (), int, repeatable=False)


def configure(config: RoomConfig) -> Call[bool]:
    return Call(room_keys(config.id), "configure", _config_words(config), bool)


def recover(config: RoomConfig) -> Call[bool]:
    return Call(room_keys(config.id), "recover", _config_words(config), bool)


def _config_words(config: RoomConfig) -> tuple[Word, ...]:
    words: list[Word] = [config.version, "events_kept", EVENTS_KEPT]
    for name in _CONFIG_FIELDS:
        value = getattr(config, name)
        words += (name, int(value) if isinstance(value, bool) else value)
    return tuple(words)


def read_place(reply: list[Any]) -> Place:
    """Read the flat reply of enter, poll and extend."""
    return Place(
        state=State(reply[0].decode()),
        now_ms=reply[1],
        ticket=reply[2],
        ahead=reply[3],
        expires_ms=reply[4],
        joined_ms=reply[5],
        reason=Reason(reply[6].decode()),
        reset_ms=reply[7],
        epoch=reply[8],
        released=reply[9],
        released_ms=reply[10],
        retry_ms=reply[11],
        extensions=reply[12],
        new=reply[13] == 1,
        counts=_counts(reply[14:19], reply[19:21]),
        rank=reply[21],
        paid=reply[22] == 1,
        front=reply[23],
        vip_until_ms=reply[24],
        by_lease=reply[25] == 1,
    )


def read_session(reply: list[int]) -> Session:
    """Read the flat reply of session and prolong."""
    now, expires, limit, extensions = reply
    return Session(now_ms=now, expires_ms=expires, limit_ms=limit, extensions=extensions)


def read_person(sid: bytes, record: bytes, *, inside: bool) -> Person:
    """Read a record of the hash `inside` or `visitor`."""
    fields = record.decode().split(",")
    return Person(
        sid=sid.decode(),
        ticket=int(fields[0]),
        rank=int(fields[1]),
        joined_ms=int(fields[2]),
        client=fields[4] if inside else fields[7],
        front=0 if inside or len(fields) < 9 else int(fields[8]),
    )


def read_tick(reply: list[int]) -> Tick:
    """Read the flat reply of tick."""
    return Tick(
        now_ms=reply[0],
        counts=_counts(reply[1:6], reply[12:14]),
        epoch=reply[6],
        reset_ms=reply[7],
        config_version=reply[8],
        journal=reply[9],
        more_work=reply[10] == 1,
        hold=reply[11] == 1,
    )


def read_stats(reply: list[Any]) -> Stats:
    """Read the flat reply of stats."""
    pairs = iter(reply[11])
    return Stats(
        now_ms=reply[0],
        counts=_counts(reply[1:6], reply[12:14]),
        epoch=reply[6],
        reset_ms=reply[7],
        config_version=reply[8],
        journal=reply[9],
        hold=reply[10] == 1,
        totals={name.decode(): int(value) for name, value in zip(pairs, pairs, strict=True)},
    )


def _counts(five: list[int], lane: list[int]) -> Counts:
    waiting, parked, granted, active, latest = five
    return Counts(
        waiting=waiting,
        parked=parked,
        granted=granted,
        active=active,
        latest_ticket=latest,
        lane=lane[0],
        lane_waiting=lane[1],
    )
