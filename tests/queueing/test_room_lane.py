"""Leases, the lane and forms, as their cases promise them, on the script itself."""

from __future__ import annotations

import random

import pytest

from queueing import calls
from queueing.config import Mode, RoomConfig, Unit
from queueing.places import State
from tests.support.stage import ROOM, Stage, sid
from tests.support.valkey import Valkey

WAIT_MS = RoomConfig(id=ROOM).priority_wait_ms
BY_LEASE = [Unit.VISITORS, Unit.REQUESTS]


def full_room(valkey: Valkey, **config: object) -> Stage:
    """Everybody who has a slot of the room's own is numbered from 0; nobody waits."""
    stage = Stage(valkey, **({"capacity": 1, "priority_cap": 2} | config))
    for number in range(stage.config.capacity):
        assert stage.enter(number, lease=f"own-{number}").state is State.ACTIVE
    return stage


def test_a_lease_that_nobody_renews_runs_out_by_itself(valkey: Valkey) -> None:
    with full_room(valkey, unit=Unit.REQUESTS, lease_ttl_ms=9_000) as stage:
        assert stage.enter(1, lease="next").state is State.WAITING
        stage.pass_time(8_999)
        assert stage.run(calls.heartbeat(ROOM, ["own-0"])) == [stage.now + 9_000]
        stage.pass_time(8_999)
        assert stage.members("active") == ["own-0"]
        stage.pass_time(1)
        assert stage.members("active") == []
        assert stage.run(calls.heartbeat(ROOM, ["own-0"])) == [0]
        assert stage.members("granted") == [sid(1)]


