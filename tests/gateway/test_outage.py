"""The store goes away and comes back: who is served, who is told what; nobody is lost (WR-61)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from queueing.config import OnOutage
from tests.support.crowd import Visitor, together
from tests.support.gateways import Gateways, running_gateways
from tests.support.running import eventually
from tests.support.valkey import Valkey, running_valkey


@pytest.fixture(scope="module")
def durable() -> Iterator[Valkey]:
    """A store that can be stopped and goes on where it was."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture(scope="module")
def outage_processes(durable: Valkey, page_bundle: bytes) -> Iterator[Gateways]:
    with running_gateways(durable.url, page_bundle, 2) as world:
        yield world


@pytest.fixture
def shop(outage_processes: Gateways, durable: Valkey) -> Iterator[Gateways]:
    outage_processes.origin.clear()
    yield outage_processes
    durable.process.send_signal(signal.SIGCONT)
    eventually(lambda: ready(outage_processes), what="the end of the outage")


def ready(world: Gateways) -> bool:
    codes = []
    for gateway in world.gateways:
        with gateway.client() as client:
            codes.append(client.get("/__corvus/readyz").status_code)
    return set(codes) == {200}


def stop(store: Valkey, world: Gateways) -> None:
    """Freeze the store, as a hung machine would, until every gateway of the machine knows."""
    store.process.send_signal(signal.SIGSTOP)
    eventually(lambda: not ready(world), what="the gateways to notice")


def test_wr_61_passes_are_served_and_others_keep_their_number(
    shop: Gateways, durable: Valkey
) -> None:
    room = shop.room(capacity=1, on_outage=OnOutage.CLOSED)
    shop.publish(room)
    with shop.one.browser() as inside, shop.one.browser() as waiting, shop.one.api() as api:
        inside.get("/")
        waiting.get("/")
        sealed = waiting.cookies[f"corvus_{room.id}"]
        api.get("/")
        stop(durable, shop)
        for _ in range(3):
            assert inside.get("/").text == "<h1>the shop</h1>"
        told = waiting.get("/")
        assert told.status_code == 503
        assert int(told.headers["retry-after"]) >= 5
        assert waiting.cookies[f"corvus_{room.id}"] == sealed
        closed = api.get("/")
        assert (closed.status_code, closed.json()["state"]) == (503, "store_down")
        status = waiting.get(f"/__corvus/wr/{room.id}/status")
        assert (status.status_code, status.json()["state"]) == (503, "store_down")
        durable.process.send_signal(signal.SIGCONT)
        back = eventually(
            lambda: (
                (s := waiting.get(f"/__corvus/wr/{room.id}/status")).status_code == 200 and s.json()
            )
        )
        assert (back["state"], back["position"]) == ("waiting", 1)


def test_wr_61_the_request_that_notices_the_outage_is_served_by_its_valid_pass(
    shop: Gateways, durable: Valkey
) -> None:
    room = shop.room(capacity=1, refresh_ms=1_000, on_outage=OnOutage.CLOSED)
    shop.publish(room)
    with shop.one.browser() as inside:
        inside.get("/")
        issued = int(inside.cookies[f"corvus_{room.id}"].split(".")[5]) / 1000
        eventually(lambda: time.time() > issued + 1.1, what="the pass to need a renewal")
        durable.process.send_signal(signal.SIGSTOP)
        assert inside.get("/").text == "<h1>the shop</h1>"


def test_buttons_pressed_in_an_outage_are_answered_by_a_page_and_time_left_without_the_store(
    shop: Gateways, durable: Valkey
) -> None:
    room = shop.room(capacity=1, on_outage=OnOutage.CLOSED)
    shop.publish(room)
    base = f"/__corvus/wr/{room.id}"
    with shop.one.browser() as inside, shop.one.browser() as waiting:
        inside.get("/")
        waiting.get("/")
        place = waiting.cookies[f"corvus_{room.id}"]
        stop(durable, shop)
        assert inside.get(f"{base}/session").json()["state"] == "active"
        for button in ("leave", "extend"):
            page = waiting.post(f"{base}/{button}?next=%2Fshow")
            assert page.status_code == 503
            assert page.headers["content-type"].startswith("text/html")
            assert int(page.headers["retry-after"]) >= 5
        assert waiting.cookies[f"corvus_{room.id}"] == place, "the place is not given up unasked"
        by_script = waiting.post(f"{base}/leave", headers={"sec-fetch-mode": "cors"})
        assert by_script.json()["state"] == "store_down"


