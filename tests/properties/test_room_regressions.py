"""Sequences that once told the script and its reference model apart, as short as they can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queueing.config import RoomConfig, RoomId
from queueing.places import Reason, State
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


def test_wr_35_a_slot_of_the_lane_is_used_from_where_it_is_taken_up(wire: Wire) -> None:
    driver = room(wire, capacity=1, share_guard=True, refresh_ms=5_000, priority_wait_ms=5_000)
    driver.enter("inside")
    driver.enter("holder", rank=6)
    waits = driver.enter("moved", rank=6, lane_wait=True, network="192.0.2.0/24")
    assert waits.state is State.LANE
    driver.release("holder")
    for _ in range(2):  # the second check-in is of the network that the slot was taken up from
        place = driver.enter("moved", rank=6, network="198.51.100.0/24")
        assert place.state is State.ACTIVE
    assert driver.enter("moved", rank=6, network="192.0.2.0/24").state is State.SHARED


def test_wr_35_a_pass_has_moved_when_twice_the_renewal_has_gone_by(wire: Wire) -> None:
    driver = room(wire, share_guard=True, refresh_ms=2_000)
    driver.enter("moves", network="192.0.2.0/24")
    driver.jump(3_999)
    assert driver.enter("moves", network="198.51.100.0/24").state is State.SHARED
    driver.jump(1)
    assert driver.enter("moves", network="198.51.100.0/24").state is State.ACTIVE


def test_who_pays_twice_does_not_fall_behind_who_paid_in_between(wire: Wire) -> None:
    driver = room(wire, capacity=0)
    for sid in ("a", "b", "c"):
        driver.enter(sid)
    for sid, payment in (("c", "1"), ("b", "2"), ("c", "3")):
        assert driver.advance(sid, Reason.PAID, payment=payment) == "moved"
    assert [driver.poll(sid).position for sid in ("c", "b", "a")] == [1, 2, 3]
