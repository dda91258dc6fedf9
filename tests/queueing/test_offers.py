"""Prices to the smallest unit, and offers that nobody but the gateway can write."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueing.config import RoomConfig, RoomId, VisitorId
from queueing.offers import (
    GREATEST_AMOUNT,
    LONGEST,
    Offer,
    is_priced,
    looks_like_offer,
    make_offer,
    price,
    read_offer,
    sign_offer,
    with_offer,
)
from queueing.passes import Credential, Keyring, Kind
from queueing.prices import CURRENCIES

KEYS = Keyring(b"a master secret of a test", 3)
SID = VisitorId("visitor-00000001")
SHOP = RoomId("shop")


def room(**values: str) -> RoomConfig:
    priced = {"skip_url": "https://pay.example/", "skip_rate": "0.5", "skip_surge": "0.01"}
    return RoomConfig(id=SHOP, **priced | values)


@pytest.mark.parametrize(
    ("currency", "rate", "surge", "ahead", "front", "waiting", "amount", "cost", "each"),
    [
        ("EUR", "0.5", "0", 12, 0, 40, 600, "6.00", "0.5"),
        ("EUR", "0.5", "0.01", 12, 0, 40, 1_080, "10.80", "0.9"),
        ("EUR", "0.5", "0.01", 12, 2, 40, 900, "9.00", "0.9"),
        ("EUR", "0", "0.005", 1, 0, 1, 1, "0.01", "0.005"),
        ("EUR", "0.0149", "0", 1, 0, 0, 1, "0.01", "0.0149"),
        ("EUR", "0.015", "0", 1, 0, 0, 2, "0.02", "0.015"),
        ("JPY", "99.5", "0", 1, 0, 0, 100, "100", "99.5"),
        ("KWD", "0.0005", "0", 1, 0, 0, 1, "0.001", "0.0005"),
        ("KWD", "1.2345", "0", 10, 0, 0, 12_345, "12.345", "1.2345"),
        ("CLF", "1", "0", 1, 0, 0, 10_000, "1.0000", "1"),
        ("EUR", "1000000", "1000000", 10**6, 0, 10**6, 10**12, "10000000000.00", "1000001000000"),
    ],
)
def test_a_price_is_the_rate_and_the_surge_for_each_person_who_is_passed(
    currency: str,
    rate: str,
    surge: str,
    ahead: int,
    front: int,
    waiting: int,
    amount: int,
    cost: str,
    each: str,
) -> None:
    sold = room(skip_rate=rate, skip_surge=surge, skip_currency=currency)
    found = price(sold, ahead=ahead, front=front, waiting=waiting)
    assert found is not None
    assert (found.amount, found.cost, found.per_position) == (amount, cost, each)
    assert found.positions == ahead - front


@pytest.mark.parametrize(
    "changes",
    [
        {"skip_url": ""},
        {"skip_rate": "0", "skip_surge": "0"},
        {"skip_rate": "nonsense", "skip_surge": "0"},
        {"skip_currency": "XYZ"},
    ],
)
def test_without_rates_or_a_payment_page_nothing_is_sold(changes: dict[str, str]) -> None:
    assert price(room(**changes), ahead=9, front=0, waiting=10) is None


def test_who_would_pass_nobody_is_offered_nothing() -> None:
    assert is_priced(room())
    assert price(room(), ahead=0, front=0, waiting=10) is None
    assert price(room(), ahead=4, front=4, waiting=10) is None
    assert price(room(skip_rate="0.000001", skip_surge="0"), ahead=4, front=0, waiting=10) is None


_RATE = st.decimals(0, 1_000_000, places=6, allow_nan=False).map(lambda d: format(d, "f"))


@given(
    _RATE, _RATE, st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(sorted(CURRENCIES))
)
def test_the_amount_is_the_exact_product_rounded_half_up(
    rate: str, surge: str, ahead: int, waiting: int, currency: str
) -> None:
    sold = room(skip_rate=rate, skip_surge=surge, skip_currency=currency)
    found = price(sold, ahead=ahead, front=0, waiting=waiting)
    exact = (Fraction(rate) + Fraction(surge) * waiting) * ahead * 10 ** CURRENCIES[currency]
    expected = min(int(exact + Fraction(1, 2)), GREATEST_AMOUNT)
    assert (found.amount if found else 0) == expected
    if found:
        assert Decimal(found.cost).scaleb(CURRENCIES[currency]) == expected
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", found.cost)
        assert Fraction(found.per_position) == Fraction(rate) + Fraction(surge) * waiting


_OFFERS = st.builds(
    Offer,
    room=st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True).map(RoomId),
    sid=st.from_regex(r"[A-Za-z0-9_-]{16}", fullmatch=True).map(VisitorId),
    positions=st.integers(1, 2**31),
    amount=st.integers(1, GREATEST_AMOUNT),
    currency=st.sampled_from(sorted(CURRENCIES)),
    iat_s=st.integers(1, 10**10),
    exp_s=st.integers(1, 10**10),
)


@given(_OFFERS)
def test_an_offer_comes_back_as_it_was_made_and_fits_a_payment_reference(offer: Offer) -> None:
    token = sign_offer(offer, KEYS)
    assert len(token) <= LONGEST
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    assert looks_like_offer(token)
    assert read_offer(token, offer.room, KEYS) == offer


@given(_OFFERS, st.data())
def test_no_changed_byte_of_an_offer_is_believed(offer: Offer, data: st.DataObject) -> None:
    token = sign_offer(offer, KEYS)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="utf-8"))
    changed = token[:at] + other + token[at + 1 :]
    read = read_offer(changed, offer.room, KEYS)
    # The last character before the signature may have spare bits; what is read is then the same.
    assert read is None or read == offer


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")), st.booleans())
def test_nonsense_is_no_offer(text: str, prefixed: bool) -> None:
    assert read_offer(("skip1-" if prefixed else "") + text, SHOP, KEYS) is None


def test_wr_36_an_offer_of_one_room_is_none_in_another() -> None:
    found = price(room(), ahead=3, front=0, waiting=3)
    assert found
    token = sign_offer(make_offer(found, SHOP, SID, now_ms=1_900_000_000_000), KEYS)
    assert read_offer(token, SHOP, KEYS)
    assert read_offer(token, RoomId("shop-2"), KEYS) is None
    assert read_offer(token, RoomId("sho"), KEYS) is None


def test_a_price_holds_ten_minutes() -> None:
    found = price(room(), ahead=3, front=0, waiting=3)
    assert found
    offer = make_offer(found, SHOP, SID, now_ms=1_900_000_000_999)
    assert (offer.iat_s, offer.exp_s) == (1_900_000_000, 1_900_000_600)


def test_wr_28_an_offer_survives_one_rotation_of_the_keys_and_not_two() -> None:
    offer = Offer(room=SHOP, sid=SID, positions=1, amount=5, currency="EUR", iat_s=1, exp_s=601)
    token = sign_offer(offer, KEYS)
    master = b"a master secret of a test"
    assert read_offer(token, SHOP, Keyring(master, 4)) == offer
    assert read_offer(token, SHOP, Keyring(master, 5)) is None
    assert read_offer(token, SHOP, Keyring(b"another master", 3)) is None


def test_a_pass_is_no_offer_and_an_offer_is_no_pass() -> None:
    now = 1_900_000_000_000
    passed = KEYS.sign(
        Credential(kind=Kind.ADMITTED, room=SHOP, sid=SID, iat_ms=now, exp_ms=now + 1)
    )
    assert read_offer(passed, SHOP, KEYS) is None
    offer = Offer(room=SHOP, sid=SID, positions=1, amount=5, currency="EUR", iat_s=1, exp_s=601)
    assert KEYS.read(sign_offer(offer, KEYS).encode(), SHOP).credential is None
    assert read_offer(sign_offer(replace(offer, amount=1), KEYS), SHOP, KEYS) != offer


def documented(language: str) -> str:
    """Give the code of the documentation that reads an offer."""
    text = (Path(__file__).parents[2] / "docs/skip-the-line.md").read_text("utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return next(block for block in blocks if "expires" in block)


def test_a_payment_page_reads_the_amount_as_the_documentation_says() -> None:
    offer = Offer(
        room=RoomId("box-office"),
        sid=VisitorId("-_visitor_-00001"),
        positions=12,
        amount=1_080,
        currency="EUR",
        iat_s=1_900_000_000,
        exp_s=1_900_000_600,
    )
    token = sign_offer(offer, KEYS)
    names: dict[str, Any] = {}
    exec(documented("python"), names)  # noqa: S102 - our own documentation
    code = documented("php") + f"echo json_encode(corvus_offer('{token}'));"
    php = subprocess.run(["php", "-r", code], capture_output=True, check=True, text=True)
    for read in (names["read"](token), json.loads(php.stdout)):
        assert read["room"] == "box-office"
        assert (read["positions"], read["amount"], read["currency"]) == ("12", "1080", "EUR")
        assert read["expires"] == "1900000600"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://pay.example/", "https://pay.example/?offer=T"),
        ("https://pay.example/?", "https://pay.example/?offer=T"),
        ("https://pay.example/?a=b", "https://pay.example/?a=b&offer=T"),
        ("https://pay.example/?a=b&", "https://pay.example/?a=b&offer=T"),
        ("https://pay.example/?a=b#now", "https://pay.example/?a=b&offer=T#now"),
        ("https://pay.example/#a?b", "https://pay.example/?offer=T#a?b"),
        ("/pay", "/pay?offer=T"),
        ("https://pay.example", "https://pay.example?offer=T"),
    ],
)
def test_the_offer_is_added_to_whatever_address_the_payment_page_has(
    address: str, expected: str
) -> None:
    found = with_offer(address, "T")
    assert found == expected
    assert parse_qs(urlsplit(found).query)["offer"] == ["T"]
