"""Drives a real room and the reference model together; after every step both must agree.

Beside the comparison, the invariants I1–I4 of `room.lua` and the admission rate are checked from
the store's own keys and events alone, so that a fault that the model shares is still found.
"""

from __future__ import annotations

import socket
from dataclasses import asdict
from typing import Any

import hiredis

from queueing import calls
from queueing.config import Mode, RoomConfig
from queueing.keys import PARTS, room_key
from queueing.places import Place
from queueing.store import script
from tests.support.room_model import Answer, RoomModel

START_MS = 1_800_000_000_000
_READ = ("active", "granted", "queue", "seen", "parked")
_HASHES = ("visitor", "inside", "counters")


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


class RoomDriver:
    """One room in a real store, and its model. Every operation compares, then checks invariants."""

    def __init__(self, wire: Wire, config: RoomConfig) -> None:
        self.wire = wire
        self.config = config
        self.now = START_MS
        self.model = RoomModel(config, self.now)
        self._keys = {part: room_key(config.id, part) for part in PARTS}
        text, self._digest = script()
        wire.ask(
            ("FLUSHALL",),
            ("SCRIPT", "LOAD", text),
            ("HSET", self._keys["config"], "test_clock", 1),
        )
        self._last_event = "-"
        self._admitted_at: list[int] = []  # room times, since the rate was last switched on
        assert self._call(calls.configure(config))[0]

    # Operations

    def enter(self, sid: str, **options: Any) -> Place:
        words = {"ticket": 0, "shown": 0, "lease": "", "exempt": False, "iat_ms": self.now}
        words |= {"client": "192.0.2.1"} | options
        place = self._step(calls.enter(self.config.id, sid, **words))
        self._same(place, self.model.enter(sid, **words))
        return place

    def poll(self, sid: str, **options: Any) -> Place:
        words = {"iat_ms": self.now, "ticket": 0, "shown": 0} | options
        place = self._step(calls.poll(self.config.id, sid, **words))
        self._same(place, self.model.poll(sid, **words))
        return place

    def extend(self, sid: str) -> Place:
        place = self._step(calls.extend(self.config.id, sid))
        self._same(place, self.model.extend(sid))
        return place

    def heartbeat(self, ids: list[str]) -> None:
        alive = self._step(calls.heartbeat(self.config.id, ids))
        assert alive == self.model.heartbeat(ids)
        self._agree()

    def release(self, holder: str, *, revoke: bool = False) -> None:
        freed = self._step(calls.release(self.config.id, holder, revoke=revoke))
        assert freed == self.model.release(holder, revoke)
        self._agree()

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
            self._admitted_at.clear()
        expected = getattr(self.model, name)()
        assert (reply.counts if name == "tick" else reply) == expected, name
        if name == "tick":
            assert not reply.more_work
            assert reply.journal == len(self.model.journal)
        self._agree()

    def configure(self, config: RoomConfig) -> None:
        done = self._step(calls.configure(config))
        if done and not self.config.rate:
            self._admitted_at.clear()
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
        self.check_invariants()
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
            *(("ZRANGE", keys[part], 0, -1, "WITHSCORES") for part in _READ),
            *(("HGETALL", keys[part]) for part in _HASHES),
            ("HGET", keys["config"], "clock"),
            ("XRANGE", keys["events"], self._last_event, "+"),
        )
        self.raw = dict(zip(_READ, [_scores(flat) for flat in rest[:5]], strict=True))
        self.hashes = dict(zip(_HASHES, [_pairs(flat) for flat in rest[5:8]], strict=True))
        self.room_ms = int(rest[8].partition(b",")[0])
        self.events = [_pairs(fields) for _, fields in rest[9]]
        if rest[9]:
            self._last_event = f"({rest[9][-1][0].decode()}"
        return reply

    def _same(self, place: Place, expected: Answer) -> None:
        told = {name: getattr(place, name) for name in asdict(expected)}
        assert told == asdict(expected), (told, expected)
        assert place.counts == self.model.counts()
        assert (place.epoch, place.reset_ms) == (self.model.epoch, self.model.reset_ms)
        assert place.now_ms == self.now
        self._agree()

    def _agree(self) -> None:
        """The store's keys hold exactly what the model knows; the invariants hold."""
        model = self.model
        by = {name: model.standing(name) for name in ("waiting", "parked", "granted")}
        assert self.raw["active"] == {h: s.ends for h, s in model.slots.items()}
        assert self.raw["granted"] == {p.sid: p.until for p in by["granted"]}
        assert self.raw["queue"] == {p.sid: p.ticket for p in by["waiting"]}
        assert self.raw["seen"] == {p.sid: p.counted for p in by["waiting"]}
        assert self.raw["parked"] == {p.sid: p.until for p in by["parked"]}
        totals = {name: int(value) for name, value in self.hashes["counters"].items() if int(value)}
        assert totals == {name: value for name, value in model.totals.items() if value}
        self.check_invariants()

    def check_invariants(self) -> None:
        """I1–I4 and the rate, from the store alone."""
        raw, totals = self.raw, self.hashes["counters"]
        admitted = [e for e in self.events if e["kind"] == "granted" or e["reason"] == "direct"]
        if admitted and self.config.mode is not Mode.OFF:
            assert len(raw["active"]) + len(raw["granted"]) <= self.config.capacity, "I1"
        cutoff = self.room_ms - self.config.queue_ttl_ms
        living = [raw["queue"][sid] for sid, seen in raw["seen"].items() if seen >= cutoff]
        turns = [int(e["ticket"]) for e in admitted if e["reason"] == "turn"]
        assert not living or not turns or max(turns) < min(living), "I2"
        assert not (living and any(e["reason"] == "direct" for e in admitted)), "I2"
        names = ("admitted", "left", "missed", "removed", "banned", "reset")
        gone = sum(int(totals.get(name, 0)) for name in names)
        present = len(raw["granted"]) + len(raw["queue"]) + len(raw["parked"])
        assert int(totals.get("joined", 0)) == gone + present, "I3"
        known = set(raw["queue"]) | set(raw["parked"]) | set(raw["granted"])
        assert set(self.hashes["visitor"]) == known, "I4"
        assert len(known) == present, "I4"
        assert set(raw["seen"]) == set(raw["queue"]), "I4"
        assert set(self.hashes["inside"]) <= set(raw["active"]), "I4"
        self._check_rate(len(admitted))

    def _check_rate(self, admitted: int) -> None:
        self._admitted_at += [self.room_ms] * admitted
        if self.config.rate and admitted:
            within = sum(at > self.room_ms - 1_000 for at in self._admitted_at)
            assert within <= self.config.rate, "rate"
        del self._admitted_at[:-200]


def _scores(flat: list[bytes]) -> dict[str, int]:
    return {sid.decode(): int(score) for sid, score in zip(flat[::2], flat[1::2], strict=True)}


def _pairs(flat: list[bytes]) -> dict[str, str]:
    return {n.decode(): v.decode() for n, v in zip(flat[::2], flat[1::2], strict=True)}
