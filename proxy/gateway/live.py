"""What this process knows of each room between store calls: the last tick, the journal, its clock.

Mutable, one object a room, touched only from the event loop. Nothing here is authoritative: the
script is; this is what makes the fast path possible.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from math import exp

from proxy.gateway.gate import Revocations
from proxy.gateway.lane import Lane
from queueing.config import RoomConfig, RoomId, VisitorId
from queueing.places import Tick

_DRIFT = 0.0005
_SMOOTH_S = 5.0
_SET_BACK_MS = 5_000
_MOST_OUTAGE_ENTRIES = 100_000  # in a longer outage the first of them have gone again


class StoreClock:
    """The store's time, carried on between calls by the process's monotonic clock."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None
        self._learnt_ms = 0.0

    def learn(self, store_now_ms: int) -> None:
        """Take the time that a reply carried.

        Replies arrive late, never early: the largest offset seen is the nearest. It gives way only
        as fast as clocks drift, or at once when the store's clock was set back.
        """
        here = time.monotonic() * 1000
        offset = store_now_ms - here
        if self._offset_ms is not None and offset > self._offset_ms - _SET_BACK_MS:
            offset = max(offset, self._offset_ms - _DRIFT * (here - self._learnt_ms))
        self._offset_ms, self._learnt_ms = offset, here

    def now_ms(self) -> int:
        """Give the store's time in milliseconds; the own clock's before the first reply."""
        if self._offset_ms is None:
            return time.time_ns() // 1_000_000
        return int(time.monotonic() * 1000 + self._offset_ms)


@dataclass(slots=True, eq=False)
class LiveRoom:
    """One room as this process sees it."""

    config: RoomConfig
    tick: Tick | None = None
    due_at: float = 0.0  # monotonic: when this process ticks it next
    journal: int = -1  # the newest entry applied; -1: not read yet
    revoked: dict[VisitorId, int] = field(default_factory=dict)
    reset_ms: int = 0
    configured: int = 0  # version that the store holds, as far as this process knows
    outage_entries: dict[VisitorId, None] = field(default_factory=dict)  # in order, each once
    counters: Counter[str] = field(default_factory=Counter)
    totals: dict[str, int] = field(default_factory=dict)  # of all gateways, as of the last second
    utilization: float = 0.0  # part of the capacity in use, smoothed over some seconds
    used_at: float = 0.0  # monotonic: when it was looked at last
    preflight_tokens: float = 0.0
    preflight_at: float = 0.0
    lane: Lane = field(default_factory=Lane)  # this process's requests that wait for a lane slot

    @property
    def id(self) -> RoomId:
        """The room's id."""
        return self.config.id

    @property
    def revocations(self) -> Revocations:
        """What passes are to be judged against."""
        return Revocations(self.reset_ms, self.revoked)

    @property
    def has_people(self) -> bool:
        """Whether the room must be ticked at full pace."""
        if self.tick is None:
            return True
        counts = self.tick.counts
        people = counts.waiting or counts.parked or counts.granted or counts.active
        return bool(people or counts.lane or counts.lane_waiting)

    def note_use(self) -> None:
        """Smooth how much of the capacity is in use, by what the last tick said."""
        if self.tick is None:
            return
        now = time.monotonic()
        used = self.tick.counts.active / max(1, self.config.capacity)
        weight = 1 - exp((self.used_at - now) / _SMOOTH_S)
        self.utilization += (used - self.utilization) * weight
        self.used_at = now

    @property
    def known_until_ms(self) -> int:
        """Up to when (store time) this process knows every revocation; 0 = not at all.

        What is signed here without asking the store is dated so, that a revocation that is still
        on its way makes it old, too.
        """
        if self.tick is None or self.journal < self.tick.journal:
            return 0
        return self.tick.now_ms

    def is_news(self, event: str) -> bool:
        """Count what operators are to hear once a configuration, not once a visitor; whether this
        is the first."""
        self.counters[event] += 1
        return self.counters[event] == 1

    def take_config(self, config: RoomConfig) -> None:
        """Go on under a new configuration; what was said of the old one is judged anew."""
        self.config = config
        for event in ("cookies_broken", "stale_pages"):
            del self.counters[event]

    def forget_old_revocations(self, now_ms: int) -> None:
        """Drop revocations that every pass of before has outlived."""
        horizon = now_ms - max(self.config.active_ttl_ms, self.config.admit_ttl_ms)
        for sid in [s for s, at in self.revoked.items() if at < horizon]:
            del self.revoked[sid]

    def note_outage_entry(self, sid: VisitorId) -> None:
        """Remember whom this process let in without the script, to be counted in afterwards."""
        if len(self.outage_entries) >= _MOST_OUTAGE_ENTRIES:
            del self.outage_entries[next(iter(self.outage_entries))]
        self.outage_entries[sid] = None

    def take_preflight(self, per_second: int) -> bool:
        """Take one of the CORS preflights that may pass this second."""
        now = time.monotonic()
        gained = (now - self.preflight_at) * per_second
        self.preflight_tokens = min(float(per_second), self.preflight_tokens + gained)
        self.preflight_at = now
        if self.preflight_tokens < 1:
            return False
        self.preflight_tokens -= 1
        return True
