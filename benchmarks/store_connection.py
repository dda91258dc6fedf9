"""Client CPU of one store call: our connection against redis-py's asyncio pool.

Run: `python -m benchmarks.store_connection`. Sixty-four tasks call a script with the room's keys
at the same time, as a busy gateway does; µs of this process's CPU for each call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import redis.asyncio

from queueing.config import RoomConfig, RoomId
from queueing.connection import Connection
from queueing.keys import room_keys
from queueing.store import RoomStore
from tests.support.valkey import running_valkey

ROOM = RoomId("bench")
TASKS, CALLS = 64, 20_000


async def cpu_us(act: Callable[[], Awaitable[object]]) -> float:
    """Give the µs of CPU for each call."""

    async def work() -> None:
        for _ in range(CALLS // TASKS):
            await act()

    await act()
    began = time.process_time()
    await asyncio.gather(*(work() for _ in range(TASKS)))
    return (time.process_time() - began) / (CALLS // TASKS * TASKS) * 1e6


async def run() -> None:
    """Print the table."""
    with running_valkey() as valkey:
        connection = Connection(valkey.url, timeout_s=10)
        store = RoomStore(connection)
        await store.configure(RoomConfig(id=ROOM, capacity=10))
        await store.adopt(ROOM, ["inside-000000001"])
        keys = room_keys(ROOM)
        digest = await connection.call("SCRIPT", "LOAD", "return 1")
        pool = redis.asyncio.Redis(unix_socket_path=valkey.socket_path)
        now = int(time.time() * 1000)
        rows = {
            "redis.asyncio, pool, EVALSHA with 14 keys": lambda: pool.evalsha(
                digest.decode(), len(keys), *keys, "x"
            ),
            "Connection, EVALSHA with 14 keys": lambda: connection.call(
                "EVALSHA", digest, len(keys), *keys, "x"
            ),
            "RoomStore.heartbeat, one id": lambda: store.heartbeat(ROOM, ["inside-000000001"]),
            "RoomStore.enter, inside": lambda: store.enter(
                ROOM, "inside-000000001", client="192.0.2.1", iat_ms=now
            ),
        }
        for name, act in rows.items():
            print(f"{name:45s} {await cpu_us(act):6.1f} µs")
        await pool.aclose()
        await connection.close()


if __name__ == "__main__":
    asyncio.run(run())
