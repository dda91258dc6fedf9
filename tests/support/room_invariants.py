"""What must hold of a room after every step, read from the store's own keys and events alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from queueing.calls import read_person
from queueing.config import Mode, Order, RoomConfig

FRONT_ENDS, LAST = 2**40, 2**53
"""Scores of `ranked` below the first stand in front; none reaches the second."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A room's keys after a step, and the events of that step."""

    operation: str
    scores: dict[str, dict[str, int]]
    hashes: dict[str, dict[str, str]]
    room_ms: int
    events: list[dict[str, str]]
    expiring: list[str]

    @property
    def totals(self) -> dict[str, int]:
        """The script's counters that ever counted anything."""
        counters = self.hashes["counters"]
        return {name: int(value) for name, value in counters.items() if int(value)}


@dataclass
class Invariants:
    """Checks one room after each step; remembers what spans steps."""

    _ranked_before: dict[str, int] = field(default_factory=dict)
    _lane_before: set[str] = field(default_factory=set)
    _admitted_at: list[int] = field(default_factory=list)  # room times, while there is a rate

    def forget_rate(self) -> None:
        """Begin the rate anew: it was switched on, or the room was reset."""
        self._admitted_at.clear()

    def check(self, seen: Seen, config: RoomConfig) -> None:
        """Assert I1 to I4, the rate, and that no key of the room expires."""
        ordinary = [e for e in seen.events if e["kind"] == "granted" or e["reason"] == "direct"]
        self._capacity(seen, config, ordinary)
        self._order(seen, config)
        self._sums(seen)
        self._members(seen)
        self._rate(seen, config, len(ordinary))
        limits = (":addr:", ":checks:", ":paid:", ":revoked:")
        assert all(any(limit in key for limit in limits) for key in seen.expiring), "expiring"
        self._ranked_before = seen.scores["ranked"]
        self._lane_before = set(seen.scores["lane"])

    def _capacity(self, seen: Seen, config: RoomConfig, ordinary: list[dict[str, str]]) -> None:
        scores = seen.scores
        if ordinary and config.mode is not Mode.OFF:
            assert len(scores["active"]) + len(scores["granted"]) <= config.capacity, "I1"
        if set(scores["lane"]) - self._lane_before:
            size = config.priority_cap or max(1, config.capacity // 4)
            assert len(scores["lane"]) <= size, "I1 of the lane"

    def _order(self, seen: Seen, config: RoomConfig) -> None:
        """I2: who was granted was first in front, or else first as the room's order allows."""
        scores = seen.scores
        cutoff = seen.room_ms - config.queue_ttl_ms
        late = {e["sid"] for e in seen.events if e["kind"] == "joined"}  # after all promotions
        living = {
            sid: scores["queue"][sid]
            for sid, at in scores["seen"].items()
            if at >= cutoff and sid not in late
        }
        assert not (living and any(e["reason"] == "direct" for e in seen.events)), "I2"
        turns = [e for e in seen.events if e["kind"] == "granted"]
        if seen.operation == "promote":  # an operator's act, marked as such
            assert all(e["reason"] == "operator" for e in turns), "I2"
            return
        for at, event in enumerate(turns):
            others = living | {e["sid"]: int(e["ticket"]) for e in turns[at + 1 :]}
            best = min((max(self._levels(seen, config, sid)) for sid in others), default=LAST)
            mine = min(self._levels(seen, config, event["sid"]))
            if min(best, mine) < FRONT_ENDS:
                assert mine < best, "I2: in front, in order of payment"
                continue
            first = all(int(event["ticket"]) < other for other in others.values())
            by_rank = config.order is Order.RANK and mine < best
            assert first or by_rank, "I2"

    def _levels(self, seen: Seen, config: RoomConfig, sid: str) -> list[int]:
        """Where somebody stood in `ranked`; who was granted is there no more, so two readings."""
        before = self._ranked_before.get(sid, LAST)
        if sid in seen.scores["queue"]:
            return [seen.scores["ranked"].get(sid, LAST)]
        if sid not in seen.hashes["visitor"]:  # granted and claimed at once
            return [-1, before]
        person = read_person(sid.encode(), seen.hashes["visitor"][sid].encode(), inside=False)
        by_rank = config.order is Order.RANK and person.rank > 0
        fresh = (7 - person.rank) * FRONT_ENDS + person.ticket if by_rank else LAST
        return [person.front] if person.front else [fresh, before]

    def _sums(self, seen: Seen) -> None:
        totals, scores = seen.totals, seen.scores
        names = ("admitted", "left", "missed", "removed", "banned", "reset")
        gone = sum(totals.get(name, 0) for name in names)
        present = len(scores["granted"]) + len(scores["queue"]) + len(scores["parked"])
        assert totals.get("joined", 0) == gone + present, "I3"

    def _members(self, seen: Seen) -> None:
        scores = seen.scores
        queue, lane = set(scores["queue"]), set(scores["lane"])
        standing = (queue, set(scores["parked"]), set(scores["granted"]))
        known = set().union(*standing)
        assert set(seen.hashes["visitor"]) == known, "I4"
        assert len(known) == sum(map(len, standing)), "I4: nobody stands twice"
        assert set(scores["seen"]) == queue, "I4"
        assert set(scores["ranked"]) <= queue, "I4"
        assert set(seen.hashes["inside"]) <= set(scores["active"]) | lane, "I4"
        assert not lane & set(scores["active"]), "no holder has two slots"
        assert not set(scores["lanewait"]) & (lane | set(scores["active"])), "nor for the lane"

    def _rate(self, seen: Seen, config: RoomConfig, admitted: int) -> None:
        self._admitted_at += [seen.room_ms] * admitted
        if config.rate and admitted:
            within = sum(at > seen.room_ms - 1_000 for at in self._admitted_at)
            assert within <= config.rate, "rate"
        del self._admitted_at[:-200]
