"""The line as people see it: real Chromium before the whole product and before real gateways.

`product` is `manage.py up` with the demo site and a capacity of one. The single cases run on
gateways with a room of their own, so that each has the clocks that it needs.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect, sync_playwright

from queueing.config import RoomConfig
from queueing.page_builder import build_bundle
from tests.support.gateways import Gateways, eventually, running_gateways
from tests.support.product import Product
from tests.support.valkey import running_valkey
from tests.support.waiting_browser import CHROMIUM

pytestmark = pytest.mark.browser

ADMIN_TOKEN = "the operator's admin token"
SOON_MS = 40_000
"""A bound for what happens by itself in some seconds; only a failing test waits that long."""

WATCHED = """
let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden });
Object.defineProperty(document, "visibilityState", { get: () => hidden ? "hidden" : "visible" });
window.__hide = (yes) => { hidden = yes; document.dispatchEvent(new Event("visibilitychange")); };
window.__asking = 0;
const real = window.fetch;
window.fetch = (...a) => {
  window.__asking += 1;
  const p = real(...a);
  p.then((r) => r.clone().text()).catch(() => 0).then(() => { window.__asking -= 1; });
  return p;
};
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


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


@pytest.fixture(scope="module")
def world() -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, build_bundle(), 2) as running:
        yield running


@dataclass
class Person:
    """Somebody with a browser of their own: the page, what it asked for and what it complained."""

    context: BrowserContext
    page: Page
    address: str
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def come(self, path: str = "/") -> Response:
        answer = self.page.goto(self.address + path)
        assert answer is not None
        return answer

    def go_away(self) -> None:
        """Look at something else; nothing of the site stays open."""
        self.page.goto("about:blank")

    def is_inside(self, heading: str) -> None:
        """Wait until the site itself is on the screen."""
        expect(self.page.locator("h1")).to_have_text(heading, timeout=SOON_MS)

    def look(self) -> None:
        """Press "check my place"."""
        self.page.locator("#check").click()

    def leave(self) -> None:
        """Give the slot or the place back at once, with no page left that could ask again."""
        self.go_away()
        self.context.request.post(f"{self.address}/__corvus/wr/main/leave")

    def waits_at(self, position: int) -> None:
        """Wait until the waiting page shows this position."""
        shown = self.page.locator("[data-c=position]")
        expect(shown).to_have_text(str(position), timeout=SOON_MS)
        expect(self.page.locator("body")).to_have_attribute("data-state", "waiting")


@contextmanager
def people(browser: Browser, address: str, count: int, **options: Any) -> Iterator[list[Person]]:
    """Open browsers; what any of them complains about fails the test."""
    found: list[Person] = []
    for _ in range(count):
        context = browser.new_context(**options)
        person = Person(context, context.new_page(), address)
        person.page.on("request", lambda r, p=person: p.asked.append(f"{r.method} {r.url}"))
        person.page.on("pageerror", lambda e, p=person: p.complaints.append(str(e)))
        person.page.on("console", lambda m, p=person: _listen(p, m.type, m.text))
        found.append(person)
    try:
        yield found
        assert [p.complaints for p in found] == [[]] * count
    finally:
        for person in found:
            person.context.close()


def _listen(person: Person, kind: str, text: str) -> None:
    # Chromium reports answers of 400 and above, which some states have, and loads while offline.
    if kind in ("error", "warning") and "Failed to load resource" not in text:
        person.complaints.append(text)


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
        what=lambda: json.dumps(counts(product)),
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


def page_room(world: Gateways, **values: Any) -> RoomConfig:
    """Publish a room of the test's own."""
    room = world.room(entries_per_minute=0, **values)
    world.publish(room)
    return room


def room_counts(world: Gateways, room: RoomConfig) -> dict[str, int]:
    found: dict[str, int] = world.stats()["rooms"][room.id]
    return found


SHOP = "the shop"


def test_wr_06_wr_20_a_silent_head_blocks_nobody_and_is_first_again_on_waking(
    browser: Browser, world: Gateways
) -> None:
    room = page_room(world, capacity=1, queue_ttl_ms=7_000, return_window_ms=120_000)
    url = world.one.url
    leave = f"{url}/__corvus/wr/{room.id}/leave"
    with people(browser, url, 4) as (inside, asleep, second, third):
        inside.come()
        for position, person in enumerate((asleep, second, third), start=1):
            person.come()
            person.waits_at(position)
        asleep.context.set_offline(True)
        eventually(lambda: room_counts(world, room)["parked"] == 1, within_s=20)
        inside.context.request.post(leave)
        second.is_inside(SHOP)
        third.waits_at(1)
        asleep.context.set_offline(False)
        asleep.look()
        asleep.waits_at(1)
        expect(asleep.page.locator("[data-c=ahead_text]")).to_have_text("You are first in line.")
        third.look()
        third.waits_at(2)
        expect(third.page.locator("#why")).to_contain_text("people who had been away returned")
        second.context.request.post(leave)
        asleep.is_inside(SHOP)
        third.waits_at(1)


