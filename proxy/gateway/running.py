"""Exchanges that are under way: their slots are kept alive, and a revoked visitor's streams end.

One object a process. A visitor who reads one long answer sends no further requests, so the running
exchange itself checks in for it (rule 6); unit `requests`: the lease is renewed (rule 8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from queueing.config import RoomId, VisitorId

STREAM_REVOKED = 4408
_GOING_AWAY = 1001  # RFC 6455 7.4.1


class StopSignal:
    """Lets the gateway close a running stream, e.g. with 4408 when its slot is gone."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.code = _GOING_AWAY
        self.reason = ""

    def close(self, code: int, reason: str = "") -> None:
        """Close both sides; code and reason are a WebSocket's. The first call counts."""
        if not self.event.is_set():
            self.code, self.reason = code, reason
            self.event.set()


@dataclass(slots=True, eq=False)
class Run:
    """One exchange inside a room."""

    sid: VisitorId
    holder: str  # what stands in the room's `active`: the visitor, or the request's lease
    due_at: float  # monotonic: when the slot must be kept alive next
    stop: StopSignal

    def end(self) -> None:
        """End it if it is a stream: its slot is gone."""
        self.stop.close(STREAM_REVOKED, "your session here has ended")


class Running:
    """All exchanges inside rooms, and what is left to do when some have ended."""

    def __init__(self) -> None:
        self._runs: dict[RoomId, set[Run]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    @contextmanager
    def track(self, room: RoomId, sid: VisitorId, holder: str, every_s: float) -> Iterator[Run]:
        """Keep a slot alive while the body runs."""
        run = Run(sid, holder, time.monotonic() + every_s, StopSignal())
        runs = self._runs.setdefault(room, set())
        runs.add(run)
        try:
            yield run
        finally:
            runs.discard(run)

    def due(self, room: RoomId, every_s: float) -> list[Run]:
        """Give the runs of a room whose slots must be kept alive now, and set their next time."""
        now = time.monotonic()
        found = [run for run in self._runs.get(room, ()) if run.due_at <= now]
        for run in found:
            run.due_at = now + every_s
        return found

    def close_streams(self, room: RoomId, sid: VisitorId | None) -> None:
        """End the streams of a visitor, or of everybody, whose pass has been revoked."""
        for run in self._runs.get(room, ()):
            if sid in (None, run.sid):
                run.end()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the exchanges; held until it has ended."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for what was spawned; each of it ends within a store call's time limit."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
