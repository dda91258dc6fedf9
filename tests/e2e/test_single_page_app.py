"""WR-50: a single-page application on one origin, its API behind the gateway on another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from queueing.config import RoomConfig
from queueing.page_builder import build_bundle
from tests.support.gateways import Gateways, running_gateways
from tests.support.late_answers import late_answers
from tests.support.other_sites import RESOLVED, serving
from tests.support.running import eventually
from tests.support.valkey import running_valkey
from tests.support.waiting_browser import CHROMIUM

pytestmark = pytest.mark.browser

APP = """<!doctype html><html lang="en"><title>App</title><main><h1>App</h1>
<label>Name <input id="name"></label></main>
<script src="{api}/__corvus/helper.js?lang={language}"{session}></script></html>"""
# What a strict site allows: no inline style at all, scripts and requests of the API alone.
POLICY = "default-src 'none'; script-src {api}; connect-src {api}; style-src 'none'"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", RESOLVED]
        )
        yield running
        running.close()


@pytest.fixture(scope="module")
def world() -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, build_bundle(), 1) as running:
        yield running


@dataclass
class App:
    """The open application and what it logged."""

    page: Page
    api: str
    problems: list[str]

    def call(self, method: str = "GET", **init: Any) -> None:
        """Begin a request; `answer` has its result."""
        self.page.evaluate(
            """([url, init]) => {
              window.result = null;
              fetch(url, { credentials: "include", ...init })
                .then((r) => r.text().then((t) => { window.result = [r.status, t]; }))
                .catch((e) => { window.result = [0, String(e)]; });
            }""",
            [f"{self.api}/data", {"method": method, **init}],
        )

    def answer(self) -> tuple[int, str]:
        """Wait for the result."""
        found = eventually(lambda: self.page.evaluate("window.result"), within_s=60)
        return found[0], found[1]


@contextmanager
def app(
    world: Gateways,
    browser: Browser,
    room: RoomConfig,
    *,
    language: str = "en",
    session: bool = False,
    port: int = 0,
) -> Iterator[App]:
    api = f"http://api.shop.test:{port or world.one.port}"
    attribute = f' data-session="/__corvus/wr/{room.id}/session"' if session else ""
    page_text = APP.format(api=api, language=language, session=attribute)
    with serving(
        {"/": page_text}, headers={"content-security-policy": POLICY.format(api=api)}
    ) as app_port:
        origin = f"http://app.shop.test:{app_port}"
        world.publish(room, allowed_origins=(origin,))
        world.origin.clear()
        world.origin.answer_headers = [
            ("access-control-allow-origin", origin),
            ("access-control-allow-credentials", "true"),
        ]
        context = browser.new_context()
        page = context.new_page()
        opened = App(page, api, [])
        page.on("pageerror", lambda error: opened.problems.append(str(error)))
        page.on("console", lambda message: _note(opened, message.type, message.text))
        page.goto(origin)
        try:
            yield opened
            assert opened.problems == []
        finally:
            context.close()


def _note(opened: App, kind: str, text: str) -> None:
    if kind == "error" and "Failed to load resource" not in text:
        opened.problems.append(text)


@contextmanager
def occupied(world: Gateways, room: RoomConfig) -> Iterator[httpx.Client]:
    """Somebody who is inside already."""
    with world.one.browser() as inside:
        assert inside.get("/").text == "<h1>the shop</h1>"
        world.origin.seen.clear()
        yield inside


def let_in(inside: httpx.Client, room: RoomConfig) -> None:
    inside.post(f"/__corvus/wr/{room.id}/leave")


def test_wr_50_a_read_waits_behind_an_overlay_and_is_then_answered(
    world: Gateways, browser: Browser
) -> None:
    room = world.room(capacity=1)
    with app(world, browser, room) as opened, occupied(world, room) as inside:
        opened.page.focus("#name")
        opened.call()
        overlay = opened.page.get_by_role("dialog", name="You are in line")
        expect(overlay).to_contain_text("Your place in line: 1.")
        expect(overlay).to_contain_text("goes on by itself")
        opened.page.evaluate(Axe().axe_script)
        found = opened.page.evaluate(
            "axe.run(document).then((r) => r.violations.map((v) => v.id + v.nodes[0].html))"
        )
        assert found == []
        assert opened.page.evaluate("window.result") is None
        let_in(inside, room)
        assert opened.answer() == (200, "<h1>the shop</h1>")
        expect(overlay).to_have_count(0)
        assert opened.page.evaluate("document.activeElement.id") == "name", "the focus is back"
        assert [(s.method, s.target) for s in world.origin.seen] == [("GET", "/data")]


def read_three(opened: App) -> None:
    opened.page.evaluate(
        """(url) => { window.result = null; Promise.all([1, 2, 3].map((n) =>
          fetch(new Request(url + n, { credentials: "include" })).then((r) => r.status)))
          .then((all) => { window.result = [0, all.join()]; }); }""",
        f"{opened.api}/data",
    )


def test_wr_50_reads_of_a_first_visit_take_one_place(world: Gateways, browser: Browser) -> None:
    """Each answer brings a cookie of its own; a place taken with any but the last is nobody's, and
    would stand in the visitor's way until it has been silent for long enough."""
    room = world.room(capacity=1)

    def places() -> int:
        return world.operator(room, "stats").totals.get("joined", 0) - 1

    with (
        late_answers(world.one.port, b"/data3") as relay,
        app(world, browser, room, port=relay.port) as opened,
        occupied(world, room) as inside,
    ):
        read_three(opened)
        eventually(relay.held.is_set, what="the third answer to be under way")
        with pytest.raises(AssertionError):
            eventually(lambda: places() > 0, within_s=1)
        relay.go_on.set()
        expect(opened.page.get_by_role("dialog")).to_have_count(1)
        eventually(lambda: places() > 0, what="a place to be taken")
        let_in(inside, room)
        assert opened.answer()[1] == "200,200,200"
        assert places() == 1


