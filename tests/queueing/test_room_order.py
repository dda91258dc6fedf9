"""Capacity and order, as the cases of section A promise them, on the script itself."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from queueing import calls
from queueing.config import Mode, RoomConfig, RoomId
from queueing.connection import Connection
from queueing.places import Reason, State
from queueing.store import RoomStore
from tests.support.stage import ROOM, Stage, sid
from tests.support.valkey import Valkey

CAPACITIES = [1, 2, 5, 199]


async def test_wr_01_the_last_slot_is_given_once(valkey: Valkey) -> None:
    connections = [Connection(valkey.url, timeout_s=10) for _ in range(8)]
    stores = [RoomStore(connection) for connection in connections]
    now = int(time.time() * 1000)
    for turn in range(50):
        room = RoomId(f"rush-{turn}")
        await stores[0].configure(RoomConfig(id=room, capacity=10))
        visitors = list(range(2_000))
        random.Random(turn).shuffle(visitors)
        places = await asyncio.gather(
            *(
                stores[number % 8].enter(room, sid(number), client=str(number), iat_ms=now)
                for number in visitors
            )
        )
        waiting = [place for place in places if place.state is State.WAITING]
        assert sum(place.state is State.ACTIVE for place in places) == 10
        assert sorted(place.position for place in waiting) == list(range(1, 1_991))
        assert sorted(place.ticket for place in waiting) == list(range(1, 1_991))
        counts = (await stores[0].tick(room)).counts
        assert (counts.active, counts.waiting, counts.granted) == (10, 1_990, 0)
    for connection in connections:
        await connection.close()


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_wr_17_any_capacity_is_filled_and_never_exceeded(valkey: Valkey, capacity: int) -> None:
    chance = random.Random(capacity)
    with Stage(valkey, capacity=capacity, max_queue=0) as stage:
        stage.enter_all(range(3 * capacity + 5))
        for _ in range(300):
            stage.now += chance.randrange(300)  # nobody falls silent
            inside = stage.members("active")
            if inside and chance.random() < 0.5:
                stage.run(calls.release(ROOM, chance.choice(inside), revoke=False))
            else:
                stage.enter(chance.randrange(4 * capacity + 8))
        for event in stage.events("granted", "admitted"):
            assert int(event["active"]) + int(event["granted"]) <= capacity
        tickets = [int(event["ticket"]) for event in stage.events("granted")]
        assert tickets == sorted(tickets)


def test_wr_04_a_lost_slot_is_not_renewed(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1) as stage:
        assert stage.enter(1).state is State.ACTIVE
        stage.pass_time(stage.config.active_ttl_ms + 1)
        assert stage.enter(2).state is State.ACTIVE
        assert stage.beat(1) == [False]
        assert stage.enter(1).state is State.WAITING
        assert stage.tick().counts.active == 1


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_wr_05_a_newcomer_never_jumps_a_living_waiter(valkey: Valkey, capacity: int) -> None:
    with Stage(valkey, capacity=capacity) as stage:
        stage.enter_all(range(capacity))
        waiter = stage.enter(500)
        assert stage.release(0)
        newcomer = stage.enter(501)
        assert newcomer.state is State.WAITING
        assert newcomer.ticket > waiter.ticket
        assert stage.state(500) is State.GRANTED


def test_wr_05_a_slot_that_ends_unnoticed_still_goes_to_the_waiter(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1, active_ttl_ms=60_000) as stage:
        stage.enter(0)
        for _ in range(12):
            stage.now += 4_999
            stage.poll(1) if _ else stage.enter(1)
        stage.now += 60
        assert stage.enter(2).state is State.WAITING
        assert stage.state(1) is State.GRANTED


def test_wr_05_nor_while_a_long_line_is_let_in_step_by_step(valkey: Valkey) -> None:
    with Stage(valkey, capacity=0, entries_per_minute=0) as stage:
        stage.enter_all(range(60))
        stage.change(capacity=100)
        newcomer = stage.enter(100)  # 25 of the line go first in this call, 35 are still there
        assert (newcomer.state, newcomer.ticket, newcomer.ahead) == (State.WAITING, 61, 35)
        assert stage.settle().counts.granted == 61


def test_wr_04_nor_while_many_ended_slots_are_still_to_be_freed(valkey: Valkey) -> None:
    with Stage(valkey, capacity=100, entries_per_minute=0, active_ttl_ms=4_000) as stage:
        stage.enter_all(range(100))
        stage.now += 4_000
        assert stage.enter(99).new  # its slot is the last of a hundred that end now
        stage.now += 4_000
        assert stage.beat(98, 99) == [False, False]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_wr_06_silent_head_blocks_nobody(valkey: Valkey, capacity: int) -> None:
    with Stage(valkey, capacity=capacity) as stage:
        inside = tuple(range(capacity))
        stage.enter_all(range(capacity))
        stage.enter(501)
        stage.enter(502)
        stage.enter(503)
        stage.pass_time(140_000, polling=(502, 503), beating=inside)
        stage.release(0)
        assert stage.state(502) is State.GRANTED
        assert stage.state(503) is State.WAITING
        assert stage.members("parked") == [sid(501)]
        back = stage.poll(501)
        assert (back.ticket, back.ahead) == (1, 0)


def test_wr_06_a_head_seen_lately_is_granted_and_passed_over_after_the_claim_time(
    valkey: Valkey,
) -> None:
    with Stage(valkey, capacity=1) as stage:
        for number in (0, 1, 2):
            stage.enter(number)
        stage.release(0)
        assert stage.members("granted") == [sid(1)]
        stage.pass_time(stage.config.grant_ttl_ms, polling=(2,))
        assert stage.members("granted") == [sid(2)]
        assert stage.poll(1).ticket == 1


def cost_s(stage: Stage, call: Callable[[], object]) -> float:
    """Measure a call by the store's CPU time, to which a busy machine adds nothing."""

    def spent() -> float:
        cpu = stage.client.info("cpu")
        return cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]

    before = spent()
    call()
    return spent() - before