def test_wr_19_a_hidden_tab_asks_once_a_minute_and_gets_its_slot_at_its_next_poll(
    browser: Browser, world: Gateways
) -> None:
    """The tab's clock is turned on by twelve minutes; the room's clock cannot be."""
    room = page_room(world, capacity=1, polls_per_second=100)
    url = world.one.url
    with people(browser, url, 2) as (inside, hidden):
        inside.come()
        hidden.page.clock.install()
        hidden.page.add_init_script(WATCHED)
        hidden.come()
        hidden.waits_at(1)
        ticket = hidden.page.locator("dt:has-text('ticket') + dd, dt:has-text('number') + dd")
        number = ticket.first.text_content()
        hidden.page.evaluate("window.__hide(true)")
        hidden.asked.clear()
        turn_on(hidden, 720)
        assert 9 <= len(hidden.asked) <= 14
        assert ticket.first.text_content() == number
        hidden.waits_at(1)
        inside.context.request.post(f"{url}/__corvus/wr/{room.id}/leave")
        eventually(lambda: room_counts(world, room)["granted"] == 1)
        body = hidden.page.locator("body")
        while body.get_attribute("data-state") == "waiting":
            turn_on(hidden, 10)
        assert len(hidden.asked) <= 16, "at the very next poll"
        hidden.is_inside(SHOP)


def turn_on(person: Person, seconds: int) -> None:
    """Turn the tab's clock on, never past the end of a request that is under way."""
    for _ in range(0, seconds, 10):
        person.page.clock.run_for(10_000)
        eventually(lambda: person.page.evaluate("window.__asking || 0") == 0)


def test_wr_21_a_missed_turn_is_said_with_one_button_to_join_again(
    browser: Browser, world: Gateways
) -> None:
    room = page_room(world, capacity=0, queue_ttl_ms=6_000, return_window_ms=6_000)
    with people(browser, world.one.url, 1) as (late,), world.one.browser() as other:
        late.come("/tickets?a=1")
        late.waits_at(1)
        late.context.set_offline(True)
        other.get("/")
        status = f"/__corvus/wr/{room.id}/status"
        eventually(lambda: other.get(status).json()["position"] == 1, within_s=30)
        late.context.set_offline(False)
        late.look()
        expect(late.page.locator("h1")).to_have_text("You missed your turn", timeout=SOON_MS)
        expect(late.page.locator("#since")).to_contain_text("Your place expired")
        buttons = late.page.locator("main button:visible, main a.button:visible")
        assert buttons.count() == 1
        assert other.get(status).json()["position"] == 1
        buttons.click()
        late.waits_at(2)
        assert late.page.url == f"{world.one.url}/tickets?a=1"


def test_wr_24_a_position_that_rises_says_why_in_words(browser: Browser, world: Gateways) -> None:
    room = page_room(world, capacity=0, queue_ttl_ms=6_000, return_window_ms=60_000)
    status = f"/__corvus/wr/{room.id}/status"
    with (
        world.one.browser() as early,
        people(browser, world.one.url, 1) as (waiting,),
    ):
        early.get("/")
        waiting.come()
        waiting.waits_at(2)
        waiting.waits_at(1)  # once the other has been silent for long enough
        expect(waiting.page.locator("#why")).to_be_hidden()
        assert early.get(status).json()["position"] == 1
        waiting.look()
        waiting.waits_at(2)
        expect(waiting.page.locator("#why")).to_contain_text("people who had been away returned")


@pytest.mark.parametrize("javascript", [True, False], ids=["with-script", "without-script"])
def test_wr_32_blocked_cookies_end_at_a_page_that_says_so(
    browser: Browser, world: Gateways, tmp_path: Path, javascript: bool
) -> None:
    page_room(world, capacity=5)
    world.origin.clear()
    preferences = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    (tmp_path / "Default").mkdir()
    (tmp_path / "Default" / "Preferences").write_text(json.dumps(preferences))
    context = browser.browser_type.launch_persistent_context(
        str(tmp_path),
        executable_path=CHROMIUM,
        args=["--no-sandbox"],
        java_script_enabled=javascript,
    )
    try:
        page = context.new_page()
        page.clock.install()
        answers: list[tuple[int, str]] = []
        page.on("response", lambda r: answers.append((r.status, r.url)))
        page.goto(f"{world.one.url}/tickets?a=1")
        expect(page.locator("h1")).to_have_text("Cookies are needed")
        pages = [status for status, url in answers if "favicon" not in url]
        assert pages == [302, 200]
        expect(page.get_by_text("usual browser").first).to_be_visible()
        assert 'http-equiv="refresh"' not in page.content()
        if javascript:
            page.clock.run_for(600_000)
        assert [url for _, url in answers if "/__corvus/" in url] == [], "no polling"
        assert context.cookies() == []
        assert not world.origin.seen
    finally:
        context.close()


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
