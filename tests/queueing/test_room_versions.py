"""Two versions of the room's script on one room, as while gateways are replaced one by one.

`earlier/room-1.lua` is the script as it was before the lane, leases and ranks, byte for byte; it
knows the first fourteen keys.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from queueing import calls
from queueing.config import Order, Unit
from queueing.keys import PARTS
from queueing.places import Reason, State
from tests.support.stage import ROOM, Stage, sid
from tests.support.valkey import Valkey

EARLIER = (Path(__file__).parent / "earlier" / "room-1.lua").read_bytes()
STEPS = 600


class TwoVersions(Stage):
    """A stage with a gateway of the earlier version beside those of today's."""

    def __init__(self, valkey: Valkey, **config: Any) -> None:
        super().__init__(valkey, **config)
        self.wire.ask(("SCRIPT", "LOAD", EARLIER))
        self._earlier = hashlib.sha1(EARLIER, usedforsecurity=False).hexdigest()

    def earlier(self, operation: str, *words: str | int, own: str = "addr:c") -> Any:
        keys = [self.key(part) for part in (*PARTS[:14], own)]
        head = ("EVALSHA", self._earlier, len(keys), *keys, operation, self.now)
        return self.wire.ask((*head, *words))[0]

    def earlier_act(self, chance: random.Random, number: int, lease: str) -> None:
        name = sid(number)
        acts = [
            *[lambda: self.earlier("enter", name, "c", self.now, 0, 0, lease, 0)] * 8,
            *[lambda: self.earlier("poll", name, self.now, 0, 0, own=f"checks:{name}")] * 3,
            *[lambda: self.earlier("heartbeat", name, lease)] * 2,
            *[lambda: self.earlier("release", chance.choice([name, lease]), 1)] * 2,
            lambda: self.earlier("leave", name),
            lambda: self.earlier("expel", name),
            lambda: self.earlier("beacon", name),
            lambda: self.earlier("promote", name),
            *[lambda: self.earlier("tick")] * 2,
        ]
        whole = [lambda: self.earlier("release_all"), lambda: self.earlier("reset")]
        chance.choice(acts if chance.random() < 0.99 else whole)()

    def todays_act(self, chance: random.Random, number: int, lease: str) -> None:
        name, rank, form = sid(number), chance.choice([0, 0, 2, 4, 6]), chance.random() < 0.3
        paid = {"reason": Reason.PAID, "payment": f"{self.now}", "vip_ms": 0}
        acts = [
            *[lambda: self.ask(number, rank, lease=lease, form=form)] * 8,
            *[lambda: self.poll(number)] * 3,
            *[lambda: self.run(calls.heartbeat(ROOM, [name, lease]))] * 2,
            *[lambda: self.lane(*self.members("lanewait"), *self.members("lane"))] * 2,
            *[lambda: self.give_back(chance.choice([name, lease]))] * 2,
            lambda: self.run(calls.advance(ROOM, name, **paid)),
            lambda: self.run(calls.prolong(ROOM, name)),
            lambda: self.leave(number),
            *[self.tick] * 2,
        ]
        chance.choice(acts)()

    def check(self, lane_before: set[str], admitted: list[dict[str, str]]) -> None:
        """Assert I1 of the room and of the lane, I3, and I4 of the line."""
        stands = {part: set(self.members(part)) for part in ("queue", "parked", "granted", "seen")}
        lane, active = set(self.members("lane")), self.members("active")
        if admitted:
            assert len(active) + len(stands["granted"]) <= self.config.capacity, "I1"
        if lane - lane_before:
            assert len(lane) <= self.config.priority_cap, "I1 of the lane"
        present = stands["queue"] | stands["parked"] | stands["granted"]
        assert {known.decode() for known in self.client.hkeys(self.key("visitor"))} == present
        assert stands["seen"] == stands["queue"]
        gone = self.totals("admitted", "left", "missed", "removed", "banned", "reset")
        assert self.totals("joined") == (sum(gone) + len(present),), "I3"


@pytest.mark.parametrize("unit", [*Unit])
@pytest.mark.parametrize("order", [*Order])
def test_wr_74_an_earlier_and_todays_version_side_by_side_keep_the_invariants(
    valkey: Valkey, unit: Unit, order: Order
) -> None:
    chance = random.Random(f"{unit} {order}")
    lives = {"queue_ttl_ms": 15_000, "return_window_ms": 60_000, "grant_ttl_ms": 15_000}
    lives |= {"active_ttl_ms": 30_000, "refresh_ms": 5_000, "lease_ttl_ms": 10_000}
    config = {"unit": unit, "order": order, "entries_per_minute": 0} | lives
    with TwoVersions(valkey, capacity=3, priority_cap=2, **config) as stage:
        seen = 0
        for step in range(STEPS):
            stage.now += chance.choice([0, 100, 400, 1_000, 3_000])
            lane = set(stage.members("lane"))
            act = stage.earlier_act if chance.random() < 0.5 else stage.todays_act
            act(chance, chance.randrange(25), f"lease-{step - chance.randrange(20)}")
            events = stage.events()
            new, seen = events[seen:], len(events)
            ordinary = [e for e in new if e["kind"] == "granted" or e["reason"] == "direct"]
            stage.check(lane, ordinary)
        assert min(stage.totals("lane", "direct", "grants")) > 5


def test_wr_74_a_place_in_front_passes_through_an_earlier_version_unharmed(valkey: Valkey) -> None:
    with TwoVersions(valkey, capacity=0) as stage:
        stage.enter_all(range(3))
        stage.run(calls.advance(ROOM, sid(2), reason=Reason.PAID, payment="p", vip_ms=0))
        stage.now += 1_000
        stage.earlier("enter", sid(2), "c", stage.now, 3, 0, "", 0)
        stage.pass_time(140_000, polling=(0, 1))
        assert stage.members("parked") == [sid(2)]
        stage.earlier("poll", sid(2), stage.now, 3, 0, own="checks:x")
        place = stage.poll(2, ticket=3)
        assert (place.state, place.ticket, place.ahead, place.paid) == (State.WAITING, 3, 0, True)


def test_wr_74_an_earlier_versions_reset_leaves_nothing_that_hinders(valkey: Valkey) -> None:
    with TwoVersions(valkey, capacity=1, priority_cap=1, order=Order.RANK) as stage:
        stage.enter(0)
        for number, rank in ((1, 2), (2, 6), (3, 6)):
            stage.ask(number, rank)
        stage.run(calls.advance(ROOM, sid(1), reason=Reason.PAID, payment="p", vip_ms=0))
        stage.earlier("reset")
        stage.now += 1
        assert stage.enter(4).state is State.ACTIVE
        assert stage.ask(5, 6).state is State.LANE, "behind 3, who still asks"
        assert stage.lane(sid(3), sid(5)) == [2, 1]
        assert (stage.enter(6).ahead, stage.enter(7).ahead) == (0, 1)
        stage.release(4)
        assert stage.members("granted") == [sid(6)]
