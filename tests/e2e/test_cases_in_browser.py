"""Cases of the waiting room in a real Chromium before real gateways, each in a room of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from queueing.config import RoomConfig
from queueing.page_builder import build_bundle
from tests.support.gateways import Gateways, running_gateways
from tests.support.people import SOON_MS, Person, people
from tests.support.running import eventually
from tests.support.valkey import running_valkey
from tests.support.waiting_browser import CHROMIUM, chromium

pytestmark = pytest.mark.browser

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
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def world() -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, build_bundle(), 2) as running:
        yield running


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
        heading = late.page.locator("h1")
        # The other one keeps checking in meanwhile, or it would fall silent too.
        eventually(
            lambda: other.get(status) and heading.inner_text() == "You missed your turn",
            within_s=SOON_MS / 1000,
        )
        expect(late.page.locator("#since")).to_contain_text("Your place expired")
        buttons = late.page.locator("main button:visible, main a.button:visible")
        assert buttons.count() == 1
        eventually(lambda: other.get(status).json()["position"] == 1, within_s=2)
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
