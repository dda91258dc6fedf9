"""A shared cache in front of the gateway: what is one visitor's never reaches another (WR-41)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest

from tests.support.gateways import BROWSER, Gateways
from tests.support.shared_cache import SharedCache, shared_cache


@pytest.fixture
def cache(world: Gateways) -> Iterator[SharedCache]:
    with shared_cache(world.one.url) as running:
        yield running


def people(cache: SharedCache, count: int, stack: contextlib.ExitStack) -> list[httpx.Client]:
    return [
        stack.enter_context(
            httpx.Client(
                base_url=cache.url,
                headers=BROWSER,
                follow_redirects=True,
                timeout=20,
                trust_env=False,
            )
        )
        for _ in range(count)
    ]


def test_wr_41_a_shared_cache_shares_no_answer_of_the_gate(
    world: Gateways, cache: SharedCache
) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    world.origin.answer_headers = [("cache-control", "public, max-age=600")]
    status = f"/__corvus/wr/{room.id}/status"
    with contextlib.ExitStack() as stack:
        inside, *waiting = people(cache, 4, stack)
        assert inside.get("/").text == "<h1>the shop</h1>"
        for place, visitor in enumerate(waiting, start=1):
            for _ in range(2):
                assert "the shop" not in visitor.get("/").text
            sent = {"cookie": f"corvus_{room.id}={visitor.cookies[f'corvus_{room.id}']}"}
            for _ in range(2):  # the very same request again, as only the server's clock differs
                assert "the shop" not in visitor.get("/", headers=sent).text
                answer = visitor.get(status, headers=sent).json()
                assert (answer["state"], answer["position"]) == ("waiting", place)
            assert visitor.post("/buy", content=b"seat=7").status_code == 429
        cookies = {v.cookies[f"corvus_{room.id}"] for v in (inside, *waiting)}
        assert len(cookies) == 4
        for stranger in people(cache, 2, stack):
            assert stranger.get(f"/__corvus/wr/{room.id}/session").json()["state"] == "none"
            assert "ookies are needed" in stranger.get("/?__wr=1").text
            assert stranger.get("/", follow_redirects=False).status_code == 302
        assert cache.hits == []


def test_wr_41_an_admitted_visitors_pages_keep_the_origins_caching(
    world: Gateways, cache: SharedCache
) -> None:
    world.publish(world.room(capacity=1))
    with contextlib.ExitStack() as stack:
        (inside,) = people(cache, 1, stack)
        inside.get("/")
        world.origin.answer_headers = [("cache-control", "public, max-age=600")]
        world.origin.seen.clear()
        for _ in range(3):
            assert inside.get("/programme").text == "<h1>the shop</h1>"
        assert [s.target for s in world.origin.seen] == ["/programme"]
        assert cache.hits == ["/programme"] * 2


def test_wr_41_the_operator_is_told_once_of_a_cache_that_keeps_waiting_pages(
    world: Gateways,
) -> None:
    room = world.room(capacity=0)
    world.publish(room)
    with world.one.browser() as visitor:
        visitor.get("/show")
        for number in range(3):  # what the page asks when its own copy was an old one
            assert visitor.get(f"/show?__wr=t{number}").status_code == 200
    assert world.stats()["rooms"][room.id]["counters"]["stale_pages"] == 3
    told = [line for line in world.one.log.read_text().splitlines() if "a cache in front" in line]
    assert len([line for line in told if room.id in line]) == 1
