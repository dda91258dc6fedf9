"""Requests that wait for a slot of a room's lane: one asker a process and room for all of them.

The room's script keeps the order (highest rank first, then first come) and gives freed slots; this
module asks it for everybody at once and says to each when it may enter (design §4, WR-14).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from queueing.config import RoomId
from queueing.store import RoomStore, StoreError

Free = Callable[[RoomId, str], None]
"""Frees a slot, or strikes a waiter off, by its holder: `leases.Leases.free`."""

PACE_S = 0.05
_WAITS = 1  # what the store says of a holder: it still waits; any other answer ends the wait


class Lane:
    """Who of this process's requests waits for the lane of one room."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}  # by holder: a sid has many tabs
        self._asker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def wait(
        self, store: RoomStore, free: Free, room: RoomId, holder: str, within_s: float
    ) -> None:
        """Return when the holder has been given a slot, is no longer known, or the time is over;
        `enter` then tells which. Who goes away meanwhile is struck off in the store.

        Raises:
            StoreError: the store cannot tell.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, []).append(future)
        if self._asker is None or self._asker.done():
            self._asker = asyncio.create_task(self._ask(store, room), name=f"lane {room}")
        try:
            await asyncio.wait_for(future, within_s)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if len(self._waiting[holder]) == 1:
                free(room, holder)
            raise
        finally:
            self._waiting[holder].remove(future)
            if not self._waiting[holder]:
                del self._waiting[holder]

    async def _ask(self, store: RoomStore, room: RoomId) -> None:
        while self._waiting:
            await asyncio.sleep(PACE_S)
            holders = list(self._waiting)
            if not holders:
                return
            try:
                answers = await store.lane(room, holders)
            except StoreError as error:
                self._fail(error)
                return
            for holder, answer in zip(holders, answers, strict=True):
                if answer != _WAITS:
                    for future in self._waiting.get(holder, ()):
                        if not future.done():
                            future.set_result(None)

    def _fail(self, error: StoreError) -> None:
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
