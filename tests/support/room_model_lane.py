"""The lane of the reference model: a few slots beside the room's, for ranks and for forms.

Who finds no free slot of it waits there by rank, then by coming; a freed slot is handed to the
first at once, and lost again when nobody takes it up within three seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from queueing.config import Mode, Unit
from tests.support.room_model_line import LineModel
from tests.support.room_model_state import Slot

TAKE_UP_MS, GRACE_MS = 3_000, 2_000


@dataclass
class LaneRequest:
    """Somebody who may use the lane, and what would hold the slot."""

    holder: str
    sid: str
    client: str
    rank: int
    form: bool
    came: int = 0  # a counter: the order of coming
    deadline: int = 0  # room time


@dataclass
class LaneModel(LineModel):
    """A room's line and its lane."""

    lane_queue: dict[str, LaneRequest] = field(default_factory=dict)
    lane_seq: int = 0

    def lane_waiting(self) -> int:
        return len(self.lane_queue)

    def lane_size(self) -> int:
        return self.config.priority_cap or max(1, self.config.capacity // 4)

    def lane_request(
        self, sid: str, lease: str, client: str, rank: int, form: bool
    ) -> LaneRequest | None:
        """Tell under which name this visitor would use the lane, if it may at all."""
        ranked = rank >= self.config.lane_rank
        formal = form and self.config.priority_forms
        if not (ranked or formal):
            return None
        session = ranked and self.config.unit is Unit.VISITORS
        holder = sid if session else lease
        return LaneRequest(holder, sid, client, rank, form) if holder else None

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
        known = self.lane_queue.setdefault(request.holder, request)
        if known is request:
            self.lane_seq += 1
            request.came = self.lane_seq
        known.rank = request.rank
        known.deadline = self._lane_deadline()
        return "lane"

    def _into_the_lane(self, request: LaneRequest) -> Slot:
        own = request.holder == request.sid
        person = self.people.pop(request.sid, None) if own else None
        if person is None:
            self.totals["joined"] += 1
        slot = Slot(
            self.room + TAKE_UP_MS,
            self.room,
            person.ticket if person else 0,
            person.joined_ms if person else self.now,
            request.rank,
            own,
        )
        self.lane_slots[request.holder] = slot
        self.totals["admitted"] += 1
        self.totals["lane"] += 1
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
            first = min(served, key=lambda r: (-r.rank, r.came))
            del self.lane_queue[first.holder]
            self._into_the_lane(first)

    def lane(self, holders: list[str]) -> list[int]:
        self._begin()
        self._sweep()
        self._hand_on()
        told = [self._lane_news(holder) for holder in holders]
        self._promote()
        return told

    def _lane_news(self, holder: str) -> int:
        if (slot := self._slot_of(holder)) is not None:
            self._lengthen(slot)
            return 2
        if (request := self.lane_queue.get(holder)) is not None:
            request.deadline = self._lane_deadline()
            return 1
        return 0
