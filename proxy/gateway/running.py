"""Exchanges that are under way inside rooms: what each holds there, and how each can be ended.

One object a process. A visitor who reads one long answer sends no further requests, so the running
exchange itself checks in for it (rule 6); whether a slot is still held is `leases`' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from queueing.config import RoomId, VisitorId

STREAM_REVOKED = 4408
_GOING_AWAY = 1001  # RFC 6455 7.4.1


class StopSignal:
    """Lets the gateway end a running exchange: a stream by `close`, any by `cut`."""

    __slots__ = ("_event", "closed", "code", "is_cut", "reason")

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None  # only streams wait; most exchanges are none
        self.closed = False
        self.is_cut = False
        self.code = _GOING_AWAY
        self.reason = ""

    def close(self, code: int, reason: str = "") -> None:
        """Close both sides; code and reason are a WebSocket's. The first call counts."""
        if not self.closed:
            self.closed, self.code, self.reason = True, code, reason
            if self._event is not None:
                self._event.set()

    def cut(self, task: asyncio.Task[Any]) -> None:
        """Break the exchange off wherever its task is, and whatever it is."""
        if not self.is_cut:
            self.is_cut = True
            task.cancel()

    async def wait(self) -> None:
        """Sleep until the stream is to be closed."""
        if not self.closed:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """One exchange inside a room."""

    room: RoomId  # whose slot it holds
    sid: VisitorId
    pass_room: RoomId  # whose pass opened it: another's where rooms share their passes (WR-71)
    task: asyncio.Task[Any]
    holder: str = ""  # what stands in the room's `active`: the visitor, or the request's lease
    is_lease: bool = False
    due_at: float = inf  # monotonic: when the slot must be kept alive next
    cut_at: float = inf  # monotonic: a lease that has not been renewed by then counts as lost
    ended: bool = False
    stop: StopSignal = field(default_factory=StopSignal)

    def end(self) -> None:
        """End it if it is a stream: its slot or its pass is gone."""
        self.stop.close(STREAM_REVOKED, "your session here has ended")

    def cut(self) -> None:
        """Break it off: its lease may be somebody else's slot by now."""
        if not self.ended:
            self.stop.cut(self.task)

    def let_go(self) -> str:
        """Hold no slot any more; gives what is to be given back, once."""
        held, self.holder = self.holder if self.is_lease else "", ""
        self.due_at = self.cut_at = inf
        return held


class Running:
    """All exchanges inside rooms, and what is left to do when some have ended."""

    def __init__(self) -> None:
        self._runs: dict[RoomId, set[Run]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(set().union(*self._runs.values()))

    def begin(self, run: Run) -> None:
        """Know of an exchange until `finished`."""
        self._runs.setdefault(run.room, set()).add(run)
        if run.pass_room != run.room:
            self._runs.setdefault(run.pass_room, set()).add(run)

    def finished(self, run: Run) -> None:
        """Know that it has ended."""
        run.ended = True
        self._runs[run.room].discard(run)
        if run.pass_room != run.room:
            self._runs[run.pass_room].discard(run)

    def holding(self, room: RoomId) -> Iterator[Run]:
        """Give the runs that hold a slot of a room."""
        return (run for run in self._runs.get(room, ()) if run.holder and run.room == room)

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
