"""What programs and pages ask of a room's own addresses: revoking, the time that is left inside."""

from __future__ import annotations

import time
from typing import Any

import pytest

from proxy.gateway.session_answers import session_document
from queueing.config import RoomConfig, RoomId
from queueing.places import Session
from tests.support.gateways import Gateways
from tests.support.running import eventually

NOW = 1_900_000_000_000
HOUR = 3_600_000


def limited(**values: Any) -> RoomConfig:
    return RoomConfig(id=RoomId("r"), absolute_ttl_ms=HOUR, **values)


def told(room: RoomConfig, now_ms: int = NOW, **session: Any) -> dict[str, Any]:
    values = {"now_ms": now_ms, "expires_ms": now_ms + 60_000, "limit_ms": NOW + HOUR} | session
    return session_document(
        room, now_ms=now_ms, expires_ms=now_ms + 60_000, session=Session(**values)
    )


def test_wr_26_the_warning_comes_at_least_a_minute_before_the_limit() -> None:
    document = told(limited())
    assert document["ends_at"] == NOW + HOUR
    assert document["ends_at"] - document["warn_at"] >= 60_000
    assert (document["extensions_left"], document["essential"]) == (10, False)
    assert document["expires_in"] == 60


def test_wr_26_after_an_extension_the_warning_moves_along() -> None:
    document = told(limited(), limit_ms=NOW + 4 * HOUR, extensions=3)
    assert document["warn_at"] == NOW + 4 * HOUR - 120_000
    assert document["extensions_left"] == 7
    assert told(limited(), extensions=10)["extensions_left"] == 0


def test_wr_26_an_essential_limit_is_told_from_the_start_and_cannot_be_moved() -> None:
    document = told(limited(essential_limit=True))
    assert document["essential"] is True
    assert document["warn_at"] == NOW
    assert document["extensions_left"] == 0


def test_without_a_limit_there_is_nothing_to_warn_of() -> None:
    room = RoomConfig(id=RoomId("r"))
    document = session_document(room, now_ms=NOW, expires_ms=NOW + 9_000, session=None)
    assert document == {
        "state": "active",
        "expires_in": 9,
        "ends_at": None,
        "warn_at": None,
        "extensions_left": 0,
        "essential": False,
        "server_time": NOW,
    }
    outside = session_document(room, now_ms=NOW, expires_ms=None, session=None)
    assert (outside["state"], outside["expires_in"]) == ("none", None)


def test_wr_26_one_action_extends_the_session_ten_times(world: Gateways) -> None:
    room = world.room(capacity=1, active_ttl_ms=10_000, refresh_ms=5_000, absolute_ttl_ms=10_000)
    world.publish(room)
    path = f"/__corvus/wr/{room.id}/session"
    with world.one.browser() as inside:
        inside.get("/")
        before = inside.get(path).json()
        assert before["state"] == "active"
        assert 0 < before["ends_at"] - before["server_time"] <= 10_000
        for left in range(9, -1, -1):
            answer = inside.post(path)
            document = answer.json()
            assert document["extensions_left"] == left
            assert document["ends_at"] == before["ends_at"] + 10_000 * (10 - left)
        assert inside.post(path).json()["ends_at"] == document["ends_at"], "ten times, not more"
        assert inside.get("/").text == "<h1>the shop</h1>"


def test_wr_26_an_essential_session_is_not_extended(world: Gateways) -> None:
    room = world.room(capacity=1, absolute_ttl_ms=600_000, essential_limit=True)
    world.publish(room)
    path = f"/__corvus/wr/{room.id}/session"
    with world.one.browser() as inside:
        inside.get("/")
        before = inside.get(path).json()
        after = inside.post(path).json()
    assert before["essential"] is True
    assert before["warn_at"] <= before["server_time"], "shown from the start"
    assert after["ends_at"] == before["ends_at"]


def test_another_site_cannot_extend_a_session_but_an_allowed_origin_can(world: Gateways) -> None:
    room = world.room(capacity=1, absolute_ttl_ms=600_000)
    world.publish(room, allowed_origins=("https://app.example",))
    path = f"/__corvus/wr/{room.id}/session"
    with world.one.browser() as inside:
        inside.get("/")
        for origin, status in (("https://evil.example", 403), ("https://app.example", 200)):
            headers = {"origin": origin, "sec-fetch-site": "cross-site"}
            answer = inside.post(path, headers=headers)
            assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert answer.json()["extensions_left"] == 9


def test_wr_53_an_operators_call_ends_a_session_everywhere_within_a_second(
    world: Gateways,
) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    path = f"/__corvus/wr/{room.id}/revoke"
    with world.one.browser() as inside, world.gateways[1].client() as operator:
        inside.get("/")
        sid = inside.cookies[f"corvus_{room.id}"].split(".")[4].partition("~")[0]
        body = {"visitor": sid}
        assert operator.post(path, json=body).status_code == 401
        wrong = {"authorization": "Bearer nonsense"}
        assert operator.post(path, json=body, headers=wrong).status_code == 401
        assert operator.get(path, headers=world.admin).status_code == 405
        for bad in ({}, {"visitor": "x"}, {"visitor": 7}, [], {"visitor": sid + "\n"}):
            refused = operator.post(path, json=bad, headers=world.admin)
            assert (refused.status_code, refused.json()["field"]) == (400, "visitor")
        assert inside.get("/").text == "<h1>the shop</h1>"
        done = operator.post(path, json=body, headers=world.admin)
        assert (done.status_code, done.json()) == (200, {"revoked": True})
        again = operator.post(path, json=body, headers=world.admin)
        assert again.json() == {"revoked": False}
        started = time.monotonic()
        name = f"corvus_{room.id}"
        eventually(
            lambda: (
                inside.get(f"/__corvus/wr/{room.id}/session").json()["state"] == "none"
                or inside.cookies[name].split(".")[2] != "a"
            ),
            what="the pass to be dead on the other gateway",
        )
        assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("body", [b"", b"\xff", b"[[[[", b'{"visitor":' + b"[" * 4_000])
def test_a_call_that_is_no_json_is_refused_and_nothing_breaks(world: Gateways, body: bytes) -> None:
    room = world.room()
    world.publish(room)
    with world.one.client(headers=world.admin) as operator:
        answer = operator.post(f"/__corvus/wr/{room.id}/revoke", content=body)
    assert answer.status_code == 400
