"""The waiting page in a real browser: what it says, when, and what it asks the server for."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from queueing.page_builder import LANGUAGES, build_bundle
from queueing.page_check import compile_template
from queueing.pages import Eta, PageBundle, PageState
from tests.support.page_server import NOW_MS, ROOM, PageServer, page_server, status, waiting_view
from tests.support.waiting_browser import Visit, chromium, until, visit

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def bundle() -> PageBundle:
    return PageBundle.load(build_bundle())


@pytest.fixture
def server(bundle: PageBundle) -> Iterator[PageServer]:
    with page_server(bundle) as running:
        yield running


@pytest.fixture
def seen(browser: Browser, server: PageServer) -> Iterator[Visit]:
    with visit(browser, server) as opened:
        yield opened


def test_wr_75a_the_spoken_text_changes_at_most_once_a_minute(
    seen: Visit, server: PageServer
) -> None:
    server.view = waiting_view(position=900, ahead=899)
    seen.open()
    region = seen.page.locator("p[role=status]")
    expect(region).to_have_attribute("aria-live", "polite")
    expect(region).to_have_attribute("aria-atomic", "true")
    assert seen.page.locator("[aria-live]:not(#say), output, [role=timer]").count() == 0
    assert seen.spoken() == ""
    texts: list[str] = []
    numbers: set[str] = set()
    for second in range(150):
        ahead = 899 - second
        server.answer = (200, status(position=ahead + 1, ahead=ahead, poll_after=3))
        seen.advance(1)
        numbers.add(seen.page.locator("[data-c=position]").inner_text())
        if not texts or texts[-1] != seen.spoken():
            texts.append(seen.spoken())
    said = [t for t in texts if t]
    assert 2 <= len(said) <= 3
    assert len(numbers) > 20
    assert re.fullmatch(
        r"Your place in line: \d+\. \d+ people are ahead of you\."
        r" Estimated wait: About 7 minutes, very likely less than 15 minutes\.",
        said[0],
    )


def test_wr_75a_milestones_are_spoken_at_once(seen: Visit, server: PageServer) -> None:
    server.view = waiting_view(position=13, ahead=12)
    server.answer = (200, status(position=13, ahead=12, poll_after=3))
    seen.open()
    seen.advance(4)
    said = []
    for ahead in (11, 10, 9, 6, 5, 2, 1):
        server.answer = (200, status(position=ahead + 1, ahead=ahead, poll_after=3))
        before = seen.spoken()
        seen.advance(4)
        if seen.spoken() != before:
            said.append(ahead)
    assert said == [10, 5, 1]


def test_wr_75b_the_turn_is_an_alert_spoken_once_and_focus_stays(
    seen: Visit, server: PageServer
) -> None:
    seen.page.add_init_script("localStorage.setItem('corvus', '{\"auto\":false}')")
    server.view = waiting_view(position=1, ahead=0)
    server.answer = (200, status(position=1, ahead=0, poll_after=3))
    seen.open()
    seen.advance(20)
    assert seen.alert() == ""
    seen.page.locator("#check").focus()
    server.answer = (200, status("granted", poll_after=3, claim_s=300))
    seen.advance(4)
    assert seen.page.locator("[role=alert]").count() == 1
    assert seen.alert() == "It is your turn. You have 5 minutes to enter."
    assert seen.page.title() == "Your turn — Concert Box Office"
    assert seen.page.locator("h1").inner_text() == "It is your turn"
    seen.advance(15)
    assert seen.alert() == "It is your turn. You have 5 minutes to enter."
    assert seen.page.evaluate("document.activeElement.id") in ("check", "")
    assert seen.page.locator("#sound").is_checked() is False
    assert seen.page.locator("#notify").is_checked() is False


def test_wr_75c_entry_is_automatic_soon_after_the_turn(seen: Visit, server: PageServer) -> None:
    server.view = waiting_view(continue_url="/inside?x=1")
    server.answer = (200, status("granted", claim_s=60))
    seen.open()
    seen.advance(3)
    expect(seen.page.locator("#enter")).to_be_visible()
    seen.page.clock.run_for(5000)
    expect(seen.page.locator("h1")).to_have_text("Inside")
    assert server.paths("/inside") == ["/inside?x=1"]
    assert server.paths("beacon") == []


def test_entry_keeps_the_fragment_of_the_address(seen: Visit, server: PageServer) -> None:
    server.view = waiting_view(continue_url="/inside?x=1")
    server.answer = (200, status("granted", claim_s=60))
    seen.open("/shop#/seat/7")
    seen.page.clock.run_for(3000)
    seen.settle()
    seen.page.clock.run_for(5000)
    expect(seen.page.locator("h1")).to_have_text("Inside")
    assert seen.page.url.endswith("/inside?x=1#/seat/7")


def test_entry_at_an_address_with_a_fragment_really_loads(seen: Visit, server: PageServer) -> None:
    server.answer = (200, status("granted", claim_s=60))
    seen.open("/shop?item=1#/seat/7")
    seen.page.clock.run_for(3000)
    seen.settle()
    loads = len(server.paths("/shop"))
    seen.page.clock.run_for(5000)
    until(lambda: len(server.paths("/shop")) == loads + 1)


def test_wr_75c_entry_waits_ten_seconds_for_somebody_who_uses_the_page(
    seen: Visit, server: PageServer
) -> None:
    server.view = waiting_view(continue_url="/inside")
    server.answer = (200, status("granted", claim_s=60, poll_after=30))
    seen.open()
    seen.advance(3)
    expect(seen.page.locator("#enter")).to_be_visible()
    for _ in range(3):
        seen.page.keyboard.press("Tab")
        seen.advance(8)
        assert server.paths("/inside") == []
    seen.page.clock.run_for(4000)
    expect(seen.page.locator("h1")).to_have_text("Inside")


def test_wr_75c_automatic_entry_can_be_switched_off_and_the_button_enters(
    seen: Visit, server: PageServer
) -> None:
    server.view = waiting_view(continue_url="/inside")
    server.answer = (200, status("granted", claim_s=60, poll_after=60))
    seen.page.add_init_script("localStorage.setItem('corvus', '{\"auto\":false}')")
    seen.open()
    seen.advance(40)
    assert server.paths("/inside") == []
    assert seen.page.locator("#claim").inner_text() == "You have 30 seconds to enter."
    expect(seen.page.locator("#soon")).to_be_hidden()
    seen.page.locator("#enter").click()
    expect(seen.page.locator("h1")).to_have_text("Inside")
    assert server.paths("beacon") == []


def test_wr_75d_claim_time_is_extended_by_one_action_after_a_warning(
    seen: Visit, server: PageServer
) -> None:
    seen.page.add_init_script("localStorage.setItem('corvus', '{\"auto\":false}')")
    server.view = waiting_view(state=PageState.GRANTED, claim_s=60, poll_after=600)
    server.posted["extend"] = {"state": "granted", "claim_s": 60}
    seen.open()
    seen.advance(25)
    expect(seen.page.locator("#warn")).to_be_hidden()
    seen.advance(8)
    expect(seen.page.locator("#warn")).to_be_visible()  # 27 s before the end
    assert seen.alert() == "Your reserved place expires soon. Enter now, or take more time."
    for _ in range(10):
        seen.page.locator("#extend button").click()
        until(lambda: server.paths("extend") != [])
        seen.settle()
        expect(seen.page.locator("#warn")).to_be_hidden()
        assert seen.page.locator("#claim").inner_text() == "You have 1 minute to enter."
    assert server.requests.count(("POST", f"{ROOM}/extend")) == 10


def test_wr_75f_the_numbers_can_be_paused_while_the_place_is_kept(
    seen: Visit, server: PageServer
) -> None:
    seen.open()
    seen.page.locator("summary").click()
    seen.page.locator("#pause").check()
    server.answer = (200, status(position=500, ahead=499, poll_after=3))
    polls = len(server.paths("status"))
    seen.advance(20)
    assert len(server.paths("status")) - polls >= 5
    assert seen.page.locator("[data-c=position]").inner_text() == "1,234"
    seen.page.locator("#pause").uncheck()
    seen.settle()
    expect(seen.page.locator("[data-c=position]")).to_have_text("500")


def test_wr_75k_the_title_changes_at_most_once_in_fifteen_seconds(
    seen: Visit, server: PageServer
) -> None:
    seen.open()
    assert seen.page.title() == "(#1,234) Waiting — Concert Box Office"
    seen.page.evaluate(
        "window.__titles = []; new MutationObserver(() => window.__titles.push(Date.now()))"
        ".observe(document.querySelector('title'), { childList: true })"
    )
    for second in range(75):
        server.answer = (200, status(position=1_000 - second, ahead=999 - second, poll_after=3))
        seen.advance(1)
    changes = seen.page.evaluate("window.__titles")
    assert 4 <= len(changes) <= 5
    assert all(b - a >= 15_000 for a, b in itertools.pairwise(changes))


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
    seen.advance(17.5, step=0.5)
    assert len(server.paths("status")) == 1
    seen.advance(5)
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


def test_wr_24_a_risen_position_is_shown_with_its_reason(seen: Visit, server: PageServer) -> None:
    server.view = waiting_view(position=5, ahead=4)
    server.answer = (200, status(position=8, ahead=7, reason="returned", poll_after=3))
    seen.open()
    seen.advance(3)
    expect(seen.page.locator("[data-c=position]")).to_have_text("8")
    expect(seen.page.locator("#why")).to_contain_text("people who had been away returned")
    server.answer = (200, status(position=6, ahead=5, poll_after=3))
    seen.advance(4)
    expect(seen.page.locator("#why")).to_be_hidden()


def test_wr_21_a_missed_turn_is_said_and_polling_ends(seen: Visit, server: PageServer) -> None:
    seen.open()
    gone = {
        "state": "missed",
        "since": NOW_MS - 720_000,
        "server_time": NOW_MS,
        "rejoin_url": f"{ROOM}/rejoin?again=1",
    }
    server.answer = (410, gone)
    seen.advance(3)
    assert seen.page.locator("h1").inner_text() == "You missed your turn"
    assert seen.alert().startswith("You missed your turn. We did not hear")
    expect(seen.page.locator("#since")).to_have_text("Your place expired 12 minutes ago.")
    expect(seen.page.locator("#line")).to_be_hidden()
    polls = len(server.paths("status"))
    seen.advance(120, step=5)
    assert len(server.paths("status")) == polls
    buttons = seen.page.locator("main button:visible")
    assert buttons.count() == 1
    buttons.click()
    until(lambda: ("POST", f"{ROOM}/rejoin?again=1") in server.requests)


def test_wr_25_a_reset_is_said_with_one_rejoin(seen: Visit, server: PageServer) -> None:
    seen.open()
    server.answer = (
        409,
        {"state": "reset", "rejoin_url": "//evil.example/", "server_time": NOW_MS},
    )
    seen.advance(3)
    assert seen.page.locator("h1").inner_text() == "The line was started again"
    assert seen.page.locator("#rejoin").get_attribute("action") == f"{ROOM}/rejoin"


@pytest.mark.parametrize("state", ["paused", "hold", "parked", "prequeue"])
def test_the_page_moves_between_the_states_of_the_line(
    seen: Visit, server: PageServer, bundle: PageBundle, state: str
) -> None:
    server.answer = (200, status(state, poll_after=3))
    seen.open()
    seen.advance(3)
    other = bundle.render(waiting_view(state=PageState(state)), "en").body.decode()
    heading = re.search('<h1 id="h">(.*?)</h1>', other)
    assert heading
    expect(seen.page.locator("h1")).to_have_text(html.unescape(heading[1]))
    server.answer = (200, status("waiting", poll_after=3))
    seen.advance(4)
    expect(seen.page.locator("h1")).to_have_text("You are in line")


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
    seen.page.clock.run_for(3000)
    until(lambda: len(server.paths("/shop")) == 2)
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
        seen.page.get_by_text("Deutsch").click()
        until(lambda: server.paths("/lang") != [])
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
