"""The room script against its reference model, after every step of any history.

The long mode is `python -m tests.properties.room_soak` (`make soak`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from queueing import calls
from queueing.config import Mode, OnOutage, Order, RoomConfig, RoomId, Unit
from queueing.places import Reason, State
from tests.properties.room_soak import CLIENTS, JUMPS, LEASES, NETWORKS, SIDS, Storm
from tests.support.room_driver import NOBODY, RoomDriver, Wire
from tests.support.valkey import Valkey

sids = st.sampled_from(SIDS[:6])
holders = st.sampled_from(SIDS[:6] + LEASES[:2])
configs = st.builds(
    partial(RoomConfig, id=RoomId("machine")),
    mode=st.sampled_from(list(Mode)),
    unit=st.sampled_from(list(Unit)),
    capacity=st.integers(0, 4),
    rate=st.sampled_from([0, 1, 3]),
    active_ttl_ms=st.sampled_from([2_000, 30_000]),
    absolute_ttl_ms=st.sampled_from([0, 40_000]),
    grant_ttl_ms=st.sampled_from([1_000, 6_000]),
    queue_ttl_ms=st.sampled_from([2_000, 30_000]),
    return_window_ms=st.sampled_from([5_000, 60_000]),
    max_queue=st.sampled_from([0, 2, 100]),
    entries_per_minute=st.sampled_from([0, 4, 1_000]),
    polls_per_second=st.sampled_from([1, 3]),
    on_outage=st.sampled_from(list(OnOutage)),
    refresh_ms=st.sampled_from([1_000, 4_000]),
    lease_ttl_ms=st.sampled_from([2_000, 10_000]),
    priority_cap=st.integers(0, 2),
    lane_rank=st.sampled_from([1, 3, 7]),
    priority_wait_ms=st.sampled_from([0, 5_000]),
    priority_forms=st.booleans(),
    order=st.sampled_from(list(Order)),
    max_overtake=st.sampled_from([0, 50, 90]),
    share_guard=st.booleans(),
)


class RoomMachine(RuleBasedStateMachine):
    """Every rule acts on the store and on the model; the driver compares and checks I1–I4."""

    wire: Wire

    @initialize(config=configs)
    def open_room(self, config: RoomConfig) -> None:
        self.driver = RoomDriver(self.wire, config)

    @rule(by_ms=st.sampled_from(JUMPS) | st.integers(-10_000, 10_000))
    def clock_jumps(self, by_ms: int) -> None:
        self.driver.jump(by_ms)

    @rule(by_ms=st.integers(1, 70_000))
    def time_passes(self, by_ms: int) -> None:
        self.driver.pass_time(by_ms)

    @rule(
        sid=sids,
        words=st.fixed_dictionaries(
            {
                "client": st.sampled_from(CLIENTS),
                "ticket": st.integers(0, 3),
                "shown": st.integers(0, 4),
                "lease": st.sampled_from(["", *LEASES[:2]]),
                "exempt": st.booleans(),
                "rank": st.sampled_from([0, 0, 2, 3, 6]),
                "form": st.booleans(),
                "lane_wait": st.booleans(),
                "network": st.sampled_from(NETWORKS),
            }
        ),
        age_ms=st.sampled_from([0, 0, 0, 3_000]),
        lost_reply=st.booleans(),
    )
    def enter(self, sid: str, words: dict[str, Any], age_ms: int, lost_reply: bool) -> None:
        if words["form"] and not words["lease"]:  # a form has a lease to hold its slot
            words = words | {"lease": LEASES[0]}
        for _ in range(2 if lost_reply else 1):
            self.driver.enter(sid, **words, iat_ms=self.driver.now - age_ms)

    @rule(sid=sids, ticket=st.integers(0, 3), shown=st.integers(0, 4), lost_reply=st.booleans())
    def poll(self, sid: str, ticket: int, shown: int, lost_reply: bool) -> None:
        for _ in range(2 if lost_reply else 1):
            self.driver.poll(sid, ticket=ticket, shown=shown)

    @rule(ids=st.lists(holders, min_size=1, max_size=4))
    def heartbeat(self, ids: list[str]) -> None:
        self.driver.heartbeat(ids)

    @rule(asking=st.lists(holders, min_size=1, max_size=4, unique=True))
    def ask_the_lane(self, asking: list[str]) -> None:
        self.driver.lane(asking)

    @rule(
        sid=sids,
        payment=st.sampled_from(["", "payment-1", "payment-2"]),
        vip_ms=st.sampled_from([0, 30_000]),
    )
    def advance(self, sid: str, payment: str, vip_ms: int) -> None:
        reason = Reason.PAID if payment else Reason.OPERATOR
        self.driver.advance(sid, reason, payment=payment, vip_ms=vip_ms)

    @rule(holder=holders, revoke=st.booleans())
    def release(self, holder: str, revoke: bool) -> None:
        self.driver.release(holder, revoke=revoke)

    @rule(
        name=st.sampled_from(["leave", "beacon", "adopt", "promote", "remove", "expel"]), sid=sids
    )
    def act(self, name: str, sid: str) -> None:
        self.driver.act(name, sid)

    @rule(inside=st.booleans(), first=st.integers(0, 2), count=st.integers(1, 9))
    def look(self, inside: bool, first: int, count: int) -> None:
        self.driver.people(inside=inside, first=first, count=count)

    @rule(sid=sids, prolong=st.booleans())
    def session(self, sid: str, prolong: bool) -> None:
        self.driver.session(sid, prolong=prolong)

    @rule(sid=sids)
    def extend(self, sid: str) -> None:
        self.driver.extend(sid)

    @rule(name=st.sampled_from(["tick", "tick", "reset", "release_all"]))
    def whole_room(self, name: str) -> None:
        self.driver.whole(name)

    @rule(config=configs, newer=st.booleans())
    def configure(self, config: RoomConfig, newer: bool) -> None:
        self.driver.configure(replace(config, version=self.driver.config.version + newer))


@pytest.fixture
def wire(valkey: Valkey) -> Iterator[Wire]:
    wire = Wire(valkey.socket_path)
    yield wire
    wire.close()


def test_the_script_does_what_the_model_does_and_keeps_its_invariants(wire: Wire) -> None:
    def machine() -> RoomMachine:
        made = RoomMachine()
        made.wire = wire
        return made

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_crowd_keeps_the_invariants_while_work_is_left_behind(wire: Wire, seed: int) -> None:
    """Hundreds join, fall silent, return and expire at once, so that every bound is hit often."""
    chance = random.Random(seed)
    config = RoomConfig(
        id=RoomId("crowd"),
        capacity=chance.choice([1, 20, 60]),
        rate=chance.choice([0, 60]),
        active_ttl_ms=20_000,
        grant_ttl_ms=6_000,
        queue_ttl_ms=15_000,
        return_window_ms=40_000,
        entries_per_minute=0,
        lane_rank=7,
        order=chance.choice(list(Order)),
    )
    driver = RoomDriver(wire, config)
    shown: dict[str, int] = {}
    ranks = {f"visitor-{n:08d}": chance.choice([0, 0, 0, 1, 4]) for n in range(700)}
    for step in range(1_500):
        driver.jump(chance.choice([0] * 20 + [200, 1_000]))
        if step % 250 == 249:
            for _ in range(chance.choice([3, 4, 8])):  # everybody is silent for a while
                driver.jump(5_000)
                driver.probe(calls.tick(config.id))
        who, act = f"visitor-{chance.randrange(700):08d}", chance.random()
        if act < 0.6:
            words = NOBODY | {"iat_ms": driver.now, "rank": ranks[who]}
            driver.probe(calls.enter(config.id, who, **words))
        elif act < 0.9:
            before = shown.get(who, 0)
            place = driver.probe(
                calls.poll(config.id, who, iat_ms=driver.now, ticket=0, shown=before)
            )
            if place.state is State.WAITING:
                assert 0 <= place.ahead < place.counts.waiting
                assert place.front <= place.ahead
                assert (place.reason is not Reason.NONE) == (0 < before < place.position)
                shown[who] = place.position
            else:
                shown.pop(who, None)
        elif act < 0.95:
            paid = {"reason": Reason.PAID, "payment": f"payment-{step}", "vip_ms": 0}
            driver.probe(calls.advance(config.id, who, **paid))
        else:
            driver.probe(calls.tick(config.id))
    assert driver.probe(calls.stats(config.id)).totals["parked"] > 25


@pytest.mark.parametrize("seed", range(4))
def test_a_busy_room_agrees_with_the_model(wire: Wire, seed: int) -> None:
    storm = Storm(wire, seed)
    for _ in range(1_000):
        storm.step()
