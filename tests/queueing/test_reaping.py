"""What the background worker clears away, and what it leaves alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import redis

from queueing import reaping, tasks
from queueing.config import RoomId
from queueing.keys import room_key
from queueing.models import Room
from queueing.reaping import Reaped
from queueing.store import SyncRoomStore
from tests.support.valkey import Valkey
from tests.support.visits import come, open_room

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def store(settings: Any, valkey: Valkey) -> Valkey:
    settings.STORE_URL = valkey.url
    return valkey


def left_alone(valkey: Valkey, room: str, for_ms: int) -> None:
    """Make the store believe that nobody has called the room for so long."""
    key = room_key(RoomId(room), "config")
    clock = valkey.client.hget(key, "clock").split(b",")[0].decode()  # type: ignore[union-attr]
    valkey.client.hset(key, "clock", f"{clock},{int(time.time() * 1000) - for_ms}")


def keys_of(valkey: Valkey, room: str) -> list[bytes]:
    return valkey.client.keys(room_key(RoomId(room), "*"))  # type: ignore[return-value]


def a_room(room: str, **values: Any) -> None:
    Room.objects.create(
        **{"id": room, "name": room, "on_outage": "closed", "inside_now": "queue", **values}
    )


def test_everything_of_a_deleted_room_goes_and_nothing_of_others(valkey: Valkey) -> None:
    a_room("kept")
    for room in ("kept", "gone", "kept-2"):
        open_room(valkey, room)
        come(valkey, room, range(5))
        left_alone(valkey, room, 61_000)
    a_room("kept-2")
    before = len(keys_of(valkey, "gone"))
    assert before > 8
    reaped = reaping.reap()
    assert (reaped.dropped, reaped.keys) == (1, before)
    assert keys_of(valkey, "gone") == []
    for room in ("kept", "kept-2"):
        assert SyncRoomStore(valkey.client).stats(RoomId(room)).counts.waiting == 4


def test_more_keys_than_a_batch_go_in_one_run(valkey: Valkey) -> None:
    open_room(valkey, "gone")
    left_alone(valkey, "gone", 61_000)
    valkey.client.mset({room_key(RoomId("gone"), f"addr:{n}"): 1 for n in range(1_234)})
    assert reaping.reap().keys == 1_235
    assert keys_of(valkey, "gone") == []


def test_a_run_that_was_cut_off_is_made_up_for_by_the_next(valkey: Valkey) -> None:
    open_room(valkey, "gone")
    come(valkey, "gone", range(3))
    left_alone(valkey, "gone", 61_000)
    others = [k for k in keys_of(valkey, "gone") if not k.endswith(b":config")]
    valkey.client.unlink(*others[:3])
    reaping.reap()
    assert keys_of(valkey, "gone") == []
    assert reaping.reap() == Reaped()


def test_a_room_that_another_installation_drives_stays(valkey: Valkey) -> None:
    open_room(valkey, "theirs")
    come(valkey, "theirs", range(3))
    left_alone(valkey, "theirs", 30_000)
    assert reaping.reap() == Reaped()
    assert SyncRoomStore(valkey.client).stats(RoomId("theirs")).counts.waiting == 2


def test_keys_that_are_no_rooms_stay(valkey: Valkey) -> None:
    odd = ["corvus:wr:{}:config", "corvus:wr:{A B}:config", "corvus:wr:x:config", "corvus:machines"]
    valkey.client.mset(dict.fromkeys(odd, 1))
    assert reaping.reap() == Reaped()
    assert valkey.client.exists(*odd) == 4


def test_a_room_without_a_gateway_does_its_due_work_but_lets_no_time_pass(valkey: Valkey) -> None:
    a_room("sale")
    open_room(valkey, "sale", capacity=0)
    come(valkey, "sale", range(60))
    open_room(valkey, "sale", capacity=50, version=2)
    left_alone(valkey, "sale", 3_600_000)
    assert reaping.reap().ticked == 1
    counts = SyncRoomStore(valkey.client).stats(RoomId("sale")).counts
    assert (counts.granted, counts.waiting, counts.parked) == (50, 10, 0)


def test_a_room_that_a_gateway_drives_is_left_to_it(valkey: Valkey) -> None:
    a_room("sale")
    open_room(valkey, "sale")
    left_alone(valkey, "sale", 2_000)
    assert reaping.reap() == Reaped()


def test_a_room_open_in_outages_still_shows_gateways_how_long_they_were_away(
    valkey: Valkey,
) -> None:
    a_room("sale", on_outage="open")
    open_room(valkey, "sale", on_outage="open")
    left_alone(valkey, "sale", 60_000)
    assert reaping.reap() == Reaped()
    silence = SyncRoomStore(valkey.client).silence_ms(RoomId("sale"))
    assert silence is not None
    assert silence >= 60_000


def test_a_room_that_no_gateway_has_seen_yet_is_no_trouble() -> None:
    a_room("new")
    assert reaping.reap() == Reaped()


def test_a_store_that_is_away_is_said_and_fails_nothing(settings: Any, tmp_path: Path) -> None:
    a_room("sale")
    settings.STORE_URL = f"unix://{tmp_path}/nothing.sock"
    with pytest.raises(redis.RedisError):
        reaping.reap()
    assert "the store cannot be reached" in tasks.reap()
