"""People who come to a room of a store, for tests that are not about how they come."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from queueing.config import RoomConfig, RoomId
from queueing.connection import Connection
from queueing.places import Place
from queueing.store import RoomStore, SyncRoomStore
from tests.support.valkey import Valkey


def guest(number: int) -> str:
    """Name the n-th visitor."""
    return f"guest-{number:010d}"


def open_room(valkey: Valkey, room: str, **config: Any) -> None:
    """Bring a room's configuration into the store, as a gateway does."""
    values = {"version": 1, "capacity": 1, **config}
    SyncRoomStore(valkey.client).configure(RoomConfig(id=RoomId(room), **values))


def come(valkey: Valkey, room: str, numbers: range, **options: Any) -> list[Place]:
    """Let visitors ask to be let in, one after the other; their ids are `guest(number)`."""

    async def all_of_them() -> list[Place]:
        connection = Connection(valkey.url, timeout_s=10, connect_timeout_s=10)
        store = RoomStore(connection)
        now_ms = int(time.time() * 1000)
        places = [
            await store.enter(
                RoomId(room), guest(n), **{"client": f"192.0.2.{n}", "iat_ms": now_ms, **options}
            )
            for n in numbers
        ]
        await connection.close()
        return places

    return asyncio.run(all_of_them())
