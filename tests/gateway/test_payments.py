"""Skipping the line by paying: from the price to the front, and who must not get there."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st

from proxy.gateway.payments import (
    NotOurs,
    NotTaken,
    Paid,
    is_signed,
    read_order,
    read_stripe_event,
    stripe_amount,
)
from queueing.config import RoomConfig, RoomId, VisitorId
from queueing.offers import Offer, sign_offer
from queueing.passes import Keyring
from tests.support.gateways import SECRET, Gateways, running_gateways
from tests.support.running import eventually
from tests.support.valkey import Valkey, running_valkey

PROMOTE = "a secret of the payment flow, 32 bytes"
STRIPE = "whsec_a_secret_of_the_webhook"
NOW_S = 1_900_000_000
KEYS = Keyring(SECRET.encode(), 1)
SHOP = RoomId("shop")
SID = VisitorId("visitor-00000001")


def offer(**changes: Any) -> Offer:
    values: dict[str, Any] = {
        "room": SHOP,
        "sid": SID,
        "positions": 3,
        "amount": 600,
        "currency": "EUR",
        "iat_s": NOW_S,
        "exp_s": NOW_S + 600,
    }
    return Offer(**values | changes)


TOKEN = sign_offer(offer(), KEYS)


# What is read, without a gateway


def mac(secret: str, sent_at: bytes, body: bytes) -> bytes:
    return b"v1=" + hmac.new(secret.encode(), sent_at + b"." + body, "sha256").hexdigest().encode()


@given(st.binary(max_size=200), st.integers(-300, 300))
def test_a_right_signature_of_now_is_right(body: bytes, age: int) -> None:
    sent_at = b"%d" % (NOW_S + age)
    assert is_signed(PROMOTE, sent_at, mac(PROMOTE, sent_at, body), body, NOW_S)


@given(st.binary(max_size=100), st.data())
def test_wr_36_no_changed_byte_of_a_signed_order_passes(body: bytes, data: st.DataObject) -> None:
    sent_at = b"%d" % NOW_S
    right = mac(PROMOTE, sent_at, body)
    at = data.draw(st.integers(0, len(right) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != right[at]))
    wrong = right[:at] + bytes([byte]) + right[at + 1 :]
    assert not is_signed(PROMOTE, sent_at, wrong, body, NOW_S)
    assert not is_signed(PROMOTE, sent_at, right, body + b" ", NOW_S)
    assert not is_signed(PROMOTE, b"%d" % (NOW_S + 1), right, body, NOW_S)
    assert not is_signed("another secret", sent_at, right, body, NOW_S)


@pytest.mark.parametrize("sent_at", [b"", b"x", b"-1", b"1e9", b"%d" % (NOW_S - 301), b"9" * 13])
def test_a_signature_of_another_time_is_wrong(sent_at: bytes) -> None:
    assert not is_signed(PROMOTE, sent_at, mac(PROMOTE, sent_at, b"{}"), b"{}", NOW_S)
    late = b"%d" % (NOW_S + 301)
    assert not is_signed(PROMOTE, late, mac(PROMOTE, late, b"{}"), b"{}", NOW_S)


@pytest.mark.parametrize(
    ("order", "status", "field"),
    [
        ([], 400, ""),
        ({}, 400, "payment"),
        ({"offer": TOKEN, "payment": ""}, 400, "payment"),
        ({"offer": TOKEN, "payment": "x" * 129}, 400, "payment"),
        ({"offer": TOKEN, "payment": "a b"}, 400, "payment"),
        ({"offer": TOKEN, "payment": 7}, 400, "payment"),
        ({"offer": TOKEN + "x", "payment": "p"}, 400, "offer"),
        ({"offer": 7, "payment": "p"}, 400, "offer"),
        ({"payment": "p"}, 400, "offer"),
        ({"offer": sign_offer(offer(room=RoomId("b")), KEYS), "payment": "p"}, 400, "offer"),
        ({"offer": sign_offer(offer(), Keyring(b"x", 1)), "payment": "p"}, 400, "offer"),
        ({"offer": TOKEN, "payment": "p", "paid_at": "now"}, 400, "paid_at"),
        ({"offer": TOKEN, "payment": "p", "paid_at": True}, 400, "paid_at"),
        ({"offer": TOKEN, "payment": "p", "paid_at": NOW_S + 301}, 400, "paid_at"),
    ],
)
def test_an_order_that_is_wrong_is_told_which_field(order: Any, status: int, field: str) -> None:
    said = read_order(json.dumps(order).encode(), SHOP, KEYS, NOW_S)
    assert isinstance(said, NotTaken)
    assert (said.status, said.field) == (status, field)


@given(st.binary(max_size=60))
def test_nonsense_is_no_order_and_no_event(raw: bytes) -> None:
    assert isinstance(read_order(raw, SHOP, KEYS, NOW_S), NotTaken)
    assert not isinstance(read_stripe_event(raw, SHOP, KEYS), Paid)


@pytest.mark.parametrize(
    ("now_s", "paid_at", "counts"),
    [
        (NOW_S + 600, None, True),
        (NOW_S + 601, None, False),
        (NOW_S + 9_000, NOW_S + 600, True),
        (NOW_S + 9_000, NOW_S + 601, False),
        (NOW_S + 590, NOW_S + 650, True),  # the flow's clock is a minute ahead
    ],
)
def test_what_counts_is_when_it_was_paid(now_s: int, paid_at: int | None, counts: bool) -> None:
    order = {"offer": TOKEN, "payment": "p", "paid_at": paid_at}
    said = read_order(json.dumps(order).encode(), SHOP, KEYS, now_s)
    assert isinstance(said, Paid) == counts
    if isinstance(said, NotTaken):
        assert said.status == 410


def event(kind: str = "checkout.session.completed", **changes: Any) -> dict[str, Any]:
    session = {
        "id": "cs_test_1",
        "object": "checkout.session",
        "client_reference_id": TOKEN,
        "payment_status": "paid",
        "amount_total": 600,
        "currency": "eur",
        "created": NOW_S + 100,
    }
    return {
        "id": "evt_1",
        "object": "event",
        "type": kind,
        "data": {"object": session | changes},
    }


def read(document: Any) -> Paid | NotTaken | NotOurs:
    return read_stripe_event(json.dumps(document).encode(), SHOP, KEYS)


def test_a_paid_checkout_session_is_a_payment_by_its_id() -> None:
    assert read(event()) == Paid(offer(), "cs_test_1")
    assert read(event(amount_total=601)) == Paid(offer(), "cs_test_1")


@pytest.mark.parametrize(
    "document",
    [
        event("invoice.paid"),
        event(client_reference_id=None),
        event(client_reference_id="order-17"),
        event(client_reference_id=sign_offer(offer(room=RoomId("other")), KEYS)),
        event(payment_status="unpaid"),
        event(payment_status="no_payment_required"),
        {"type": "checkout.session.completed"},
        {"type": "checkout.session.completed", "data": {"object": []}},
    ],
)
def test_stripes_other_events_are_left_alone(document: Any) -> None:
    assert isinstance(read(document), NotOurs)


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"client_reference_id": TOKEN[:-1] + ("A" if TOKEN[-1] != "A" else "B")}, 400, "client"),
        ({"id": "no id"}, 400, "id"),
        ({"currency": "usd"}, 409, "currency"),
        ({"currency": None}, 409, "currency"),
        ({"amount_total": 599}, 409, "amount_total"),
        ({"amount_total": "600"}, 409, "amount_total"),
        ({"created": NOW_S + 601}, 410, "offer"),
        ({"created": None}, 410, "offer"),
    ],
)
def test_a_payment_that_does_not_fit_its_offer_moves_nobody(
    changes: dict[str, Any], status: int, field: str
) -> None:
    said = read(event(**changes))
    assert isinstance(said, NotTaken)
    assert said.status == status
    assert said.field.startswith(field)


@pytest.mark.parametrize(
    ("currency", "amount", "stripes"),
    [("EUR", 600, 600), ("JPY", 600, 600), ("ISK", 600, 60_000), ("MGA", 601, 7), ("KWD", 5, 5)],
)
def test_amounts_are_compared_as_stripe_counts_them(
    currency: str, amount: int, stripes: int
) -> None:
    assert stripe_amount(offer(currency=currency, amount=amount)) == stripes


def test_stripes_library_needs_no_network_to_check_a_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    body = json.dumps(event())
    header = stripe.WebhookSignature.generate_signature_header(body, STRIPE)
    assert stripe.WebhookSignature.verify_header(body.encode(), header, STRIPE, 300)


# With real gateways


@pytest.fixture(scope="module")
def store() -> Iterator[Valkey]:
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture(scope="module")
def till(store: Valkey, page_bundle: bytes) -> Iterator[Gateways]:
    """Two gateways: the first knows the payment flow's secrets, the second does not."""
    with running_gateways(store.url, page_bundle, 0) as world:
        world.start({"CORVUS_PROMOTE_SECRET": PROMOTE, "CORVUS_STRIPE_SECRET": STRIPE})
        world.start()
        yield world


