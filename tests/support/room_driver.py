"""Drives a real room and the reference model together; after every step both must agree.

Beside the comparison, `room_invariants` checks I1–I4 and the admission rate from the store's own
keys and events alone, so that a fault that the model shares is still found.
"""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import asdict
from typing import Any

import hiredis

from queueing import calls
from queueing.config import RoomConfig
from queueing.keys import PARTS, room_key
from queueing.places import Place, Reason
from queueing.store import SyncRoomStore, script
from tests.support.room_invariants import Invariants, Seen
from tests.support.room_model import Answer, RoomModel
from tests.support.room_model_lane import lane_order

START_MS = 1_800_000_000_000
_SORTED = (
    "active",
    "granted",
    "queue",
    "seen",
    "parked",
    "ranked",
    "lane",
    "lanewait",
    "lanedue",
    "vip",
)
_HASHES = ("visitor", "inside", "counters")
_EXPIRING = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) >= 0 then found[#found + 1] = key end
end
return found"""

NOBODY: dict[str, Any] = {
    "client": "192.0.2.1",
    "ticket": 0,
    "shown": 0,
    "lease": "",
    "exempt": False,
    "rank": 0,
}
NOBODY |= {"form": False, "lane_wait": False, "network": ""}
"""What a gateway says of somebody of whom it knows nothing."""


class Wire:
    """A bare synchronous connection: several commands out, as many replies back."""

    def __init__(self, socket_path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(socket_path)
        self._reader = hiredis.Reader()

    def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        self._socket.sendall(b"".join(hiredis.pack_command(c) for c in commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            while (reply := self._reader.gets()) is not False:
                if isinstance(reply, hiredis.ReplyError):
                    raise reply
                replies.append(reply)
            if len(replies) < len(commands):
                self._reader.feed(self._socket.recv(65536))
        return replies

    def close(self) -> None:
        self._socket.close()


class _Client:
    """The one method of redis-py's client that the synchronous store uses."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def execute_command(self, *words: Any) -> Any:
        return self._wire.ask(words)[0]


class RoomDriver:
    """One room in a real store, and its model. Every operation compares, then checks invariants."""

    def __init__(self, wire: Wire, config: RoomConfig) -> None:
        self.wire = wire
        self.config = config
        self.now = START_MS
        self.model = RoomModel(config, self.now)
        self.invariants = Invariants()
        self.history: deque[tuple[Any, ...]] = deque(maxlen=30)
        self._keys = {part: room_key(config.id, part) for part in PARTS}
        text, self._digest = script()
        _, _, _, self._expiring = wire.ask(
            ("FLUSHALL",),
            ("SCRIPT", "LOAD", text),
            ("HSET", self._keys["config"], "test_clock", 1),
            ("SCRIPT", "LOAD", _EXPIRING),
        )
        self._last_event = "-"
        assert self._call(calls.configure(config))[0]

    # Operations

    def enter(self, sid: str, **options: Any) -> Place:
        words: dict[str, Any] = NOBODY | {"iat_ms": self.now} | options
        place: Place = self._step(calls.enter(self.config.id, sid, **words))
        self._same(place, self.model.enter(sid, **words))
        return place

    def poll(self, sid: str, **options: Any) -> Place:
        words: dict[str, Any] = {"iat_ms": self.now, "ticket": 0, "shown": 0} | options
        place: Place = self._step(calls.poll(self.config.id, sid, **words))
        self._same(place, self.model.poll(sid, **words))
        return place

    def extend(self, sid: str) -> Place:
        place: Place = self._step(calls.extend(self.config.id, sid))
        self._same(place, self.model.extend(sid))
        return place

    def heartbeat(self, ids: list[str]) -> None:
        ends = self._step(calls.heartbeat(self.config.id, ids))
        expected = self.model.heartbeat(ids)
        assert ends == expected, (ends, expected)
        self._agree()

    def lane(self, holders: list[str]) -> list[int]:
        news: list[int] = self._step(calls.lane(self.config.id, holders))
        expected = self.model.lane(holders)
        assert news == expected, (news, expected)
        self._agree()
        return news

    def release(self, holder: str, *, revoke: bool = False) -> None:
        freed = self._step(calls.release(self.config.id, holder, revoke=revoke))
        assert freed == self.model.release(holder, revoke)
        self._agree()

    def advance(self, sid: str, reason: Reason, *, payment: str = "", vip_ms: int = 0) -> str:
        words: dict[str, Any] = {"reason": reason, "payment": payment, "vip_ms": vip_ms}
        became: str = self._step(calls.advance(self.config.id, sid, **words))
        expected = self.model.advance(sid, **words)
        assert became == expected, (became, expected)
        self._agree()
        return became

    def session(self, sid: str, *, prolong: bool = False) -> None:
        call = (calls.prolong if prolong else calls.session)(self.config.id, sid)
        told = self._step(call)
        expected = (self.model.prolong if prolong else self.model.session)(sid)
        assert (told.expires_ms, told.limit_ms, told.extensions) == expected, (told, expected)
        self._agree()

    def people(self, *, inside: bool, first: int, count: int) -> None:
        """Read who is there as operators do, and compare with those whom the model knows."""
        found = SyncRoomStore(_Client(self.wire)).people(
            self.config.id, inside=inside, first=first, count=count
        )
        told = [(p.sid, p.ticket, p.rank, p.joined_ms, p.front) for p in found]
        assert told == self.model.people_told(inside=inside, first=first, count=count)

    def act(self, name: str, sid: str) -> None:
        """Run an operation of one visitor: leave, remove, expel, adopt, promote or beacon."""
        group = name in ("remove", "expel", "adopt")
        reply = self._step(getattr(calls, name)(self.config.id, [sid] if group else sid))
        expected = getattr(self.model, name)(sid)
        assert name == "beacon" or reply == expected, (name, reply, expected)
        self._agree()

    def whole(self, name: str) -> None:
        """Run an operation of the whole room: tick, reset or release_all."""
        reply = self._step(getattr(calls, name)(self.config.id))
        if name == "reset":
            self.invariants.forget_rate()
        expected = getattr(self.model, name)()
        assert (reply.counts if name == "tick" else reply) == expected, name
        if name == "tick":
            assert not reply.more_work
            assert reply.journal == len(self.model.journal)
        self._agree()

    def configure(self, config: RoomConfig) -> None:
        done = self._step(calls.configure(config))
        if done and not self.config.rate:
            self.invariants.forget_rate()
        assert done == self.model.configure(config)
        self.config = self.model.config
        self._agree()

    def jump(self, by_ms: int) -> None:
        """Move the store's clock, in either direction; the room notices at the next call."""
        self.now += by_ms

    def pass_time(self, by_ms: int) -> None:
        """Let room time go by: gaps short enough not to stop it, a tick in each."""
        while by_ms > 0:
            self.jump(min(by_ms, 5_000))
            by_ms -= 5_000
            self.whole("tick")

    def probe(self, call: calls.Call[Any]) -> Any:
        """Run any call without the model: for crowds, where bounded work is left behind."""
        reply = self._step(call)
        self.invariants.check(self.seen, self.config)
        return reply

    # Comparing

    def _call(self, call: calls.Call[Any], *more: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        head = ("EVALSHA", self._digest, len(call.keys), *call.keys, call.operation, self.now)
        reply, *rest = self.wire.ask((*head, *call.words), *more)
        return call.read(reply), rest

    def _step(self, call: calls.Call[Any]) -> Any:
        self.model.now = self.now
        keys = self._keys
        reply, rest = self._call(
            call,
            *(("ZRANGE", keys[part], 0, -1, "WITHSCORES") for part in _SORTED),
            *(("HGETALL", keys[part]) for part in _HASHES),
            ("HGET", keys["config"], "clock"),
            ("XRANGE", keys["events"], self._last_event, "+"),
            ("EVALSHA", self._expiring, 0),
        )
        sorted_sets, hashes = rest[: len(_SORTED)], rest[len(_SORTED) : -3]
        clock, events, expiring = rest[-3:]
        self.history.append((self.now, call.operation, *call.words))
        self.seen = Seen(
            operation=call.operation,
            scores=dict(zip(_SORTED, [_scores(flat) for flat in sorted_sets], strict=True)),
            hashes=dict(zip(_HASHES, [_pairs(flat) for flat in hashes], strict=True)),
            room_ms=int(clock.partition(b",")[0]),
            events=[_pairs(fields) for _, fields in events],
            expiring=[key.decode() for key in expiring],
        )
        if events:
            self._last_event = f"({events[-1][0].decode()}"
        return reply

    def _same(self, place: Place, expected: Answer) -> None:
        told = {name: getattr(place, name) for name in asdict(expected)}
        assert told == asdict(expected), (told, expected)
        assert place.counts == self.model.counts(), (place.counts, self.model.counts())
        assert (place.epoch, place.reset_ms) == (self.model.epoch, self.model.reset_ms)
        assert place.now_ms == self.now
        self._agree()

    def _agree(self) -> None:
        """The store's keys hold exactly what the model knows; the invariants hold."""
        model = self.model
        by = {name: model.standing(name) for name in ("waiting", "parked", "granted")}
        ranked = sorted((p for p in by["waiting"] if p.level), key=lambda p: p.before)
        expected = {
            "active": {h: s.ends for h, s in model.slots.items()},
            "lane": {h: s.ends for h, s in model.lane_slots.items()},
            "lanedue": {h: r.deadline for h, r in model.lane_queue.items()},
            "vip": {sid: until for sid, until in model.vip.items() if until > model.room},
            "granted": {p.sid: p.until for p in by["granted"]},
            "queue": {p.sid: p.ticket for p in by["waiting"]},
            "seen": {p.sid: p.counted for p in by["waiting"]},
            "parked": {p.sid: p.until for p in by["parked"]},
            "ranked": [p.sid for p in ranked],
            "lanewait": [r.holder for r in sorted(model.lane_queue.values(), key=lane_order)],
            "totals": {name: value for name, value in model.totals.items() if value},
        }
        for name, right in expected.items():
            found: Any = self.seen.totals if name == "totals" else self.seen.scores[name]
            if name == "vip":  # who was one until lately is cleared away later
                found = {sid: until for sid, until in found.items() if until > self.seen.room_ms}
            found = list(found) if isinstance(right, list) else found
            assert found == right, f"{name}: the script has {found}, the model {right}"
        self.invariants.check(self.seen, self.config)


def _scores(flat: list[bytes]) -> dict[str, int]:
    return {sid.decode(): int(float(n)) for sid, n in zip(flat[::2], flat[1::2], strict=True)}


def _pairs(flat: list[bytes]) -> dict[str, str]:
    return {n.decode(): v.decode() for n, v in zip(flat[::2], flat[1::2], strict=True)}
