"""How visitors come through a room: the cookie check, the line, the turn, and what each is told."""

from __future__ import annotations

import json

from tests.support.gateways import Gateways, place_of
from tests.support.running import eventually


def test_a_first_visit_checks_cookies_and_ends_at_the_clean_address(world: Gateways) -> None:
    world.publish(world.room(capacity=5))
    with world.one.browser() as browser:
        answer = browser.get("/tickets?a=1&b=%2F")
    assert [r.status_code for r in answer.history] == [302, 302]
    assert answer.history[0].headers["location"].endswith("/tickets?a=1&b=%2F&__wr=1")
    assert str(answer.url).endswith("/tickets?a=1&b=%2F")
    assert answer.text == "<h1>the shop</h1>"
    assert [s.target for s in world.origin.seen] == ["/tickets?a=1&b=%2F"]


def test_beyond_the_capacity_a_visitor_waits_and_is_let_in_when_a_slot_is_free(
    world: Gateways,
) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    first, second = world.one.browser(), world.one.browser()
    with first, second:
        assert first.get("/").text == "<h1>the shop</h1>"
        waiting = second.get("/")
        assert waiting.status_code == 200
        assert "the shop" not in waiting.text
        status = second.get(f"/__corvus/wr/{room.id}/status")
        assert place_of(status) == ("waiting", 1)
        assert first.post(f"/__corvus/wr/{room.id}/leave").status_code == 200
        granted = eventually(
            lambda: (
                (s := second.get(f"/__corvus/wr/{room.id}/status").json())["state"] == "granted"
                and s
            )
        )
        assert 50 <= granted["claim_s"] <= 60
        assert second.get("/").text == "<h1>the shop</h1>"


def test_an_api_client_that_keeps_its_cookie_holds_its_place(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.api() as client:
        none = client.get("/orders")
        assert (none.status_code, none.json()["state"]) == (429, "none")
        first = client.get("/orders")
        again = client.get("/orders")
    assert first.status_code == again.status_code == 429
    assert place_of(first) == place_of(again) == ("waiting", 1)
    assert json.loads(again.text)["status_url"] == f"/__corvus/wr/{room.id}/status"
    assert int(again.headers["retry-after"]) >= 5
    assert not world.origin.seen