def test_wr_07_a_hundred_thousand_ghosts_delay_nobody(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1, max_queue=0) as stage:
        stage.enter(0)
        long_ago, pipe = stage.now - 400_000, stage.client.pipeline(transaction=False)
        for first in range(1, 100_001, 1_000):
            ghosts = {f"ghost-{number:010d}": number for number in range(first, first + 1_000)}
            records = {ghost: f"{n},0,{long_ago},0,0,0,0,x" for ghost, n in ghosts.items()}
            pipe.zadd(stage.key("queue"), ghosts)
            pipe.zadd(stage.key("seen"), dict.fromkeys(ghosts, long_ago))
            pipe.hset(stage.key("visitor"), mapping=records)
        pipe.set(stage.key("seq"), 100_000)
        pipe.hincrby(stage.key("counters"), "joined", 100_000)
        pipe.execute()
        assert cost_s(stage, lambda: stage.enter(200_000)) < 0.005
        assert stage.poll(200_000).ahead == 0
        assert cost_s(stage, lambda: stage.release(0)) < 0.005
        assert stage.members("granted") == [sid(200_000)]
        assert max(cost_s(stage, stage.tick) for _ in range(200)) < 0.005
        for _ in range(41):  # by the return window they have left memory
            stage.now += 5_000
            for _ in range(125):
                stage.tick()
        assert stage.client.zcard(stage.key("queue")) == 0
        stage.settle()
        assert stage.client.hlen(stage.key("visitor")) <= 1
        assert stage.tick().counts.parked <= 1


def test_wr_12_counts_are_the_living_and_everybody_is_counted_once(valkey: Valkey) -> None:
    with Stage(valkey, capacity=3) as stage:
        stage.enter_all(range(104))
        last = stage.enter(200)
        assert last.position == 102
        for number in range(3, 43):
            stage.beacon(number)
        awake = tuple(range(43, 104))
        stage.pass_time(15_001, polling=(*awake, 200), beating=(0, 1, 2))
        place = stage.poll(200)
        assert place.position == 62
        counts = place.counts
        assert (counts.waiting, counts.parked, counts.granted, counts.active) == (62, 40, 0, 3)
        assert counts.latest_ticket == 102


