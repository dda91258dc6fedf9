"""Scripts of allowed sites may read the gateway's own answers, and nobody else's may (WR-50)."""

from __future__ import annotations

from typing import Any

import pytest

from queueing.config import Mode, RoomConfig
from tests.support.crowd import Reply, Visitor, together
from tests.support.gate_passes import admitted
from tests.support.gateways import Gateways

APP, EVIL = "https://app.example", "https://app.example.evil.example"
HOST: dict[str, Any] = {
    "allowed_origins": (APP, "http://localhost:3000"),
    "assets": ("/static/*",),
    "ban_paths": ("/.env",),
}


def from_site(world: Gateways, origin: str) -> Visitor:
    visitor = Visitor(world.one.port)
    visitor.headers |= {"origin": origin, "sec-fetch-mode": "cors", "sec-fetch-site": "cross-site"}
    return visitor


def permissions(reply: Reply) -> dict[str, str]:
    return {
        name.removeprefix("access-control-"): value
        for name, value in reply.headers
        if name.startswith("access-control-")
    }


READABLE = {
    "allow-origin": APP,
    "allow-credentials": "true",
    "expose-headers": "Retry-After, X-Waiting-Room",
}


async def test_wr_50_an_allowed_site_can_read_every_answer_of_the_gateway(
    world: Gateways,
) -> None:
    room = world.room(capacity=0)
    world.publish(room, **HOST)
    visitor = from_site(world, APP)
    status = f"/__corvus/wr/{room.id}/status"
    for target, code, state in (
        ("/api/cart", 429, "none"),
        ("/api/cart", 429, "waiting"),
        (status, 200, "waiting"),
        ("/static/a.js", 403, "none"),
        ("/.env", 403, None),
        ("/__corvus/nothing", 404, None),
    ):
        reply = await visitor.get(target)
        assert reply.status == code, target
        assert permissions(reply) == READABLE, target
        assert reply.header("vary") == "Cookie, Accept, Origin", target
        if state:
            assert reply.header("x-waiting-room") == state, target
        if code == 429:
            assert reply.header("retry-after"), "readable, as exposed"
    assert (await visitor.get(status)).json["state"] == "waiting"
    await visitor.close()


@pytest.mark.parametrize("origin", [EVIL, "null", "HTTPS://app.example", "https://app.example:444"])
async def test_wr_50_another_site_cannot(world: Gateways, origin: str) -> None:
    room = world.room(capacity=0)
    world.publish(room, **HOST)
    visitor = from_site(world, origin)
    for _ in range(2):
        reply = await visitor.get("/api/cart")
        assert reply.status == 429
        assert permissions(reply) == {}
        assert reply.header("vary") == "Cookie, Accept, Origin", "a cache must tell them apart"
    await visitor.close()


async def test_a_host_that_allows_no_site_answers_as_ever(world: Gateways) -> None:
    world.publish(world.room(capacity=0))
    visitor = from_site(world, APP)
    reply = await visitor.get("/api/cart")
    assert permissions(reply) == {}
    assert reply.header("vary") == "Cookie, Accept"
    await visitor.close()


async def test_an_origins_own_permissions_are_passed_on_untouched(world: Gateways) -> None:
    room = world.room(capacity=5)
    world.publish(room, **HOST)
    visitor = await admitted(world, room)
    visitor.headers["origin"] = APP
    assert permissions(await visitor.get("/api")) == {}
    world.origin.answer_headers = [("Access-Control-Allow-Origin", "*"), ("Vary", "Accept")]
    reply = await visitor.get("/api")
    assert permissions(reply) == {"allow-origin": "*"}
    assert reply.header("vary") == "Accept"
    await visitor.close()


@pytest.mark.parametrize(
    ("config", "state"),
    [
        ({"capacity": 0}, "waiting"),
        ({"mode": Mode.PAUSED}, "paused"),
        ({"mode": Mode.CLOSED, "capacity": 0}, "closed"),
        ({"mode": Mode.REJECT}, "rejected"),
        ({"capacity": 0, "max_queue": 1}, "full"),
    ],
)
async def test_every_refusal_of_a_room_says_its_state_in_the_head(
    world: Gateways, config: dict[str, Any], state: str
) -> None:
    room: RoomConfig = world.room(**config)
    world.publish(room)
    people = [Visitor(g.port) for g in world.gateways]
    for visitor in people:
        first = await visitor.get("/")
        assert first.header("x-waiting-room") == "none"
        told = await visitor.get("/")
    assert told.header("x-waiting-room") == told.json["state"] == state
    with world.one.browser() as browser:
        page = browser.get("/")
    assert [r.headers.get("x-waiting-room") for r in page.history] == ["none", None]
    assert page.headers["x-waiting-room"] == state
    await together(people, lambda v: v.close())
