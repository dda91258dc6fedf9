"""The connections to one origin: idle ones, open ones, and who waits for one."""

from __future__ import annotations

import asyncio
from collections import deque

from proxy.gateway.upstream_connection import Connection


class Pool:
    """Connections to one origin; hears from each when it is free and when it has ended."""

    __slots__ = ("_loop", "idle", "open", "opening", "waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.idle: list[Connection] = []  # the last used is the next used
        self.open: dict[Connection, None] = {}
        self.opening = 0
        self.waiters: deque[asyncio.Future[Connection | None]] = deque()

    @property
    def size(self) -> int:
        return len(self.open) + self.opening

    def on_idle(self, connection: Connection) -> None:
        connection.reused = True
        if not self.wake(connection):
            connection.idle_since = self._loop.time()
            self.idle.append(connection)

    def on_closed(self, connection: Connection) -> None:
        self.open.pop(connection, None)
        if connection in self.idle:
            self.idle.remove(connection)
        self.wake(None)

    def wake(self, connection: Connection | None) -> bool:
        """Hand a connection (None: room for a new one) to the first who still waits."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def wait(self) -> Connection | None:
        """Wait for `wake()`; what was handed to a caller that is cancelled goes to the next."""
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        self.waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                handed = waiter.result()
                if handed is not None and not handed.closed:
                    self.on_idle(handed)
                else:
                    self.wake(None)
            raise
