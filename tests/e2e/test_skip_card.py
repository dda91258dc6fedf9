"""The card that sells a place in front, in a real browser: its price, its link, who sees it."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from queueing.page_builder import LANGUAGES
from queueing.page_check import compile_template
from queueing.pages import PageBundle, PageState, Skip
from tests.support.page_server import PageServer, status, waiting_view
from tests.support.waiting_browser import Visit, visit

pytestmark = pytest.mark.browser

PAY = "https://pay.example/?shop=1&offer="
MONEY = [
    ("1234.50", "EUR"),
    ("12.50", "USD"),
    ("1250", "JPY"),
    ("1.234", "KWD"),
    ("9999.99", "CHF"),
]


def priced(
    server: PageServer, cost: str = "12.50", currency: str = "EUR", offer: str = "1"
) -> None:
    """Sell the front of the line at a price, on the page and in the status."""
    server.view = waiting_view(
        sells=True, skip=Skip(cost, currency, PAY + offer), state=PageState.WAITING
    )
    server.answer = (
        200,
        status(skip_cost=cost, skip_currency=currency, skip_url=PAY + offer, rate_per_pos="1"),
    )


def test_each_answer_brings_the_price_of_now_and_a_fresh_offer(
    seen: Visit, server: PageServer
) -> None:
    priced(server)
    seen.open()
    link = seen.page.get_by_role("link", name="Skip the line for €12.50")
    expect(link).to_have_attribute("href", PAY + "1")
    server.answer = (
        200,
        status(skip_cost="1100.00", skip_currency="EUR", skip_url=PAY + "2", position=1_000),
    )
    seen.advance(15)
    dearer = seen.page.get_by_role("link", name="Skip the line for €1,100.00")
    expect(dearer).to_have_attribute("href", PAY + "2")
    server.answer = (200, status(position=1, ahead=0))
    seen.advance(15)
    expect(seen.page.locator("#skip")).to_be_hidden()
    server.answer = (200, status(skip_cost="3.00", skip_currency="EUR", skip_url="javascript:1"))
    seen.advance(15)
    expect(seen.page.locator("#skip")).to_be_hidden()


def test_the_page_of_a_room_that_sells_nothing_shows_nothing(
    seen: Visit, server: PageServer
) -> None:
    seen.open()
    server.answer = (
        200,
        status(skip_cost="3.00", skip_currency="EUR", skip_url=PAY + "1"),
    )  # the operator has just set a price
    seen.advance(15)
    expect(seen.page.locator("[data-c=position]")).to_have_text("1,234")
    assert "Skip" not in seen.page.locator("body").inner_text()


def test_an_operators_own_page_keeps_price_and_offer_fresh(
    browser: Browser, server: PageServer, bundle: PageBundle
) -> None:
    own = (
        '<!doctype html><html lang="de"><head><title>{{position}}</title></head><body>'
        '<a id="pay" href="{{.SkipURL}}">Für {{skip_cost}}</a></body></html>'
    )
    server.bundle = bundle.with_template(
        compile_template(own.replace("<a ", "<p>{{ahead}}</p><a "))
    )
    priced(server)
    with visit(browser, server) as seen:
        seen.open()
        link = seen.page.locator("#pay")
        expect(link).to_have_attribute("href", PAY + "1")
        expect(link).to_have_text("Für 12,50\u00a0€")
        for offer in ("2", "3"):
            server.answer = (
                200,
                status(skip_cost="13.00", skip_currency="EUR", skip_url=PAY + offer),
            )
            seen.advance(15)
            expect(link).to_have_attribute("href", PAY + offer)
            expect(link).to_have_text("Für 13,00\u00a0€")


def test_going_to_pay_is_no_leaving(browser: Browser, server: PageServer) -> None:
    priced(server)
    server.view = waiting_view(sells=True, skip=Skip("12.50", "EUR", "/inside?offer=1"))
    with visit(browser, server, clock=False) as seen:
        seen.open()
        seen.page.get_by_role("link", name="Skip the line").click()
        expect(seen.page.locator("h1")).to_have_text("Inside")
        assert not server.paths("beacon")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_script_writes_money_as_the_server_does(
    browser: Browser, server: PageServer, language: str
) -> None:
    server.language = language
    with visit(browser, server) as seen:
        for cost, currency in MONEY:
            priced(server, cost, currency)
            seen.open()
            before = seen.page.locator("#buy").inner_text()
            seen.page.evaluate("document.getElementById('buy').textContent = ''")
            seen.advance(15)
            assert seen.page.locator("#buy").inner_text() == before, (cost, currency)


@pytest.mark.parametrize("language", ["de", "ar", "ja"])
def test_wr_75_the_card_is_for_everybody(
    browser: Browser, server: PageServer, language: str
) -> None:
    server.language = language
    priced(server, "1234567.89")
    with visit(browser, server, clock=False, reduced_motion="reduce", width=320) as seen:
        for scheme in ("light", "dark"):
            seen.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            seen.open()
            seen.page.evaluate(Axe().axe_script)
            assert (
                seen.page.evaluate("axe.run(document).then((r) => r.violations.map((v) => v.id))")
                == []
            )
        box = seen.page.locator("#buy").bounding_box()
        assert box
        assert box["height"] >= 24
        wide = seen.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        assert not wide


def test_wr_75n_without_javascript_the_card_is_a_plain_link(
    browser: Browser, server: PageServer
) -> None:
    priced(server)
    with visit(browser, server, clock=False, java_script_enabled=False) as seen:
        seen.open()
        link = seen.page.get_by_role("link", name="Skip the line for €12.50")
        expect(link).to_have_attribute("href", PAY + "1")
