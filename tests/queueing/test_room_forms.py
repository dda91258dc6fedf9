"""Forms and ranks at the edges of the lane: what holds it, what one call does and leaves be."""

from __future__ import annotations

import pytest

from queueing import calls
from queueing.calls import Advance
from queueing.config import Mode, Unit
from queueing.places import Reason, State
from tests.support.stage import ROOM, Stage, sid
from tests.support.valkey import Valkey


def busy_lane(valkey: Valkey, **config: object) -> Stage:
    """One inside, one form in the lane's only slot; nobody waits."""
    stage = Stage(valkey, **({"capacity": 1, "priority_cap": 1} | config))
    assert stage.enter(0, lease="own").state is State.ACTIVE
    assert stage.ask(1, form=True).state is State.ACTIVE
    return stage


def test_a_wide_lane_is_handed_on_in_steps_and_says_that_work_remains(valkey: Valkey) -> None:
    with busy_lane(valkey, entries_per_minute=0) as stage:
        for number in range(100, 160):
            assert stage.ask(number, form=True).state is State.LANE
        stage.change(priority_cap=100)
        steps = [stage.tick() for _ in range(4)]
        assert [step.counts.lane for step in steps] == [26, 51, 61, 61]
        assert [step.more_work for step in steps] == [True, True, False, False]
        assert set(stage.lane(*(f"lease-{n}" for n in range(100, 160)))) == {2}


def test_a_room_that_closes_serves_the_forms_behind_ranks_that_wait(valkey: Valkey) -> None:
    with busy_lane(valkey) as stage:
        assert stage.ask(2, rank=6).state is State.LANE
        assert stage.ask(3, rank=5).state is State.LANE
        assert stage.ask(4, form=True).state is State.LANE
        stage.change(mode=Mode.CLOSED)
        stage.give_back("lease-1")
        assert stage.lane(sid(2), sid(3), "lease-4") == [1, 1, 2]
        stage.change(mode=Mode.OPEN)
        stage.give_back("lease-4")
        assert stage.lane(sid(2), sid(3)) == [2, 1]


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.REJECT])
def test_a_slot_that_comes_free_in_a_stopped_room_is_kept_for_nobody(
    valkey: Valkey, mode: Mode
) -> None:
    with busy_lane(valkey) as stage:
        stage.ask(2, form=True)
        stage.change(mode=mode)
        stage.give_back("lease-1")
        assert stage.lane("lease-2") == [1]
        assert stage.tick().counts.lane == 0
        stage.change(mode=Mode.OPEN)
        assert stage.lane("lease-2") == [2]


def test_wr_63_a_room_that_lost_its_data_has_no_lane_until_it_is_whole(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1) as stage:
        for part in ("config", "seq", "active"):
            stage.client.delete(stage.key(part))
        stage.client.hset(stage.key("config"), "test_clock", 1)
        assert stage.ask(1, form=True).state is State.HOLD
        stage.run(calls.recover(stage.config))
        assert stage.ask(1, rank=6).state is State.HOLD
        assert stage.tick().counts.lane == 0
        stage.pass_time(60_000)
        assert stage.ask(1, rank=6).state is State.ACTIVE


def test_wr_29_another_network_changes_no_place_in_the_line(valkey: Valkey) -> None:
    with busy_lane(valkey, share_guard=True) as stage:
        stage.enter(5)
        ticket = stage.enter(6, client="192.0.2.1", network="192.0.2.0/24").ticket
        moved = stage.enter(6, client="198.51.100.7", network="198.51.100.0/24")
        assert (moved.state, moved.ticket, moved.ahead) == (State.WAITING, ticket, 1)


def test_wr_39_a_lane_waiter_that_is_expelled_takes_no_slot_later(valkey: Valkey) -> None:
    with busy_lane(valkey, unit=Unit.REQUESTS) as stage:
        stage.enter(2)
        assert stage.ask(2, rank=6).state is State.LANE
        assert stage.run(calls.expel(ROOM, [sid(2)])) == 1
        stage.give_back("lease-1")
        assert stage.lane("lease-2") == [0]
        counts = stage.tick().counts
        assert (counts.lane, counts.lane_waiting, counts.waiting) == (0, 0, 0)


def test_a_lane_session_ends_by_itself_and_the_next_has_its_slot(valkey: Valkey) -> None:
    with busy_lane(valkey, active_ttl_ms=60_000) as stage:
        stage.give_back("lease-1")
        assert stage.ask(2, rank=4).state is State.ACTIVE
        stage.pass_time(55_000, beating=(0,))
        assert stage.ask(3, rank=3).state is State.LANE
        stage.pass_time(5_000, beating=(0,))
        assert stage.lane(sid(3)) == [2]
        assert stage.run(calls.session(ROOM, sid(2))).expires_ms == 0
        assert stage.beat(2) == [False]


def test_wr_26_a_session_of_the_lane_can_stay_longer_too(valkey: Valkey) -> None:
    with busy_lane(valkey, absolute_ttl_ms=400_000) as stage:
        stage.give_back("lease-1")
        begun = stage.now
        assert stage.ask(2, rank=4).state is State.ACTIVE
        told = stage.run(calls.prolong(ROOM, sid(2)))
        assert (told.limit_ms, told.extensions) == (begun + 800_000, 1)
        stage.pass_time(799_999, beating=(2,))
        assert stage.beat(2) == [True]
        stage.pass_time(1)
        assert stage.beat(2) == [False]
        assert stage.run(calls.prolong(ROOM, sid(2))).extensions == 0


def test_who_takes_the_lane_after_paying_has_left_the_front(valkey: Valkey) -> None:
    with busy_lane(valkey) as stage:
        stage.enter_all(range(2, 5))
        paid = {"reason": Reason.PAID, "payment": "p", "vip_ms": 0}
        assert stage.run(calls.advance(ROOM, sid(4), **paid)) is Advance.MOVED
        assert stage.poll(2).ahead == 1
        stage.give_back("lease-1")
        assert stage.ask(4, rank=6).state is State.ACTIVE
        assert stage.poll(2).ahead == 0
        assert stage.members("ranked") == []


def test_a_form_of_who_was_granted_claims_that_before_the_lane_is_asked(valkey: Valkey) -> None:
    with busy_lane(valkey, unit=Unit.REQUESTS) as stage:
        stage.enter(2, lease="page")
        stage.give_back("own")
        assert stage.members("granted") == [sid(2)]
        form = stage.ask(2, form=True, lease="form")
        assert (form.state, form.by_lease) == (State.ACTIVE, True)
        assert stage.members("active") == ["form"], "a grant is claimed before the lane is asked"
        assert stage.members("granted") == []
