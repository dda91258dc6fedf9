"""The waiting page in a real browser: what it asks the server for, and how often."""

from __future__ import annotations

import html
import re

import pytest
from playwright.sync_api import Browser, expect

from queueing.page_builder import LANGUAGES
from queueing.page_check import compile_template
from queueing.pages import Eta, PageBundle, PageState
from tests.support.page_server import NOW_MS, ROOM, PageServer, status, waiting_view
from tests.support.waiting_browser import Visit, until, visit

pytestmark = pytest.mark.browser


def test_wr_19_a_hidden_tab_asks_once_a_minute_and_at_once_when_shown(
    seen: Visit, server: PageServer
) -> None:
    server.answer = (200, status(poll_after=3))
    seen.open()
    seen.advance(10)
    seen.page.evaluate("window.__hide(true)")
    before = len(server.paths("status"))
    seen.advance(720, step=10)
    assert 10 <= len(server.paths("status")) - before <= 14
    before = len(server.paths("status"))
    seen.page.evaluate("window.__hide(false)")
    seen.settle()
    assert len(server.paths("status")) - before <= 1
    seen.advance(3)
    assert len(server.paths("status")) - before >= 1


def test_polls_follow_the_servers_advice_with_jitter_and_say_what_was_shown(
    seen: Visit, server: PageServer
) -> None:
    server.answer = (200, status(position=77, ahead=76, poll_after=20))
    seen.open()
    seen.advance(3)
    assert server.paths("status") == [f"{ROOM}/status?shown=1234"]
    # The first came after 1.8 to 2.2 s, the next one is due 18 to 22 s after its answer.
    seen.advance(16.5, step=0.5)
    assert len(server.paths("status")) == 1
    seen.advance(6)
    assert server.paths("status")[1:] == [f"{ROOM}/status?shown=77"]


def test_errors_are_told_and_polls_back_off_to_a_minute(seen: Visit, server: PageServer) -> None:
    server.answer = (503, {"state": "store_down"})
    seen.open()
    seen.advance(300, step=2)
    polls = len(server.paths("status"))
    assert 5 <= polls <= 11
    expect(seen.page.locator("#net")).to_have_text(
        "We could not look up your place just now. If you have one, it is kept."
    )
    server.answer = (502, {})
    seen.advance(70, step=2)
    expect(seen.page.locator("#net")).to_have_text(
        "No connection at the moment. We keep trying; you need not reload."
    )
    polls = len(server.paths("status"))
    expect(seen.page.locator("[data-c=position]")).to_have_text("1,234")
    seen.advance(130, step=2)
    assert 2 <= len(server.paths("status")) - polls <= 3
    server.answer = (200, status())
    seen.advance(70, step=2)
    expect(seen.page.locator("#net")).to_be_hidden()


def test_asked_too_often_slows_down_without_a_word(seen: Visit, server: PageServer) -> None:
    server.answer = (429, {"state": "limited"})
    server.retry_after = 20
    seen.open()
    seen.advance(19)
    assert len(server.paths("status")) == 1
    server.retry_after = 0
    expect(seen.page.locator("#net")).to_be_hidden()


def test_a_state_without_a_part_on_the_page_is_loaded_anew(seen: Visit, server: PageServer) -> None:
    seen.open()
    server.answer = (503, {"state": "full", "server_time": NOW_MS})
    server.view = waiting_view(state=PageState.FULL)
    seen.page.clock.run_for(3000)
    expect(seen.page.locator("h1")).to_have_text("The line is full")
    assert server.paths("beacon") == []


def test_wr_41_an_old_copy_goes_round_the_cache_once(seen: Visit, server: PageServer) -> None:
    server.answer = (200, status(server_time=NOW_MS + 60_000, poll_after=3))
    seen.open()
    with seen.page.expect_navigation():
        seen.page.clock.run_for(3000)
    assert len(server.paths("/shop")) == 2
    assert re.fullmatch(r"/shop\?item=1&__wr=t\d+", server.paths("/shop")[1])
    expect(seen.page.locator("h1")).to_have_text("You are in line")
    seen.advance(10)
    expect(seen.page.locator("#net")).to_contain_text("old copy")
    assert len(server.paths("/shop")) == 2
    assert server.paths("beacon") == []


def test_wr_41_a_fresh_page_is_left_alone_and_iso_times_are_read(
    seen: Visit, server: PageServer
) -> None:
    server.answer = (200, status(server_time="2030-03-17T17:46:50.000Z", poll_after=3))
    seen.open()
    seen.advance(10)
    assert len(server.paths("/shop")) == 1


def test_wr_52_nothing_is_requested_but_status(seen: Visit, server: PageServer) -> None:
    seen.open()
    seen.advance(60, step=5)
    assert {path.partition("?")[0] for _, path in server.requests} == {"/shop", f"{ROOM}/status"}
    assert seen.problems == []