def shop(till: Gateways, **values: Any) -> RoomConfig:
    priced = {"skip_url": "https://pay.example/?shop=1", "skip_rate": "1.5", "skip_surge": "0.25"}
    room = till.room(capacity=0, **priced | values)
    till.publish(room)
    return room


class Waiter:
    """One visitor in line."""

    def __init__(self, till: Gateways, room: RoomConfig, stack: contextlib.ExitStack) -> None:
        self.room = room
        self.client = stack.enter_context(till.one.api())
        self.client.get("/")
        assert self.client.get("/").status_code == 429

    def status(self, shown: int = 0) -> dict[str, Any]:
        path = f"/__corvus/wr/{self.room.id}/status?shown={shown}"
        document: dict[str, Any] = eventually(
            lambda: (a := self.client.get(path)).status_code == 200 and a.json()
        )
        return document

    def offer(self) -> str:
        return parse_qs(urlsplit(self.status()["skip_url"]).query)["offer"][0]


@pytest.fixture
def people(till: Gateways) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield lambda room, count: [Waiter(till, room, stack) for _ in range(count)]


def order(
    till: Gateways, room: RoomConfig, document: Any, *, secret: str = PROMOTE, age_s: int = 0
) -> httpx.Response:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    sent_at = b"%d" % (time.time() - age_s)
    headers = {
        b"corvus-timestamp": sent_at,
        b"corvus-signature": mac(secret, sent_at, body),
        b"content-type": b"application/json",
    }
    with till.one.client() as client:
        return client.post(f"/__corvus/wr/{room.id}/promote", content=body, headers=headers)


