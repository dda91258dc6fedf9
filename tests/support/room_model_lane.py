"""The lane of the reference model: a few slots beside the room's, for ranks and for forms.

Who finds no free slot of it waits there by rank, then by coming; a freed slot is handed to the
first at once, and lost again when nobody takes it up within three seconds. Only who takes it up
is admitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from queueing.config import Mode, Unit
from tests.support.room_model_line import LineModel
from tests.support.room_model_state import Caller, Slot

TAKE_UP_MS, GRACE_MS = 3_000, 2_000


@dataclass
class LaneRequest:
    """Somebody who may use the lane, and what would hold the slot."""

    holder: str
    sid: str
    client: str
    rank: int
    form: bool
    network: str
    came: int = 0  # a counter: the order of coming
    deadline: int = 0  # room time


def lane_order(request: LaneRequest) -> tuple[int, int]:
    """Sort key of those who wait for the lane: the highest rank, then who came first."""
    return (-request.rank, request.came)


@dataclass
class LaneModel(LineModel):
    """A room's line and its lane."""

    lane_queue: dict[str, LaneRequest] = field(default_factory=dict)
    lane_kept: dict[str, LaneRequest] = field(default_factory=dict)  # who was handed a slot
    lane_seq: int = 0

    def lane_waiting(self) -> int:
        return len(self.lane_queue)

    def lane_size(self) -> int:
        return self.config.priority_cap or max(1, self.config.capacity // 4)

    def lane_request(self, caller: Caller) -> LaneRequest | None:
        """Tell under which name this visitor would use the lane, if it may at all."""
        ranked = caller.rank >= self.config.lane_rank
        if not ranked and not (caller.form and self.config.priority_forms):
            return None
        session = ranked and self.config.unit is Unit.VISITORS
        holder = caller.sid if session else caller.lease
        if not holder:
            return None
        return LaneRequest(
            holder, caller.sid, caller.client, caller.rank, caller.form, caller.network
        )

    def lane_serves(self, request: LaneRequest) -> bool:
        if self.is_stopped() or self.config.capacity == 0:
            return False
        return self.config.mode is not Mode.CLOSED or request.form

    def lane_free(self) -> bool:
        return len(self.lane_slots) < self.lane_size()

    def _lane_deadline(self) -> int:
        return self.room + self.config.priority_wait_ms + GRACE_MS

    def _ask_the_lane(self, request: LaneRequest, *, wait: bool) -> str:
        """Give `active`, `lane` (waits for a slot) or `` (neither)."""
        if not wait:
            self.lane_queue.pop(request.holder, None)
        if not self.lane_serves(request):
            return ""
        if self.lane_free() and not self.lane_queue:
            self._lengthen(self._into_the_lane(request))
            return "active"
        if not wait:
            return ""
        known = self.lane_queue.get(request.holder)
        if known is None:
            self.lane_seq += 1
        request.came = known.came if known else self.lane_seq
        request.deadline = self._lane_deadline()
        self.lane_queue[request.holder] = request
        return "lane"

    def _into_the_lane(self, request: LaneRequest) -> Slot:
        own = request.holder == request.sid
        person = self.people.pop(request.sid, None) if own else None
        if person is None:
            self.totals["joined"] += 1
        slot = Slot(
            0,
            self.room,
            person.ticket if person else 0,
            person.joined_ms if person else self.now,
            request.rank,
            own,
        )
        self.lane_slots[request.holder] = slot
        self.totals["admitted"] += 1
        self.totals["lane"] += 1
        self.totals["forms"] += request.form
        self._note_network(slot, request.network)
        return slot

    def _hand_on(self) -> None:
        """Give what is free of the lane to those who wait for it."""
        for holder, request in list(self.lane_queue.items()):
            if request.deadline <= self.room:
                del self.lane_queue[holder]
        while self.lane_free():
            served = [r for r in self.lane_queue.values() if self.lane_serves(r)]
            if not served:
                return
            first = min(served, key=lane_order)
            del self.lane_queue[first.holder]
            kept = Slot(self.room + TAKE_UP_MS, self.room, handed=True)
            self.lane_slots[first.holder] = kept
            self.lane_kept[first.holder] = first

    def _taken_up(self, holder: str, network: str = "") -> Slot | None:
        """Find a holder's slot; one kept free for it is taken up, from the network told now."""
        slot = self._slot_of(holder)
        if slot is not None and slot.handed:
            request = self.lane_kept[holder]
            request.network = network or request.network
            return self._into_the_lane(request)
        return slot

    def _strike_off(self, sid: str) -> None:
        for holder, request in list(self.lane_queue.items()):
            if request.sid == sid:
                del self.lane_queue[holder]

    def lane(self, holders: list[str]) -> list[int]:
        self._begin()
        self._sweep()
        self._hand_on()
        told = [self._lane_news(holder) for holder in holders]
        self._promote()
        return told

    def _lane_news(self, holder: str) -> int:
        if (slot := self._taken_up(holder)) is not None:
            self._lengthen(slot)
            return 2
        if (request := self.lane_queue.get(holder)) is not None:
            request.deadline = self._lane_deadline()
            return 1
        return 0
