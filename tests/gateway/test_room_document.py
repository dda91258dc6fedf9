"""What a place becomes in JSON, without a gateway around it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from abuse.addresses import ClientFinder, TrustedNetworks
from proxy.gateway.exchange import read_exchange
from proxy.gateway.room_answers import Desk, eta_of, place_answer, status_answer
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, RoomId, VisitorId
from queueing.offers import read_offer
from queueing.pages import PageBundle
from queueing.passes import Keyring
from queueing.places import Counts, Place, State

NOBODY = Counts(waiting=0, parked=0, granted=0, active=0, latest_ticket=0)


def test_no_wait_is_promised_that_the_admission_rate_forbids() -> None:
    place = Place(
        state=State.WAITING,
        counts=NOBODY,
        now_ms=1,
        ticket=1_000,
        ahead=999,
        released=600,
        released_ms=6_000,
    )
    free = eta_of(place, RoomConfig(id=RoomId("r")))
    limited = eta_of(place, RoomConfig(id=RoomId("r"), rate=10))
    assert free is not None
    assert limited is not None
    assert free.p50 < 20
    assert limited.p10 == 100, "a thousand people at ten a second"


KEYS = Keyring(b"a master secret of a test", 1)
NOW = 1_900_000_000_000
SELLS = {"skip_rate": "0.5", "skip_url": "https://pay.example/#now"}
SOLD = {"skip_cost", "skip_currency", "rate_per_pos", "skip_url"}


@pytest.fixture(scope="module")
def pages(page_bundle: bytes) -> PageBundle:
    return PageBundle.load(page_bundle)


def desk(
    pages: PageBundle, *, method: str = "GET", accept: bytes = b"text/html", **room: Any
) -> Desk:
    scope = {
        "type": "http",
        "method": method,
        "path": "/cart",
        "raw_path": b"/cart",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"host", b"shop.example"), (b"accept", accept)],
        "client": ("127.0.0.1", 1),
    }
    exchange = read_exchange(scope, ClientFinder(TrustedNetworks(())), "id")
    return Desk(
        exchange=exchange,
        room=RoomConfig(id=RoomId("r"), **room),
        settings=GatewaySettings(),
        pages=pages,
        now_ms=NOW,
        keys=KEYS,
        sid=VisitorId("visitor-00000001"),
    )


def fifth(**changes: Any) -> Place:
    place = Place(
        state=State.WAITING,
        counts=replace(NOBODY, waiting=9),
        now_ms=NOW,
        ticket=5,
        ahead=4,
    )
    return replace(place, **changes)


def told(at: Desk, place: Place) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(status_answer(at, place.state, place, []).body)
    return document


def test_the_status_tells_the_price_and_holds_it_in_an_offer(pages: PageBundle) -> None:
    document = told(desk(pages, **SELLS), fifth(front=1))
    assert (document["skip_cost"], document["skip_currency"]) == ("1.50", "EUR")
    assert document["rate_per_pos"] == "0.5"
    address, _, rest = document["skip_url"].partition("?offer=")
    assert address == "https://pay.example/"
    token, mark, fragment = rest.partition("#")
    assert (mark, fragment) == ("#", "now")
    offer = read_offer(token, RoomId("r"), KEYS)
    assert offer is not None
    assert (offer.sid, offer.positions, offer.amount) == ("visitor-00000001", 3, 150)
    assert offer.exp_s == NOW // 1000 + 600


@pytest.mark.parametrize(
    ("room", "place"),
    [
        ({}, {}),
        ({"skip_rate": "1"}, {}),
        ({"skip_url": "/pay"}, {}),
        (SELLS, {"state": State.GRANTED}),
        (SELLS, {"state": State.PAUSED}),
        (SELLS, {"state": State.MISSED}),
    ],
)
def test_where_nothing_is_sold_the_status_says_nothing_of_it(
    pages: PageBundle, room: dict[str, str], place: dict[str, Any]
) -> None:
    assert not {*SOLD, "has_pass"} & told(desk(pages, **room), fifth(**place)).keys()


@pytest.mark.parametrize(
    ("place", "has_pass"),
    [({"vip_until_ms": NOW + 1}, True), ({"ahead": 0}, False), ({"front": 4}, False)],
)
def test_who_need_not_pay_or_would_pass_nobody_is_told_no_price(
    pages: PageBundle, place: dict[str, Any], has_pass: bool
) -> None:
    document = told(desk(pages, **SELLS), fifth(**place))
    assert document["has_pass"] is has_pass
    assert not SOLD & document.keys()


def test_a_page_without_a_price_is_the_same_as_if_there_were_no_such_thing(
    pages: PageBundle,
) -> None:
    plain = place_answer(desk(pages), fifth(), [])
    for half in ({"skip_rate": "1"}, {"skip_url": "/pay"}, {"vip_ttl_ms": 60_000}):
        assert place_answer(desk(pages, **half), fifth(), []) == plain


def test_wr_27_a_form_that_was_not_sent_is_told_so_as_page_and_as_json(pages: PageBundle) -> None:
    unsent = fifth(state=State.UNSENT)
    page = place_answer(desk(pages, method="POST"), unsent, [])
    assert page.status == 503
    assert b"Your form was not sent" in page.body
    assert b"safe to send it again" in page.body
    api = place_answer(desk(pages, method="POST", accept=b"*/*"), unsent, [])
    document = json.loads(api.body)
    assert api.status == 503
    assert (document["error"], document["submitted"]) == ("busy", False)
    assert dict(api.headers)[b"retry-after"] == b"%d" % document["retry_after_seconds"]


def test_wr_35_a_pass_in_use_elsewhere_may_come_back_or_join_the_line(pages: PageBundle) -> None:
    shared = fifth(state=State.SHARED)
    page = place_answer(desk(pages, refresh_ms=15_000), shared, [])
    assert (page.status, dict(page.headers)[b"retry-after"]) == (429, b"30")
    assert b"/__corvus/wr/r/rejoin?next=%2Fcart&amp;own=1" in page.body
    document = json.loads(place_answer(desk(pages, accept=b"*/*"), shared, []).body)
    assert document["state"] == "shared"
    assert document["rejoin_url"] == "/__corvus/wr/r/rejoin?own=1"
