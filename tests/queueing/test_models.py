"""A room's values and combinations: what the database and the form let through."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from hypothesis import given
from hypothesis import strategies as st

from queueing.config import BOUNDS, RoomConfig
from queueing.durations import format_duration, parse_duration
from queueing.models import Room


def a_room(**changed: Any) -> Room:
    return Room(
        **{"id": "sale", "name": "Sale", "on_outage": "closed", "inside_now": "queue", **changed}
    )


def test_a_new_room_has_the_defaults_of_the_plain_data() -> None:
    assert a_room().to_config() == RoomConfig(id="sale", name="Sale")  # type: ignore[arg-type]


def test_every_field_of_the_plain_data_comes_from_the_row() -> None:
    own = {f.attname for f in Room._meta.concrete_fields} | {"page"}
    assert {f.name for f in fields(RoomConfig)} <= own


def test_wr_03_an_idle_limit_below_twice_the_renewal_is_an_error_at_its_field() -> None:
    with pytest.raises(ValidationError) as refusal:
        a_room(active_ttl_ms=29_999, refresh_ms=15_000).clean()
    assert "at least twice the pass renewal" in str(refusal.value.message_dict["active_ttl_ms"])


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"absolute_ttl_ms": 1000}, "absolute_ttl_ms"),
        ({"return_window_ms": 60_000}, "return_window_ms"),
        ({"id": "-sale"}, "id"),
        ({"id": "Sale"}, "id"),
        ({"capacity": 2**31}, "capacity"),
        ({"polls_per_second": 0}, "polls_per_second"),
        ({"reject_status": 500}, "reject_status"),
        ({"on_outage": ""}, "on_outage"),
        ({"inside_now": ""}, "inside_now"),
        ({"order": ""}, "order"),
        ({"lane_rank": 0}, "lane_rank"),
        ({"lease_ttl_ms": 1}, "lease_ttl_ms"),
        ({"skip_rate": "free"}, "skip_rate"),
        ({"skip_rate": "1"}, "skip_url"),
        ({"skip_url": "//evil.example"}, "skip_url"),
        ({"skip_currency": "XYZ"}, "skip_currency"),
        ({"shares": ["sale"]}, "shares"),
        ({"vip_ttl_ms": 1_000}, "vip_ttl_ms"),
    ],
)
def test_each_fault_is_said_at_its_field(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        a_room(**changed).full_clean(validate_unique=False, validate_constraints=False)
    assert field in refusal.value.message_dict


@pytest.mark.django_db
@pytest.mark.parametrize(
    "changed",
    [
        {"active_ttl_ms": 20_000},
        {"return_window_ms": 60_000},
        {"mode": "ajar"},
        {"unit": "people"},
        {"on_outage": ""},
        {"inside_now": ""},
        {"order": "alphabet"},
    ],
)
def test_the_database_refuses_it_too(changed: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        a_room(**changed).save(force_insert=True)


def test_every_field_says_what_it_means() -> None:
    shown = [f for f in Room._meta.concrete_fields if f.editable and f.name != "changed_at"]
    assert [f.name for f in shown if not f.help_text] == []


def test_a_price_is_kept_in_its_shortest_form() -> None:
    room = a_room(skip_rate=" 0.500 ", skip_surge="010", skip_url="/pay")
    room.full_clean(validate_unique=False, validate_constraints=False)
    assert (room.to_config().skip_rate, room.to_config().skip_surge) == ("0.5", "10")


def test_an_own_page_is_named_by_its_content() -> None:
    assert a_room().to_config().page == ""
    one, two = a_room(page_html="<p>a"), a_room(page_html="<p>b")
    assert one.page_digest != two.page_digest
    assert one.to_config().page == a_room(id="other", page_html="<p>a").page_digest


@given(
    st.fixed_dictionaries(
        {n: st.integers(low, min(high, 10**9)) for n, (low, high) in BOUNDS.items()}
    )
)
def test_a_row_is_right_exactly_when_the_plain_data_is(values: dict[str, int]) -> None:
    from queueing.config import problems

    room = a_room(**values)
    expected = {p.field for p in problems(room.to_config())}
    try:
        room.clean()
        found = set()
    except ValidationError as refusal:
        found = set(refusal.message_dict)
    assert found == expected


@given(st.integers(0, 10**12))
def test_a_span_is_read_as_it_is_written(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("15", 15_000),
        ("15s", 15_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        (" 2 D ", 172_800_000),
        ("0", 0),
    ],
)
def test_spans_are_read_as_people_write_them(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "m", "5 minutes", "-5s", "5m5", "1e3", "٥s", "5s,"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a span of time such as"):
        parse_duration(text)
