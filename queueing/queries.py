"""What others read of rooms: rows from the database, live counts from the store."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings

from queueing.calls import Stats
from queueing.config import RoomConfig, RoomId
from queueing.models import Room
from queueing.store import SyncRoomStore


@lru_cache(maxsize=4)
def _client(url: str) -> Any:
    # Short: an operator's page must come up also while the store is down.
    return redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=3)


def store_client() -> Any:
    """Give the console's client of the store; one for each process, safe among threads."""
    return _client(settings.STORE_URL)


def room_store() -> SyncRoomStore:
    """Give the operators' door to the rooms in the store."""
    return SyncRoomStore(store_client())


def room_configs() -> list[RoomConfig]:
    """Give every room as plain data, in the order of the ids."""
    return [room.to_config() for room in Room.objects.order_by("id")]


def own_pages() -> dict[str, str]:
    """Give the operators' own waiting pages by the digest that names them in `RoomConfig.page`."""
    rooms = Room.objects.exclude(page_html="").order_by("id")
    return {room.page_digest: room.page_html for room in rooms}


def live_stats(room_ids: Iterable[str]) -> dict[str, Stats]:
    """Give the live counters of rooms; a room is missing when the store cannot say."""
    found: dict[str, Stats] = {}
    try:
        store = room_store()
        for room_id in room_ids:
            found[room_id] = store.stats(RoomId(room_id))
    except redis.RedisError:
        pass
    return found