def test_a_closed_tab_says_goodbye_but_a_language_change_does_not(
    browser: Browser, server: PageServer
) -> None:
    with visit(browser, server) as seen:
        seen.open()
        with seen.page.expect_navigation():
            seen.page.get_by_text("Deutsch").click()
        assert server.paths("/lang") != []
        assert server.paths("beacon") == []
        seen.page.goto("about:blank")
        until(lambda: server.paths("beacon") == [f"{ROOM}/beacon"])


def test_leaving_is_a_form_and_no_beacon(seen: Visit, server: PageServer) -> None:
    seen.open()
    seen.page.get_by_role("button", name="Leave the line").click()
    expect(seen.page.locator("h1")).to_have_text("Done")
    assert ("POST", f"{ROOM}/leave") in server.requests
    assert server.paths("beacon") == []


def test_check_my_place_asks_at_once(seen: Visit, server: PageServer) -> None:
    server.answer = (200, status(poll_after=30))
    seen.open()
    seen.advance(5)
    polls = len(server.paths("status"))
    server.answer = (200, status(position=42, ahead=41, poll_after=30))
    seen.page.locator("#check").click()
    seen.settle()
    assert len(server.paths("status")) == polls + 1
    expect(seen.page.locator("[data-c=position]")).to_have_text("42")
    assert seen.spoken().startswith("Your place in line: 42.")


def test_a_full_line_is_tried_again_by_itself_unless_switched_off(
    seen: Visit, server: PageServer
) -> None:
    server.view = waiting_view(state=PageState.FULL, retry_after_s=30)
    seen.open()
    seen.page.locator("#auto").uncheck()
    seen.page.clock.run_for(60_000)
    assert len(server.paths("/shop")) == 1
    seen.page.evaluate("localStorage.clear()")
    seen.open()
    server.view = waiting_view()
    seen.page.clock.run_for(40_000)
    expect(seen.page.locator("h1")).to_have_text("You are in line")
    assert len(server.paths("/shop")) == 3


@pytest.mark.parametrize("language", LANGUAGES)
def test_wr_75_script_and_server_say_numbers_and_times_alike(
    seen: Visit, server: PageServer, bundle: PageBundle, language: str
) -> None:
    server.language = language
    server.view = waiting_view(position=9_999_999, ahead=9_999_998, eta=None)
    seen.open()
    for ahead, p50, p90 in (
        (1, 30, 90),
        (2, 61, 130),
        (3, 150, 170),
        (0, 400, 700),
        (11, 700, 3_000),
        (100, 3_600, 5_400),
        (1_234, 7_200, 12_345),
        (12_345, 10, 10_000),
        (1_000_000, 100_000, 200_000),
    ):
        eta = {"p10": 1, "p50": p50, "p90": p90}
        answer = status(position=ahead + 1, ahead=ahead, eta=eta, waiting=ahead + 5)
        server.answer = (200, answer)
        seen.page.locator("#check").click()
        seen.advance(3)
        view = waiting_view(
            position=ahead + 1, ahead=ahead, waiting=ahead + 5, eta=Eta(1, p50, p90)
        )
        expected = bundle.render(view, language).body.decode()
        for name in ("position", "ahead_text", "eta", "waiting"):
            by_server = re.search(rf'data-c="{name}">(.*?)</', expected)
            assert by_server
            by_script = seen.page.locator(f"[data-c={name}]").text_content()
            assert by_script == html.unescape(by_server[1]), (name, ahead, p50)


OWN = """<html lang="en"><head><title>Own</title><style>b{color:#111}</style></head>
<body><h1>Hello</h1><p>Place <b>{{position}}</b> of {{waiting}}, {{eta}}</p>
<script>document.title = "Own page"</script></body></html>"""


def test_an_operators_own_page_is_live_and_enters_by_itself(
    browser: Browser, server: PageServer, bundle: PageBundle
) -> None:
    server.bundle = bundle.with_template(compile_template(OWN))
    server.view = waiting_view(continue_url="/inside")
    with visit(browser, server) as seen:
        seen.open()
        assert seen.page.title() == "Own page"
        server.answer = (200, status(position=3, ahead=2, waiting=2_500, eta=None, poll_after=3))
        seen.advance(3)
        expect(seen.page.locator("p b")).to_have_text("3")
        expect(seen.page.locator("[data-c=waiting]")).to_have_text("2,500")
        assert seen.spoken().startswith("Your place in line: 3.")
        server.answer = (200, status("granted"))
        seen.page.clock.run_for(4000)
        expect(seen.page.locator("h1")).to_have_text("Inside")