def test_wr_61_an_outage_adds_no_latency(shop: Gateways, durable: Valkey) -> None:
    shop.publish(shop.room(capacity=1, on_outage=OnOutage.CLOSED))
    with shop.gateways[1].api() as api:
        api.get("/")
        stop(durable, shop)
        started = time.monotonic()
        answers = [api.get("/") for _ in range(50)]
        elapsed = time.monotonic() - started
    assert {a.status_code for a in answers} == {503}
    assert elapsed < 50 * 0.05


async def test_wr_61_an_open_room_lets_in_a_bounded_number_and_counts_them_first(
    shop: Gateways, durable: Valkey
) -> None:
    room = shop.room(capacity=2, on_outage=OnOutage.OPEN, open_rate=5, entries_per_minute=0)
    shop.publish(room)
    visitors = [Visitor(shop.gateways[n % 2].port) for n in range(60)]
    await together(visitors, lambda v: v.get("/"))
    insiders = visitors[:2]
    assert {r.status for r in await together(insiders, lambda v: v.get("/"))} == {200}
    stop(durable, shop)
    started = time.monotonic()
    replies = await together(visitors[2:], lambda v: v.get("/"))
    took = time.monotonic() - started
    entered = [v for v, r in zip(visitors[2:], replies, strict=True) if r.status == 200]
    assert 1 <= len(entered) <= 5 * took + 2
    marks = {r.header("x-waiting-room") for r in replies if r.status == 200}
    assert marks == {"bypass-outage"}
    assert {r.status for r in await together(entered, lambda v: v.get("/"))} == {200}
    durable.process.send_signal(signal.SIGCONT)
    eventually(lambda: ready(shop))
    back = await together(entered, lambda v: v.get("/"))
    assert {r.status for r in back} == {200}, "adopted, not sent to the back"
    totals = shop.operator(room, "stats").totals
    assert totals["adopted"] == len(entered)
    assert totals["overshoot"] == len(entered), "counted as above the capacity, not in silence"
    others = [v for v in visitors[2:] if v not in entered]
    held = True
    while held:  # for a second nobody is admitted, so that every gateway can count its own in
        late = {r.status for r in await together(others, lambda v: v.get("/"))}
        assert late <= {429, 503}, "nobody is promoted while the room is too full"
        held = 503 in late
    await together(visitors, lambda v: v.close())


def test_a_gateway_starts_and_serves_passes_with_the_store_down(
    shop: Gateways, durable: Valkey
) -> None:
    room = shop.room(capacity=1, on_outage=OnOutage.CLOSED)
    shop.publish(room)
    with shop.one.browser() as inside:
        inside.get("/")
        stop(durable, shop)
        late = shop.start()
        try:
            with late.browser() as moved:
                moved.cookies = inside.cookies
                assert moved.get("/").text == "<h1>the shop</h1>"
        finally:
            late.process.kill()
            late.process.wait()
            shop.gateways.remove(late)


def test_a_full_store_means_busy_never_open(shop: Gateways, durable: Valkey) -> None:
    room = shop.room(capacity=5, on_outage=OnOutage.OPEN)
    shop.publish(room)
    with shop.one.api() as api, shop.one.browser() as inside:
        inside.get("/")
        api.get("/")
        durable.client.config_set("maxmemory", "1")
        try:
            busy = api.get("/")
            assert (busy.status_code, busy.json()["state"]) == (503, "busy")
            assert inside.get("/").text == "<h1>the shop</h1>"
        finally:
            durable.client.config_set("maxmemory", "0")
        assert api.get("/").status_code == 200


def test_a_store_that_cannot_do_it_means_busy_never_open_or_an_error(
    shop: Gateways, durable: Valkey
) -> None:
    room = shop.room(capacity=5, on_outage=OnOutage.OPEN)
    shop.publish(room)
    with shop.one.api() as api:
        api.get("/")
        durable.client.delete(f"corvus:wr:{{{room.id}}}:visitor")
        durable.client.set(f"corvus:wr:{{{room.id}}}:visitor", "of another kind")
        busy = api.get("/")
        assert (busy.status_code, busy.json()["state"]) == (503, "busy")
        status = api.get(f"/__corvus/wr/{room.id}/status")
        assert (status.status_code, status.json()["state"]) == (503, "busy")
        durable.client.delete(f"corvus:wr:{{{room.id}}}:visitor")
        assert api.get("/").status_code == 200


def test_a_change_made_during_an_outage_arrives_after_it(shop: Gateways, durable: Valkey) -> None:
    room = shop.room(capacity=0)
    shop.publish(room)
    stop(durable, shop)
    durable.process.send_signal(signal.SIGCONT)
    shop.publish(replace(room, capacity=1))
    with shop.one.browser() as visitor:
        assert visitor.get("/").text == "<h1>the shop</h1>"
