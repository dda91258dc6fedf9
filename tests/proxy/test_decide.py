"""Where a request belongs: host, tier, room, or why nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import trial
from proxy.gateway.decide import (
    BadRequest,
    BanPath,
    Reserved,
    Route,
    ToOrigin,
    UnknownHost,
    decide,
)
from proxy.gateway.exchange import Exchange, read_exchange
from proxy.gateway.paths import BadPath, readings
from proxy.gateway.plan import Plan, compile_plan
from proxy.gateway.snapshot import GatewaySettings, Host, RoomRule, Snapshot
from proxy.gateway.tiers import Tier
from queueing.config import RoomConfig, RoomId

SALE, REST = RoomId("sale"), RoomId("rest")
SHOP = Host(
    id=1,
    names=("shop.example",),
    origin="http://127.0.0.1:3000",
    assets=("/assets/*",),
    public_assets=("/uploads/*",),
    streams=("/live/*",),
    ban_paths=("/.env", "/tickets/.git/*"),
    return_paths=("/checkout/3ds",),
    allowed_origins=("https://app.example",),
    rooms=(RoomRule(path="/tickets/*", room=SALE), RoomRule(path="/assets/sale/*", room=SALE)),
)


def plan(*hosts: Host, **settings: Any) -> Plan:
    rooms = {room: RoomConfig(id=room) for room in (SALE, REST)}
    snapshot = Snapshot(hosts=hosts or (SHOP,), rooms=rooms, settings=GatewaySettings(**settings))
    return compile_plan(snapshot)


PLAN = plan()


def asked(
    path: bytes,
    *,
    host: bytes = b"shop.example",
    of: Plan = PLAN,
    peer: str = "198.51.100.7",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    **scope: Any,
) -> Exchange:
    whole = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "http_version": "1.1",
        "path": "/",
        "raw_path": path,
        "headers": [(b"host", host), *headers],
        "client": (peer, 1),
        **scope,
    }
    return read_exchange(whole, of.clients, "id", proto_header=of.proto_header)


def route(path: bytes, *, of: Plan = PLAN, host: bytes = b"shop.example") -> Route:
    return decide(asked(path, host=host, of=of), of)


@pytest.mark.parametrize(
    ("path", "tier", "room", "reason"),
    [
        (b"/", Tier.PAGE, None, "no room"),
        (b"/tickets/1", Tier.PAGE, SALE, "room"),
        (b"/assets/a.css", Tier.ASSET, None, "asset"),
        (b"/assets/sale/a.css", Tier.ASSET, SALE, "asset"),
        (b"/uploads/a.jpg", Tier.PUBLIC_ASSET, None, "public asset"),
        (b"/live/scores", Tier.STREAM, None, "stream"),
        (b"/robots.txt", Tier.BYPASS, None, "bypass"),
        (b"/checkout/3ds", Tier.PAGE, None, "no room"),
    ],
)
def test_a_path_goes_to_the_origin_by_its_tier_and_with_the_room_that_governs_it(
    path: bytes, tier: Tier, room: RoomId | None, reason: str
) -> None:
    found = route(path)
    assert isinstance(found, ToOrigin)
    assert (found.tier, found.room, found.reason) == (tier, room, reason)


@pytest.mark.parametrize(
    "path",
    [b"/.env", b"//.env", b"/%2eenv", b"/assets/..%2f.env", b"/__corvus/../.env", b"/.env/../.env"],
)
def test_a_ban_path_wins_before_reserved_in_any_reading(path: bytes) -> None:
    found = route(path)
    assert isinstance(found, BanPath)
    assert found.reason == "ban path"


def test_reserved_paths_come_after_ban_paths_and_before_every_list() -> None:
    for path in (b"/__corvus/healthz", b"/assets/..%2f__corvus/x", b"/%5f%5fcorvus"):
        assert isinstance(route(path), Reserved)
    assert isinstance(route(b"/__corvus/healthz", host=b"other.example"), Reserved)
    assert isinstance(route(b"/__corvus/healthz", host=b""), Reserved)


def test_unknown_hosts_and_none_belong_nowhere() -> None:
    assert isinstance(route(b"/.env", host=b"other.example"), UnknownHost)
    assert isinstance(route(b"/", host=b"a b"), BadRequest)
    assert isinstance(route(b"/a%00"), BadRequest)


@pytest.mark.parametrize("path", [b"/tickets/..%2fassets/sale2", b"/a/..%2ftickets/x"])
def test_readings_under_two_rooms_are_refused_whatever_their_tier(path: bytes) -> None:
    rooms = (RoomRule(path="/*", room=REST), RoomRule(path="/tickets/*", room=SALE))
    host = Host(id=1, names=("*",), origin="http://127.0.0.1:1", assets=("/assets/*",), rooms=rooms)
    assert isinstance(route(path, of=plan(host)), BadRequest)


def test_return_paths_and_allowed_origins_are_ready_to_be_asked() -> None:
    site = PLAN.site("shop.example")
    assert site is not None
    assert site.return_paths.hold(readings(b"/checkout/3ds"))
    for trick in (b"/checkout/3ds/../x", b"/checkout/3ds;x", b"/x/..%2fcheckout/3ds"):
        assert not site.return_paths.hold(readings(trick))
    assert site.allowed_origins == {b"https://app.example"}


@given(st.binary(max_size=30))
def test_the_tester_of_the_console_says_what_the_gateway_does(rest: bytes) -> None:
    site = PLAN.site("shop.example")
    assert site is not None
    path = b"/" + rest
    found = decide(asked(path), PLAN) if b"?" not in path else None
    tried = trial.try_path(path, site)
    try:
        assert [line.reading for line in tried.lines] == list(readings(path))
    except BadPath:
        assert tried.refused
    if found is not None:
        assert tried.refused is isinstance(found, BadRequest)
    if isinstance(found, ToOrigin):
        assert tried.room == found.room


# The client's protocol.

TOLD = plan(client_proto_header="X-Client-Proto", trusted_proxies=("127.0.0.1/32",))
PROXY, VISITOR = "127.0.0.1", "198.51.100.7"


@pytest.mark.parametrize(
    ("peer", "said", "version", "family"),
    [
        (PROXY, [], "1.1", "h1"),
        (PROXY, [], "2", "h2"),
        (PROXY, [b"HTTP/2.0"], "1.1", "h2"),
        (PROXY, [b"HTTP/2"], "1.1", "h2"),
        (PROXY, [b"HTTP/3.0"], "1.1", "h2"),
        (PROXY, [b"http/2.0"], "1.1", "h2"),
        (PROXY, [b"HTTP/1.1"], "2", "h1"),
        (PROXY, [b"HTTP/1.0"], "2", "h1"),
        (PROXY, [b"SPDY"], "1.1", "h1"),
        (PROXY, [b"SPDY"], "2", "h2"),
        (PROXY, [b""], "2", "h2"),
        (PROXY, [b"HTTP/2.0", b"HTTP/1.1"], "1.1", "h1"),
        (PROXY, [b"HTTP/2.0, HTTP/1.1"], "1.1", "h1"),
        (VISITOR, [b"HTTP/2.0"], "1.1", "h1"),
        (VISITOR, [b"HTTP/1.1"], "2", "h2"),
        (VISITOR, [], "1.0", "h1"),
        (VISITOR, [], "2", "h2"),
        (VISITOR, [], "3", "h2"),
    ],
)
def test_the_protocol_is_the_connections_or_what_a_trusted_proxy_says(
    peer: str, said: list[bytes], version: str, family: str
) -> None:
    lines = tuple((b"x-client-proto", value) for value in said)
    exchange = asked(b"/", of=TOLD, peer=peer, headers=lines, http_version=version)
    assert exchange.family == family


def test_without_a_configured_header_nobody_is_believed() -> None:
    lines = ((b"x-client-proto", b"HTTP/2.0"),)
    assert asked(b"/", peer=PROXY, headers=lines).family == "h1"
    assert asked(b"/", type="websocket", headers=lines).family == "h1"
