"""Exchanges that are under way: their slots are kept alive, and a revoked visitor's streams end.

One object a process. A visitor who reads one long answer sends no further requests, so the running
exchange itself checks in for it (rule 6); unit `requests`: the lease is renewed (rule 8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from queueing.config import RoomId, VisitorId

STREAM_REVOKED = 4408
_GOING_AWAY = 1001  # RFC 6455 7.4.1


class StopSignal:
    """Lets the gateway close a running stream, e.g. with 4408 when its slot is gone."""

    __slots__ = ("_event", "closed", "code", "reason")

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None  # only streams wait; most exchanges are none
        self.closed = False
        self.code = _GOING_AWAY
        self.reason = ""

    def close(self, code: int, reason: str = "") -> None:
        """Close both sides; code and reason are a WebSocket's. The first call counts."""
        if not self.closed:
            self.closed, self.code, self.reason = True, code, reason
            if self._event is not None:
                self._event.set()

    async def wait(self) -> None:
        """Sleep until the stream is to be closed."""
        if not self.closed:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()


@dataclass(slots=True, eq=False)
class Run:
    """One exchange inside a room."""

    room: RoomId
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

    def begin(self, room: RoomId, sid: VisitorId, holder: str, every_s: float) -> Run:
        """Keep a slot alive from now until `finished`."""
        run = Run(room, sid, holder, time.monotonic() + every_s, StopSignal())
        self._runs.setdefault(room, set()).add(run)
        return run

    def finished(self, run: Run) -> None:
        """Let go of a slot."""
        self._runs[run.room].discard(run)

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
