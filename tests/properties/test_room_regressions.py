"""Sequences that once told the script and its reference model apart, as short as they can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queueing.config import RoomConfig, RoomId
from queueing.places import Reason
from tests.support.room_driver import RoomDriver, Wire
from tests.support.valkey import Valkey


@pytest.fixture
def wire(valkey: Valkey) -> Iterator[Wire]:
    wire = Wire(valkey.socket_path)
    yield wire
    wire.close()


def room(wire: Wire, **config: Any) -> RoomDriver:
    return RoomDriver(wire, RoomConfig(id=RoomId("regression"), **config))


def test_nobody_pays_a_way_past_who_has_paid_so_an_earlier_payer_has_returned(wire: Wire) -> None:
    driver = room(wire, capacity=0, queue_ttl_ms=5_000)
    for sid in ("second", "first"):
        driver.enter(sid)
    for sid in ("first", "second"):
        driver.advance(sid, Reason.PAID, payment=sid)
    driver.pass_time(4_000)
    driver.poll("second")
    driver.pass_time(4_000)  # `first` falls silent
    shown = driver.poll("second").position
    driver.poll("first")
    risen = driver.poll("second", shown=shown)
    assert (shown, risen.position, risen.reason) == (1, 2, Reason.RETURNED)
