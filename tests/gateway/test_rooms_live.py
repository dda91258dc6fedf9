"""What changes while people are inside: revocation, new rooms, hosts and paths."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest

from proxy.gateway.snapshot import RoomRule
from queueing.config import InsideNow, RoomConfig
from tests.support.crowd import Visitor, until
from tests.support.gateways import BROWSER, Gateways
from tests.support.raw_origin import OriginConnection, RawOrigin
from tests.support.running import eventually


def test_wr_53_the_origin_ends_a_session_everywhere(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    with world.one.browser() as inside, world.gateways[1].browser() as waiting:
        inside.get("/")
        stolen = inside.cookies[f"corvus_{room.id}"]
        waiting.get("/")
        world.origin.answer_headers = [("Corvus-Session", "revoke"), ("Corvus-Other", "x")]
        answer = inside.get("/sign-out")
        world.origin.answer_headers = []
        assert not [name for name in answer.headers if name.startswith("corvus-")]
        eventually(
            lambda: waiting.get("/").text == "<h1>the shop</h1>", 1.0, "the next to be let in"
        )
        for gateway in world.gateways:
            with gateway.client(headers=BROWSER) as thief:
                dead = eventually(
                    lambda c=thief: (
                        (a := c.get("/", headers={"cookie": f"corvus_{room.id}={stolen}"})).text
                        != "<h1>the shop</h1>"
                        and a
                    ),
                    1.0,
                    "the pass to be dead",
                )
                assert dead.status_code == 200
        totals = world.operator(room, "stats").totals
        assert totals["revoked"] == 1


def test_a_visitors_own_corvus_headers_reach_nobody(world: Gateways) -> None:
    world.publish()
    with world.one.client() as client:
        client.get("/", headers={"Corvus-Priority": "staff", "Corvus-Session": "revoke"})
    assert world.origin.seen[0].header("corvus-priority") is None
    assert world.origin.seen[0].header("corvus-session") is None


def test_the_gateways_cookies_never_reach_the_origin(world: Gateways) -> None:
    world.publish(world.room(capacity=1))
    with world.one.browser() as visitor:
        visitor.cookies.set("basket", "7", domain="127.0.0.1", path="/")
        visitor.get("/")
    assert [s.header("cookie") for s in world.origin.seen] == ["basket=7"]


def test_wr_64_a_new_room_works_at_once_on_every_gateway(world: Gateways) -> None:
    world.publish()
    with world.one.browser() as first, world.gateways[1].browser() as second:
        assert first.get("/").text == second.get("/").text == "<h1>the shop</h1>"
        world.publish(world.room(capacity=0))
        assert "the shop" not in first.get("/").text
        assert "the shop" not in second.get("/").text


def test_wr_64_keep_adopts_who_was_inside_and_queue_does_not(world: Gateways) -> None:
    def visit(session: str) -> httpx.Response:
        with world.gateways[1].browser() as client:
            client.cookies.set("site", session, domain="127.0.0.1", path="/")
            return client.get("/")

    world.publish(session_cookie="site")
    assert visit("known").text == "<h1>the shop</h1>"
    eventually(lambda: world.redis.zcard("corvus:sessions:1") >= 1, what="the session to be noted")
    now = int(world.redis.time()[0]) * 1000
    room = world.room(capacity=1, opened_ms=now)
    world.publish(replace(room, inside_now=InsideNow.KEEP), session_cookie="site")
    assert visit("known").text == "<h1>the shop</h1>"
    assert visit("known").text == "<h1>the shop</h1>", "one session is one visitor"
    assert world.operator(room, "stats").counts.active == 1
    assert "the shop" not in visit("stranger").text, "counted against the capacity"
    other = world.room(capacity=0, opened_ms=now, inside_now=InsideNow.QUEUE)
    world.publish(other, session_cookie="site")
    assert "the shop" not in visit("known").text


def test_wr_64_who_was_sent_away_is_not_adopted_again(world: Gateways) -> None:
    world.publish(session_cookie="site")
    with world.one.browser() as known:
        known.cookies.set("site", "of-a-regular", domain="127.0.0.1", path="/")
        known.get("/")
        seen = world.redis.zcard("corvus:sessions:1")
        eventually(lambda: world.redis.zcard("corvus:sessions:1") > seen or seen, what="a note")
        now = int(world.redis.time()[0]) * 1000
        room = world.room(capacity=1, opened_ms=now, inside_now=InsideNow.KEEP)
        world.publish(room, session_cookie="site")
        assert known.get("/").text == "<h1>the shop</h1>"
        world.operator(room, "release_all")
        with world.gateways[1].api() as other:
            other.get("/")
            assert other.get("/").status_code == 200, "the slot is somebody else's now"
            eventually(lambda: "the shop" not in known.get("/").text, 1.0, "the pass to be old")
            del known.cookies[f"corvus_{room.id}"]
            assert "the shop" not in known.get("/").text
        assert world.operator(room, "stats").counts.active == 1


async def test_wr_51_an_event_stream_ends_when_its_visitor_may_not_be_inside(
    world: Gateways,
) -> None:
    async def news(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        await connection.send(b"data: 1\n\n")
        await connection.ended()

    async with RawOrigin(news) as origin:
        room = world.room(capacity=1)
        await asyncio.to_thread(world.publish, room, origin=f"http://127.0.0.1:{origin.port}")
        visitor = Visitor(world.gateways[1].port)
        await visitor.get("/")
        stream = asyncio.create_task(visitor.get("/news"))
        await until(lambda: is_inside(world, room), what="the stream to be open")
        await asyncio.to_thread(world.operator, room, "release_all")
        reply = await asyncio.wait_for(stream, 2)
        assert (reply.status, reply.body) == (200, b"data: 1\n\n")
        await visitor.close()


async def is_inside(world: Gateways, room: RoomConfig) -> bool:
    stats = await asyncio.to_thread(world.stats, world.gateways[1])
    active: int = stats["rooms"][room.id]["active"]
    return bool(active) and stats["running"] == 1


TRICKS = [
    "/tickets",
    "/tickets/",
    "//tickets/",
    "/./tickets/",
    "/x/../tickets/",
    "/%74ickets/",
    "/tickets%2Fa",
    "/tickets;v=1/a",
    "/TICKETS/",
    "/tickets?",
    "/tickets?x=/free",
    "/x/%2e%2e/tickets/a",
    "/x\\..\\tickets/",
    "/%5ctickets",
]


@pytest.mark.parametrize("name", ["shop.example", "SHOP.example:8080", "shop.example."])
def test_wr_43_no_path_trick_goes_round_a_room(world: Gateways, name: str) -> None:
    gated(world, world.room(capacity=0))
    with world.one.client() as client:
        for target in TRICKS:
            url = httpx.URL(world.one.url).copy_with(raw_path=target.encode())
            answer = client.send(client.build_request("GET", url, headers={"host": name}))
            assert answer.status_code in (400, 429), target
    assert not world.origin.seen


def gated(world: Gateways, room: RoomConfig) -> None:
    """Gate /tickets of a host whose origin ignores case; the rest of it is free."""
    world.publish(
        room,
        names=("shop.example",),
        path_case="insensitive",
        rooms=(RoomRule(path="/tickets/*", room=room.id),),
    )


def test_wr_43_an_absolute_form_target_is_gated_too(world: Gateways) -> None:
    gated(world, world.room(capacity=0))
    for target in ("http://shop.example/tickets/", "http://free.example/tickets/"):
        with world.one.client() as client:
            url = httpx.URL(world.one.url)
            request = client.build_request(
                "GET", url, headers={"host": "shop.example"}, extensions={"target": target.encode()}
            )
            assert client.send(request).status_code in (400, 429)
    assert not world.origin.seen


def test_free_paths_of_the_same_host_are_not_gated(world: Gateways) -> None:
    gated(world, world.room(capacity=0))
    with world.one.client() as client:
        for path in ("/", "/ticketsale", "/free/a%2Fb?x=%20", "/favicon.ico"):
            url = httpx.URL(world.one.url).copy_with(raw_path=path.encode())
            answer = client.send(client.build_request("GET", url, headers={"host": "shop.example"}))
            assert answer.status_code == 200
            assert world.origin.seen[-1].target == path, "byte for byte"
        unknown = client.get("/", headers={"host": "other.example", "accept": "text/html"})
        assert unknown.status_code == 404
