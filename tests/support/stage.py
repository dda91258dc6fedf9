"""One room in a real store under a clock that the test moves, for scenario tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from queueing import calls
from queueing.config import RoomConfig, RoomId
from queueing.keys import room_key
from queueing.places import Place, State, Tick
from queueing.store import script
from tests.support.room_driver import START_MS, Wire
from tests.support.valkey import Valkey

T = TypeVar("T")
ROOM = RoomId("stage")


def sid(number: int) -> str:
    """Name the n-th visitor of a scenario."""
    return f"visitor-{number:08d}"


class Stage:
    """A test room. Visitors are numbers; each has its own client address unless told otherwise."""

    def __init__(self, valkey: Valkey, **config: Any) -> None:
        self.client = valkey.client
        self.wire = Wire(valkey.socket_path)
        self.now = START_MS
        self.config = RoomConfig(id=ROOM, **config)
        self.script_text, self._digest = script()
        self.wire.ask(
            ("SCRIPT", "LOAD", self.script_text), ("HSET", self.key("config"), "test_clock", 1)
        )
        self.run(calls.configure(self.config))

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def key(self, part: str) -> str:
        return room_key(ROOM, part)

    def run(self, call: calls.Call[T]) -> T:
        words = (len(call.keys), *call.keys, call.operation, self.now, *call.words)
        return call.read(self.wire.ask(("EVALSHA", self._digest, *words))[0])

    def change(self, **config: Any) -> None:
        """Save a new version of the room's configuration."""
        self.config = replace(self.config, version=self.config.version + 1, **config)
        assert self.run(calls.configure(self.config))

    def enter(self, number: int, **options: Any) -> Place:
        words = {"client": f"client-{number}", "iat_ms": self.now, "ticket": 0, "shown": 0}
        words |= {"lease": "", "exempt": False} | options
        return self.run(calls.enter(ROOM, sid(number), **words))

    def enter_all(self, numbers: range) -> list[Place]:
        return [self.enter(number) for number in numbers]

    def poll(self, number: int, **options: Any) -> Place:
        words = {"iat_ms": self.now, "ticket": 0, "shown": 0} | options
        return self.run(calls.poll(ROOM, sid(number), **words))

    def state(self, number: int, **options: Any) -> State:
        return self.poll(number, **options).state

    def beat(self, *numbers: int) -> list[bool]:
        ends = self.run(calls.heartbeat(ROOM, [sid(number) for number in numbers]))
        return [end > 0 for end in ends]

    def release(self, number: int, *, revoke: bool = False) -> bool:
        return self.run(calls.release(ROOM, sid(number), revoke=revoke))

    def leave(self, number: int) -> bool:
        return self.run(calls.leave(ROOM, sid(number)))

    def beacon(self, number: int) -> None:
        self.run(calls.beacon(ROOM, sid(number)))

    def ask(self, number: int, rank: int = 0, **options: Any) -> Place:
        """Send a request that would use the lane and may wait for it; its lease has its number."""
        words = {"rank": rank, "lease": f"lease-{number}", "lane_wait": True} | options
        return self.enter(number, **words)

    def lane(self, *holders: str) -> list[int]:
        return self.run(calls.lane(ROOM, holders))

    def give_back(self, holder: str) -> bool:
        return self.run(calls.release(ROOM, holder, revoke=False))

    def totals(self, *names: str) -> tuple[int, ...]:
        known = self.run(calls.stats(ROOM)).totals
        return tuple(known.get(name, 0) for name in names)

    def tick(self) -> Tick:
        return self.run(calls.tick(ROOM))

    def settle(self) -> Tick:
        """Tick as a gateway does: again at once while work remains."""
        while (tick := self.tick()).more_work:
            pass
        return tick

    def pass_time(
        self, by_ms: int, *, polling: tuple[int, ...] = (), beating: tuple[int, ...] = ()
    ) -> None:
        """Let time go by in steps of 5 s at most; some poll and some keep their slot meanwhile."""
        while by_ms > 0:
            self.now += min(by_ms, 5_000)
            by_ms -= 5_000
            if beating:
                self.beat(*beating)
            self.settle()
            for number in polling:
                self.poll(number)

    def events(self, *kinds: str) -> list[dict[str, str]]:
        """Read the room's event log, oldest first."""
        found = [
            {name.decode(): value.decode() for name, value in fields.items()}
            for _, fields in self.client.xrange(self.key("events"))
        ]
        return [event for event in found if not kinds or event["kind"] in kinds]

    def members(self, part: str) -> list[str]:
        return [member.decode() for member in self.client.zrange(self.key(part), 0, -1)]
