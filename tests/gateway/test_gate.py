"""What the gate decides without the store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abuse.addresses import ClientFinder, TrustedNetworks
from proxy.gateway.cookies import cannot_be_set
from proxy.gateway.exchange import Exchange, read_exchange
from proxy.gateway.forms import is_form
from proxy.gateway.gate import (
    AskStore,
    CleanUrl,
    FirstVisit,
    PassThrough,
    Revocations,
    Step,
    clean_target,
    clean_url,
    gate,
    marked_url,
    read_cookie,
)
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, RoomId, Unit, VisitorId
from queueing.passes import Credential, Keyring, Kind, Reading, Verdict

NOW = 1_800_000_000_000
ROOM = RoomConfig(id=RoomId("sale"), refresh_ms=15_000)
KEYS = Keyring(b"a master key of this test", 1)
SID = VisitorId("abcdefghijklmnop")
CLIENTS = ClientFinder(TrustedNetworks(["127.0.0.1/32"]))


def ask(target: str = "/", method: str = "GET", **headers: str) -> Exchange:
    lines = [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in headers.items()]
    path, _, query = target.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "scheme": "http",
        "raw_path": path.encode("latin-1"),
        "path": path,
        "query_string": query.encode("latin-1"),
        "headers": [(b"host", b"shop.example"), *lines],
        "client": ("198.51.100.7", 1),
    }
    return read_exchange(scope, CLIENTS, "id")


def credential(kind: Kind = Kind.ADMITTED, age: int = 0, life: int = 300_000, **more: Any) -> Any:
    issued = NOW - age
    return Credential(kind=kind, room=ROOM.id, sid=SID, iat_ms=issued, exp_ms=issued + life, **more)


def step(
    exchange: Exchange,
    held: Credential | None,
    *,
    network: str = "",
    revoked: Revocations | None = None,
    outage_since_ms: int | None = None,
    room: RoomConfig = ROOM,
) -> Step:
    reading = Reading(Verdict.VALID, held, True) if held else Reading(Verdict.MISSING)
    return gate(
        exchange,
        room,
        reading,
        now_ms=NOW,
        network=network,
        revoked=revoked or Revocations(),
        outage_since_ms=outage_since_ms,
    )


PAGE = {"accept": "text/html"}


def test_a_fresh_pass_needs_no_store() -> None:
    assert isinstance(step(ask(), credential(age=14_999)), PassThrough)


@pytest.mark.parametrize(
    "held",
    [
        credential(age=15_000),
        credential(age=5_000, life=4_000),
        credential(Kind.OUTAGE),
        credential(Kind.QUEUED),
    ],
)
def test_anything_else_asks_the_store(held: Credential) -> None:
    assert step(ask(), held) == AskStore(held)


def test_a_place_of_long_ago_is_no_missed_turn_but_still_the_same_visitor() -> None:
    lately = credential(Kind.QUEUED, age=1_000, life=1_001, ticket=7)
    assert step(ask(), lately) == AskStore(lately)
    long_ago = credential(Kind.QUEUED, age=1_000, life=1_000, ticket=7)
    found = step(ask(), long_ago)
    assert isinstance(found, AskStore)
    assert (found.credential.sid, found.credential.ticket) == (SID, 0)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_form_is_an_unsafe_method_of_whose_pass_is_right(method: str) -> None:
    day = 24 * 3_600_000
    for held, is_one in (
        (credential(), True),
        (credential(age=400_000), True),
        (credential(Kind.OUTAGE, age=400_000), True),
        (credential(age=day - 1), True),
        (credential(age=day), False),
        (credential(Kind.QUEUED), False),
    ):
        assert is_form(ask(method=method), held, NOW, Revocations()) is is_one
    assert not is_form(ask(method=method), credential(), NOW, Revocations(NOW))
    for safe in ("GET", "HEAD", "OPTIONS", "TRACE"):
        assert not is_form(ask(method=safe), credential(), NOW, Revocations())


def test_what_was_revoked_or_reset_asks_the_store() -> None:
    held = credential(age=1_000)
    for revoked in (Revocations(NOW - 1_000), Revocations(0, {SID: NOW - 1_000})):
        assert isinstance(step(ask(), held, revoked=revoked), AskStore)
        assert isinstance(step(ask(), held, revoked=revoked, outage_since_ms=NOW), AskStore)
    for older in (Revocations(NOW - 1_001), Revocations(0, {SID: NOW - 1_001})):
        assert isinstance(step(ask(), held, revoked=older), PassThrough)


def test_another_network_asks_the_store_also_in_an_outage() -> None:
    held = credential(network="home42")
    assert isinstance(step(ask(), held, network="home42"), PassThrough)
    assert isinstance(step(ask(), held, network="mobile"), AskStore)
    assert isinstance(step(ask(), held, network="mobile", outage_since_ms=NOW), AskStore)


def test_in_an_outage_a_pass_that_was_valid_when_it_began_stays_valid() -> None:
    long_ago = credential(age=400_000, life=300_000)
    assert isinstance(step(ask(), long_ago, outage_since_ms=NOW - 100_001), PassThrough)
    assert isinstance(step(ask(), long_ago, outage_since_ms=NOW - 99_999), AskStore)
    assert isinstance(step(ask(), credential(Kind.OUTAGE), outage_since_ms=NOW), PassThrough)
    assert isinstance(step(ask(), credential(Kind.QUEUED), outage_since_ms=NOW), AskStore)


def test_first_visits() -> None:
    assert step(ask(**PAGE), None) is FirstVisit.REDIRECT
    assert step(ask("/?a=1&__wr=1", **PAGE), None) is FirstVisit.COOKIES_NEEDED
    assert step(ask(), None) is FirstVisit.NO_TICKET
    assert step(ask(method="POST", **PAGE), None) is FirstVisit.NO_TICKET
    assert step(ask(method="HEAD", **PAGE), None) is FirstVisit.REDIRECT


def test_the_mark_is_taken_off_once_the_cookie_works() -> None:
    found = step(ask("/a?x=%2F&__wr=1&y", **PAGE), credential(Kind.QUEUED))
    assert found == CleanUrl("http://shop.example/a?x=%2F&y")
    unsafe = step(ask("/a?__wr=1", method="POST", **PAGE), credential())
    assert isinstance(unsafe, PassThrough), "an unsafe method is never redirected"


def test_only_what_a_person_sees_is_led_to_the_clean_address() -> None:
    for kind in (Kind.QUEUED, Kind.ADMITTED):
        held = credential(kind)
        for headers in ({}, {"sec_fetch_mode": "cors", "accept": "text/html"}):
            found = step(ask("/a?__wr=1", **headers), held)
            assert not isinstance(found, CleanUrl)
    socket = ask("/live?__wr=1", upgrade="websocket", sec_fetch_mode="websocket")
    assert isinstance(step(socket, credential()), PassThrough)


def test_a_page_of_a_room_that_counts_requests_always_needs_a_slot_of_its_own() -> None:
    room = RoomConfig(id=ROOM.id, unit=Unit.REQUESTS)
    held = credential()
    assert step(ask(), held, room=room) == AskStore(held)
    assert step(ask(), held, room=room, outage_since_ms=NOW) == AskStore(held), (
        "the origin gets no more pages because the store died"
    )


@given(
    st.lists(
        st.text(
            st.characters(codec="ascii", exclude_characters="&#? \t\r\n", exclude_categories=["Cc"])
        ).filter(lambda part: not part.startswith("__wr=")),
        max_size=4,
    )
)
def test_marking_and_cleaning_leave_every_byte(parts: list[str]) -> None:
    query = "&".join(parts)
    target = f"/a%2Fb?{query}" if query else "/a%2Fb"
    marked = marked_url(ask(target))
    assert marked.startswith("http://shop.example/a%2Fb?")
    back = ask(marked.removeprefix("http://shop.example"))
    assert clean_url(back) == f"http://shop.example{target}"
    assert clean_target(back).decode() == target


def test_a_stale_twin_of_the_cookie_does_not_hide_the_good_one() -> None:
    good = KEYS.sign(credential())
    for jar in (f"corvus_sale=old; corvus_sale={good}", f"x=corvus_sale=1;corvus_sale={good}"):
        reading = read_cookie(ask(cookie=jar), ROOM, KEYS)
        assert reading.verdict is Verdict.VALID
    assert read_cookie(ask(cookie=f"xcorvus_sale={good}"), ROOM, KEYS).verdict is Verdict.MISSING


def test_whose_word_counts_for_scheme_and_address() -> None:
    claims = {"x_forwarded_proto": "https", "x_forwarded_for": "203.0.113.9"}
    stranger = ask(**claims)
    assert (stranger.scheme, stranger.client.address) == ("http", "198.51.100.7")
    scope: dict[str, Any] = {
        "type": "http",
        "path": "/",
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in claims.items()],
        "client": ("127.0.0.1", 1),
    }
    proxied = read_exchange(scope, CLIENTS, "id")
    assert (proxied.scheme, proxied.client.address) == ("https", "203.0.113.9")


@pytest.mark.parametrize(
    ("folder", "path", "broken"),
    [
        ("/", "/a", False),
        ("/shop", "/shop", False),
        ("/shop", "/shop/a", False),
        ("/shop/", "/shop/a", False),
        ("/shop", "/shopping", True),
        ("/shop", "/", True),
    ],
)
def test_wr_56_a_cookie_path_that_does_not_reach_the_page_is_noticed(
    folder: str, path: str, broken: bool
) -> None:
    assert cannot_be_set(ask(path), GatewaySettings(cookie_path=folder)) is broken


@pytest.mark.parametrize(
    ("peer", "host", "told", "base"),
    [
        ("127.0.0.1", "backend:8080", "shop.example", "http://shop.example"),
        ("127.0.0.1", "backend:8080", "a.example, shop.example:81", "http://shop.example:81"),
        ("127.0.0.1", "shop.example:81", "shop.example", "http://shop.example:81"),
        ("127.0.0.1", "shop.example", "no@name", "http://shop.example"),
        ("198.51.100.7", "shop.example", "evil.example", "http://shop.example"),
        ("127.0.0.1", "", "", ""),
        ("127.0.0.1", "me@shop.example", "", ""),
    ],
)
def test_redirects_lead_to_the_host_that_the_visitor_sees(
    peer: str, host: str, told: str, base: str
) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "path": "/",
        "headers": [
            (b"host", host.encode()),
            *([(b"x-forwarded-host", told.encode())] * bool(told)),
        ],
        "client": (peer, 1),
    }
    assert read_exchange(scope, CLIENTS, "id").base_url == base