@pytest.mark.parametrize("rate", [1, 50])
def test_wr_13_no_sliding_second_holds_more_than_the_rate(valkey: Valkey, rate: int) -> None:
    chance = random.Random(rate)
    with Stage(valkey, capacity=1_000, rate=rate, max_queue=0) as stage:
        for number in range(600):
            stage.enter(number)
            stage.now += chance.choice([0, 0, 0, 1, 7])
        for _ in range(400):
            stage.now += chance.choice([1, 13, 49, 190, 950, 1_000, 1_050])
            stage.settle()
        times = [
            int(event["at"])
            for event in stage.events("granted", "admitted")
            if event["kind"] == "granted" or event["reason"] == "direct"
        ]
        assert len(times) > 100
        for first, beyond in zip(times, times[rate:], strict=False):
            assert beyond - first >= 1_000
        assert all(a <= b for a, b in pairwise(times))


def test_wr_13_unspent_rate_is_not_saved(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1_000, rate=50, mode=Mode.PAUSED) as stage:
        stage.enter_all(range(300))
        stage.now += 4_000
        stage.change(mode=Mode.OPEN)
        stage.settle()
        assert stage.tick().counts.granted == 50
        stage.now += 999
        assert stage.settle().counts.granted == 50
        stage.now += 1
        assert stage.settle().counts.granted == 100


def test_wr_16_capacity_changes_while_people_are_inside(valkey: Valkey) -> None:
    with Stage(valkey, capacity=100, entries_per_minute=0) as stage:
        stage.enter_all(range(400))
        stage.change(capacity=20)
        assert stage.settle().counts.active == 100
        for number in range(80):
            stage.release(number)
            assert stage.tick().counts.granted == 0
        stage.release(80)
        assert stage.tick().counts.granted == 1
        stage.change(capacity=200)
        ticks = 0
        while stage.tick().more_work:
            ticks += 1
        assert ticks <= 10
        assert stage.tick().counts.granted == 181
        tickets = [int(event["ticket"]) for event in stage.events("granted")]
        assert tickets == list(range(1, 182))
        stage.change(capacity=0)
        stage.run(calls.release_all(ROOM))
        assert stage.settle().counts.active == 0
        assert stage.enter(999).state is State.WAITING


def test_wr_24_a_position_rises_only_with_a_reason(valkey: Valkey) -> None:
    chance = random.Random(24)
    with Stage(valkey, capacity=2, max_queue=0, entries_per_minute=0) as stage:
        shown: dict[int, int] = {}
        told = 0
        for _ in range(1_500):
            stage.now += chance.choice([100, 1_000, 3_000, 5_000])
            number = chance.randrange(60)
            if chance.random() < 0.15:
                number = chance.randrange(12)  # these are seldom there, and return
            act = stage.enter if chance.random() < 0.3 else stage.poll
            place = act(number, shown=shown.get(number, 0))
            if place.state is not State.WAITING or place.new:
                shown[number] = place.position if place.new else 0
                continue
            rose = 0 < shown.get(number, 0) < place.position
            assert (place.reason is Reason.RETURNED) == rose
            told += rose
            shown[number] = place.position
        assert told > 0


def test_wr_24_newcomers_behind_never_raise_a_position_while_many_are_silent(
    valkey: Valkey,
) -> None:
    with Stage(valkey, capacity=0, max_queue=0, entries_per_minute=0) as stage:
        stage.enter_all(range(600))
        living = tuple(range(300, 600))
        stage.now += 5_000
        stage.tick()
        for _ in range(27):
            stage.now += 5_000
            for number in living:  # nobody ticks: the sweep is left behind
                stage.wire.ask(("ZADD", stage.key("seen"), stage.now - 1_000, sid(number)))
        stage.client.hset(stage.key("config"), "clock", f"{stage.now},{stage.now}")
        shown, place = 0, stage.poll(599)
        for newcomer in range(1_000, 1_060):
            place = stage.poll(599, shown=shown)
            assert place.reason is Reason.NONE
            assert shown == 0 or place.position <= shown
            shown = place.position
            stage.now += 1_000
            stage.enter(newcomer)
        assert place.position == 300
