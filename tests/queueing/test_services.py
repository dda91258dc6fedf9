"""What a change of a room does, and what it never does by half."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from queueing import services
from queueing.config import BOUNDS, Mode, problems
from queueing.models import Room

pytestmark = pytest.mark.django_db


@pytest.fixture
def heard() -> Iterator[list[dict[str, Any]]]:
    """Hear what is announced, in the place of who publishes it."""
    receivers, services.room_changed.receivers = services.room_changed.receivers, []
    services.room_changed.sender_receivers_cache.clear()
    calls: list[dict[str, Any]] = []

    def hear(**said: Any) -> None:
        calls.append(said)

    services.room_changed.connect(hear)
    yield calls
    services.room_changed.receivers = receivers
    services.room_changed.sender_receivers_cache.clear()


def a_room() -> Room:
    return Room(id="sale", name="Sale", on_outage="closed", inside_now="queue")


def test_a_save_is_announced_with_what_changed_and_by_whom(heard: list[dict[str, Any]]) -> None:
    services.save_room(room=a_room(), author="ada")
    services.set_capacity(room_id="sale", capacity=7, author="bob")
    assert [(c["room"].pk, c["author"]) for c in heard] == [("sale", "ada"), ("sale", "bob")]
    assert heard[1]["changed"] == {"capacity"}


def test_every_change_raises_the_version_and_a_save_without_change_does_not(
    heard: list[dict[str, Any]],
) -> None:
    services.save_room(room=a_room(), author="ada")
    services.set_mode(room_id="sale", mode=Mode.PAUSED, author="ada")
    services.set_mode(room_id="sale", mode=Mode.PAUSED, author="ada")
    assert Room.objects.get(pk="sale").version == 2
    assert len(heard) == 2


def test_a_receiver_that_refuses_undoes_the_save(heard: list[dict[str, Any]]) -> None:
    services.save_room(room=a_room(), author="ada")

    def refuse(**said: Any) -> None:
        raise ValidationError("no")

    services.room_changed.connect(refuse)
    with pytest.raises(ValidationError):
        services.set_capacity(room_id="sale", capacity=7, author="ada")
    room = Room.objects.get(pk="sale")
    assert (room.capacity, room.version) == (434, 1)


@pytest.mark.parametrize("capacity", [-1, 2**31])
def test_wr_16_a_capacity_out_of_bounds_is_refused(
    heard: list[dict[str, Any]], capacity: int
) -> None:
    services.save_room(room=a_room(), author="ada")
    with pytest.raises(ValidationError) as refusal:
        services.set_capacity(room_id="sale", capacity=capacity, author="ada")
    assert "capacity" in refusal.value.message_dict


def test_wr_16_a_capacity_of_nought_holds_the_line(heard: list[dict[str, Any]]) -> None:
    services.save_room(room=a_room(), author="ada")
    assert services.set_capacity(room_id="sale", capacity=0, author="ada").capacity == 0


def test_a_room_shares_only_with_rooms_that_are_there(heard: list[dict[str, Any]]) -> None:
    room = a_room()
    room.shares = ["shop", "nowhere"]
    with pytest.raises(ValidationError) as refusal:
        services.save_room(room=room, author="ada")
    assert "“shop, nowhere” is not allowed" in refusal.value.message_dict["shares"][0]


def test_a_room_that_goes_is_shared_with_no_more(heard: list[dict[str, Any]]) -> None:
    shop = Room(id="shop", name="Shop", on_outage="closed", inside_now="queue")
    services.save_room(room=shop, author="ada")
    sale = a_room()
    sale.shares = ["shop"]
    services.save_room(room=sale, author="ada")
    services.remove_room(room=shop, author="ada")
    assert Room.objects.get(pk="sale").shares == []
    assert heard[-1]["changed"] == {"shares"}


class AnyValues(TestCase):
    """Whatever numbers are saved: what cannot hold never gets into the database."""

    @given(
        st.fixed_dictionaries(
            {name: st.integers(low, min(high, 10**8)) for name, (low, high) in BOUNDS.items()}
        )
    )
    def test_what_is_saved_holds(self, values: dict[str, int]) -> None:
        room = Room(id="main", name="M", on_outage="open", inside_now="keep", **values)
        wrong = {p.field for p in problems(room.to_config())}
        try:
            services.mirror_room(room_id="any", fields=values, first={"name": "A"} | CHOICES)
            refused = set()
        except ValidationError as refusal:
            refused = set(refusal.message_dict)
        assert refused == wrong
        assert Room.objects.filter(pk="any").exists() == (not wrong)


CHOICES = {"on_outage": "open", "inside_now": "keep"}
