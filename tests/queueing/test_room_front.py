"""Ranks in the line and the front of it: order, positions and payments, on the script itself."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueing import calls
from queueing.calls import Advance
from queueing.config import Order
from queueing.places import Reason, State
from tests.support.stage import ROOM, Stage, sid
from tests.support.valkey import Valkey


def line_of(valkey: Valkey, *ranks: int, **config: object) -> Stage:
    """Visitors 0, 1, 2… wait with these ranks and tickets 1, 2, 3…; nobody is let in."""
    stage = Stage(valkey, **({"capacity": 0, "entries_per_minute": 0, "max_queue": 0} | config))
    for number, rank in enumerate(ranks):
        assert stage.enter(number, rank=rank).ticket == number + 1
    return stage


def ranked(valkey: Valkey, *ranks: int, **config: object) -> Stage:
    return line_of(valkey, *ranks, **({"order": Order.RANK} | config))


def serve(stage: Stage, number: int) -> list[int]:
    """Let so many in, one by one; gives their numbers."""
    served = []
    for _ in range(number):
        stage.change(capacity=stage.config.capacity + 1)
        stage.settle()
        served.append(granted(stage)[-1])
    return served


def granted(stage: Stage) -> list[int]:
    return [int(event["ticket"]) - 1 for event in stage.events("granted")]


def pay(stage: Stage, number: int, payment: str = "", vip_ms: int = 0) -> Advance:
    words = {"reason": Reason.PAID, "payment": payment or f"payment-{number}", "vip_ms": vip_ms}
    return stage.run(calls.advance(ROOM, sid(number), **words))


def move(stage: Stage, number: int) -> Advance:
    words = {"reason": Reason.OPERATOR, "payment": "", "vip_ms": 0}
    return stage.run(calls.advance(ROOM, sid(number), **words))


def test_wr_15_by_arrival_a_rank_waits_by_its_number(valkey: Valkey) -> None:
    with line_of(valkey, 0, 2, 0, 6, lane_rank=7) as stage:
        assert stage.poll(3).rank == 6
        assert stage.poll(3).ahead == 3
        assert serve(stage, 4) == [0, 1, 2, 3]
        assert {event["reason"] for event in stage.events("granted")} == {"turn"}


def test_wr_15_a_rank_overtakes_half_of_the_time_and_its_best_first(valkey: Valkey) -> None:
    with ranked(valkey, 0, 0, 0, 0, 1, 2, 2, lane_rank=7) as stage:
        places = [stage.poll(number).ahead for number in range(7)]
        assert places == [0, 2, 4, 6, 5, 1, 3]
        assert serve(stage, 7) == [0, 5, 1, 6, 2, 4, 3]
        reasons = [event["reason"] for event in stage.events("granted")]
        assert reasons == ["turn", "rank", "turn", "rank", "turn", "rank", "turn"]


@pytest.mark.parametrize(("share", "most"), [(0, 0), (10, 4), (25, 10), (50, 20), (90, 36)])
def test_wr_15_overtaking_is_bounded_by_the_share(valkey: Valkey, share: int, most: int) -> None:
    with ranked(valkey, *[0] * 40, *[2] * 40, max_overtake=share) as stage:
        stage.change(capacity=40)
        stage.settle()
        overtaken = [event["reason"] for event in stage.events("granted")].count("rank")
        assert overtaken == most


def test_wr_15_a_changed_rank_counts_from_the_next_check_in(valkey: Valkey) -> None:
    with ranked(valkey, 0, 0, 3, lane_rank=7, max_overtake=90) as stage:
        stage.poll(2)
        assert stage.poll(2).rank == 3
        stage.enter(2, rank=0)
        assert stage.poll(2).ahead == 2
        stage.enter(1, rank=5)
        place = stage.poll(1)
        assert (place.rank, place.ticket, place.ahead) == (5, 2, 1)
        assert stage.poll(0).ahead == 0, "the first contested admission is the head's"
        assert serve(stage, 3) == [0, 1, 2]


def test_wr_15_the_order_may_be_changed_while_people_wait(valkey: Valkey) -> None:
    with line_of(valkey, 0, 0, 2, 0, lane_rank=7, max_overtake=90) as stage:
        stage.change(order=Order.RANK)
        for number in range(4):
            stage.poll(number)
        assert serve(stage, 2) == [0, 2]
        stage.change(order=Order.ARRIVAL)
        assert serve(stage, 2) == [1, 3]


def test_a_silent_rank_overtakes_nobody_and_returns_to_its_turn(valkey: Valkey) -> None:
    with ranked(valkey, 0, 0, 3, 0, lane_rank=7, max_overtake=90) as stage:
        stage.pass_time(140_000, polling=(0, 1, 3))
        assert [stage.poll(number).ahead for number in (0, 1, 3)] == [0, 1, 2]
        assert serve(stage, 2) == [0, 1]
        assert stage.poll(2, ticket=3).ahead == 0
        assert serve(stage, 2) == [2, 3]


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_wr_15_in_any_run_of_contested_admissions_the_heads_share_holds(
    valkey: Valkey, data: st.DataObject
) -> None:
    """People of any rank come, go and are served in any pattern; nobody is starved."""
    valkey.client.flushall()
    share = data.draw(st.sampled_from([0, 10, 33, 50, 90]))
    with ranked(valkey, max_overtake=share, lane_rank=7) as stage:
        waiting: dict[int, int] = {}  # number -> rank, in order of arrival
        contested: list[bool] = []  # whether the head was overtaken
        steps = st.one_of(st.integers(0, 6), st.sampled_from(["serve", "serve", "leave"]))
        for number, step in enumerate(data.draw(st.lists(steps, min_size=10, max_size=80))):
            stage.now += 10
            if isinstance(step, int):
                stage.enter(number, rank=step)
                waiting[number] = step
            elif step == "leave" and waiting:
                gone = data.draw(st.sampled_from(sorted(waiting)))
                stage.leave(gone)
                del waiting[gone]
            elif waiting:
                head = next(iter(waiting))
                best = max(waiting.values())
                places = {n: stage.poll(n).ahead for n in waiting}
                assert sorted(places.values()) == list(range(len(waiting))), "no tie, no gap"
                stage.change(capacity=stage.config.capacity + 1)
                stage.settle()
                (chosen,) = (n for n in waiting if sid(n) in stage.members("granted"))
                stage.change(capacity=0)
                stage.leave(chosen)
                assert places[chosen] == 0, "who was told to be next is next"
                assert chosen in (head, next(n for n, r in waiting.items() if r == best))
                if waiting[head] < best:
                    contested.append(chosen != head)
                del waiting[chosen]
        for first, last in all_runs(len(contested)):
            run = contested[first:last]
            assert sum(run) <= -(-len(run) * share // 100), "at most this share overtakes"


def all_runs(length: int) -> Iterator[tuple[int, int]]:
    return ((a, b) for a in range(length) for b in range(a + 1, length + 1))


def test_wr_24_a_position_among_ranks_rises_only_with_a_reason(valkey: Valkey) -> None:
    chance = random.Random(15)
    config = {"order": Order.RANK, "lane_rank": 7, "entries_per_minute": 0, "max_queue": 0}
    with Stage(valkey, capacity=2, **config) as stage:
        shown: dict[int, int] = {}
        reasons = set()
        for _ in range(1_500):
            stage.now += chance.choice([100, 1_000, 3_000, 5_000])
            number = chance.randrange(80 if chance.random() < 0.85 else 12)
            rank = number % 4 if number % 3 else 0
            if chance.random() < 0.02:
                (pay if chance.random() < 0.5 else move)(stage, number)
            before = shown.get(number, 0)
            if chance.random() < 0.3:
                place = stage.enter(number, rank=rank, shown=before)
            else:
                place = stage.poll(number, shown=before)
            if place.state is not State.WAITING or place.new:
                shown[number] = place.position if place.new else 0
                continue
            assert (place.reason is not Reason.NONE) == (0 < before < place.position)
            assert place.front <= place.ahead < place.counts.waiting
            reasons.add(place.reason)
            shown[number] = place.position
        assert reasons == {*Reason}


def test_a_position_of_a_long_line_is_never_too_low_and_falls_by_itself(valkey: Valkey) -> None:
    chance = random.Random(3)
    ranks = [chance.choice([0, 0, 0, 1, 2, 5]) for _ in range(300)]
    with ranked(valkey, *ranks, lane_rank=7, max_overtake=40) as stage:
        told: dict[int, list[int]] = {number: [] for number in range(0, 300, 17)}
        while stage.tick().counts.waiting > 0:
            for number in told:
                stage.now += 50
                place = stage.poll(number)
                if place.state is State.WAITING:
                    told[number].append(place.ahead)
            stage.change(capacity=stage.config.capacity + 20)
            stage.settle()
        order = {number: at for at, number in enumerate(granted(stage))}
        for number, aheads in told.items():
            served = range(0, order[number] + 1, 20)
            truth = [order[number] - done for done in served]
            assert len(aheads) == len(truth)
            assert all(said >= real for said, real in zip(aheads, truth, strict=True)), number
            assert aheads == sorted(aheads, reverse=True), number


def test_payments_stand_in_front_in_their_order_without_ties(valkey: Valkey) -> None:
    with line_of(valkey, *[0] * 8) as stage:
        for number in (6, 3, 7):
            assert pay(stage, number) is Advance.MOVED
        assert move(stage, 5) is Advance.MOVED
        assert [stage.poll(n).ahead for n in (6, 3, 7, 5, 0, 1, 2, 4)] == list(range(8))
        place = stage.poll(1, shown=2)
        assert (place.front, place.reason, place.paid) == (4, Reason.OPERATOR, False)
        assert (stage.poll(7).paid, stage.poll(7).front, stage.poll(7).ticket) == (True, 2, 8)
        assert serve(stage, 6) == [6, 3, 7, 5, 0, 1]
        reasons = [event["reason"] for event in stage.events("granted")]
        assert reasons == ["paid", "paid", "paid", "operator", "turn", "turn"]
        advanced = [(e["sid"], e["reason"]) for e in stage.events("advanced")]
        assert advanced == [
            (sid(6), "paid"), (sid(3), "paid"), (sid(7), "paid"), (sid(5), "operator")
        ]  # fmt: skip


def test_who_pays_goes_behind_earlier_payers_and_whoever_was_overtaken_is_told(
    valkey: Valkey,
) -> None:
    with line_of(valkey, 0, 0, 0, 0) as stage:
        shown = {n: stage.poll(n).position for n in range(4)}
        pay(stage, 3)
        stage.now += 400
        told = stage.poll(0, shown=shown[0])
        assert (told.position, told.reason, told.front) == (2, Reason.PAID, 1)
        pay(stage, 2)
        stage.now += 400
        payer = stage.poll(3, shown=1)
        assert (payer.position, payer.reason) == (1, Reason.NONE)


def test_a_payment_that_is_delivered_again_does_nothing(valkey: Valkey) -> None:
    with line_of(valkey, 0, 0, 0) as stage:
        assert pay(stage, 2, "p-1") is Advance.MOVED
        pay(stage, 1, "p-2")
        before = [stage.poll(n).ahead for n in range(3)]
        for number in range(3):
            assert pay(stage, number, "p-1") is Advance.ALREADY
        assert [stage.poll(n).ahead for n in range(3)] == before == [2, 1, 0]
        assert stage.run(calls.stats(ROOM)).totals["advanced"] == 2
        stage.run(calls.reset(ROOM))
        stage.now += 1
        stage.enter(0)
        assert pay(stage, 0, "p-1") is Advance.ALREADY, "nor after a reset"


def test_a_payment_for_nobody_is_not_taken(valkey: Valkey) -> None:
    with line_of(valkey, 0, 0) as stage:
        assert pay(stage, 9, "p-1", vip_ms=60_000) is Advance.UNKNOWN
        assert stage.enter(9).vip_until_ms == 0
        assert pay(stage, 9, "p-1") is Advance.MOVED


def test_a_payment_of_somebody_granted_or_inside_is_taken_and_moves_nobody(
    valkey: Valkey,
) -> None:
    with line_of(valkey, 0, 0) as stage:
        serve(stage, 1)
        assert pay(stage, 0, "p-1") is Advance.GRANTED
        assert stage.enter(0).state is State.ACTIVE
        assert pay(stage, 0, "p-2") is Advance.INSIDE
        assert pay(stage, 0, "p-2") is Advance.ALREADY


def test_who_paid_and_falls_silent_returns_to_the_front(valkey: Valkey) -> None:
    with line_of(valkey, 0, 0, 0) as stage:
        pay(stage, 2)
        pay(stage, 1)
        stage.pass_time(140_000, polling=(0,))
        assert stage.poll(0).ahead == 0
        assert pay(stage, 2, "again") is Advance.MOVED
        place = stage.poll(2, ticket=3)
        assert (place.ahead, place.paid) == (0, True)
        assert stage.poll(1, ticket=2).ahead == 1
        serve(stage, 1)
        stage.pass_time(61_000, polling=(0, 1))
        assert granted(stage) == [2, 1], "a lapsed grant keeps it too"
        assert stage.poll(2, ticket=3).ahead == 0


def test_the_front_is_before_every_rank_and_costs_no_credit(valkey: Valkey) -> None:
    with ranked(valkey, 0, 0, 0, 6, 6, lane_rank=7) as stage:
        pay(stage, 2)
        assert serve(stage, 5) == [2, 0, 3, 1, 4]


def test_a_vip_goes_to_the_front_with_each_new_place_until_the_time_is_over(
    valkey: Valkey,
) -> None:
    with line_of(valkey, *[0] * 3) as stage:
        assert pay(stage, 2, vip_ms=600_000) is Advance.MOVED
        until = stage.now + 600_000
        stage.leave(2)
        again = stage.enter(2)
        assert (again.ticket, again.ahead, again.paid, again.vip_until_ms) == (4, 0, True, until)
        assert stage.poll(0).reason is Reason.NONE
        assert stage.poll(0, shown=1).reason is Reason.PAID
        stage.now += 1
        stage.run(calls.reset(ROOM))
        stage.now += 1
        stage.enter_all(range(2))
        assert stage.enter(2).ahead == 0, "it survives a reset"
        assert stage.enter(1).vip_until_ms == 0
        stage.leave(2)
        stage.pass_time(600_000, polling=(0, 1))
        late = stage.enter(2)
        assert (late.ahead, late.paid, late.vip_until_ms) == (2, False, 0)


def test_more_than_a_hundred_in_front_are_served_in_order_and_told_so(valkey: Valkey) -> None:
    with line_of(valkey, *[0] * 260) as stage:
        payers = random.Random(5).sample(range(260), 150)
        for number in payers:
            pay(stage, number)
        others = [number for number in range(260) if number not in payers]
        assert stage.poll(payers[149]).ahead == 149
        first, last = stage.poll(others[0]), stage.poll(others[-1])
        assert (first.front, last.front) == (150, 150)
        assert first.ahead >= 150
        assert last.ahead == 259
        stage.change(capacity=260)
        stage.settle()
        assert granted(stage) == payers + others