def test_wr_50_several_reads_wait_behind_one_overlay(world: Gateways, browser: Browser) -> None:
    room = world.room(capacity=1)
    with app(world, browser, room) as opened, occupied(world, room) as inside:
        read_three(opened)
        expect(opened.page.get_by_role("dialog")).to_have_count(1)
        let_in(inside, room)
        assert opened.answer()[1] == "200,200,200"


def test_wr_50_a_write_is_never_repeated_unless_told(world: Gateways, browser: Browser) -> None:
    room = world.room(capacity=1)
    with app(world, browser, room) as opened, occupied(world, room) as inside:
        opened.call("POST", body="seat=7")
        expect(opened.page.get_by_role("dialog")).to_contain_text("1.")
        let_in(inside, room)
        status, text = opened.answer()
        assert status == 429
        assert '"submitted":false' in text
        assert not [s for s in world.origin.seen if s.method == "POST"]
        opened.call("POST", body="seat=7")
        assert opened.answer() == (200, "<h1>the shop</h1>"), "the turn was taken meanwhile"
        posts = [s.body for s in world.origin.seen if s.method == "POST"]
        assert posts == [b"seat=7"]


def test_wr_50_a_write_that_may_be_repeated_goes_through_once(
    world: Gateways, browser: Browser
) -> None:
    room = world.room(capacity=1)
    with app(world, browser, room, language="ar") as opened, occupied(world, room) as inside:
        opened.call("POST", body="seat=7", corvusRepeat=True)
        overlay = opened.page.get_by_role("dialog")
        expect(overlay).to_contain_text("١")
        assert overlay.get_attribute("lang") == "ar-EG"
        let_in(inside, room)
        assert opened.answer() == (200, "<h1>the shop</h1>")
        posts = [s.body for s in world.origin.seen if s.method == "POST"]
        assert posts == [b"seat=7"]


def test_wr_50_what_is_no_wait_comes_through_untouched(world: Gateways, browser: Browser) -> None:
    room = world.room(capacity=0, max_queue=1)
    with app(world, browser, room) as opened:
        with world.one.api() as first:
            first.get("/")
            first.get("/")
            opened.call()
            status, text = opened.answer()
        assert status == 503
        assert '"state":"full"' in text
        opened.call(credentials="omit")
        status, text = opened.answer()
        assert status == 429
        assert '"state":"none"' in text, "without cookies it asks no more than twice"


def test_wr_26_the_end_of_a_session_is_told_and_moved_by_one_button(
    world: Gateways, browser: Browser
) -> None:
    room = world.room(capacity=1, absolute_ttl_ms=110_000, active_ttl_ms=60_000)
    with app(world, browser, room, session=True) as opened:
        opened.call()
        assert opened.answer()[0] == 200
        opened.page.reload()
        opened.page.focus("#name")
        told = opened.page.get_by_role("alert")
        expect(told).to_contain_text("Your time on this site ends at")
        assert opened.page.evaluate("document.activeElement.id") == "name"
        told.get_by_role("button", name="Stay longer").click()
        expect(told).to_have_count(0)
        left = opened.page.evaluate(
            "(u) => fetch(u, { credentials: 'include' }).then((r) => r.json())",
            f"{opened.api}/__corvus/wr/{room.id}/session",
        )
        assert left["extensions_left"] == 9