def tell_stripe(
    till: Gateways, room: RoomConfig, document: Any, secret: str = STRIPE
) -> httpx.Response:
    body = json.dumps(document)
    header = stripe.WebhookSignature.generate_signature_header(body, secret)
    with till.one.client() as client:
        return client.post(
            f"/__corvus/wr/{room.id}/stripe", content=body, headers={"stripe-signature": header}
        )


def test_who_pays_the_quoted_price_stands_in_front_and_the_others_are_told_why(
    till: Gateways, people: Any
) -> None:
    room = shop(till)
    first, second, third, fourth = people(room, 4)
    quoted = third.status()
    assert quoted["position"] == 3
    assert quoted["rate_per_pos"] == "2.5"  # 1.5 + 0.25 for each of four waiting
    assert (quoted["skip_cost"], quoted["skip_currency"]) == ("5.00", "EUR")
    assert quoted["has_pass"] is False
    assert quoted["skip_url"].startswith("https://pay.example/?shop=1&offer=skip1-")
    assert "skip_cost" not in first.status(), "nobody would be passed"
    done = order(till, room, {"offer": third.offer(), "payment": "pay-1"})
    assert (done.status_code, done.json()) == (200, {"result": "moved"})
    assert third.status()["position"] == 1
    assert "skip_cost" not in third.status()
    told = first.status(shown=1)
    assert (told["position"], told["reason"]) == (2, "paid")
    # The next payer stands behind the earlier one, and pays for those between only.
    last = fourth.status()
    assert (last["position"], last["skip_cost"]) == (4, "5.00")
    order(till, room, {"offer": fourth.offer(), "payment": "pay-2"})
    places = [p.status()["position"] for p in (third, fourth, first, second)]
    assert places == [1, 2, 3, 4]


