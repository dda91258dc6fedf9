"""The line as people see it: real Chromium before the whole product with its demo site."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from playwright.sync_api import Browser, Response, expect

from tests.support.people import SOON_MS, Person, people
from tests.support.product import Product
from tests.support.running import eventually
from tests.support.waiting_browser import chromium

pytestmark = pytest.mark.browser

ADMIN_TOKEN = "the operator's admin token"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


SMALL = {
    "CORVUS_CAPACITY": "1",
    "CORVUS_ACTIVE_TTL": "4s",
    "CORVUS_REFRESH": "2s",
    "CORVUS_ADMIN_TOKEN": ADMIN_TOKEN,
}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    running = Product(tmp_path_factory.mktemp("line") / "data", SMALL)
    yield running
    running.end()


CONCERT = re.compile("Night Herons")


def counts(product: Product) -> dict[str, int]:
    answer = httpx.get(
        f"{product.site}/__corvus/stats", headers={"authorization": f"Bearer {ADMIN_TOKEN}"}
    )
    found: dict[str, int] = answer.json()["rooms"]["main"]
    return found


def emptied(product: Product) -> None:
    """Wait until nobody of an earlier test is left in the room."""
    eventually(
        lambda: not any(counts(product)[n] for n in ("active", "granted", "waiting")),
        within_s=60,
        what="the room is empty",
    )


@dataclass
class Journey:
    """Three people without JavaScript before a product of their own, left alone from the start."""

    product: Product
    people: list[Person]
    pages: list[tuple[int, str]] = field(default_factory=list)  # who got which page, in order


@pytest.fixture(scope="module")
def journey(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    """Begin what takes half minutes of real time; other tests run meanwhile."""
    own = Product(tmp_path_factory.mktemp("slow") / "data", SMALL | {"CORVUS_GATEWAYS": "1"})
    try:
        with people(browser, own.site, 3, java_script_enabled=False) as found:
            begun = Journey(own, found)
            for number, person in enumerate(found):
                person.page.on("response", lambda r, n=number: _log(begun, n, r))
            found[0].come()
            found[1].come("/tickets?seats=2")
            eventually(lambda: counts(own)["granted"])  # the first has been idle for long enough
            found[2].come("/tickets?seats=2")
            yield begun
    finally:
        own.end()


def _log(journey: Journey, number: int, answer: Response) -> None:
    if answer.status == 200 and answer.request.is_navigation_request():
        waits = "content-security-policy" in answer.headers  # the shop has none
        journey.pages.append((number, "waits" if waits else "is inside"))


@pytest.mark.usefixtures("journey")
def test_three_visitors_get_in_one_after_the_other_by_themselves(
    browser: Browser, product: Product
) -> None:
    emptied(product)
    with people(browser, product.site, 3) as (first, second, third):
        first.come()
        expect(first.page).to_have_title(CONCERT)
        for position, person in enumerate((second, third), start=1):
            person.come("/tickets?seats=2")
            person.waits_at(position)
        first.go_away()
        expect(second.page).to_have_title(CONCERT, timeout=SOON_MS)
        third.waits_at(1)
        assert second.page.url == f"{product.site}/tickets?seats=2"
        second.go_away()
        expect(third.page).to_have_title(CONCERT, timeout=SOON_MS)
        third.leave()


def test_wr_52_the_waiting_page_asks_for_nothing_but_its_status(
    browser: Browser, product: Product
) -> None:
    emptied(product)
    with people(browser, product.site, 2) as (inside, waiting):
        inside.come()
        answer = waiting.come("/tickets")
        waiting.waits_at(1)
        body = answer.body()
        assert len(gzip.compress(body)) <= 14 * 1024
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe-inline" not in policy
        waiting.asked.clear()
        with waiting.page.expect_response("**/status?*"):
            pass
        with waiting.page.expect_response("**/status?*", timeout=SOON_MS):
            pass
        status = f"GET {product.site}/__corvus/wr/main/status"
        assert {asked.partition("?")[0] for asked in waiting.asked} == {status}
        assert waiting.page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
        for person in (inside, waiting):
            person.leave()


def test_wr_75m_nobody_is_asked_to_solve_or_to_type_anything(
    browser: Browser, product: Product
) -> None:
    emptied(product)
    with people(browser, product.site, 2) as (inside, waiting):
        inside.come()
        waiting.come()
        waiting.waits_at(1)
        typed = "input:not([type=checkbox]):not([type=hidden]), textarea, canvas, img, iframe"
        assert waiting.page.locator(typed).count() == 0
        for person in (inside, waiting):
            person.leave()


def test_the_first_run_page_makes_the_operator_who_lets_the_next_one_in_within_a_second(
    browser: Browser, product: Product
) -> None:
    emptied(product)
    with (
        people(browser, product.site, 2) as (inside, waiting),
        people(browser, product.console, 1) as (operator,),
    ):
        inside.come()
        waiting.come("/tickets")
        waiting.waits_at(1)

        operator.come()
        assert operator.page.url.endswith("/first-run/")
        page = operator.page
        page.get_by_label("Setup token").fill(product.setup_token)
        page.get_by_label("User name").fill("ada")
        page.get_by_label("Password", exact=True).fill("correct-horse-battery")
        page.get_by_label("Password, again").fill("correct-horse-battery")
        page.get_by_role("button", name="Create administrator").click()
        expect(page).to_have_url(f"{product.console}/admin/")

        operator.come("/admin/queueing/room/main/change/")
        page.locator("#id_capacity").fill("2")
        page.locator("[name=_save]").click()
        expect(page).to_have_url(f"{product.console}/admin/queueing/room/")
        expect(page.locator(".messagelist .success")).to_be_visible()
        eventually(lambda: counts(product)["granted"], within_s=1.0)
        expect(waiting.page).to_have_title(CONCERT, timeout=SOON_MS)


def test_three_visitors_without_javascript_get_in_one_after_the_other_by_themselves(
    journey: Journey,
) -> None:
    """In real time: the browser's own delayed refresh, half a minute, and slots that run out."""
    first, second, third = journey.people
    for person in (second, third):
        expect(person.page).to_have_title(CONCERT, timeout=2 * SOON_MS)
        assert person.page.url == f"{journey.product.site}/tickets?seats=2"
        assert not [a for a in person.asked if "/__corvus/" in a], "pages only, no polls"
    assert journey.pages[:3] == [(0, "is inside"), (1, "waits"), (2, "waits")]
    inside = [number for number, state in journey.pages if state == "is inside"]
    assert inside == [0, 1, 2]
    assert CONCERT.search(first.page.title())
