"""The line of the reference model: what falls due, who checks in, who is next, who is ahead.

`next_in_line` is the whole order (design §4 I2, WR-15) as one pure function. How many are ahead is
found by playing it through with nobody else coming, so the answer cannot differ from what happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from queueing.config import Mode, Order, RoomConfig
from queueing.places import Reason, State
from tests.support.room_model_state import FRONT, Answer, Person, RoomState

LAPSES = 3


def next_in_line(living: Sequence[Person], config: RoomConfig, credit: int) -> tuple[Person, int]:
    """Tell who of these is admitted next, and the overtaking credit (percent) afterwards."""
    first = min(living, key=lambda p: p.before)
    if first.level == FRONT:
        return first, credit
    head = min(living, key=lambda p: p.ticket)
    if config.order is Order.ARRIVAL or first.level <= head.rank:
        return head, credit  # nobody of a higher rank contests it
    credit += config.max_overtake
    return (first, credit - 100) if credit >= 100 else (head, credit)


@dataclass
class LineModel(RoomState):
    """A room's line."""

    credit: int = 0
    front_seq: int = 0  # the newest number of the order of payment
    payments: set[str] = field(default_factory=set)
    vip: dict[str, int] = field(default_factory=dict)  # sid -> until
    served_until: dict[str, int] = field(default_factory=dict)  # unit requests: sid -> room time

    # What falls due

    def _sweep(self) -> None:
        for holder, slot in [*self.slots.items(), *self.lane_slots.items()]:
            if slot.ends <= self.room:
                self._vacate(holder, "expired")
        for person in self.standing("granted"):
            if person.until <= self.room:
                self._lapse(person)
        for person in self.standing("waiting"):
            if self.is_silent(person):
                self._park(person, "parked")
        for person in self.standing("parked"):
            if person.until <= self.room:
                self._forget(person, "missed")

    def _lapse(self, person: Person) -> None:
        person.lapses, person.told, person.extensions = person.lapses + 1, False, 0
        if person.lapses >= LAPSES:
            self.totals["lapsed"] += 1
            self._forget(person, "missed")
        else:
            self._park(person, "lapsed")

    def _park(self, person: Person, total: str) -> None:
        person.until = person.last + self.config.return_window_ms
        gone = person.until <= self.room
        self.totals[total] += total == "lapsed" or not gone
        if gone:
            self._forget(person, "missed")
        else:
            person.standing = "parked"

    # The order

    def _place_by_rank(self, person: Person) -> None:
        """Put somebody where rank and payment say, as they are at this check-in."""
        if person.front:
            person.level = FRONT
        else:
            person.level = person.rank if self.config.order is Order.RANK else 0

    def _to_the_front(self, person: Person, why: Reason) -> None:
        """Who is there already keeps its place: paying again makes nobody fall back."""
        self.totals["advanced"] += 1
        if not person.front:
            self.front_seq += 1
            person.front, person.why = self.front_seq, why
            self._place_by_rank(person)

    def _check_in(self, sid: str, rank: int | None = None) -> Person | None:
        person = self.people.get(sid)
        if person is not None:
            person.last = person.counted = self.room
            if rank is not None:
                person.rank = rank
            if person.standing == "parked":
                person.standing = "waiting"
                self.totals["returned"] += 1
            self._place_by_rank(person)
        return person

    def _promote(self) -> None:
        while self.living() and self.may_admit():
            person, self.credit = next_in_line(self.living(), self.config, self.credit)
            self._grant(person)

    def _grant(self, person: Person) -> None:
        person.standing, person.told, person.extensions = "granted", False, 0
        person.until = self.room + self.config.grant_ttl_ms
        self._note_admission()
        self.totals["grants"] += 1

    def ahead_of(self, person: Person) -> list[Person]:
        """Play the order through until this one's turn: who was served before."""
        left, credit = self.living(), self.credit
        before: list[Person] = []
        while True:
            first, credit = next_in_line(left, self.config, credit)
            if first is person:
                return before
            left.remove(first)
            before.append(first)

    # Answers

    def _about(self, person: Person, state: State) -> Answer:
        return Answer(
            state,
            ticket=person.ticket,
            joined_ms=person.joined_ms,
            rank=person.rank,
            paid=person.front > 0,
            vip_until_ms=self._vip_until(person.sid),
        )

    def _vip_until(self, sid: str) -> int:
        until = self.vip.get(sid, 0)
        return self._as_store_time(until) if until > self.room else 0

    def _waiting(self, person: Person, shown: int, state: State | None = None) -> Answer:
        usual = State.PAUSED if self.is_stopped() else State.WAITING
        if self.is_held():
            usual = State.HOLD
        answer = self._about(person, state or usual)
        before = self.ahead_of(person)
        answer.ahead, answer.front = len(before), sum(p.level == FRONT for p in before)
        if 0 < shown < len(before) + 1:
            answer.reason = self._why_it_rose(person, before)
        return answer

    def _why_it_rose(self, person: Person, before: list[Person]) -> Reason:
        """The newest of what may have put others before this one; see docs/room-script.md."""
        if person.front:
            return Reason.RETURNED  # nobody pays a way past who has paid
        later = [p for p in before if p.front and p.ticket > person.ticket]
        if later:
            return max(later, key=lambda p: p.front).why
        ranks = [p.level for p in self.living() if p.ticket > person.ticket and not p.front]
        if self.config.order is Order.RANK and max(ranks, default=0) > person.rank:
            return Reason.RANK
        return Reason.RETURNED

    def _granted(self, person: Person) -> Answer:
        answer = self._about(person, State.GRANTED)
        answer.expires_ms = self._as_store_time(person.until)
        answer.extensions = person.extensions
        return answer

    def _tell(self, person: Person) -> None:
        if not person.told:
            person.told = True
            person.until = self.room + self.config.grant_ttl_ms

    def _join(self, sid: str, client: str, rank: int) -> Person:
        self.seq += 1
        fresh = Person(sid, self.seq, self.now, client, "waiting", self.room, self.room, rank)
        self.people[sid] = fresh
        if self._vip_until(sid):
            self._to_the_front(fresh, Reason.PAID)
        self._place_by_rank(fresh)
        return fresh

    def people_told(
        self, *, inside: bool, first: int, count: int
    ) -> list[tuple[str, int, int, int, int]]:
        """Who is inside by the end of the slot, or in line by ticket: what operators are shown."""
        if not inside:
            some = self.standing("waiting")[first : first + count]
            return [(p.sid, p.ticket, p.rank, p.joined_ms, p.front) for p in some]
        ordered = sorted(self.slots.items(), key=lambda item: (item[1].ends, item[0]))
        return [
            (sid, slot.ticket, slot.rank, slot.joined_ms, 0)
            for sid, slot in ordered[first : first + count]
            if slot.own
        ]

    def is_full(self) -> bool:
        most = self.config.max_queue
        kept = len(self.standing("waiting")) + len(self.standing("parked"))
        return most > 0 and (len(self.living()) >= most or kept >= 2 * most)

    def is_closed(self) -> bool:
        return self.config.mode in (Mode.CLOSED, Mode.REJECT)
