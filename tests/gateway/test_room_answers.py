"""What visitors are told in each state: status codes, JSON, headers, pages."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import httpx
import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import Mode
from tests.support.crowd import Visitor, together
from tests.support.gateways import BROWSER, Gateways, place_of
from tests.support.running import eventually

GATE_HEADERS = {
    "cache-control": "no-store, private",
    "x-robots-tag": "noindex",
}


def check_uncacheable(answer: httpx.Response) -> None:
    for name, value in GATE_HEADERS.items():
        assert answer.headers[name] == value
    vary = {part.strip() for part in answer.headers["vary"].split(",")}
    assert {"Cookie", "Accept"} <= vary
    assert "etag" not in answer.headers
    assert "expires" not in answer.headers


@pytest.mark.parametrize(
    ("accept", "is_page"),
    [
        ({"accept": "application/json"}, False),
        ({"accept": "application/json, text/plain, */*"}, False),
        ({"accept": "*/*"}, False),
        ({}, False),
        ({"accept": "text/html", "sec-fetch-mode": "cors"}, False),
        ({"accept": "text/html"}, True),
        ({"accept": "application/xhtml+xml, TEXT/HTML;q=0.9"}, True),
        ({"accept": "*/*", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, True),
        ({"accept": "*/*", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, True),
        ({"accept": "*/*", "sec-fetch-dest": "document"}, True),
        ({"accept": "*/*", "sec-fetch-mode": "navigate"}, True),
        ({"accept": "text/html", "sec-fetch-mode": "navigate", "sec-fetch-dest": "embed"}, False),
        ({"accept": "text/html", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, False),
    ],
)
def test_wr_48_who_gets_json(world: Gateways, accept: dict[str, str], is_page: bool) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.client(follow_redirects=True) as client:
        del client.headers["accept"]
        client.get("/", headers=accept)
        answer = client.get("/", headers=accept)
    check_uncacheable(answer)
    if is_page:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/html")
        return
    document = answer.json()
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 5
    assert {"state", "position", "ahead", "waiting", "eta", "poll_after", "status_url", "room"} <= (
        document.keys()
    )
    assert document["eta"] is None
    assert document["room"] == room.id


def test_api_json_off_gives_everybody_the_page(world: Gateways) -> None:
    world.publish(
        world.room(capacity=0), settings=GatewaySettings(api_json=False, access_log=False)
    )
    with world.one.api() as client:
        client.get("/")
        assert client.get("/").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_wr_45_a_form_at_the_gate_is_not_lost_in_silence(world: Gateways, method: str) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    with world.one.browser() as inside, world.one.browser() as outside:
        inside.get("/")
        outside.get("/")
        world.origin.seen.clear()
        page = outside.request(method, "/buy", content=b"seat=7")
        assert page.status_code == 429
        assert not page.history
        assert "location" not in page.headers
        assert int(page.headers["retry-after"]) >= 5
        assert "not sent" in page.text
        json = outside.request(
            method, "/buy", content=b"seat=7", headers={"accept": "*/*", "sec-fetch-mode": "cors"}
        )
        assert (json.status_code, json.json()["submitted"]) == (429, False)
        check_uncacheable(page)
        check_uncacheable(json)
        assert not world.origin.seen
        inside.post(f"/__corvus/wr/{room.id}/leave")
        eventually(lambda: outside.get("/").text == "<h1>the shop</h1>")
        assert outside.request(method, "/buy", content=b"seat=7").status_code == 200
    bought = [s for s in world.origin.seen if s.target == "/buy"]
    assert [(s.method, s.body) for s in bought] == [(method, b"seat=7")]


def test_wr_45_a_form_without_any_cookie_is_not_redirected(world: Gateways) -> None:
    world.publish(world.room(capacity=5))
    with world.one.client(headers=BROWSER) as stranger:
        answer = stranger.post("/buy", content=b"seat=7")
    assert answer.status_code == 429
    assert "not sent" in answer.text
    assert not world.origin.seen


def test_wr_41_every_gate_answer_is_uncacheable(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    with world.one.client(headers=BROWSER) as inside, world.one.browser() as outside:
        redirect = inside.get("/")
        check_uncacheable(redirect)
        clean = inside.get(redirect.headers["location"])
        check_uncacheable(clean)
        world.origin.answer_headers = [
            ("cache-control", "public, max-age=600"),
            ("etag", '"1"'),
            ("expires", "Thu, 01 Jan 2099 00:00:00 GMT"),
        ]
        first = inside.get("/")
        assert "set-cookie" in first.headers
        assert first.headers["cache-control"] == "no-store, private"
        assert "etag" not in first.headers
        assert "expires" not in first.headers
        assert {"Cookie", "Accept"} <= {v.strip() for v in first.headers["vary"].split(",")}
        later = inside.get("/")
        assert "set-cookie" not in later.headers
        assert later.headers["cache-control"] == "public, max-age=600"
        assert later.headers["etag"] == '"1"'
        check_uncacheable(outside.get("/"))
        status = outside.get(f"/__corvus/wr/{room.id}/status")
        check_uncacheable(status)
        assert status.json()["server_time"] > 1_700_000_000_000


async def test_wr_38_new_places_of_one_client_are_limited(world: Gateways) -> None:
    room = world.room(capacity=0, entries_per_minute=60)
    world.publish(room)

    def neighbour(address: str, number: int) -> Visitor:
        port = world.gateways[number % 2].port
        headers = {"accept": "application/json", "x-forwarded-for": address}
        return Visitor(port, headers=headers)

    async def enter(visitor: Visitor) -> tuple[int, str]:
        await visitor.get("/")
        reply = await visitor.get("/")
        return reply.status, reply.json["state"]

    office = [neighbour("198.51.100.7", n) for n in range(61)]
    results = await together(office, enter, width=1)
    assert results[:60] == [(429, "waiting")] * 60
    assert results[60] == (429, "limited")
    reply = await office[60].get("/")
    assert 1 <= int(reply.header("retry-after") or 0) <= 60
    assert (await office[0].get("/")).json["state"] == "waiting", "a place that is held is kept"
    six = [neighbour(f"2001:db8:1:2::{n:x}", n) for n in range(1, 62)]
    results = await together(six, enter, width=1)
    assert results[59:] == [(429, "waiting"), (429, "limited")], "an IPv6 /64 is one client"
    other = neighbour("2001:db8:1:3::1", 0)
    assert await enter(other) == (429, "waiting")
    await together([*office, *six, other], lambda v: v.close())


def test_wr_38_the_fourth_status_check_in_a_second_is_refused(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(g.api()) for g in world.gateways]
        clients[0].get("/")
        clients[0].get("/")
        clients[1].cookies = clients[0].cookies
        path = f"/__corvus/wr/{room.id}/status"
        answers = [clients[0].get(path)]
        while answers[-1].status_code == 200 and len(answers) < 100:  # till four fit in a second
            answers.append(clients[len(answers) % 2].get(path))
        assert [a.status_code for a in answers[:3]] == [200, 200, 200]
        assert answers[-1].status_code == 429
        assert answers[-1].headers["retry-after"] == "1"
        eventually(lambda: place_of(clients[0].get("/")) == ("waiting", 1))


def test_wr_25_a_reset_is_told_and_then_joins_anew(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    with world.one.browser() as inside, world.one.api() as api, world.one.browser() as page:
        inside.get("/")
        api.get("/")
        api.get("/")
        page.get("/")
        world.operator(room, "reset")
        eventually(
            lambda: "the shop" not in inside.get("/").text, 1.0, "the pass of before to be old"
        )
        status = page.get(f"/__corvus/wr/{room.id}/status")
        assert (status.status_code, status.json()["state"]) == (409, "reset")
        check_uncacheable(status)
        told = api.get("/")
        assert (told.status_code, told.json()["state"]) == (409, "reset")
        again = api.get("/")
        assert again.status_code == 200, "the room is empty: the first to rejoin is inside"
        assert place_of(api.get(f"/__corvus/wr/{room.id}/status"))[0] == "active"


def test_wr_21_a_missed_turn_is_said_and_rejoined_by_one_button(world: Gateways) -> None:
    room = world.room(capacity=0, queue_ttl_ms=2_000, return_window_ms=2_000)
    world.publish(room)
    with world.one.browser() as page:
        page.get("/")
        name = f"corvus_{room.id}"
        eventually(
            lambda: (
                world.redis.zcard(f"corvus:wr:{{{room.id}}}:queue") == 0
                and world.redis.hlen(f"corvus:wr:{{{room.id}}}:visitor") == 0
            ),
            what="the place to lapse",
        )
        status = page.get(f"/__corvus/wr/{room.id}/status")
        assert status.status_code == 410
        document = status.json()
        assert document["state"] == "missed"
        assert document["since"] <= document["server_time"]
        for _ in range(2):
            told = page.get("/")
            assert told.status_code == 200
            assert document["rejoin_url"] in told.text
        kept = page.cookies[name]
        back = page.post(document["rejoin_url"] + "?next=%2Fshow%3Fa%3D1")
        assert back.history[0].status_code == 303
        assert str(back.url).endswith("/show?a=1")
        assert page.cookies[name] != kept
        rejoined = page.get(f"/__corvus/wr/{room.id}/status").json()
        assert (rejoined["state"], rejoined["position"]) == ("waiting", 1)


def test_rejoin_never_leads_to_another_host(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.client() as client:
        for target in ("//evil.example/x", "https://evil.example/", "/\\evil.example", "\t//evil"):
            answer = client.post(f"/__corvus/wr/{room.id}/rejoin", params={"next": target})
            assert answer.headers["location"].startswith(f"{world.one.url}/")


def test_wr_60_pause_close_reject_off(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    path = f"/__corvus/wr/{room.id}/status"
    with world.one.browser() as inside, world.one.browser() as waiting, world.one.api() as new:
        inside.get("/")
        waiting.get("/")
        world.publish(replace(room, mode=Mode.PAUSED))
        assert inside.get("/").text == "<h1>the shop</h1>", "people inside stay"
        inside.post(f"/__corvus/wr/{room.id}/leave")
        paused = eventually(lambda: (s := waiting.get(path)).status_code == 200 and s.json())
        assert (paused["state"], paused["position"], paused["eta"]) == ("paused", 1, None)
        world.publish(replace(room, mode=Mode.CLOSED))
        new.get("/")
        closed = new.get("/")
        assert (closed.status_code, closed.json()["state"]) == (503, "closed")
        assert "retry-after" in closed.headers
        eventually(lambda: waiting.get("/").text == "<h1>the shop</h1>", what="the line is served")
        world.publish(replace(room, mode=Mode.REJECT, reject_status=503))
        rejected = new.get("/")
        assert (rejected.status_code, rejected.json()["state"]) == (503, "rejected")
        world.publish(replace(room, mode=Mode.OFF))
        assert new.get("/").status_code == 200, "nobody waits and there is no capacity any more"


def test_a_full_line_says_come_back_later(world: Gateways) -> None:
    room = world.room(capacity=0, max_queue=1)
    world.publish(room)
    with world.one.api() as first, world.one.api() as second, world.one.browser() as page:
        first.get("/")
        assert first.get("/").json()["state"] == "waiting"
        second.get("/")
        full = second.get("/")
        assert (full.status_code, full.json()["state"]) == (503, "full")
        assert page.get("/").status_code == 503
        check_uncacheable(full)


def test_head_is_get_without_body(world: Gateways) -> None:
    world.publish(world.room(capacity=0))
    with world.one.browser() as page:
        got = page.get("/")
        head = page.head("/")
    assert head.status_code == got.status_code == 200
    assert head.content == b""
    assert abs(int(head.headers["content-length"]) - int(got.headers["content-length"])) < 64


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/__corvus/healthz", 200),
        ("POST", "/__corvus/healthz", 405),
        ("DELETE", "/__corvus/wr/{room}/status", 405),
        ("GET", "/__corvus/wr/{room}/leave", 405),
        ("GET", "/__corvus/wr/unknown/status", 404),
        ("GET", "/__corvus/nothing", 404),
        ("GET", "/__corvus", 404),
        ("GET", "/x/..%2f__corvus/healthz", 404),
        ("GET", "//__corvus//healthz", 404),
        ("GET", "/__corvus/stats", 401),
    ],
)
def test_reserved_paths_never_reach_the_origin(
    world: Gateways, method: str, path: str, status: int
) -> None:
    room = world.room(capacity=5)
    world.publish(room)
    with world.one.client() as client:
        url = httpx.URL(world.one.url).copy_with(raw_path=path.format(room=room.id).encode())
        answer = client.send(client.build_request(method, url))
    assert answer.status_code == status
    assert not world.origin.seen


def test_wr_24_a_position_that_rises_says_why(world: Gateways) -> None:
    room = world.room(capacity=0, queue_ttl_ms=2_000, return_window_ms=60_000)
    world.publish(room)
    path = f"/__corvus/wr/{room.id}/status"
    with world.one.api() as first, world.one.api() as second:
        for client in (first, second):
            client.get("/")
            client.get("/")
        eventually(
            lambda: second.get(path).json().get("position") == 1, what="the first to fall silent"
        )
        first.get("/")
        risen = eventually(
            lambda: (s := second.get(path, params={"shown": 1}).json())["position"] == 2 and s
        )
        assert risen["reason"] == "returned"


def test_while_a_line_is_restored_only_who_has_checked_in_again_has_a_position(
    world: Gateways,
) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.api() as stranger:
        stranger.get("/")
        world.redis.delete(f"corvus:wr:{{{room.id}}}:config")
        told = eventually(
            lambda: (a := stranger.get("/").json())["state"] == "hold" and a, what="the hold"
        )
        assert (told["queued"], told["position"], told["ahead"]) == (False, None, None)
