"""The room's form: values of lane, prices and shares as an operator types them."""

from __future__ import annotations

from typing import Any

import pytest

from queueing.forms import RoomForm
from queueing.models import Room
from tests.queueing.test_admin import filled

pytestmark = pytest.mark.django_db


def filled_form(**changed: Any) -> RoomForm:
    return RoomForm(filled(**changed))


@pytest.fixture
def _shops() -> None:
    for room in ("shop-a", "shop-b"):
        Room.objects.create(id=room, name=room, on_outage="closed", inside_now="queue")


def test_what_a_browser_sends_for_a_new_room_holds() -> None:
    form = filled_form()
    assert form.is_valid(), form.errors
    assert form.instance.to_config().skip_rate == "0"


@pytest.mark.usefixtures("_shops")
def test_wr_71_other_rooms_are_ticked_and_the_room_itself_is_not_offered() -> None:
    room = Room.objects.get(pk="shop-a")
    form = RoomForm(instance=room)
    assert [value for value, _ in form.fields["shares"].choices] == ["shop-b"]  # type: ignore[attr-defined]
    form = filled_form(shares=["shop-a", "shop-b"])
    assert form.is_valid(), form.errors
    assert form.instance.to_config().shares == ("shop-a", "shop-b")


@pytest.mark.usefixtures("_shops")
@pytest.mark.parametrize("ticked", ["nowhere", "sale"])
def test_wr_71_a_room_that_there_is_not_cannot_be_shared_with(ticked: str) -> None:
    form = filled_form(shares=["shop-a", ticked])
    assert ticked in form.errors["shares"][0]


def test_prices_are_kept_in_their_shortest_form_and_currencies_in_capitals() -> None:
    form = filled_form(skip_rate="0.50", skip_surge="", skip_currency="usd", skip_url="/pay")
    assert "skip_surge" in form.errors
    form = filled_form(skip_rate="0.50", skip_currency="usd", skip_url="/pay")
    assert form.is_valid(), form.errors
    config = form.instance.to_config()
    assert (config.skip_rate, config.skip_currency, config.skip_url) == ("0.5", "USD", "/pay")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("skip_rate", "1,50", "“1,50” is not allowed: use a number"),
        ("skip_rate", "1", "where it is paid"),
        ("skip_currency", "abc", "“ABC” is not allowed: use the three letters"),
        ("skip_url", "//evil.example", "“//evil.example” is not allowed"),
        ("priority_wait_ms", "2m", "between 0 and 60000"),
        ("max_overtake", "91", "90"),
        ("vip_ttl_ms", "30s", "0 (only once) or at least 60 s"),
        ("lease_ttl_ms", "a while", "“a while” is not allowed"),
    ],
)
def test_what_cannot_stand_is_said_once_and_at_its_field(field: str, value: str, said: str) -> None:
    form = filled_form(**{field: value})
    at = "skip_url" if (field, value) == ("skip_rate", "1") else field
    assert list(form.errors) == [at]
    assert any(said in text for text in form.errors[at])


def test_the_ranks_of_the_lane_are_offered_by_name() -> None:
    offered = dict(RoomForm().fields["lane_rank"].choices)  # type: ignore[attr-defined]
    assert (offered[3], offered[6], offered[7]) == ("Customer", "Staff", "Nobody")
    assert 0 not in offered
