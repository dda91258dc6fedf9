"""How many requests of a kind are under way on this machine, and who waits for a place.

Exact among all gateway processes of a machine, whatever is killed: the counting is
`pool_memory.py`'s. This module owns the waiting: first come, first served within a process. A place
that this process gives back goes to its own next waiter at once, unless someone in another process
waits clearly longer; what other processes leave is seen at the next look.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path

from proxy.gateway.pool_memory import PoolMemory

ASSETS = b"assets\0\0"
STREAMS = b"streams\0"

LOOK_S = 0.02  # how often who waits looks for places that other processes gave back


def pass_key(room: str, sid: str, family: str) -> bytes:
    """Name the pool of one pass for one protocol family (`h1`, `h2`), whoever carries it."""
    return blake2b(f"{room}\0{sid}\0{family}".encode(), digest_size=8).digest()


class _Line:
    """Who waits for a place of one pool; the future tells whether it has one."""

    __slots__ = ("key", "most", "number", "waiting")

    def __init__(self, key: bytes, number: int, most: int) -> None:
        self.key = key
        self.number = number
        self.most = most  # as told last: changed limits hold for those who wait, too
        self.waiting: OrderedDict[asyncio.Future[bool], int] = OrderedDict()  # since when (ns)

    def since_ns(self) -> int:
        """Since when the first waits."""
        return next(iter(self.waiting.values()))


class Pools:
    """Places by key (8 bytes); for one event loop of one process."""

    def __init__(self, folder: Path) -> None:
        """Join the machine's other processes, which use the same folder.

        Raises:
            OSError: the folder cannot be made.
        """
        self._memory = PoolMemory(folder)
        self._lines: dict[bytes, _Line] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._closed = False

    def try_take(self, key: bytes, most: int) -> bool:
        """Take a place if fewer than `most` are in use on the machine and nobody here waits.

        Raises:
            ValueError: the key has not 8 bytes.
        """
        number = _number(key)
        line = self._lines.get(key)
        if line is not None:
            line.most = most
            self._serve(line)
            if line.waiting:
                return False
        return not self._closed and self._memory.take(number, most)

    async def take(self, key: bytes, most: int, wait_s: float) -> bool:
        """Take a place, waiting at most `wait_s` for one; who was here first comes first.

        A cancelled call holds nothing.

        Raises:
            ValueError: the key has not 8 bytes.
        """
        if self.try_take(key, most):
            return True
        if wait_s <= 0 or self._closed:
            return False
        loop = asyncio.get_running_loop()
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key, _number(key), most)
        future: asyncio.Future[bool] = loop.create_future()
        line.waiting[future] = time.monotonic_ns()
        overdue = loop.call_later(wait_s, self._overdue, line, future)
        if self._looking is None:
            self._looking = loop.call_later(LOOK_S, self._look, loop)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.result():
                self.give_back(key)
            raise
        finally:
            overdue.cancel()
            self._strike(line, future)

    def give_back(self, key: bytes) -> None:
        """Give a place back, to who waits for it longest in this process, if anybody does.

        Raises:
            ValueError: this process holds no place of that pool.
        """
        if self._closed:
            return
        self._memory.give(_number(key))
        line = self._lines.get(key)
        if line is not None:
            self._serve(line)

    def in_use(self, key: bytes) -> int:
        """How many places of a pool are in use on the machine."""
        if self._closed:
            return 0
        self._memory.look()
        return self._memory.total(_number(key))

    def figures(self) -> dict[str, int]:
        """Count what is worth an operator's look; `shared` 0: this process counts for itself."""
        if self._closed:
            return {}
        waiting = sum(len(line.waiting) for line in self._lines.values())
        passes = set(self._memory.held()) - {_number(ASSETS), _number(STREAMS)}
        return self._memory.figures() | {"waiting_here": waiting, "passes_here": len(passes)}

    def close(self) -> None:
        """Give everything back; who waits gets nothing, and nothing can be taken any more."""
        if self._closed:
            return
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        for line in self._lines.values():
            for future in line.waiting:
                _settle(future, got=False)
        self._lines.clear()
        self._memory.leave()

    def _serve(self, line: _Line) -> None:
        """Hand free places to those who wait, in their order."""
        while line.waiting:
            first, since_ns = next(iter(line.waiting.items()))
            if not first.done():
                memory, number = self._memory, line.number
                if memory.has_elder(number, since_ns) or not memory.take(number, line.most):
                    return
                first.set_result(True)
            self._strike(line, first)

    def _strike(self, line: _Line, future: asyncio.Future[bool]) -> None:
        line.waiting.pop(future, None)
        if not line.waiting and self._lines.get(line.key) is line:
            del self._lines[line.key]

    def _overdue(self, line: _Line, future: asyncio.Future[bool]) -> None:
        self._serve(line)
        _settle(future, got=False)
        self._strike(line, future)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve who waits from what other processes gave back; on while anybody waits."""
        self._looking = None
        self._memory.look()
        for line in list(self._lines.values()):
            if self._memory.total(line.number) < line.most:
                self._serve(line)
        if self._lines:
            longest = min(self._lines.values(), key=_Line.since_ns)
            self._memory.say_waiting(longest.number, longest.since_ns())
            self._looking = loop.call_later(LOOK_S, self._look, loop)
        else:
            self._memory.say_waiting(0, 0)


def _number(key: bytes) -> int:
    if len(key) != 8:
        raise ValueError(f"the key of a pool has 8 bytes, and not {len(key)}: {key!r}")
    return int.from_bytes(key, "little") or 1


def _settle(future: asyncio.Future[bool], *, got: bool) -> None:
    if not future.done():
        future.set_result(got)
