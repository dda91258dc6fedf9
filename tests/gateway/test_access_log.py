"""What the access log holds, and what it leaves out."""

from __future__ import annotations

import json
from typing import Any

from proxy.gateway.snapshot import GatewaySettings
from tests.support.gateways import Gateways
from tests.support.running import eventually


def lines(world: Gateways, mark: str) -> list[dict[str, Any]]:
    """Read the entries whose path holds a mark of the test's own."""
    found = (line for line in world.one.log.read_text().splitlines() if line.startswith('{"at"'))
    return [entry for entry in map(json.loads, found) if mark in entry["path"]]


def test_a_line_for_each_request_but_polls_and_health_checks(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room, settings=GatewaySettings(access_log=True))
    with world.one.browser() as inside, world.one.api() as waiting:
        inside.get("/logged-page?token=secret", headers={"x-forwarded-for": "198.51.100.7"})
        waiting.get("/logged-api")
        waiting.get("/logged-api")
        for path in ("status", "session"):
            waiting.get(f"/__corvus/wr/{room.id}/{path}")
        waiting.post(f"/__corvus/wr/{room.id}/beacon")
        waiting.get("/__corvus/healthz")
        waiting.get("/__corvus/readyz")
        waiting.get("/logged-last")
    eventually(lambda: lines(world, "/logged-last"))
    entries = lines(world, "/logged-page")
    assert [e["status"] for e in entries] == [302, 302, 200]
    assert (entries[-1]["client"], entries[-1]["method"]) == ("198.51.100.7", "GET")
    assert entries[-1]["bytes"] == len("<h1>the shop</h1>")
    assert [e["status"] for e in lines(world, "/logged-api")] == [429, 429]
    assert lines(world, room.id) == lines(world, "healthz") == lines(world, "readyz") == []
    assert "secret" not in world.one.log.read_text()


def test_switched_off_nothing_is_written(world: Gateways) -> None:
    world.publish(settings=GatewaySettings(access_log=False))
    with world.one.client() as client:
        client.get("/silent")
        world.publish(settings=GatewaySettings(access_log=True))
        client.get("/loud")
    eventually(lambda: lines(world, "/loud"))
    assert lines(world, "/silent") == []


def test_the_advice_when_to_come_back_is_never_sooner_than_the_setting(world: Gateways) -> None:
    world.publish(
        world.room(capacity=0), settings=GatewaySettings(retry_after_s=77, access_log=False)
    )
    with world.one.api() as client:
        client.get("/")
        answer = client.get("/")
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 77
    assert answer.json()["retry_after"] >= 77
