"""What an attacker on the internet tried against the line, and what they get."""

from __future__ import annotations

import time
from contextlib import closing

import httpx
import pytest

from proxy.gateway.sessions import GRACE_MS
from queueing.config import InsideNow
from tests.support.gateways import BROWSER, Gateways, place_of
from tests.support.raw_client import RawClient

FOREIGN = [
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"origin": "http://evil.example"},  # a browser on plain HTTP says no more
    {"origin": "null"},  # what a sandboxed frame says
]


def waiting(world: Gateways) -> tuple[httpx.Client, str]:
    """Give somebody who is first in the line, and the room's addresses."""
    room = world.room(capacity=0)
    world.publish(room)
    visitor = world.one.browser()
    visitor.get("/")
    return visitor, f"/__corvus/wr/{room.id}"


@pytest.mark.parametrize("action", ["leave", "rejoin", "extend", "beacon"])
@pytest.mark.parametrize("said", FOREIGN)
def test_forged_form_of_another_site_cannot_take_a_place_away(
    world: Gateways, action: str, said: dict[str, str]
) -> None:
    visitor, base = waiting(world)
    with closing(visitor):
        # Lax keeps the cookie out of such a request; what the answer sets would still be kept.
        with world.one.client(headers=BROWSER | said) as forged:
            answer = forged.post(f"{base}/{action}?next=/")
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        # A sibling host's page sends the cookie along.
        sibling = {"sec-fetch-site": "same-site", "origin": "http://other.127.0.0.1"}
        assert visitor.post(f"{base}/{action}", headers=sibling).status_code == 403
        assert place_of(visitor.get(f"{base}/status")) == ("waiting", 1)


def test_invented_session_does_not_jump_the_line_of_a_room_that_keeps_who_is_inside(
    world: Gateways,
) -> None:
    keeping = {"session_cookie": "site", "bypass": ("/robots.txt",)}
    world.publish(**keeping)
    opened = int(world.redis.time()[0]) * 1000 - GRACE_MS - 1000
    room = world.room(capacity=0, opened_ms=opened, inside_now=InsideNow.KEEP)
    world.publish(room, world.room(capacity=0), **keeping)
    session = {"cookie": "site=of-my-own-invention"}
    inside = []
    with world.one.client(headers=BROWSER | session) as thief:
        end = time.monotonic() + 2.5  # a session that was seen is in the store after one second
        while time.monotonic() < end:
            # a page that nobody has to wait for
            assert thief.get("/robots.txt").text == "<h1>the shop</h1>"
            thief.cookies.clear()
            inside.append("the shop" in thief.get("/").text)
    assert not any(inside)


@pytest.mark.parametrize("said", FOREIGN)
def test_forged_form_of_another_site_cannot_replace_the_cookie(
    world: Gateways, said: dict[str, str]
) -> None:
    world.publish(world.room(capacity=0))
    with world.one.client(headers=BROWSER | said) as forged:
        answer = forged.post("/anything", data={"a": "b"})
    assert answer.status_code == 429
    assert "set-cookie" not in answer.headers
    assert not world.origin.seen


def test_own_pages_and_programs_may_leave_and_join_again(world: Gateways) -> None:
    for said in (
        {"sec-fetch-site": "same-origin"},
        {"origin": "http://127.0.0.1"},
        {},
    ):
        visitor, base = waiting(world)
        with closing(visitor):
            visitor.headers.update(said)
            assert visitor.post(f"{base}/rejoin?next=/").status_code == 200
            assert visitor.post(f"{base}/leave?next=/").status_code == 200
            assert place_of(visitor.get(f"{base}/status"))[0] == "none"


def test_programs_of_other_sites_still_get_their_cookie(world: Gateways) -> None:
    world.publish(world.room(capacity=0))
    with world.one.client(headers={"accept": "application/json"}) as program:
        answer = program.post("/api", headers={"origin": "https://app.example"})
    assert "set-cookie" in answer.headers


@pytest.mark.parametrize(
    ("target", "status", "location"),
    [
        ("lang?to=de&next=/%E4%BD%A0", 303, "/%E4%BD%A0"),
        ("lang?to=de&next=@evil.example", 303, "/"),
        ("lang?to=de&next=//evil.example/", 303, "/.//evil.example/"),
        ("lang?to=de&next=/%0d%0aset-cookie:a=b", 303, "/set-cookie:a=b"),
        ("lang?" + "&".join(["a=b"] * 9), 400, None),
        ("status?" + "&".join(["a=b"] * 9), 400, None),
    ],
)
def test_odd_parameters_lead_nowhere_else_and_log_no_traceback(
    world: Gateways, target: str, status: int, location: str | None
) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.client(headers=BROWSER) as attacker:
        answer = attacker.get(f"/__corvus/wr/{room.id}/{target}")
    assert answer.status_code == status
    if location is not None:
        assert answer.headers["location"] == world.one.url + location
    assert "Traceback" not in world.one.log.read_text()


@pytest.mark.parametrize("host", [b"[::.:]", b"[:::]", b"a..b", b"-", b"a:99999"])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_odd_hosts_and_referrers_log_no_traceback(
    world: Gateways, host: bytes, method: bytes
) -> None:
    world.publish(world.room(capacity=0))
    with RawClient(world.one.port) as client:
        client.send(
            b"%b / HTTP/1.1\r\nHost: %b\r\nAccept: text/html\r\nReferer: http://[\r\n"
            b"Content-Length: 0\r\nConnection: close\r\n\r\n" % (method, host)
        )
        assert client.answer().status < 500
    assert "Traceback" not in world.one.log.read_text()