def test_a_payment_counts_once_however_often_it_is_delivered(till: Gateways, people: Any) -> None:
    room = shop(till)
    first, second, third = people(room, 3)
    paid = {"offer": third.offer(), "payment": "pay-x"}
    assert order(till, room, paid).json() == {"result": "moved"}
    assert order(till, room, {"offer": second.offer(), "payment": "pay-y"}).status_code == 200
    assert [order(till, room, paid).json()["result"] for _ in range(2)] == ["already"] * 2
    assert [p.status()["position"] for p in (third, second, first)] == [1, 2, 3]


def test_a_vip_goes_to_the_front_again_and_is_not_asked_to_pay(till: Gateways, people: Any) -> None:
    room = shop(till, vip_ttl_ms=3_600_000)
    _, second = people(room, 2)
    order(till, room, {"offer": second.offer(), "payment": "vip-1"})
    status = second.status()
    assert status["has_pass"] is True
    assert "skip_cost" not in status
    page = second.client.get("/", headers={"accept": "text/html"})
    assert 'id="skip"' not in page.text


def test_the_page_carries_the_card_only_where_there_is_a_price(till: Gateways, people: Any) -> None:
    room = shop(till)
    _, second = people(room, 2)
    page = second.client.get("/", headers={"accept": "text/html", "accept-language": "de"})
    assert "Für 2,00\u00a0€ nach vorn" in page.text
    assert 'href="https://pay.example/?shop=1&amp;offer=skip1-' in page.text
    free = shop(till, skip_rate="0", skip_surge="0")
    _, nobody = people(free, 2)
    keys = nobody.status().keys()
    assert not {"skip_cost", "skip_currency", "rate_per_pos", "skip_url", "has_pass"} & keys
    assert (
        "skip"
        not in nobody.client.get("/", headers={"accept": "text/html"})
        .text.partition("<script>")[0]
        .partition("</style>")[2]
    )


def test_wr_36_nobody_without_the_secret_moves_anybody(till: Gateways, people: Any) -> None:
    room = shop(till)
    _, second = people(room, 2)
    document = {"offer": second.offer(), "payment": "forged"}
    assert order(till, room, document, secret="wrong").status_code == 401
    assert order(till, room, document, age_s=301).status_code == 401
    with till.one.client() as client:
        bare = client.post(f"/__corvus/wr/{room.id}/promote", json=document)
        assert bare.status_code == 401
        assert client.get(f"/__corvus/wr/{room.id}/promote").status_code == 405
    assert (
        tell_stripe(till, room, event(client_reference_id=second.offer()), "whsec_x").status_code
        == 401
    )
    assert second.status()["position"] == 2
    counters = till.stats()["rooms"][room.id]["counters"]
    assert counters["payments_forged"] == 4


