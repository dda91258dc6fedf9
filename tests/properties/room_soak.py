"""The long mode of the room's property test: `python -m tests.properties.room_soak`.

Random rooms, operations, repeated calls, clock jumps and configuration changes against the
reference model, without shrinking. Prints the seed of each room; `--seed` runs one again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from queueing.config import Mode, OnOutage, Order, RoomConfig, RoomId, Unit
from queueing.places import Reason, State
from tests.support.room_driver import RoomDriver, Wire
from tests.support.valkey import running_valkey

SIDS = [f"visitor-{number:08d}" for number in range(12)]
LEASES = [f"lease-{number:010d}" for number in range(6)]
CLIENTS = ["192.0.2.1", "2001:db8:1:2::/64"]
NETWORKS = ["", "192.0.2.0/24", "198.51.100.0/24"]
JUMPS = [0, 1, 20, 200, 999, 1000, 1001, 3000, 5000, 5001, 8000, -2000, 60_000]


def random_config(chance: random.Random, version: int) -> RoomConfig:
    """Draw a small room; its clocks are short, so that everything falls due often."""
    return RoomConfig(
        id=RoomId("soak"),
        version=version,
        mode=chance.choices(list(Mode), [12, 1, 1, 1, 1])[0],
        unit=chance.choice(list(Unit)),
        capacity=chance.choice([0, 1, 1, 2, 3, 5, 9]),
        rate=chance.choice([0, 0, 1, 2, 5]),
        active_ttl_ms=chance.choice([2_000, 9_000, 30_000]),
        absolute_ttl_ms=chance.choice([0, 0, 40_000]),
        refresh_ms=chance.choice([1_000, 4_000]),
        grant_ttl_ms=chance.choice([1_000, 6_000]),
        queue_ttl_ms=chance.choice([2_000, 10_000, 30_000]),
        return_window_ms=chance.choice([30_000, 60_000]),
        max_queue=chance.choice([0, 3, 8, 100]),
        entries_per_minute=chance.choice([0, 5, 1000]),
        polls_per_second=chance.choice([1, 3]),
        on_outage=chance.choice([OnOutage.CLOSED, OnOutage.CLOSED, OnOutage.OPEN]),
        lease_ttl_ms=chance.choice([2_000, 10_000]),
        priority_cap=chance.choice([0, 0, 1, 3]),
        lane_rank=chance.choice([1, 3, 5, 7]),
        priority_wait_ms=chance.choice([0, 1_000, 5_000]),
        priority_forms=chance.random() < 0.8,
        order=chance.choice(list(Order)),
        max_overtake=chance.choice([0, 1, 30, 50, 90]),
        share_guard=chance.random() < 0.3,
    )


class Storm:
    """One room under random use."""

    def __init__(self, wire: Wire, seed: int) -> None:
        self.chance = random.Random(seed)
        self.driver = RoomDriver(wire, random_config(self.chance, 1))
        self.shown: dict[str, int] = {}
        self.tickets: dict[str, int] = {}
        self.ranks = {sid: self.chance.choice([0, 0, 0, 1, 2, 4, 6]) for sid in SIDS}
        self.in_the_lane: list[str] = []  # whose gateway is alive and asks again
        self.payments = 0
        self._acts: list[tuple[int, Callable[[], object]]] = [
            (34, self.enter),
            (26, self.poll),
            (6, self.heartbeat),
            (6, self.ask_the_lane),
            (8, self.release),
            (12, lambda: self.driver.whole("tick")),
            (3, lambda: self.driver.act("leave", self.sid())),
            (4, lambda: self.driver.act("beacon", self.sid())),
            (3, lambda: self.driver.extend(self.sid())),
            (1, lambda: self.driver.session(self.sid())),
            (1, lambda: self.driver.session(self.sid(), prolong=True)),
            (1, self.look),
            (2, lambda: self.driver.act("adopt", self.sid())),
            (2, lambda: self.driver.act("promote", self.sid())),
            (7, self.advance),
            (1, lambda: self.driver.act("remove", self.sid())),
            (1, lambda: self.driver.act("expel", self.sid())),
            (1, self.rare),
        ]
        self._weights = [weight for weight, _ in self._acts]

    def sid(self) -> str:
        """Draw a visitor; the first are more active than the last."""
        return SIDS[int(len(SIDS) * self.chance.random() ** 1.5)]

    def step(self) -> None:
        """Jump the clock, then do one thing; sometimes twice, as if the reply had been lost."""
        if self.chance.random() < 0.6:
            self.driver.jump(self.chance.choice(JUMPS))
        act = self.chance.choices(self._acts, self._weights)[0][1]
        state = self.chance.getstate()
        act()
        if self.chance.random() < 0.08:
            self.chance.setstate(state)
            act()

    def enter(self) -> None:
        """Let somebody ask to come in: a page or a form, which may wait for the lane."""
        sid, form = self.sid(), self.chance.random() < 0.25
        lease = ""
        if form or (self.driver.config.unit is Unit.REQUESTS and self.chance.random() < 0.9):
            lease = self.chance.choice(LEASES)
        if self.chance.random() < 0.05:
            self.ranks[sid] = self.chance.randrange(7)
        place = self.driver.enter(
            sid,
            client=self.chance.choice(CLIENTS),
            iat_ms=self._iat(),
            ticket=self.tickets.get(sid, 0) if self.chance.random() < 0.5 else 0,
            shown=self.shown.get(sid, 0),
            lease=lease,
            exempt=self.chance.random() < 0.2,
            rank=self.ranks[sid],
            form=form,
            lane_wait=self.chance.random() < 0.7,
            network=self.chance.choice(NETWORKS),
        )
        self._note(sid, place.ticket, place.ahead)
        if place.state is State.LANE and self.chance.random() < 0.7:  # else its gateway dies
            self.in_the_lane += [sid, lease] if lease else [sid]

    def ask_the_lane(self) -> None:
        """Let a gateway ask what became of those who wait for the lane."""
        holders = self.in_the_lane[:3] + self.chance.sample(SIDS + LEASES, 2)
        news = dict(zip(holders, self.driver.lane(holders), strict=True))
        self.in_the_lane = [h for h in self.in_the_lane if news.get(h, 1) == 1][-6:]

    def poll(self) -> None:
        """Let somebody's page ask how things stand."""
        sid = self.sid()
        place = self.driver.poll(
            sid, iat_ms=self._iat(), ticket=self.tickets.get(sid, 0), shown=self.shown.get(sid, 0)
        )
        self._note(sid, place.ticket, place.ahead)

    def advance(self) -> None:
        """Move somebody to the front: paid for, delivered twice perhaps, or by an operator."""
        paid = self.chance.random() < 0.7
        if paid and (not self.payments or self.chance.random() < 0.7):
            self.payments += 1
        self.driver.advance(
            self.sid(),
            Reason.PAID if paid else Reason.OPERATOR,
            payment=f"payment-{self.chance.randint(max(1, self.payments - 2), self.payments)}"
            if paid
            else "",
            vip_ms=self.chance.choice([0, 0, 10_000, 90_000]),
        )

    def look(self) -> None:
        """Let an operator read a page of who is inside or in line."""
        self.driver.people(
            inside=self.chance.random() < 0.5,
            first=self.chance.choice([0, 0, 2]),
            count=self.chance.choice([1, 4, 50]),
        )

    def _iat(self) -> int:
        return self.driver.now - (500_000 if self.chance.random() < 0.05 else 0)

    def _note(self, sid: str, ticket: int, ahead: int) -> None:
        self.tickets[sid] = ticket
        self.shown[sid] = ahead + 1 if ticket else 0

    def heartbeat(self) -> None:
        """Keep a few slots alive."""
        self.driver.heartbeat(self.chance.sample(SIDS + LEASES, 4))

    def release(self) -> None:
        """Free somebody's slot, or a lease."""
        holder = self.chance.choice(LEASES) if self.chance.random() < 0.5 else self.sid()
        self.driver.release(holder, revoke=self.chance.random() < 0.3)

    def rare(self) -> None:
        """Reset, release everybody, let much time pass, or change the configuration."""
        kind = self.chance.randrange(6)
        if kind == 0:
            self.driver.whole("reset")
        elif kind == 1:
            self.driver.whole("release_all")
        elif kind == 2:
            self.driver.pass_time(self.chance.choice([10_000, 70_000]))
        else:
            version = self.driver.config.version + self.chance.choice([0, 1, 1, 2])
            fresh = random_config(self.chance, version)
            if self.chance.random() < 0.5:  # mostly small changes of the room that there is
                fresh = replace(
                    self.driver.config, version=version, capacity=fresh.capacity, mode=fresh.mode
                )
            self.driver.configure(fresh)


def run(operations: int, seed: int, rooms: int) -> None:
    """Run `operations` in all, spread over so many rooms."""
    with running_valkey() as valkey:
        wire = Wire(valkey.socket_path)
        for room in range(seed, seed + rooms):
            began = time.perf_counter()
            storm = Storm(wire, room)
            for number in range(operations // rooms):
                try:
                    storm.step()
                except BaseException:
                    sys.stderr.write(f"failed in room {room} at operation {number}\n")
                    sys.stderr.write(f"{storm.driver.config}\n")
                    sys.stderr.writelines(f"{call}\n" for call in storm.driver.history)
                    raise
            rate = operations / rooms / (time.perf_counter() - began)
            sys.stdout.write(f"room {room}: {operations // rooms} operations, {rate:.0f}/s\n")
            sys.stdout.flush()
        wire.close()


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--rooms", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run(options.operations, options.seed, options.rooms)


if __name__ == "__main__":
    main()