def test_a_session_lives_active_ttl_and_its_forms_lease_lease_ttl(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        assert stage.enter(0).expires_ms == stage.now + stage.config.active_ttl_ms
        form = stage.ask(1, form=True)
        assert (form.state, form.by_lease) == (State.ACTIVE, True)
        assert form.expires_ms == stage.now + stage.config.lease_ttl_ms
        assert stage.members("lane") == ["lease-1"]


@pytest.mark.parametrize(
    ("capacity", "cap", "size"), [(1, 0, 1), (7, 0, 1), (8, 0, 2), (100, 0, 25), (10, 3, 3)]
)
def test_wr_14_the_lane_has_its_own_slots_or_a_quarter_of_the_capacity(
    valkey: Valkey, capacity: int, cap: int, size: int
) -> None:
    with full_room(valkey, capacity=capacity, priority_cap=cap, entries_per_minute=0) as stage:
        for number in range(1_000, 1_000 + size):
            assert stage.ask(number, rank=3).state is State.ACTIVE
        assert stage.ask(2_000, rank=6).state is State.LANE
        counts = stage.tick().counts
        assert (counts.active, counts.lane, counts.lane_waiting) == (capacity, size, 1)


@pytest.mark.parametrize("unit", BY_LEASE)
def test_wr_14_the_highest_rank_is_served_first_and_then_who_came_first(
    valkey: Valkey, unit: Unit
) -> None:
    with full_room(valkey, unit=unit, priority_cap=1) as stage:
        holder = (lambda n: sid(n)) if unit is Unit.VISITORS else (lambda n: f"lease-{n}")
        stage.ask(10, rank=3)
        ranks = {11: 3, 12: 5, 13: 3, 14: 6, 15: 5}
        assert {stage.ask(number, rank).state for number, rank in ranks.items()} == {State.LANE}
        served, inside = [], 10
        for _ in ranks:
            stage.now += 100
            assert stage.give_back(holder(inside))
            news = dict(zip(ranks, stage.lane(*map(holder, ranks)), strict=True))
            (inside,) = (number for number, word in news.items() if word == 2)
            served.append(inside)
        assert served == [14, 12, 15, 11, 13]


def test_wr_14_below_the_lanes_rank_one_waits_in_the_line(valkey: Valkey) -> None:
    with full_room(valkey, lane_rank=4) as stage:
        assert stage.ask(1, rank=3).state is State.WAITING
        assert stage.ask(2, rank=4).state is State.ACTIVE
        stage.change(lane_rank=7)
        assert stage.ask(3, rank=6).state is State.WAITING


def test_wr_14_a_rank_in_the_lane_is_a_session_and_leaves_the_line_for_it(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        assert stage.enter(1).ticket == 1
        place = stage.ask(1, rank=5)
        assert (place.state, place.ticket, place.rank, place.by_lease) == (
            State.ACTIVE, 1, 5, False
        )  # fmt: skip
        assert stage.members("lane") == [sid(1)]
        assert stage.members("queue") == []
        assert stage.state(1) is State.ACTIVE
        assert stage.beat(1) == [True]
        assert stage.totals("joined", "admitted", "lane", "forms") == (2, 2, 1, 0)


def test_a_lease_in_the_lane_leaves_its_visitors_place_alone(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.enter(1)
        assert stage.ask(1, form=True).state is State.ACTIVE
        assert (stage.poll(1).state, stage.poll(1).ticket) == (State.WAITING, 1)
        assert stage.totals("joined", "admitted", "lane", "forms") == (3, 2, 1, 1)


def test_the_lane_is_beside_the_capacity_and_outside_the_rate(valkey: Valkey) -> None:
    with full_room(valkey, capacity=2, priority_cap=5, rate=2) as stage:
        for number in range(10, 15):
            assert stage.ask(number, rank=3).state is State.ACTIVE
        stage.enter(3)
        stage.release(0)
        assert stage.tick().counts.granted == 0, "the rate is for the line"
        stage.now += 1_000
        counts = stage.tick().counts
        assert (counts.active, counts.granted, counts.lane) == (1, 1, 5)


def test_wr_14_the_lane_is_never_over_full_whoever_comes_goes_or_dies(valkey: Valkey) -> None:
    chance = random.Random(14)
    with full_room(valkey, priority_cap=3, lease_ttl_ms=6_000, entries_per_minute=0) as stage:
        inside: set[str] = set()
        for step in range(600):
            stage.now += chance.choice([0, 50, 300, 900])
            act, number = chance.random(), 100 + chance.randrange(40)
            if act < 0.6:
                place = stage.ask(number, chance.choice([0, 3, 6]), form=True)
                assert place.state in (State.LANE, State.ACTIVE)
            elif act < 0.8 and inside:
                stage.give_back(chance.choice(sorted(inside)))
            else:
                stage.tick()
            inside = set(stage.members("lane"))
            assert len(inside) <= 3, step


def test_wr_14_a_dead_gateways_waiters_are_struck_off(valkey: Valkey) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        stage.ask(1, form=True)
        assert stage.ask(2, rank=6).state is State.LANE
        assert stage.ask(3, form=True).state is State.LANE
        for _ in range(4):
            stage.now += (WAIT_MS + 1_999) // 4 + 1
            stage.run(calls.heartbeat(ROOM, ["lease-1"]))
            assert stage.lane("lease-3") == [1]
        assert stage.lane(sid(2)) == [0]
        assert stage.tick().counts.lane_waiting == 1
        stage.give_back("lease-1")
        assert stage.lane("lease-3", "nobody") == [2, 0]


def test_wr_14_a_slot_handed_to_a_dead_gateways_waiter_is_lost_for_three_seconds_only(
    valkey: Valkey,
) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        stage.ask(1, form=True)
        stage.enter(2)
        stage.ask(2, rank=6)
        stage.ask(3, rank=5)
        stage.give_back("lease-1")  # handed to 2, whose gateway is dead
        assert stage.lane(sid(3)) == [1]
        stage.now += 2_999
        assert stage.lane(sid(3)) == [1]
        stage.now += 1
        assert stage.lane(sid(3)) == [2]
        place = stage.poll(2, ticket=1)
        assert (place.state, place.ticket, place.ahead) == (State.WAITING, 1, 0), "keeps its place"
        assert stage.totals("joined", "admitted", "lane", "expired") == (4, 3, 2, 0)


def test_who_was_handed_the_slot_at_the_last_moment_has_it(valkey: Valkey) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        stage.ask(1, form=True)
        assert stage.ask(2, form=True).state is State.LANE
        stage.give_back("lease-1")
        stage.now += 1_000
        place = stage.ask(2, form=True, lane_wait=False)
        assert (place.state, place.expires_ms) == (
            State.ACTIVE, stage.now + stage.config.lease_ttl_ms
        )  # fmt: skip


def test_wr_27_a_form_finds_the_lane_or_is_unsent_and_never_gets_a_ticket(valkey: Valkey) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        for state in (State.ACTIVE, State.LANE):
            assert stage.ask(1 + (state is State.LANE), form=True).state is state
        refused = stage.ask(2, form=True, lane_wait=False)
        assert (refused.state, refused.ticket) == (State.UNSENT, 0)
        counts = stage.tick().counts
        assert (counts.lane_waiting, counts.waiting, counts.latest_ticket) == (0, 0, 0)
        assert stage.totals("unsent", "forms") == (1, 1)


def test_wr_27_a_refused_form_leaves_the_place_in_the_line(valkey: Valkey) -> None:
    with full_room(valkey, priority_forms=False) as stage:
        stage.enter(1)
        stage.enter(2)
        refused = stage.ask(2, form=True)
        assert (refused.state, refused.ticket, refused.ahead) == (State.UNSENT, 2, 1)
        assert stage.poll(2).ticket == 2


def test_wr_27_a_checkout_whose_slot_ended_goes_through_by_the_lane(valkey: Valkey) -> None:
    with full_room(valkey, active_ttl_ms=60_000) as stage:
        stage.pass_time(60_000)
        stage.enter(1)
        form = stage.enter(0, rank=5, form=True, lease="post", lane_wait=True)
        assert (form.state, form.by_lease) == (State.ACTIVE, False)
        events = stage.events("admitted")
        assert (events[-1]["sid"], events[-1]["reason"]) == (sid(0), "form")


def test_a_form_is_let_in_directly_where_there_is_room(valkey: Valkey) -> None:
    with Stage(valkey, capacity=2) as stage:
        assert stage.ask(1, form=True).state is State.ACTIVE
        assert stage.members("active") == [sid(1)]
        assert stage.members("lane") == []


def test_a_stopped_room_has_no_lane_and_a_closed_one_only_for_forms(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        for mode in (Mode.PAUSED, Mode.REJECT):
            stage.change(mode=mode)
            assert stage.ask(1, form=True).state is State.UNSENT
            assert stage.ask(2, rank=6).state in (State.PAUSED, State.REJECTED)
            stage.leave(2)
        stage.change(mode=Mode.CLOSED)
        assert stage.ask(3, rank=6).state is State.CLOSED
        assert stage.ask(1, form=True).state is State.ACTIVE
        stage.change(mode=Mode.OPEN, capacity=0)
        assert stage.ask(4, form=True).state is State.UNSENT


def test_wr_16_a_smaller_lane_lets_nobody_in_and_a_larger_one_the_first_at_once(
    valkey: Valkey,
) -> None:
    with full_room(valkey, priority_cap=4) as stage:
        for number in range(10, 14):
            stage.ask(number, form=True)
        for number in range(20, 24):
            assert stage.ask(number, form=True).state is State.LANE
        stage.change(priority_cap=1)
        for number in range(10, 13):
            stage.give_back(f"lease-{number}")
            assert stage.tick().counts.lane == 13 - number
        stage.change(priority_cap=3)
        assert stage.tick().counts.lane == 3
        assert stage.lane(*(f"lease-{n}" for n in range(20, 24))) == [2, 2, 1, 1]
        stage.change(capacity=0)
        stage.give_back("lease-13")
        assert stage.lane("lease-22", "lease-23") == [1, 1], "capacity 0 holds the lane too"


@pytest.mark.parametrize("act", [calls.expel, calls.remove])
def test_wr_39_who_is_expelled_is_out_of_the_lane_at_once(valkey: Valkey, act: object) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        assert stage.ask(1, rank=6).state is State.ACTIVE
        assert stage.ask(2, form=True).state is State.LANE
        assert stage.ask(3, rank=6).state is State.LANE
        assert stage.ask(4, form=True).state is State.LANE
        assert stage.run(act(ROOM, [sid(1), sid(2), sid(3)])) == 1  # type: ignore[operator]
        assert stage.lane(sid(1), "lease-2", sid(3), "lease-4") == [0, 0, 0, 2]
        assert stage.members("lane") == ["lease-4"]


def test_wr_53_a_revoked_session_leaves_the_lane_and_counts_once(valkey: Valkey) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        stage.ask(1, rank=6)
        stage.ask(2, form=True)
        assert stage.release(1, revoke=True)
        assert not stage.release(1, revoke=True)
        assert stage.lane("lease-2") == [2]
        assert stage.totals("revoked", "released") == (1, 1)


def test_wr_53_a_revocation_that_two_gateways_say_counts_once_where_requests_are_counted(
    valkey: Valkey,
) -> None:
    with full_room(valkey, unit=Unit.REQUESTS) as stage:
        stage.release(0, revoke=True)
        stage.now += 400
        stage.release(0, revoke=True)
        assert stage.totals("revoked") == (1,)
        assert stage.tick().journal == 2, "said again: a pass may have been signed meanwhile"
        stage.pass_time(60_000)
        stage.release(0, revoke=True)
        assert stage.totals("revoked") == (2,)


def test_emergency_release_and_reset_empty_the_lane(valkey: Valkey) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        for empty in (calls.release_all, calls.reset):
            stage.ask(1, rank=6)
            assert stage.ask(2, form=True).state is State.LANE
            stage.run(empty(ROOM))
            counts = stage.tick().counts
            assert (counts.active, counts.lane, counts.lane_waiting) == (0, 0, 0)
            stage.now += 1
            stage.enter(0, lease="own-0")
        assert stage.totals("released") == (2,)


def test_wr_35_a_pass_on_a_second_network_is_shared_and_the_first_undisturbed(
    valkey: Valkey,
) -> None:
    with Stage(valkey, capacity=5, share_guard=True, refresh_ms=15_000) as stage:
        stage.enter(1, network="home")
        ends = stage.enter(1, network="home").expires_ms
        stage.pass_time(20_000)
        assert stage.enter(1, network="cafe").state is State.SHARED
        assert stage.run(calls.session(ROOM, sid(1))).expires_ms == ends, "nothing changed"
        stage.pass_time(9_999)
        assert stage.enter(1, network="cafe").state is State.SHARED
        assert stage.enter(1, network="home").state is State.ACTIVE
        stage.pass_time(30_000)
        assert stage.enter(1, network="cafe").state is State.ACTIVE, "it has moved"
        assert stage.enter(1, network="home").state is State.SHARED
        assert stage.enter(1).state is State.ACTIVE, "a network that is not told is not judged"
        stage.change(share_guard=False)
        assert stage.enter(1, network="home").state is State.ACTIVE


def test_wr_35_a_session_of_the_lane_is_guarded_too(valkey: Valkey) -> None:
    with full_room(valkey, share_guard=True) as stage:
        assert stage.ask(1, rank=6, network="home").state is State.ACTIVE
        assert stage.ask(1, rank=6, network="cafe").state is State.SHARED


def test_wr_26_the_longest_stay_is_begun_again_ten_times(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1, absolute_ttl_ms=400_000) as stage:
        stage.enter(1)
        begun = stage.now
        assert stage.run(calls.session(ROOM, sid(1))).limit_ms == begun + 400_000
        for times in range(1, 12):
            told = stage.run(calls.prolong(ROOM, sid(1)))
            assert told.extensions == min(times, 10)
            assert told.limit_ms == begun + 400_000 * (1 + min(times, 10))
        assert stage.run(calls.prolong(ROOM, sid(2))).expires_ms == 0


def test_wr_74_a_configuration_of_an_earlier_version_has_no_lane_until_it_is_written_again(
    valkey: Valkey,
) -> None:
    with full_room(valkey) as stage:
        new = ("lease_ttl_ms", "priority_cap", "lane_rank", "priority_forms", "schema")
        stage.client.hdel(stage.key("config"), *new)
        assert stage.ask(1, rank=6).state is State.WAITING
        assert stage.ask(2, form=True).state is State.UNSENT
        stage.leave(1)
        assert stage.run(calls.configure(stage.config)), "the same version, by a newer schema"
        assert not stage.run(calls.configure(stage.config))
        assert stage.ask(1, rank=6).state is State.ACTIVE


def test_wr_74_records_of_an_earlier_version_are_read_and_its_leavings_met(valkey: Valkey) -> None:
    with full_room(valkey, priority_cap=1) as stage:
        stage.enter(1)
        stage.client.hset(stage.key("visitor"), sid(1), f"1,0,{stage.now},0,0,0,0,192.0.2.1")
        stage.client.hset(stage.key("inside"), sid(0), f"0,0,{stage.now},{stage.now},192.0.2.9")
        assert stage.poll(1).ticket == 1
        assert stage.enter(0).state is State.ACTIVE
        stage.client.zadd(stage.key("ranked"), {"long gone": 1})
        stage.release(0)
        assert stage.members("granted") == [sid(1)]
        assert stage.enter(1).state is State.ACTIVE
