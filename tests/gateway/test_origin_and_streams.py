"""Origins that fail, WebSockets and event streams, as a visitor of a host meets them."""

from __future__ import annotations

import json
import re
import socket
import time

import httpx
import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.page_check import compile_template
from tests.support.gateways import BROWSER, Gateways


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("language", ["en", "de", "ar"])
def test_an_origin_that_is_down_is_a_502_page_in_the_visitors_language(
    world: Gateways, language: str
) -> None:
    world.publish(origin=f"http://127.0.0.1:{closed_port()}")
    with world.one.client() as client:
        page = client.get("/", headers=BROWSER | {"accept-language": language})
        api = client.get("/", headers={"accept": "application/json"})
    assert page.status_code == api.status_code == 502
    assert page.headers["content-language"] == language
    assert page.headers["cache-control"] == "no-store, private"
    request_id = api.json()["request_id"]
    assert api.json() == {
        "error": "origin unreachable",
        "status": 502,
        "request_id": request_id,
    }
    assert request_id in world.one.log.read_text(), "the same id stands in the log"


def test_an_origin_that_is_too_slow_is_a_504(world: Gateways) -> None:
    world.publish(settings=GatewaySettings(upstream_timeout_s=0.3, access_log=False))
    world.origin.hold.clear()
    with world.one.client() as client:
        api = client.get("/slow")
        page = client.get("/slow", headers=BROWSER)
    world.origin.hold.set()
    assert api.status_code == page.status_code == 504
    assert api.json()["error"] == "origin too slow"
    assert page.headers["content-type"].startswith("text/html")


def test_a_form_to_a_dead_origin_is_never_sent_twice(world: Gateways) -> None:
    world.publish(settings=GatewaySettings(upstream_timeout_s=0.3, access_log=False))
    world.origin.hold.clear()
    with world.one.client() as client:
        assert client.post("/slow", content=b"seat=7").status_code == 504
    world.origin.hold.set()
    assert [s.method for s in world.origin.seen] == ["POST"]


def test_an_unknown_host_gets_a_page_and_never_another_site(world: Gateways) -> None:
    world.publish(names=("shop.example", "*.shop.example"))
    with world.one.client() as client:
        assert client.get("/", headers={"host": "a.shop.example"}).status_code == 200
        for name in ("other.example", "a.b.shop.example.evil.example"):
            answer = client.get("/", headers=BROWSER | {"host": name})
            assert answer.status_code == 404
            assert "the shop" not in answer.text


def test_debugging_tells_the_decision(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room, settings=GatewaySettings(debug_decisions=True, access_log=False))
    with world.one.browser() as visitor:
        first = visitor.get("/")
        assert [r.headers["x-corvus-decision"] for r in first.history] == [
            "first visit: cookie check",
            "cookie works",
        ]
        assert first.headers["x-corvus-decision"] == "slot"
        assert visitor.get("/").headers["x-corvus-decision"] == "pass"
        assert visitor.get("/favicon.ico").headers["x-corvus-decision"] == "bypass"


def test_an_operators_own_waiting_page_is_shown_in_line(world: Gateways) -> None:
    html = (
        '<!doctype html><html lang="en"><head><title>Ours</title></head><body><main>'
        "<h1>Our own room</h1><p>You are number {{position}}.</p>"
        '<form method="post" action="{{leave_url}}"><button>Leave</button></form>'
        "</main></body></html>"
    )
    compiled = json.dumps(compile_template(html)).encode()
    with world.redis as store:
        store.set("corvus:config:pages:ours", compiled)
    world.publish(world.room(capacity=0, page="ours"))
    with world.one.browser() as visitor:
        page = visitor.get("/")
    assert "Our own room" in page.text
    assert "You are number 1." in re.sub(r"<[^>]+>", "", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_websocket_without_a_pass_is_refused_before_the_upgrade(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.client() as client:
        answer = client.get(
            "/live",
            headers={
                "connection": "Upgrade",
                "upgrade": "websocket",
                "sec-websocket-version": "13",
                "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
        )
    assert answer.status_code == 429
    assert not world.origin.seen


def test_a_preflight_passes_a_full_room_and_other_options_do_not(world: Gateways) -> None:
    world.publish(world.room(capacity=0))
    preflight = {"origin": "https://app.example", "access-control-request-method": "POST"}
    with world.one.client() as client:
        assert client.options("/api", headers=preflight).status_code == 200
        assert client.options("/api").status_code == 429
    assert [s.method for s in world.origin.seen] == ["OPTIONS"]


def test_preflights_are_bounded(world: Gateways) -> None:
    world.publish(
        world.room(capacity=0), settings=GatewaySettings(preflight_per_second=3, access_log=False)
    )
    preflight = {"origin": "https://app.example", "access-control-request-method": "POST"}
    began = time.monotonic()
    with world.one.client() as client:
        statuses = [client.options("/api", headers=preflight).status_code for _ in range(30)]
    assert 429 in statuses
    assert statuses.count(200) <= 3 + 3 * (time.monotonic() - began)


def test_language_and_refresh_are_chosen_without_touching_the_sites_address(
    world: Gateways,
) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    base = f"/__corvus/wr/{room.id}"
    with world.one.browser() as visitor:
        visitor.get("/show?x=1")
        page = visitor.get(f"{base}/lang?next=%2Fshow%3Fx%3D1&to=de")
        assert str(page.url).endswith("/show?x=1")
        assert page.headers["content-language"] == "de"
        slow = visitor.get(f"{base}/refresh?next=%2Fshow&every=120")
        assert 'content="120' in slow.text
        stopped = visitor.get(f"{base}/refresh?next=%2Fshow&every=0")
        assert 'http-equiv="refresh"' not in stopped.text
        assert visitor.get(f"{base}/lang?to=xx").status_code == 400


def test_leaving_without_javascript_shows_a_page(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.browser() as visitor:
        visitor.get("/show")
        left = visitor.post(f"/__corvus/wr/{room.id}/leave?next=%2Fshow")
        assert left.status_code == 200
        assert left.headers["content-type"].startswith("text/html")
        assert not [c for c in visitor.cookies if c.startswith("corvus_t")]
    assert world.operator(room, "stats").counts.waiting == 0


def test_extending_a_turn_and_the_time_left_inside(world: Gateways) -> None:
    room = world.room(capacity=1, grant_ttl_ms=6_000)
    world.publish(room)
    base = f"/__corvus/wr/{room.id}"
    with world.one.browser() as inside, world.one.api() as waiting:
        inside.get("/")
        left = inside.get(f"{base}/session").json()
        assert left["state"] == "active"
        assert 290 <= left["expires_in"] <= 300
        waiting.get("/")
        waiting.get("/")
        assert waiting.get(f"{base}/session").json()["state"] == "none"
        inside.post(f"{base}/leave")
        extended = waiting.post(f"{base}/extend").json()
        assert extended["state"] == "granted"
        assert extended["claim_s"] >= 11


def test_a_beacon_shortens_the_check_in_and_a_poll_undoes_it(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    base = f"/__corvus/wr/{room.id}"
    with world.one.api() as waiting:
        waiting.get("/")
        waiting.get("/")
        assert waiting.post(f"{base}/beacon").status_code == 204
        answer: httpx.Response = waiting.get(f"{base}/status")
        assert answer.json()["position"] == 1
