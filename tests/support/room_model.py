"""A reference model of a room: what `room.lua` must do, written for reading and not for speed.

No bounds, no indexes, no store: people are objects, every question is a scan. It is right for
rooms with fewer than 25 people, where the script's bounded loops never leave work behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from queueing.config import Mode, OnOutage, RoomConfig, Unit
from queueing.places import Counts, Reason, State

GAP_MS, BEACON_MS, LAPSES, EXTENSIONS = 5_000, 15_000, 3, 10
OUTAGE_MS, ADOPT_MS = 2_000, 1_000


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
    until: int = 0  # parked: end of the return window; granted: claim deadline
    lapses: int = 0
    told: bool = False
    extensions: int = 0


@dataclass
class Slot:
    """A holder of a slot."""

    ends: int
    since: int
    ticket: int = 0
    joined_ms: int = 0
    own: bool = True  # held by the visitor, not by a lease


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


@dataclass
class RoomModel:
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
        )

    def is_held(self) -> bool:
        return self.held_until > self.room

    def is_stopped(self) -> bool:
        return self.config.mode in (Mode.PAUSED, Mode.REJECT) or self.is_held()

    def may_admit(self) -> bool:
        if self.is_stopped() or self.rate_wait():
            return False
        taken = len(self.slots) + len(self.standing("granted"))
        return self.config.mode is Mode.OFF or taken < self.config.capacity

    def rate_wait(self) -> int:
        return self._wait(self.admissions, self.config.rate, 1_000) if self.config.rate else 0

    def _wait(self, times: list[int], limit: int, window: int) -> int:
        return max(0, times[-limit] + window - self.room) if len(times) >= limit else 0

    # Time and what falls due

    def _begin(self) -> None:
        gap = self.now - self.store
        if 0 < gap <= GAP_MS:
            self.room += gap
        if gap > OUTAGE_MS and self.config.on_outage is OnOutage.OPEN:
            self.held_until = max(self.held_until, self.room + ADOPT_MS)
        self.store = self.now

    def _sweep(self) -> None:
        for holder, slot in list(self.slots.items()):
            if slot.ends <= self.room:
                self._vacate(holder, "expired")
        for person in self.standing("granted"):
            if person.until <= self.room:
                self._lapse(person)
        for person in self.standing("waiting"):
            if self.is_silent(person):
                self._park(person)
        for person in self.standing("parked"):
            if person.until <= self.room:
                self._forget(person, "missed")

    def _lapse(self, person: Person) -> None:
        self.totals["lapsed"] += 1
        person.lapses, person.told, person.extensions = person.lapses + 1, False, 0
        person.until = person.last + self.config.return_window_ms
        if person.lapses >= LAPSES or person.until <= self.room:
            self._forget(person, "missed")
        else:
            person.standing = "parked"

    def _park(self, person: Person) -> None:
        person.until = person.last + self.config.return_window_ms
        if person.until <= self.room:
            self._forget(person, "missed")
        else:
            person.standing = "parked"
            self.totals["parked"] += 1

    def _forget(self, person: Person, total: str) -> None:
        del self.people[person.sid]
        self.totals[total] += 1

    def _vacate(self, holder: str, total: str) -> bool:
        if holder not in self.slots:
            return False
        del self.slots[holder]
        self.totals[total] += 1
        return True

    def _promote(self) -> None:
        while self.living() and self.may_admit():
            self._grant(self.living()[0])

    def _grant(self, person: Person) -> None:
        person.standing, person.told, person.extensions = "granted", False, 0
        person.until = self.room + self.config.grant_ttl_ms
        self._note_admission()
        self.totals["grants"] += 1

    def _note_admission(self) -> None:
        if self.config.rate:
            self._note(self.admissions, self.config.rate)

    def _note(self, times: list[int], limit: int) -> None:
        times.append(self.room)
        del times[:-limit]

    # The caller

    def _check_in(self, sid: str) -> Person | None:
        person = self.people.get(sid)
        if person is not None:
            person.last = person.counted = self.room
            if person.standing == "parked":
                person.standing = "waiting"
                self.totals["returned"] += 1
        return person

    def _slot_end(self, slot: Slot | None = None) -> int:
        fresh = self.room + self.config.active_ttl_ms
        if slot is None:
            return fresh
        if self.config.absolute_ttl_ms and slot.own:
            fresh = min(fresh, slot.since + self.config.absolute_ttl_ms)
        return max(slot.ends, fresh)

    def _occupy(self, holder: str, sid: str, ticket: int, joined_ms: int) -> Slot:
        fresh = self.room + self.config.active_ttl_ms
        if self.config.absolute_ttl_ms:
            fresh = min(fresh, self.room + self.config.absolute_ttl_ms)
        self.slots[holder] = Slot(fresh, self.room, ticket, joined_ms, own=holder == sid)
        self.totals["admitted"] += 1
        return self.slots[holder]

    def _as_store_time(self, room_ms: int) -> int:
        return self.now + room_ms - self.room

    def _active(self, holder: str) -> Answer:
        slot = self.slots[holder]
        own = (slot.ticket, slot.joined_ms) if slot.own else (0, 0)
        return Answer(
            State.ACTIVE,
            ticket=own[0],
            joined_ms=own[1],
            expires_ms=self._as_store_time(slot.ends),
        )

    def _waiting(self, person: Person, shown: int, state: State | None = None) -> Answer:
        ahead = sum(p.ticket < person.ticket for p in self.living())
        usual = State.PAUSED if self.is_stopped() else State.WAITING
        if self.is_held():
            usual = State.HOLD
        return Answer(
            state or usual,
            ticket=person.ticket,
            ahead=ahead,
            joined_ms=person.joined_ms,
            reason=Reason.RETURNED if 0 < shown < ahead + 1 else Reason.NONE,
        )

    def _granted(self, person: Person) -> Answer:
        return Answer(
            State.GRANTED,
            ticket=person.ticket,
            joined_ms=person.joined_ms,
            expires_ms=self._as_store_time(person.until),
            extensions=person.extensions,
        )

    def _tell(self, person: Person) -> None:
        if not person.told:
            person.told = True
            person.until = self.room + self.config.grant_ttl_ms

    def _stranger(self, iat_ms: int, ticket: int) -> Answer | None:
        if self.is_held():
            return Answer(State.HOLD)
        if iat_ms <= self.reset_ms:
            return Answer(State.RESET)
        return Answer(State.MISSED) if ticket else None

    def _newcomer(self, sid: str, holder: str, client: str, exempt: bool) -> Answer:
        config = self.config
        if config.mode is Mode.CLOSED:
            return Answer(State.CLOSED)
        if config.mode is Mode.REJECT:
            return Answer(State.REJECTED)
        limited = bool(config.entries_per_minute) and not exempt
        if limited and (
            wait := self._wait(self.entries[client], config.entries_per_minute, 60_000)
        ):
            return Answer(State.LIMITED, retry_ms=wait)
        direct = not self.living() and self.may_admit()
        full = config.max_queue and (
            len(self.living()) >= config.max_queue
            or len(self.standing("waiting")) + len(self.standing("parked")) >= 2 * config.max_queue
        )
        if full and not direct:
            return Answer(State.FULL)
        if limited:
            self._note(self.entries[client], config.entries_per_minute)
        self.totals["joined"] += 1
        if direct:
            slot = self._occupy(holder, sid, 0, self.now)
            self._note_admission()
            self.totals["direct"] += 1
            ends = self._as_store_time(slot.ends)
            return Answer(State.ACTIVE, joined_ms=self.now, expires_ms=ends, new=True)
        self.seq += 1
        person = Person(sid, self.seq, self.now, client, "waiting", self.room, self.room)
        self.people[sid] = person
        answer = self._waiting(person, 0)
        answer.new = True
        return answer

    # Operations

    def enter(
        self, sid: str, client: str, iat_ms: int, ticket: int, shown: int, lease: str, exempt: bool
    ) -> Answer:
        self._begin()
        self._sweep()
        holder = lease or sid
        if holder in self.slots:
            self.slots[holder].ends = self._slot_end(self.slots[holder])
            self._promote()
            return self._active(holder)
        person = self._check_in(sid)
        self._promote()
        if person is None:
            return self._stranger(iat_ms, ticket) or self._newcomer(sid, holder, client, exempt)
        if person.standing == "granted":
            del self.people[sid]
            slot = self._occupy(holder, sid, person.ticket, person.joined_ms)
            return Answer(
                State.ACTIVE,
                ticket=person.ticket,
                joined_ms=person.joined_ms,
                expires_ms=self._as_store_time(slot.ends),
            )
        return self._waiting(person, shown)

    def poll(self, sid: str, iat_ms: int, ticket: int, shown: int) -> Answer:
        self._begin()
        self._sweep()
        if sid in self.slots:
            self._promote()
            return self._active(sid)
        person = self._check_in(sid)
        self._promote()
        if person is None:
            return self._stranger(iat_ms, ticket) or Answer(State.NONE)
        retry = self._wait(self.checks[sid], self.config.polls_per_second, 1_000)
        if not retry:
            self._note(self.checks[sid], self.config.polls_per_second)
        if person.standing == "granted":
            if retry:
                known = {"ticket": person.ticket, "joined_ms": person.joined_ms}
                return Answer(State.LIMITED, retry_ms=retry, **known)
            self._tell(person)
            return self._granted(person)
        answer = self._waiting(person, shown, State.LIMITED if retry else None)
        answer.retry_ms = retry
        return answer

    def heartbeat(self, ids: list[str]) -> list[bool]:
        self._begin()
        self._sweep()
        alive = [holder in self.slots for holder in ids]
        for holder in ids:
            if holder in self.slots:
                self.slots[holder].ends = self._slot_end(self.slots[holder])
        self._promote()
        return alive

    def release(self, holder: str, revoke: bool) -> bool:
        self._begin()
        self._sweep()
        freed = self._vacate(holder, "released")
        if revoke and (freed or self.config.unit is Unit.REQUESTS):
            self.totals["revoked"] += 1
            self.journal.append(("revoke", holder))
        self._promote()
        return freed

    def _take_out(self, sid: str, total: str, entry: str) -> bool:
        person = self.people.get(sid)
        if person is not None:
            self._forget(person, total)
        had_slot = self._vacate(sid, "released")
        if had_slot or (self.config.unit is Unit.REQUESTS and entry == "expel"):
            self.journal.append((entry, sid))
        return person is not None or had_slot

    def leave(self, sid: str) -> bool:
        self._begin()
        self._sweep()
        was = self._take_out(sid, "left", "revoke")
        self._promote()
        return was

    def remove(self, sid: str) -> int:
        self._begin()
        self._sweep()
        was = self._take_out(sid, "removed", "revoke")
        self._promote()
        return int(was)

    def expel(self, sid: str) -> int:
        self._begin()
        self._sweep()
        was = self._take_out(sid, "banned", "expel")
        self._promote()
        return int(was)

    def beacon(self, sid: str) -> None:
        self._begin()
        self._sweep()
        person = self.people.get(sid)
        if person is not None and person.standing == "waiting":
            silent_from = self.room - self.config.queue_ttl_ms + BEACON_MS
            person.counted = min(person.counted, silent_from)
        self._promote()

    def extend(self, sid: str) -> Answer:
        self._begin()
        self._sweep()
        person = self._check_in(sid)
        self._promote()
        if person is None:
            return self._active(sid) if sid in self.slots else Answer(State.NONE)
        if person.standing != "granted":
            return self._waiting(person, 0)
        self._tell(person)
        if person.extensions < EXTENSIONS:
            person.extensions += 1
            person.until += self.config.grant_ttl_ms
        return self._granted(person)

    def adopt(self, sid: str) -> int:
        self._begin()
        self._sweep()
        if sid in self.slots:
            self.slots[sid].ends = self._slot_end(self.slots[sid])
            return 0
        person = self.people.pop(sid, None)
        if person is None:
            self.totals["joined"] += 1
        taken = len(self.slots) + len(self.standing("granted"))
        if self.config.mode is not Mode.OFF and taken >= self.config.capacity:
            self.totals["overshoot"] += 1
        ticket, joined_ms = (person.ticket, person.joined_ms) if person else (0, self.now)
        self._occupy(sid, sid, ticket, joined_ms)
        self.totals["adopted"] += 1
        return 1

    def tick(self) -> Counts:
        self._begin()
        self._sweep()
        self._promote()
        return self.counts()

    def promote(self, sid: str) -> str:
        self._begin()
        self._sweep()
        person = self.people.get(sid)
        if person is not None and person.standing == "granted":
            return "granted"
        if person is None or person.standing != "waiting":
            return "unknown"
        if self.is_stopped():
            return "stopped"
        if not self.may_admit():
            return "rate" if self.rate_wait() and self._has_slot() else "full"
        self._grant(person)
        return "granted"

    def _has_slot(self) -> bool:
        taken = len(self.slots) + len(self.standing("granted"))
        return self.config.mode is Mode.OFF or taken < self.config.capacity

    def reset(self) -> int:
        self._begin()
        self.epoch += 1
        self.reset_ms = max(self.now, self.reset_ms + 1)
        self.totals["reset"] += len(self.people)
        self.people.clear()
        self.slots.clear()
        self.admissions.clear()
        self.seq = 0
        self.journal.append(("reset", ""))
        return self.epoch

    def release_all(self) -> int:
        self._begin()
        self._sweep()
        were = len(self.slots)
        self.totals["released"] += were
        self.slots.clear()
        self.journal.append(("release_all", ""))
        self._promote()
        return were

    def configure(self, config: RoomConfig) -> bool:
        if config.version <= self.config.version:
            return False
        self.config = config
        return True
