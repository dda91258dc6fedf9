"""A reference model of a room: what its script must do, written for reading and not for speed.

The operations; what they are made of stands in `room_model_state`, `room_model_line` and
`room_model_lane`. It is right for rooms with fewer than 25 people, where the script's bounded loops
never leave work behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from queueing.config import Mode, RoomConfig, Unit
from queueing.places import Counts, Reason, State
from tests.support.room_model_lane import LaneModel
from tests.support.room_model_state import Answer, Caller, Person, Slot

__all__ = ["Answer", "RoomModel"]

BEACON_MS, EXTENSIONS, ONE_REVOCATION_MS = 15_000, 10, 60_000


@dataclass
class RoomModel(LaneModel):
    """One room. Set `now` (store time), then call an operation."""

    revoked_at: dict[str, int] = field(default_factory=dict)

    # Asking to come in

    def enter(self, sid: str, **words: object) -> Answer:
        return self._enter(Caller(sid, **words))  # type: ignore[arg-type]

    def _enter(self, caller: Caller) -> Answer:
        self._begin()
        self._sweep()
        self._hand_on()
        holder = self._holder(caller.sid, caller.lease)
        for name in (holder, caller.lease):
            if (slot := self._taken_up(name, caller.network)) is not None:
                return self._still_inside(name, slot, caller.network)
        person = self._check_in(caller.sid, caller.rank)
        self._promote()
        if person is None:
            answer = self._stranger(caller.sid, caller.iat_ms, caller.ticket) or self._direct(
                caller, holder
            )
        elif person.standing == "granted":
            answer = self._claim(caller, person, holder)
        else:
            answer = None
        return answer or self._by_the_lane(caller, person) or self._in_line(caller, person)

    def _still_inside(self, holder: str, slot: Slot, network: str) -> Answer:
        if self._is_shared(slot, network):
            self._promote()
            return Answer(State.SHARED)
        self._lengthen(slot)
        self._note_network(slot, network)
        self._promote()
        return self._active(holder)

    def _active(self, holder: str) -> Answer:
        slot = self._slot_of(holder)
        assert slot is not None
        answer = Answer(State.ACTIVE, by_lease=not slot.own)
        answer.expires_ms = self._as_store_time(slot.ends)
        if slot.own:
            answer.ticket, answer.joined_ms = slot.ticket, slot.joined_ms
            answer.rank = slot.rank
            answer.vip_until_ms = self._vip_until(holder)
        return answer

    def _stranger(self, sid: str, iat_ms: int, ticket: int) -> Answer | None:
        if self.is_held():
            return Answer(State.HOLD)
        if iat_ms <= self.reset_ms:
            return Answer(State.RESET)
        was_served = self.served_until.get(sid, 0) > self.room
        return Answer(State.MISSED) if ticket and not was_served else None

    def _occupy(self, holder: str, sid: str, *, ticket: int, joined_ms: int, rank: int) -> Slot:
        own = holder == sid
        slot = self._new_slot(own=own, ticket=ticket, joined_ms=joined_ms, rank=rank)
        self.slots[holder] = slot
        self.lane_queue.pop(holder, None)
        self.totals["admitted"] += 1
        return slot

    def _claim(self, caller: Caller, person: Person, holder: str) -> Answer:
        del self.people[caller.sid]
        if holder != caller.sid:
            self.served_until[caller.sid] = self.room + self.config.return_window_ms
        known = {"ticket": person.ticket, "joined_ms": person.joined_ms, "rank": person.rank}
        slot = self._occupy(holder, caller.sid, **known)
        self._note_network(slot, caller.network)
        answer = self._about(person, State.ACTIVE)
        answer.expires_ms, answer.by_lease = self._as_store_time(slot.ends), not slot.own
        return answer

    def _entries_wait(self, caller: Caller) -> int:
        limit = 0 if caller.exempt else self.config.entries_per_minute
        return self._wait(self.entries[caller.client], limit, 60_000) if limit else 0

    def _note_entry(self, caller: Caller) -> None:
        if self.config.entries_per_minute and not caller.exempt:
            self._note(self.entries[caller.client], self.config.entries_per_minute)
        self.totals["joined"] += 1

    def _direct(self, caller: Caller, holder: str) -> Answer | None:
        """Let a newcomer in at once if nobody waits and a slot and the rate are free."""
        if self.is_closed() or self.living() or not self.may_admit() or self._entries_wait(caller):
            return None
        self._note_entry(caller)
        slot = self._occupy(holder, caller.sid, ticket=0, joined_ms=self.now, rank=caller.rank)
        self._note_network(slot, caller.network)
        self._note_admission()
        self.totals["direct"] += 1
        answer = self._active(holder)
        answer.joined_ms, answer.new = self.now, True
        return answer

    def _by_the_lane(self, caller: Caller, person: Person | None) -> Answer | None:
        request = self.lane_request(caller)
        became = request and self._ask_the_lane(request, wait=caller.lane_wait)
        if request and became == "active":
            return self._active(request.holder)
        if became == "lane":
            return self._with_place(State.LANE, caller, person)
        if caller.form:
            self.totals["unsent"] += 1
            return self._with_place(State.UNSENT, caller, person)
        return None

    def _with_place(self, state: State, caller: Caller, person: Person | None) -> Answer:
        return Answer(state) if person is None else self._waiting(person, caller.shown, state)

    def _in_line(self, caller: Caller, person: Person | None) -> Answer:
        if person is not None:
            return self._waiting(person, caller.shown)
        if self.config.mode is Mode.CLOSED:
            return Answer(State.CLOSED)
        if self.config.mode is Mode.REJECT:
            return Answer(State.REJECTED)
        if retry := self._entries_wait(caller):
            return Answer(State.LIMITED, retry_ms=retry)
        if self.is_full():
            return Answer(State.FULL)
        self._note_entry(caller)
        fresh = self._join(caller.sid, caller.client, caller.rank)
        answer = self._waiting(fresh, 0)
        answer.new = True
        return answer

    # Waiting and being inside

    def poll(self, sid: str, iat_ms: int, ticket: int, shown: int) -> Answer:
        self._begin()
        self._sweep()
        self._hand_on()
        if self._seat_of(sid) is not None:
            self._promote()
            return self._active(sid)
        person = self._check_in(sid)
        self._promote()
        if person is None:
            return self._stranger(sid, iat_ms, ticket) or Answer(State.NONE)
        retry = self._wait(self.checks[sid], self.config.polls_per_second, 1_000)
        if not retry:
            self._note(self.checks[sid], self.config.polls_per_second)
        if person.standing == "granted":
            if retry:
                answer = self._about(person, State.LIMITED)
                answer.retry_ms = retry
                return answer
            self._tell(person)
            return self._granted(person)
        answer = self._waiting(person, shown, State.LIMITED if retry else None)
        answer.retry_ms = retry
        return answer

    def heartbeat(self, ids: list[str]) -> list[int]:
        self._begin()
        self._sweep()
        self._hand_on()
        ends: list[int] = []
        for holder in ids:
            slot = self._taken_up(holder)
            if slot is not None:
                self._lengthen(slot)
            ends.append(self._as_store_time(slot.ends) if slot else 0)
        self._promote()
        return ends

    def release(self, holder: str, revoke: bool) -> bool:
        self._begin()
        self._sweep()
        self.lane_queue.pop(holder, None)
        freed = self._vacate(holder, "released")
        if revoke and (freed or self.config.unit is Unit.REQUESTS):
            last = self.revoked_at.get(holder)
            if freed or last is None or last + ONE_REVOCATION_MS <= self.room:
                self.totals["revoked"] += 1
            self.revoked_at[holder] = self.room
            self.journal.append(("revoke", holder))
            self._strike_off(holder)
        self._finish()
        return freed

    def beacon(self, sid: str) -> None:
        self._begin()
        self._sweep()
        person = self.people.get(sid)
        if person is not None and person.standing == "waiting":
            silent_from = self.room - self.config.queue_ttl_ms + BEACON_MS
            person.counted = min(person.counted, silent_from)
        self._finish()

    def extend(self, sid: str) -> Answer:
        self._begin()
        self._sweep()
        self._hand_on()
        person = self._check_in(sid)
        self._promote()
        if person is None:
            return self._active(sid) if self._seat_of(sid) else Answer(State.NONE)
        if person.standing != "granted":
            return self._waiting(person, 0)
        self._tell(person)
        if person.extensions < EXTENSIONS:
            person.extensions += 1
            person.until += self.config.grant_ttl_ms
        return self._granted(person)

    def tick(self) -> Counts:
        self._begin()
        self._sweep()
        self._finish()
        return self.counts()

    def session(self, sid: str) -> tuple[int, int, int]:
        """End of the slot, end of the longest stay (store time; 0 = none), its extensions."""
        self._begin()
        self._sweep()
        self._finish()
        slot = self._seat_of(sid)
        if slot is None or not slot.own:
            return 0, 0, 0
        limit = self._limit(slot)
        ends = self._as_store_time(slot.ends)
        return ends, limit and self._as_store_time(limit), slot.extensions

    def prolong(self, sid: str) -> tuple[int, int, int]:
        self._begin()
        self._sweep()
        self._hand_on()
        slot = self._seat_of(sid)
        if slot is not None and self._limit(slot) and slot.extensions < EXTENSIONS:
            slot.extensions += 1
            self._lengthen(slot)
        return self.session(sid)

    def _finish(self) -> None:
        self._hand_on()
        self._promote()

    # Taking out and letting in

    def _take_out(self, sid: str, total: str, entry: str) -> bool:
        person = self.people.get(sid)
        if person is not None:
            self._forget(person, total)
        self._strike_off(sid)
        had_slot = self._vacate(sid, "released")
        if had_slot or (self.config.unit is Unit.REQUESTS and entry == "expel"):
            self.journal.append((entry, sid))
        return person is not None or had_slot

    def _taken_out(self, sid: str, total: str, entry: str) -> bool:
        self._begin()
        self._sweep()
        was = self._take_out(sid, total, entry)
        self._finish()
        return was

    def leave(self, sid: str) -> bool:
        return self._taken_out(sid, "left", "revoke")

    def remove(self, sid: str) -> int:
        return int(self._taken_out(sid, "removed", "revoke"))

    def expel(self, sid: str) -> int:
        return int(self._taken_out(sid, "banned", "expel"))

    def adopt(self, sid: str) -> int:
        self._begin()
        self._sweep()
        self._hand_on()
        if (slot := self._taken_up(sid)) is not None:
            self._lengthen(slot)
            return 0
        person = self.people.pop(sid, None)
        if person is None:
            self.totals["joined"] += 1
        if not self.has_slot():
            self.totals["overshoot"] += 1
        known = (person.ticket, person.joined_ms, person.rank) if person else (0, self.now, 0)
        self._occupy(sid, sid, ticket=known[0], joined_ms=known[1], rank=known[2])
        self.totals["adopted"] += 1
        return 1

    def promote(self, sid: str) -> str:
        self._begin()
        self._sweep()
        self._hand_on()
        person = self.people.get(sid)
        if person is not None and person.standing == "granted":
            return "granted"
        if person is None or person.standing != "waiting":
            return "unknown"
        if self.is_stopped():
            return "stopped"
        if not self.has_slot():
            return "full"
        if self.rate_wait():
            return "rate"
        self._grant(person)
        return "granted"

    def advance(self, sid: str, reason: Reason, payment: str, vip_ms: int) -> str:
        self._begin()
        self._sweep()
        self._hand_on()
        if payment and payment in self.payments:
            return "already"
        became = self._advance(sid, reason)
        if became != "unknown":
            self.payments |= {payment} - {""}
            if vip_ms:
                self.vip[sid] = max(self.vip.get(sid, 0), self.room + vip_ms)
        self._promote()
        return became

    def _advance(self, sid: str, reason: Reason) -> str:
        person = self.people.get(sid)
        if self._seat_of(sid) is not None:
            return "inside"
        if person is None:
            return "unknown"
        if person.standing == "granted":
            return "granted"
        self._to_the_front(person, reason)
        return "moved"

    def reset(self) -> int:
        self._begin()
        self.epoch += 1
        self.reset_ms = max(self.now, self.reset_ms + 1)
        self.totals["reset"] += len(self.people)
        for everything in (self.people, self.slots, self.lane_slots, self.lane_queue):
            everything.clear()
        self.admissions.clear()
        self.served_until.clear()
        self.seq = self.credit = 0
        self.journal.append(("reset", ""))
        return self.epoch

    def release_all(self) -> int:
        self._begin()
        self._sweep()
        were = sum(not slot.handed for slot in (*self.slots.values(), *self.lane_slots.values()))
        self.totals["released"] += were
        self.slots.clear()
        self.lane_slots.clear()
        self.lane_queue.clear()
        self.journal.append(("release_all", ""))
        self._promote()
        return were

    def configure(self, config: RoomConfig) -> bool:
        if config.version <= self.config.version:
            return False
        self.config = config
        return True
