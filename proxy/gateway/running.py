"""Exchanges that are under way: their slots are kept alive, and a revoked visitor's streams end.

One object a process. A visitor who reads one long answer sends no further requests, so the running
exchange itself checks in for it (rule 6); unit `requests`: the lease is renewed (rule 8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from proxy.gateway.websocket import StopSignal
from queueing.config import RoomId, VisitorId

STREAM_REVOKED = 4408


@dataclass(slots=True, eq=False)
class Run:
    """One exchange inside a room."""

    room: RoomId
    sid: VisitorId
    holder: str  # what stands in the room's `active`: the visitor, or the request's lease
    due_at: float  # monotonic: when the slot must be kept alive next
    stop: StopSignal


class Running:
    """All exchanges inside rooms."""

    def __init__(self) -> None:
        self._runs: set[Run] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._runs)

    @contextmanager
    def track(self, room: RoomId, sid: VisitorId, holder: str, every_s: float) -> Iterator[Run]:
        """Keep a slot alive while the body runs."""
        run = Run(room, sid, holder, time.monotonic() + every_s, StopSignal())
        self._runs.add(run)
        try:
            yield run
        finally:
            self._runs.discard(run)

    def due(self, room: RoomId, every_s: float) -> list[Run]:
        """Give the runs of a room whose slots must be kept alive now, and set their next time."""
        now = time.monotonic()
        found = [run for run in self._runs if run.room == room and run.due_at <= now]
        for run in found:
            run.due_at = now + every_s
        return found

    def close_streams(self, room: RoomId, sid: VisitorId | None) -> None:
        """End the streams of a visitor, or of everybody, whose pass has been revoked."""
        for run in self._runs:
            if run.room == room and sid in (None, run.sid):
                run.stop.close(STREAM_REVOKED, "your session here has ended")

    def spawn(self, task: asyncio.Task[None]) -> None:
        """Hold a task until it has ended."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
