"""The reference model itself: that it says what the design says, before anything is held to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueing.config import Mode, Order, RoomConfig, RoomId, Unit
from queueing.places import Reason, State
from tests.support.room_driver import NOBODY
from tests.support.room_model import RoomModel
from tests.support.room_model_line import next_in_line
from tests.support.room_model_state import FRONT, Answer, Person

NOW = 1_800_000_000_000


def model(**config: Any) -> RoomModel:
    return RoomModel(RoomConfig(id=RoomId("model"), **config), NOW)


def enter(room: RoomModel, sid: str, **words: Any) -> Answer:
    return room.enter(sid, **NOBODY | {"iat_ms": room.now} | words)


def line(levels: Sequence[int]) -> list[Person]:
    """Stand people in a line; a level over `FRONT` is a place in front, in order of its number."""
    return [
        Person(
            f"sid-{ticket}",
            ticket,
            0,
            "",
            "waiting",
            0,
            0,
            rank=min(level, 6),
            level=min(level, FRONT),
            front=level,
        )
        for ticket, level in enumerate(levels, 1)
    ]


@given(
    levels=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    max_overtake=st.sampled_from([0, 1, 10, 50, 90]),
    credit=st.integers(0, 99),
)
def test_wr_15_the_credit_bounds_what_overtakes(
    levels: list[int], max_overtake: int, credit: int
) -> None:
    config = RoomConfig(id=RoomId("model"), order=Order.RANK, max_overtake=max_overtake)
    people, contests, overtakes = line(levels), 0, 0
    while people:
        head, best = people[0], max(p.level for p in people)
        contests += best > head.level
        first, credit = next_in_line(people, config, credit)
        assert first in (head, next(p for p in people if p.level == best))
        overtakes += first is not head
        people.remove(first)
        assert 0 <= credit < 100
    assert 100 * overtakes < max_overtake * contests + 100


@given(payers=st.permutations(range(1, 9)), order=st.sampled_from(list(Order)))
def test_those_in_front_come_first_in_order_of_payment(payers: list[int], order: Order) -> None:
    config = RoomConfig(id=RoomId("model"), order=order)
    people = line([*(FRONT + number for number in payers), 6, 0])
    served = []
    for _ in payers:
        first, credit = next_in_line(people, config, 0)
        assert credit == 0
        served.append(first.front)
        people.remove(first)
    assert served == [FRONT + number for number in range(1, 9)]


def test_wr_14_the_lane_hands_a_freed_slot_to_the_highest_rank_then_to_the_first_to_come() -> None:
    room = model(capacity=1, priority_cap=1)
    enter(room, "inside")
    assert enter(room, "first", rank=3).state is State.ACTIVE
    for sid, rank in (("a", 3), ("b", 5), ("c", 5)):
        assert enter(room, sid, rank=rank, lane_wait=True).state is State.LANE
    room.release("first", revoke=False)
    assert list(room.lane_slots) == ["b"]
    room.now += 3_000  # its gateway has died
    assert room.lane(["a", "c", "b"]) == [1, 2, 0]


def test_a_form_for_which_nothing_is_free_is_not_sent_and_makes_no_ticket() -> None:
    room = model(capacity=1, priority_cap=1, unit=Unit.REQUESTS)
    enter(room, "a", lease="1")
    assert enter(room, "b", lease="2", form=True).state is State.ACTIVE
    assert enter(room, "c", lease="3", form=True).state is State.UNSENT
    assert room.counts().latest_ticket == 0
    assert enter(room, "c", lease="4").ticket == 1
    told = enter(room, "c", lease="5", form=True)
    assert (told.state, told.ticket) == (State.UNSENT, 1)


def test_wr_35_the_second_network_is_told_and_the_first_is_undisturbed() -> None:
    room = model(share_guard=True, refresh_ms=1_000)
    first = enter(room, "a", network="one")
    assert enter(room, "a", network="two").state is State.SHARED
    assert room.slots["a"].ends == first.expires_ms
    assert enter(room, "a", network="one").state is State.ACTIVE
    room.now += 2_000  # it has moved
    assert enter(room, "a", network="two").state is State.ACTIVE


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.REJECT])
def test_the_lane_admits_nobody_in_a_room_that_is_stopped(mode: Mode) -> None:
    room = model(capacity=1, mode=mode)
    assert enter(room, "a", rank=6).state is not State.ACTIVE
    assert not room.lane_slots


def test_a_payment_counts_once_and_its_place_outlives_a_silence() -> None:
    room = model(capacity=0, queue_ttl_ms=4_000)
    for sid in ("a", "b", "c"):
        enter(room, sid)
    assert room.advance("c", Reason.PAID, "payment", 0) == "moved"
    assert room.advance("b", Reason.PAID, "payment", 0) == "already"
    room.now += 4_001
    room.tick()
    assert room.counts().parked == 3
    assert [enter(room, sid).ahead for sid in ("a", "b", "c")] == [0, 1, 0]
    assert enter(room, "a").front == 1
