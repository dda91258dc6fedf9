"""What people may rely on whatever the others do: the shares of order `rank`, and the front.

The script is played against the promise itself (WR-15, design §4 I2), not against the model: who
was next is found from what the test knows of the people, and from what they were told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueing.config import Order, RoomConfig, RoomId
from queueing.places import Reason, State
from tests.support.room_driver import RoomDriver, Wire
from tests.support.valkey import Valkey

QUIET = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
overtaking = st.sampled_from([0, 1, 33, 50, 67, 90])


@pytest.fixture
def wire(valkey: Valkey) -> Iterator[Wire]:
    wire = Wire(valkey.socket_path)
    yield wire
    wire.close()


class Line:
    """A room that admits one at a time, when told to; everybody in it stays living."""

    def __init__(self, wire: Wire, **config: object) -> None:
        fixed = RoomConfig(
            id=RoomId("line"), capacity=0, queue_ttl_ms=600_000, lane_rank=7, entries_per_minute=0
        )
        self.driver = RoomDriver(wire, replace(fixed, **config))  # type: ignore[arg-type]
        self.ranks: dict[str, int] = {}  # of who waits, in order of arrival

    def join(self, rank: int = 0) -> str:
        sid = f"visitor-{self.driver.model.seq:08d}"
        assert self.driver.enter(sid, rank=rank).state is State.WAITING
        self.ranks[sid] = rank
        return sid

    def admit_one(self) -> str:
        config = self.driver.config
        self.driver.configure(
            replace(config, version=config.version + 1, capacity=config.capacity + 1)
        )
        self.driver.whole("tick")
        (event,) = [e for e in self.driver.seen.events if e["kind"] == "granted"]
        del self.ranks[event["sid"]]
        return event["sid"]

    def position(self, sid: str) -> int:
        return self.driver.poll(sid).position


def _overtaken(line: Line) -> bool | None:
    """Admit one: None = nobody contested it, else whether the head was overtaken."""
    head = next(iter(line.ranks))
    is_contested = max(line.ranks.values()) > line.ranks[head]
    ranks = dict(line.ranks)
    chosen = line.admit_one()
    if chosen == head:
        return False if is_contested else None
    assert is_contested, "only a higher rank passes the head"
    best = max(ranks.values())
    assert chosen == next(sid for sid, rank in ranks.items() if rank == best)
    return True


@QUIET
@given(
    max_overtake=overtaking,
    people=st.lists(st.integers(0, 6), min_size=1, max_size=20),
    late=st.lists(st.lists(st.integers(0, 6), max_size=2), max_size=20),
)
def test_wr_15_the_head_keeps_its_share_of_any_contested_run(
    wire: Wire, max_overtake: int, people: list[int], late: list[list[int]]
) -> None:
    line = Line(wire, order=Order.RANK, max_overtake=max_overtake)
    for rank in people:
        line.join(rank)
    contests: list[bool] = []
    while line.ranks:
        for rank in late.pop() if late else []:
            line.join(rank)
        if (overtaken := _overtaken(line)) is not None:
            contests.append(overtaken)
    for first in range(len(contests)):
        for after in range(first + 1, len(contests) + 1):
            run = contests[first:after]
            assert 100 * sum(run) < max_overtake * len(run) + 100


@pytest.mark.parametrize("max_overtake", [0, 50, 90])
def test_wr_15_nobody_starves_while_higher_ranks_keep_coming(wire: Wire, max_overtake: int) -> None:
    line = Line(wire, order=Order.RANK, max_overtake=max_overtake)
    guests = [line.join(0) for _ in range(5)]
    admissions = 0
    while guests[-1] in line.ranks:
        line.join(6)
        line.join(6)
        line.admit_one()
        admissions += 1
        assert admissions <= (len(guests) + 1) * 100 // (100 - max_overtake)
    assert admissions >= len(guests)


@QUIET
@given(
    order=st.sampled_from(list(Order)),
    max_overtake=overtaking,
    people=st.lists(st.integers(0, 6), min_size=1, max_size=15),
)
def test_wr_15_within_a_rank_people_come_in_as_they_arrived(
    wire: Wire, order: Order, max_overtake: int, people: list[int]
) -> None:
    line = Line(wire, order=order, max_overtake=max_overtake)
    ranks = {line.join(rank): rank for rank in people}
    admitted = [line.admit_one() for _ in people]
    for rank in {0, 1, 2, 3, 4, 5, 6} if order is Order.RANK else {None}:
        alike = [sid for sid in admitted if rank is None or ranks[sid] == rank]
        assert alike == sorted(alike)


@QUIET
@given(max_overtake=overtaking, people=st.lists(st.integers(0, 6), min_size=1, max_size=15))
def test_wr_24_the_position_told_is_the_turn_that_comes(
    wire: Wire, max_overtake: int, people: list[int]
) -> None:
    line = Line(wire, order=Order.RANK, max_overtake=max_overtake)
    sids = [line.join(rank) for rank in people]
    told = {sid: line.position(sid) for sid in sids}
    admitted = [line.admit_one() for _ in people]
    assert told == {sid: turn for turn, sid in enumerate(admitted, 1)}


@QUIET
@given(
    order=st.sampled_from(list(Order)),
    payers=st.permutations(range(8)).flatmap(
        lambda all_: st.integers(0, 8).map(lambda number: all_[:number])
    ),
    operators=st.sets(st.integers(0, 7)),
)
def test_in_front_there_are_no_ties_and_the_order_is_that_of_payment(
    wire: Wire, order: Order, payers: list[int], operators: set[int]
) -> None:
    line = Line(wire, order=order)
    sids = [line.join(number % 3) for number in range(8)]
    for number in payers:
        reason = Reason.OPERATOR if number in operators else Reason.PAID
        payment = "" if number in operators else f"payment-{number}"
        line.driver.advance(sids[number], reason, payment=payment)
        if payment:  # delivered again: the place stays what it is
            assert line.driver.advance(sids[number], reason, payment=payment) == "already"
    front = [sids[number] for number in payers]
    assert [line.position(sid) for sid in front] == list(range(1, len(front) + 1))
    behind = [sid for sid in sids if sid not in front]
    places = [line.driver.poll(sid) for sid in behind]
    assert all(place.front == len(front) for place in places)
    assert len({place.position for place in places}) == len(places)
    admitted = [line.admit_one() for _ in sids]
    assert admitted[: len(front)] == front


@QUIET
@given(order=st.sampled_from(list(Order)), payers=st.permutations(range(6)))
def test_who_paid_and_fell_silent_returns_to_the_same_place_in_front(
    wire: Wire, order: Order, payers: list[int]
) -> None:
    line = Line(wire, order=order, queue_ttl_ms=5_000, return_window_ms=600_000)
    sids = [line.join() for _ in range(6)]
    for number in payers:
        line.driver.advance(sids[number], Reason.PAID, payment=f"payment-{number}")
    line.driver.pass_time(6_000)
    assert not line.driver.seen.scores["queue"]
    for sid in sids:
        line.driver.poll(sid)
    admitted = [line.admit_one() for _ in sids]
    assert admitted == [sids[number] for number in payers]


def test_the_reason_told_to_those_overtaken_is_the_payment(wire: Wire) -> None:
    line = Line(wire)
    sids = [line.join() for _ in range(4)]
    shown = {sid: line.position(sid) for sid in sids}
    line.driver.advance(sids[3], Reason.PAID, payment="payment-1")
    risen = [line.driver.poll(sid, shown=shown[sid]) for sid in sids[:3]]
    assert [place.position for place in risen] == [2, 3, 4]
    assert {place.reason for place in risen} == {Reason.PAID}
    for before, after in pairwise(risen):
        assert before.front == after.front == 1
