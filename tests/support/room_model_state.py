"""What a room of the reference model is made of: its people, its slots, its clock and its limits.

Only questions and the smallest changes; who is next stands in `room_model_line`, the lane in
`room_model_lane`, the operations in `room_model`. No bounds, no indexes: every question is a scan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from queueing.config import Mode, OnOutage, RoomConfig, Unit
from queueing.places import Counts, Reason, State

GAP_MS, OUTAGE_MS, ADOPT_MS = 5_000, 2_000, 1_000
FRONT = 7
"""The level of those in front of the line; 1 to 6 are ranks, 0 is the order of arrival."""


@dataclass
class Person:
    """Somebody who is waiting, parked or granted. Times are room time."""

    sid: str
    ticket: int
    joined_ms: int  # store time
    client: str
    standing: str  # waiting, parked, granted
    last: int  # true last check-in
    counted: int  # the check-in that silence is counted from: `last`, or earlier after a beacon
    rank: int = 0
    level: int = 0  # what the order makes of the rank, as of the last check-in
    front: int = 0  # order of payment; 0 = not in front
    why: Reason = Reason.NONE  # it stands in front: paid, operator
    until: int = 0  # parked: end of the return window; granted: claim deadline
    lapses: int = 0
    told: bool = False
    extensions: int = 0

    @property
    def before(self) -> tuple[int, int]:
        """Sort key of the ranked line: front first in order of payment, then rank, then ticket."""
        return (FRONT - self.level, self.front if self.level == FRONT else self.ticket)


@dataclass
class Slot:
    """A slot of the room or of its lane. A lease has neither a ticket nor an absolute limit."""

    ends: int
    since: int
    ticket: int = 0
    joined_ms: int = 0
    rank: int = 0
    own: bool = True  # held by the visitor, not by a lease
    network: str = ""
    network_seen: int = 0
    extensions: int = 0  # of the longest stay
    handed: bool = False  # of the lane, kept free for who has not taken it up yet


@dataclass
class Answer:
    """What the caller is told; the fields of `Place` that a visitor could notice."""

    state: State
    ticket: int = 0
    ahead: int = 0
    expires_ms: int = 0
    joined_ms: int = 0
    reason: Reason = Reason.NONE
    retry_ms: int = 0
    extensions: int = 0
    new: bool = False
    rank: int = 0
    paid: bool = False
    front: int = 0
    vip_until_ms: int = 0
    by_lease: bool = False


@dataclass(frozen=True)
class Caller:
    """Who asks to come in, and what the gateway knows of the request."""

    sid: str
    client: str
    iat_ms: int
    ticket: int
    shown: int
    lease: str
    exempt: bool
    rank: int
    form: bool
    lane_wait: bool
    network: str


@dataclass
class RoomState:
    """One room. Set `now` (store time), then call an operation."""

    config: RoomConfig
    now: int
    room: int = 0  # room time
    store: int = 0  # store time of the last call
    seq: int = 0
    epoch: int = 1
    reset_ms: int = 0
    held_until: int = 0  # room time: after an outage nobody is admitted until then
    people: dict[str, Person] = field(default_factory=dict)
    slots: dict[str, Slot] = field(default_factory=dict)
    lane_slots: dict[str, Slot] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    admissions: list[int] = field(default_factory=list)
    entries: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    checks: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    journal: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.room = self.store = self.now

    # Questions

    def standing(self, name: str) -> list[Person]:
        found = [p for p in self.people.values() if p.standing == name]
        return sorted(found, key=lambda p: p.ticket)

    def is_silent(self, person: Person) -> bool:
        return self.room - person.counted > self.config.queue_ttl_ms

    def living(self) -> list[Person]:
        return [p for p in self.standing("waiting") if not self.is_silent(p)]

    def counts(self) -> Counts:
        living = len(self.living())
        return Counts(
            waiting=living,
            parked=len(self.standing("parked")) + len(self.standing("waiting")) - living,
            granted=len(self.standing("granted")),
            active=len(self.slots),
            latest_ticket=self.seq,
            lane=len(self.lane_slots),
            lane_waiting=self.lane_waiting(),
        )

    def lane_waiting(self) -> int:
        raise NotImplementedError

    def is_held(self) -> bool:
        return self.held_until > self.room

    def is_stopped(self) -> bool:
        return self.config.mode in (Mode.PAUSED, Mode.REJECT) or self.is_held()

    def has_slot(self) -> bool:
        taken = len(self.slots) + len(self.standing("granted"))
        return self.config.mode is Mode.OFF or taken < self.config.capacity

    def may_admit(self) -> bool:
        return not self.is_stopped() and not self.rate_wait() and self.has_slot()

    def rate_wait(self) -> int:
        return self._wait(self.admissions, self.config.rate, 1_000) if self.config.rate else 0

    def _wait(self, times: list[int], limit: int, window: int) -> int:
        return max(0, times[-limit] + window - self.room) if len(times) >= limit else 0

    def _note(self, times: list[int], limit: int) -> None:
        times.append(self.room)
        del times[:-limit]

    def _note_admission(self) -> None:
        if self.config.rate:
            self._note(self.admissions, self.config.rate)

    def _as_store_time(self, room_ms: int) -> int:
        return self.now + room_ms - self.room

    # Time

    def _begin(self) -> None:
        gap = self.now - self.store
        if 0 < gap <= GAP_MS:
            self.room += gap
        if gap > OUTAGE_MS and self.config.on_outage is OnOutage.OPEN:
            self.held_until = max(self.held_until, self.room + ADOPT_MS)
        self.store = self.now

    # Slots

    def _holder(self, sid: str, lease: str) -> str:
        return lease if lease and self.config.unit is Unit.REQUESTS else sid

    def _slot_of(self, holder: str) -> Slot | None:
        return self.slots.get(holder) or self.lane_slots.get(holder)

    def _seat_of(self, holder: str) -> Slot | None:
        slot = self._slot_of(holder)
        return None if slot is None or slot.handed else slot

    def _new_slot(self, *, own: bool, ticket: int, joined_ms: int, rank: int) -> Slot:
        slot = Slot(0, self.room, ticket, joined_ms, rank, own)
        self._lengthen(slot)
        return slot

    def _lengthen(self, slot: Slot) -> None:
        """A pass never outlives its slot, so a slot never shrinks."""
        fresh = self.room + (self.config.active_ttl_ms if slot.own else self.config.lease_ttl_ms)
        slot.ends = max(slot.ends, min(fresh, self._limit(slot) or fresh))

    def _limit(self, slot: Slot) -> int:
        """The end of a session's longest stay; 0 = there is none."""
        longest = self.config.absolute_ttl_ms if slot.own else 0
        return longest and slot.since + longest * (1 + slot.extensions)

    def _is_shared(self, slot: Slot, network: str) -> bool:
        if not (self.config.share_guard and slot.own):
            return False
        if not network or not slot.network or network == slot.network:
            return False
        return self.room - slot.network_seen < 2 * self.config.refresh_ms

    def _note_network(self, slot: Slot, network: str) -> None:
        if self.config.share_guard and network and slot.own:
            slot.network, slot.network_seen = network, self.room

    def _vacate(self, holder: str, total: str) -> bool:
        gone = self.slots.pop(holder, None) or self.lane_slots.pop(holder, None)
        was_in = gone is not None and not gone.handed
        self.totals[total] += was_in
        return was_in

    def _forget(self, person: Person, total: str) -> None:
        del self.people[person.sid]
        self.totals[total] += 1
