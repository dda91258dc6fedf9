"""What a room's values may be: leases, lane, shares, prices, and documents of other versions."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueing.config import Order, RoomConfig, RoomId, problems
from queueing.prices import CURRENCIES, format_price, is_page_address, read_price

ROOM = RoomConfig(id=RoomId("sale"))
PAID = {"skip_rate": "0.5", "skip_url": "/pay"}


def faults(**values: Any) -> dict[str, str]:
    return {p.field: p.message for p in problems(replace(ROOM, **values))}


def test_the_defaults_hold() -> None:
    assert problems(ROOM) == []


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("lease_ttl_ms", 1_999, "between 2000 and 600000"),
        ("lease_ttl_ms", 600_001, "between 2000 and 600000"),
        ("priority_cap", -1, "between 0 and"),
        ("lane_rank", 0, "between 1 and 7"),
        ("lane_rank", 8, "between 1 and 7"),
        ("priority_wait_ms", 60_001, "between 0 and 60000"),
        ("max_overtake", 91, "between 0 and 90"),
        ("vip_ttl_ms", 86_400_001, "between 0 and 86400000"),
        ("vip_ttl_ms", 59_999, "0 (only once) or at least 60 s"),
        ("shares", ("sale",), "name other rooms"),
        ("shares", ("a", "a"), "name each room once"),
        ("skip_rate", "-1", "a number from 0 to 1000000"),
        ("skip_rate", "1e3", "a number from 0 to 1000000"),
        ("skip_rate", "NaN", "a number from 0 to 1000000"),
        ("skip_rate", "", "a number from 0 to 1000000"),
        ("skip_surge", "1000000.1", "a number from 0 to 1000000"),
        ("skip_surge", "0.0000001", "at most 6 decimals"),
        ("skip_surge", "٣", "a number from 0 to 1000000"),
        ("skip_currency", "eur", "ISO 4217"),
        ("skip_currency", "XXX", "ISO 4217"),
        ("skip_currency", "EURO", "ISO 4217"),
    ],
)
def test_a_value_that_cannot_stand_is_said_at_its_field(
    field: str, value: Any, allowed: str
) -> None:
    said = faults(**{"skip_url": "/pay", "admit_ttl_ms": 3_600_000, field: value})
    assert list(said) == [field]
    assert allowed in said[field]
    shown = ", ".join(value) if isinstance(value, tuple) else str(value)
    assert shown in said[field] or f"{int(value) / 1000:g} s" in said[field]


@pytest.mark.parametrize("lease_ttl_ms", [2_000, 30_000, 600_000])
def test_a_dead_gateways_slot_is_not_kept_longer_than_a_pass_lives(lease_ttl_ms: int) -> None:
    assert faults(lease_ttl_ms=lease_ttl_ms, admit_ttl_ms=600_000) == {}
    said = faults(lease_ttl_ms=lease_ttl_ms, admit_ttl_ms=30_000)
    assert list(said) == (["lease_ttl_ms"] if lease_ttl_ms > 30_000 else [])


def test_a_price_needs_the_page_where_it_is_paid_and_not_the_other_way_round() -> None:
    assert "where it is paid" in faults(skip_rate="0.01")["skip_url"]
    assert "where it is paid" in faults(skip_surge="0.01")["skip_url"]
    assert faults(skip_url="/pay") == {}
    assert faults(**PAID) == {}
    assert faults(skip_rate="0.000") == {}


@pytest.mark.parametrize(
    "url",
    [
        "/",
        "/pay",
        "/pay?shop=1&x=%20#top",
        "https://pay.example/checkout",
        "http://pay.example:8080",
        "HTTPS://Pay.example/",
        "https://[2001:db8::1]/x",
        "/" + "a" * 2047,
    ],
)
def test_a_payment_page_is_a_path_of_the_site_or_an_address_of_the_web(url: str) -> None:
    assert is_page_address(url)
    assert faults(**{**PAID, "skip_url": url}) == {}


@pytest.mark.parametrize(
    "url",
    [
        "//evil.example",
        "/\\evil.example",
        "\\/evil.example",
        "/pay\\..\\x",
        "https:/evil.example",
        "https:evil.example",
        "https://",
        "https:///pay",
        "https://user@pay.example/",
        "https://pay.example:99999/",
        "https://pay.example:0/",
        "https://[::1/",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://pay.example/",
        "pay",
        " /pay",
        "/pay here",
        "/pay\n",
        "/pay\t",
        '/pay"',
        "/pay'",
        "/pay<",
        "/pay>",
        "/p\xe4y",
        "/" + "a" * 2048,
    ],
)
def test_what_would_lead_elsewhere_or_break_out_of_a_page_is_no_payment_page(url: str) -> None:
    said = faults(skip_url=url)
    assert "http:// or https://" in said["skip_url"]
    assert len(said["skip_url"]) < 400


@given(st.text(max_size=30))
def test_no_payment_page_can_end_an_attribute_or_name_a_host_by_a_path(text: str) -> None:
    for url in (text, f"/{text}", f"https://{text}"):
        if is_page_address(url):
            assert not set(url) & set(" \"'<>\\\r\n\t")
            assert not url.startswith("//")
            assert url.startswith("/") or url.lower().startswith(("http://", "https://"))


@given(st.decimals(0, 1_000_000, places=6))
def test_a_price_is_read_as_it_is_written(price: Decimal) -> None:
    assert read_price(format_price(price)) == price
    assert "E" not in format_price(price)


@given(st.text(max_size=12))
def test_what_is_read_as_a_price_is_one(text: str) -> None:
    price = read_price(text)
    assert price is None or 0 <= price <= 1_000_000


def test_currencies_have_the_digits_of_their_smallest_unit() -> None:
    assert (CURRENCIES["EUR"], CURRENCIES["JPY"], CURRENCIES["KWD"]) == (2, 0, 3)
    assert all(len(code) == 3 and code.isupper() for code in CURRENCIES)


def test_a_document_gives_the_room_back_that_it_was_made_of() -> None:
    room = replace(ROOM, order=Order.RANK, shares=(RoomId("a"), RoomId("b")), **PAID)
    assert RoomConfig.from_document(room.to_document()) == room


def test_a_document_of_an_older_version_has_todays_defaults() -> None:
    assert RoomConfig.from_document({"id": "sale", "capacity": 434}) == ROOM