def test_the_documented_payment_flow_moves_its_visitor(till: Gateways, people: Any) -> None:
    room = shop(till)
    _, second = people(room, 2)
    text = (Path(__file__).parents[2] / "docs/skip-the-line.md").read_text("utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)  # noqa: S102 - our own documentation
    told = names["read"](second.offer())
    assert (told["amount"], told["currency"]) == ("200", "EUR")
    url = f"{till.one.url}/__corvus/wr/{room.id}/promote"
    done = names["promote"](url, PROMOTE, second.offer(), "documented", int(time.time()))
    assert done == {"result": "moved"}
    assert second.status()["position"] == 1


def test_without_secrets_there_is_nothing_at_these_addresses(till: Gateways) -> None:
    room = shop(till)
    with till.gateways[1].client() as client:
        for action in ("promote", "stripe"):
            assert client.post(f"/__corvus/wr/{room.id}/{action}", json={}).status_code == 404


def test_a_payment_for_nobody_is_told_so_that_the_flow_can_refund(till: Gateways) -> None:
    room = shop(till)
    now = int(time.time())
    gone = sign_offer(offer(room=room.id, iat_s=now, exp_s=now + 600), KEYS)
    answer = order(till, room, {"offer": gone, "payment": "for-nobody"})
    assert (answer.status_code, answer.json()["result"]) == (409, "unknown")
    old = sign_offer(offer(room=room.id, iat_s=now - 900, exp_s=now - 300), KEYS)
    assert order(till, room, {"offer": old, "payment": "late"}).status_code == 410
    in_time = {"offer": old, "payment": "in-time", "paid_at": now - 301}
    assert order(till, room, in_time).status_code == 409
    elsewhere = sign_offer(offer(room=RoomId("elsewhere"), iat_s=now, exp_s=now + 600), KEYS)
    mixed = order(till, room, {"offer": elsewhere, "payment": "mixed"})
    assert (mixed.status_code, mixed.json()["field"]) == (400, "offer")


def test_a_body_that_is_too_large_or_stays_out_is_refused(till: Gateways) -> None:
    room = shop(till)
    assert order(till, room, b" " * 4_097).status_code == 413
    with till.one.client() as client:
        answer = client.post(f"/__corvus/wr/{room.id}/promote", content=iter([b" " * 3_000] * 2))
    assert answer.status_code == 413


def test_stripe_moves_a_visitor_once_by_its_checkout_session(till: Gateways, people: Any) -> None:
    room = shop(till)
    first, second, third = people(room, 3)
    paid = event(
        id="cs_live_9",
        client_reference_id=third.offer(),
        amount_total=500,
        created=int(time.time()),
    )
    short = event(id="cs_live_8", client_reference_id=third.offer(), amount_total=1)
    assert tell_stripe(till, room, short).status_code == 409
    assert third.status()["position"] == 3
    assert tell_stripe(till, room, paid).json() == {"result": "moved"}
    assert tell_stripe(till, room, paid).json() == {"result": "already"}
    ignored = tell_stripe(till, room, event("customer.created"))
    assert (ignored.status_code, ignored.json()["result"]) == (200, "ignored")
    assert [p.status()["position"] for p in (third, first, second)] == [1, 2, 3]


def test_while_the_store_is_away_a_payment_is_asked_for_again_and_then_counts(
    till: Gateways, store: Valkey, people: Any
) -> None:
    room = shop(till)
    _, second = people(room, 2)
    document = {"offer": second.offer(), "payment": "patient"}
    os.kill(store.process.pid, signal.SIGSTOP)
    try:
        away = order(till, room, document)
    finally:
        os.kill(store.process.pid, signal.SIGCONT)
    assert away.status_code == 503
    assert int(away.headers["retry-after"]) >= 1
    done = eventually(
        lambda: (a := order(till, room, document)).status_code == 200 and a,
        20,
        "the store's return",
    )
    # The store may have done it when it woke up, before the flow asked again.
    assert done.json()["result"] in ("moved", "already")
    assert second.status()["position"] == 1
