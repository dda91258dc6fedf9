"""The waiting page in a real browser: what it says, and when."""

from __future__ import annotations

import html
import itertools
import re

import pytest
from playwright.sync_api import expect

from queueing.pages import PageBundle, PageState
from tests.support.page_server import NOW_MS, ROOM, PageServer, status, waiting_view
from tests.support.waiting_browser import Visit, until

pytestmark = pytest.mark.browser


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
    # A test must not end in the middle of a navigation: closing the browser then hangs.
    with seen.page.expect_navigation():
        seen.page.clock.run_for(5000)
    assert len(server.paths("/shop")) == loads + 1


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
    expect(seen.page.locator("h1")).to_have_text("Done")
    assert ("POST", f"{ROOM}/rejoin?again=1") in server.requests


def test_wr_25_a_reset_is_said_with_one_rejoin(seen: Visit, server: PageServer) -> None:
    seen.open()
    server.answer = (
        409,
        {"state": "reset", "rejoin_url": "//evil.example/", "server_time": NOW_MS},
    )
    seen.advance(3)
    assert seen.page.locator("h1").inner_text() == "The line was started again"
    assert seen.page.locator("#rejoin").get_attribute("action") == f"{ROOM}/rejoin"


def test_leaving_in_another_tab_is_said_and_never_joins_again_by_itself(
    seen: Visit, server: PageServer
) -> None:
    seen.open()
    server.answer = (
        200,
        {"state": "none", "rejoin_url": f"{ROOM}/rejoin", "server_time": NOW_MS},
    )
    seen.advance(3)
    assert seen.page.locator("h1").inner_text() == "You left the line"
    loads = len(server.requests)
    seen.advance(120, step=5)
    assert len(server.requests) == loads


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
