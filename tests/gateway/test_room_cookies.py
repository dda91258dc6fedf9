"""The visitor's cookie: forgery, mixing, rotation, networks, floods, browsers that keep none."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import httpx
import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig
from queueing.passes import Credential, Keyring, Kind, Verdict, new_sid
from tests.support.gateways import BROWSER, SECRET, Gateways
from tests.support.running import eventually

KEYS = Keyring(SECRET.encode(), 1)


def cookie(room: RoomConfig, client: httpx.Client) -> str:
    return client.cookies[f"corvus_{room.id}"]


def test_wr_36_a_forged_pass_admits_nobody(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    with world.one.browser() as inside:
        inside.get("/")
        genuine = cookie(room, inside)
    world.origin.seen.clear()
    kid_at = genuine.index(".") + 1
    for position in range(0, len(genuine), 5):
        if kid_at <= position < kid_at + 6:
            continue
        flipped = chr(ord(genuine[position]) ^ 1)
        forged = genuine[:position] + flipped + genuine[position + 1 :]
        with world.one.client(headers={"accept": "application/json"}) as thief:
            answer = thief.get("/", headers={"cookie": f"corvus_{room.id}={forged}"})
        assert answer.status_code == 429, forged
        assert answer.json()["state"] == "none"
    assert not world.origin.seen


def test_wr_36_a_pass_of_another_room_is_worth_nothing(world: Gateways) -> None:
    room, other = world.room(capacity=1), world.room(capacity=0)
    world.publish(room, other)
    with world.one.browser() as visitor:
        visitor.get("/")
        carried = cookie(room, visitor)
    with world.one.api() as thief:
        answer = thief.get(f"/{other.id}/x", headers={"cookie": f"corvus_{other.id}={carried}"})
    assert answer.json()["state"] == "none"


def test_wr_36_unknown_keys_and_expiry_are_stale_not_forged() -> None:
    room = RoomConfig(id="r")  # type: ignore[arg-type]
    mine = Credential(kind=Kind.ADMITTED, room=room.id, sid=new_sid(), iat_ms=1, exp_ms=2)
    value = KEYS.sign(mine).encode()
    assert KEYS.read(value, room.id).credential == mine, "expired, and still an identity"
    assert Keyring(b"another secret", 1).read(value, room.id).verdict is Verdict.STALE
    head, _, tail = value.partition(value.split(b".")[1])
    assert KEYS.read(head + b"AAAAAA" + tail, room.id).verdict is Verdict.STALE
    assert KEYS.read(value[:-1] + b"!", room.id).verdict is Verdict.FORGED


def test_wr_28_rotation_loses_nobody(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    with world.one.browser() as inside, world.one.browser() as waiting:
        inside.get("/")
        waiting.get("/")
        for generation in (2, 3, 4):
            world.publish(room, key_generation=generation)
            assert inside.get("/").text == "<h1>the shop</h1>"
            # Its pass is renewed before the next rotation, which comes after the longest life.
            status = waiting.get(f"/__corvus/wr/{room.id}/status").json()
            assert (status["state"], status["position"]) == ("waiting", 1)
            waiting.get("/")
            renew(world, inside, room)


def renew(world: Gateways, client: httpx.Client, room: RoomConfig) -> None:
    """Make the pass as old as a renewal needs, signed by the key that signs now."""
    generation = world.generation
    for keys in (Keyring(SECRET.encode(), generation), Keyring(SECRET.encode(), generation - 1)):
        found = keys.read(cookie(room, client).encode(), room.id).credential
        if found is not None:
            old = replace(found, iat_ms=found.iat_ms - room.refresh_ms)
            client.cookies.set(f"corvus_{room.id}", keys.sign(old), domain="127.0.0.1", path="/")
            break
    answer = client.get("/")
    assert "set-cookie" in answer.headers
    assert answer.headers["cache-control"] == "no-store, private"


def test_wr_29_another_network_keeps_the_place(world: Gateways) -> None:
    room = world.room(capacity=1, bind_network=True)
    world.publish(room)
    home, mobile = {"x-forwarded-for": "198.51.100.7"}, {"x-forwarded-for": "203.0.113.9"}
    with world.one.browser() as inside, world.one.browser() as waiting:
        inside.get("/", headers=home)
        first = waiting.get(f"/__corvus/wr/{room.id}/status", headers=home)
        waiting.get("/", headers=home)
        world.origin.seen.clear()
        answer = inside.get("/", headers=mobile | {"user-agent": "another"})
        assert answer.text == "<h1>the shop</h1>"
        assert not answer.history
        assert "set-cookie" in answer.headers, "bound to the new network now"
        assert "set-cookie" not in inside.get("/", headers=mobile).headers
        status = waiting.get(f"/__corvus/wr/{room.id}/status", headers=mobile).json()
        assert (status["state"], status["position"]) == ("waiting", 1)
        assert first.json()["state"] == "none"


@pytest.mark.parametrize("secure", [False, True])
def test_wr_32_and_56_without_cookies_a_page_says_so(world: Gateways, secure: bool) -> None:
    world.publish(
        world.room(capacity=1),
        settings=GatewaySettings(secure_cookie=secure, access_log=False),
    )
    jarless = world.one.client(headers=BROWSER)
    with jarless:
        first = jarless.get("/x")
        jarless.cookies.clear()
        second = jarless.get(first.headers["location"])
    assert (first.status_code, second.status_code) == (302, 200)
    assert "location" not in second.headers
    assert "set-cookie" not in second.headers
    assert "ookies" in second.text
    assert ("Secure" in first.headers["set-cookie"]) == secure
    assert not world.origin.seen


def test_wr_56_readiness_turns_red_when_cookies_cannot_be_set(world: Gateways) -> None:
    world.publish(
        world.room(capacity=1), settings=GatewaySettings(secure_cookie=True, access_log=False)
    )
    said = world.one.log.read_text().count("cannot keep the cookie")
    with world.one.client(headers=BROWSER) as jarless:
        for _ in range(5):
            jarless.get("/?__wr=1")
        told_again = world.one.log.read_text().count("cannot keep the cookie")
        assert told_again == said + 1, "the operator is told once"
        ready = jarless.get("/__corvus/readyz")
        assert ready.status_code == 503
        assert "cookies" not in ready.text, "details are the operator's"
        told = jarless.get("/__corvus/readyz", headers=world.admin)
        assert "CORVUS_SECURE_COOKIE" in told.json()["wrong"]["cookies"]
    world.publish(world.room(capacity=1))
    with world.one.client() as client:
        assert client.get("/__corvus/readyz").status_code == 200


def test_twenty_rooms_stay_under_four_kilobytes_of_cookies() -> None:
    sid = base64.urlsafe_b64encode(b"123456789012").decode()
    total = 0
    for number in range(20):
        room = f"a-room-with-a-long-name-{number}"
        mine = Credential(
            kind=Kind.QUEUED,
            room=room,  # type: ignore[arg-type]
            sid=sid,  # type: ignore[arg-type]
            iat_ms=1_800_000_000_000,
            exp_ms=1_800_000_600_000,
            ticket=1_000_000,
        )
        total += len(f"corvus_{room}={KEYS.sign(mine)}; ")
    assert total < 4096


def test_cookies_are_http_only_lax_and_as_the_operator_sets_them(world: Gateways) -> None:
    world.publish(
        world.room(capacity=1),
        settings=GatewaySettings(
            cookie_path="/shop", cookie_domain="shop.example", access_log=False
        ),
    )
    with world.one.client(headers=BROWSER) as client:
        answer = client.get("/shop", headers={"host": "www.shop.example"})
        https = client.get(
            "/shop", headers={"host": "www.shop.example", "x-forwarded-proto": "https"}
        )
    value = answer.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=Lax", "Path=/shop", "Domain=shop.example"):
        assert part in value
    assert "Secure" not in value
    assert "Secure" in https.headers["set-cookie"]
    assert https.headers["location"] == "https://www.shop.example/shop?__wr=1"
    assert re.match(r"corvus_t\d+=v2\.", value)


def test_a_cookie_for_one_folder_also_reaches_the_rooms_own_addresses(world: Gateways) -> None:
    room = world.room(capacity=0)
    world.publish(room, settings=GatewaySettings(cookie_path="/shop", access_log=False))
    with world.one.browser() as visitor:
        visitor.get("/shop/seats")
        status = visitor.get(f"/__corvus/wr/{room.id}/status").json()
        assert (status["state"], status["position"]) == ("waiting", 1)
        visitor.post(f"/__corvus/wr/{room.id}/leave")
        assert not [c for c in visitor.cookies.jar if c.name.startswith("corvus_t")]


def test_a_remembered_pass_is_judged_anew_for_every_request(world: Gateways) -> None:
    room = world.room(capacity=1, refresh_ms=1_000, active_ttl_ms=60_000)
    world.publish(room)
    with world.one.browser() as inside, world.one.client() as bare:
        inside.get("/")
        jar = {"cookie": f"corvus_{room.id}={cookie(room, inside)}"}
        for _ in range(3):
            assert bare.get("/", headers=jar).status_code == 200
        assert bare.options("/", headers=jar).status_code == 200
        marked = bare.get("/?a&__wr=1", headers=jar | BROWSER)
        assert (marked.status_code, marked.headers["location"][-3:]) == (302, "/?a")
        renewed = eventually(
            lambda: (a := bare.get("/", headers=jar)).headers.get("set-cookie") and a,
            3.0,
            "the pass to grow older than its renewal",
        )
        assert renewed.status_code == 200
        world.publish(replace(room, capacity=0))
        world.operator(room, "release_all")
        eventually(
            lambda: bare.get("/", headers=jar).status_code == 429, 1.5, "the pass to be dead"
        )
