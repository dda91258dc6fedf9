"""What operators, outages and lost data do to a room, as their cases promise, on the script."""

from __future__ import annotations

from queueing import calls
from queueing.config import Mode, OnOutage
from queueing.places import State
from tests.support.stage import ROOM, Stage, sid
from tests.support.valkey import Valkey


def full_room(valkey: Valkey, **config: object) -> Stage:
    """One slot, taken by visitor 0; visitors 1, 2 and 3 wait with these tickets."""
    stage = Stage(valkey, **({"capacity": 1} | config))
    stage.enter_all(range(4))
    return stage


def test_wr_60_pause_keeps_numbers_and_resume_serves_in_order(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.change(mode=Mode.PAUSED)
        stage.release(0)
        assert stage.settle().counts.granted == 0
        assert stage.state(1) is State.PAUSED
        joined = stage.enter(4)
        assert (joined.state, joined.ticket) == (State.PAUSED, 4)
        assert stage.enter(0).state is State.PAUSED  # lost the slot, waits like everybody
        stage.change(mode=Mode.OPEN)
        assert stage.tick().counts.granted == 1
        assert stage.members("granted") == [sid(1)]


def test_wr_60_pause_leaves_people_inside(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.change(mode=Mode.PAUSED)
        stage.pass_time(200_000, beating=(0,))
        assert stage.enter(0).state is State.ACTIVE


def test_wr_60_close_refuses_newcomers_and_serves_the_line(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.change(mode=Mode.CLOSED)
        assert stage.enter(9).state is State.CLOSED
        stage.release(0)
        assert stage.state(1) is State.GRANTED


def test_wr_60_reject_admits_and_queues_nobody_and_keeps_places(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.change(mode=Mode.REJECT)
        assert stage.enter(9).state is State.REJECTED
        stage.release(0)
        place = stage.poll(1)
        assert (place.state, place.ticket) == (State.PAUSED, 1)


def test_wr_60_off_lets_the_line_in_under_the_rate_and_in_order(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1, entries_per_minute=0) as stage:
        stage.enter_all(range(40))
        stage.change(mode=Mode.OFF, rate=10)
        seen = []
        for _ in range(5):
            stage.settle()
            seen.append(len(stage.members("granted")))
            stage.now += 1_000
        assert seen == [10, 20, 30, 39, 39]
        tickets = [int(event["ticket"]) for event in stage.events("granted")]
        assert tickets == list(range(1, 40))
        assert stage.enter(50).state is State.ACTIVE


def test_emergency_release_empties_the_room_and_serves_the_line(valkey: Valkey) -> None:
    with Stage(valkey, capacity=2) as stage:
        stage.enter_all(range(4))
        assert stage.run(calls.release_all(ROOM)) == 2
        assert stage.members("active") == []
        assert stage.members("granted") == [sid(2), sid(3)]
        entry = stage.client.xrevrange(stage.key("journal"), count=1)[0][1]
        assert (entry[b"kind"], int(entry[b"at"])) == (b"release_all", stage.now)


def test_an_operator_lets_somebody_in_only_within_the_capacity(valkey: Valkey) -> None:
    with full_room(valkey, rate=5) as stage:
        assert stage.run(calls.promote(ROOM, sid(2))) == "full"
        stage.change(capacity=0)
        stage.release(0)
        stage.change(mode=Mode.PAUSED, capacity=1)
        assert stage.run(calls.promote(ROOM, sid(2))) == "stopped"
        stage.leave(1)
        stage.leave(3)
        stage.change(mode=Mode.OPEN)
        assert stage.run(calls.promote(ROOM, sid(2))) == "granted"
        assert stage.run(calls.promote(ROOM, sid(99))) == "unknown"


def test_an_operators_promotion_is_marked_with_its_reason(valkey: Valkey) -> None:
    with Stage(valkey, capacity=0, rate=1) as stage:
        stage.enter_all(range(3))
        stage.change(capacity=2)
        stage.settle()  # the rate holds the second slot back
        stage.now += 999
        assert stage.run(calls.promote(ROOM, sid(2))) == "rate"
        stage.now += 1
        assert stage.run(calls.promote(ROOM, sid(2))) == "granted"
        reasons = [(event["ticket"], event["reason"]) for event in stage.events("granted")]
        assert reasons == [("1", "turn"), ("3", "operator")]


def test_removed_and_expelled_visitors_are_gone_and_the_next_is_served(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        assert stage.run(calls.expel(ROOM, [sid(0), sid(1), sid(77)])) == 2
        assert stage.members("granted") == [sid(2)]
        assert stage.run(calls.remove(ROOM, [sid(2)])) == 1
        assert stage.members("granted") == [sid(3)]
        assert stage.state(1, ticket=1) is State.MISSED
        kinds = [fields[b"kind"] for _, fields in stage.client.xrange(stage.key("journal"))]
        assert kinds == [b"expel"]


def test_wr_61_people_let_in_during_an_outage_are_counted_first(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.now += 60_000
        stage.run(calls.adopt(ROOM, [sid(2), sid(50)]))
        counts = stage.settle().counts
        assert (counts.active, counts.granted, counts.waiting) == (3, 0, 2)
        assert stage.run(calls.stats(ROOM)).totals["overshoot"] == 2
        stage.release(0)
        stage.release(2)
        assert stage.settle().counts.granted == 0
        stage.release(50)
        assert stage.members("granted") == [sid(1)]


def test_wr_63_a_room_without_its_data_admits_nobody(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        config = stage.config
        stage.client.flushall()
        stage.client.script_load(stage.script_text)
        assert stage.enter(0).state is State.HOLD
        assert stage.poll(1, ticket=1).state is State.HOLD
        assert stage.beat(0) == [False]
        assert stage.tick().hold
        stage.client.hset(stage.key("config"), "test_clock", 1)
        assert stage.run(calls.recover(config))
        assert stage.enter(0).state is State.HOLD
        assert stage.tick().hold
        stage.pass_time(60_000)
        assert not stage.tick().hold
        assert stage.enter(0).state is State.ACTIVE


def test_wr_61_an_open_room_admits_nobody_until_outage_entrants_are_counted(
    valkey: Valkey,
) -> None:
    with full_room(valkey, capacity=2, on_outage=OnOutage.OPEN) as stage:
        stage.release(0)
        stage.release(1)
        assert stage.settle().counts.granted == 2
        stage.enter_all((2, 3))
        stage.release(2)  # one slot is free when the store goes away
        stage.now += 60_000
        assert stage.tick().hold
        assert stage.state(9) is State.HOLD
        stage.run(calls.adopt(ROOM, [sid(50)]))
        stage.pass_time(1_000)
        counts = stage.settle().counts
        assert (counts.active, counts.granted) == (2, 0), "the adopted one has the free slot"
        stage.now += 1_999
        assert not stage.tick().hold, "an ordinary pause between two ticks is no outage"


def test_wr_61_a_closed_room_goes_on_at_once_after_an_outage(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.now += 60_000
        assert not stage.tick().hold


def test_a_configuration_lost_beside_a_living_line_holds_too(valkey: Valkey) -> None:
    with full_room(valkey, capacity=2) as stage:
        stage.client.delete(stage.key("config"))
        stage.client.hset(stage.key("config"), "test_clock", 1)
        assert stage.state(2, ticket=2) is State.HOLD
        stage.run(calls.configure(stage.config))
        stage.release(0)
        assert stage.tick().counts.granted == 0
        assert stage.state(3, ticket=3) is State.HOLD


def test_only_a_newer_configuration_is_written(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        old = stage.config
        stage.change(capacity=3)
        assert not stage.run(calls.configure(old))
        assert not stage.run(calls.configure(stage.config))
        assert stage.settle().counts.granted == 2


def test_a_room_that_is_no_test_room_believes_only_its_own_clock(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.client.hdel(stage.key("config"), "test_clock")
        told = stage.tick().now_ms
        assert abs(told - int(stage.client.time()[0]) * 1000) <= 2_000
