"""WR-47: back from a bank's page by its form, in a real browser with its own cookie rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from corvus_site.supervisor.console_certificate import CertificateFiles
from queueing.config import RoomConfig
from queueing.page_builder import build_bundle
from tests.support.gateways import Gateways, running_gateways
from tests.support.other_sites import RESOLVED, certificate_in, serving
from tests.support.running import eventually
from tests.support.valkey import running_valkey
from tests.support.waiting_browser import CHROMIUM

pytestmark = pytest.mark.browser

BANK = """<!doctype html><title>Bank</title>
<form method="post" action="{target}">
<input type="hidden" name="PaRes" value="eJx+b/c=&amp;&lt;&quot;">
<input type="hidden" name="submit" value="Ünï 漢字">
<textarea name="note">one
two</textarea>
<input type="hidden" name="empty" value="">
<button>Done</button></form>"""
FIELDS = [
    ("PaRes", 'eJx+b/c=&<"'),
    ("submit", "Ünï 漢字"),
    ("note", "one\r\ntwo"),
    ("empty", ""),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", RESOLVED]
        )
        yield running
        running.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return certificate_in(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def world(certificate: CertificateFiles) -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, build_bundle(), 0) as running:
        running.start(certificate=certificate)
        yield running


@contextmanager
def at_the_bank(
    world: Gateways,
    certificate: CertificateFiles,
    browser: Browser,
    *,
    path: str = "/pay/done?order=7",
    visits_first: bool = True,
    scripts: bool = True,
    capacity: int = 1,
) -> Iterator[Page]:
    """Bring a visitor from the shop to the bank's form."""
    room: RoomConfig = world.room(capacity=capacity)
    world.publish(room, return_paths=("/pay/done",))
    world.origin.clear()
    shop = f"https://shop.test:{world.one.tls_port}"
    form = BANK.format(target=shop + path)
    with serving({"/": form}, certificate=certificate) as port:
        context = browser.new_context(ignore_https_errors=True, java_script_enabled=scripts)
        page = context.new_page()
        if visits_first:
            page.goto(f"{shop}/cart")
            expect(page.locator("h1")).to_have_text("the shop")
        world.origin.seen.clear()
        page.goto(f"https://bank.test:{port}/")
        yield page
        context.close()


def posts(world: Gateways) -> list[tuple[str, list[tuple[str, str]]]]:
    return [
        (s.target, parse_qsl(s.body.decode(), keep_blank_values=True))
        for s in world.origin.seen
        if s.method == "POST"
    ]


def test_wr_47_the_form_arrives_once_with_every_field_and_the_slot_is_kept(
    world: Gateways, certificate: CertificateFiles, browser: Browser
) -> None:
    with at_the_bank(world, certificate, browser) as page:
        page.get_by_role("button").click()
        expect(page.locator("h1")).to_have_text("the shop")
        assert posts(world) == [("/pay/done?order=7", FIELDS)]
        assert page.url.endswith("/pay/done?order=7")
        page.go_back()
        page.wait_for_url("https://bank.test:*/")
        assert len(posts(world)) == 1, "the way back leads past our page"


def test_wr_47_without_javascript_one_button_sends_it(
    world: Gateways, certificate: CertificateFiles, browser: Browser
) -> None:
    with at_the_bank(world, certificate, browser, scripts=False) as page:
        page.get_by_role("button").click()
        expect(page.locator("#h")).to_have_text("One moment")
        assert posts(world) == []
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("h1")).to_have_text("the shop")
        assert posts(world) == [("/pay/done?order=7", FIELDS)]


def test_wr_45_an_undeclared_path_is_told_that_nothing_was_sent(
    world: Gateways, certificate: CertificateFiles, browser: Browser
) -> None:
    with at_the_bank(world, certificate, browser, path="/pay/elsewhere") as page:
        page.get_by_role("button").click()
        expect(page.locator("#h")).to_have_text("This was not sent")
        assert posts(world) == []


def test_wr_47_who_has_no_slot_is_told_so_and_not_sent_in_circles(
    world: Gateways, certificate: CertificateFiles, browser: Browser
) -> None:
    with at_the_bank(world, certificate, browser, visits_first=False) as page:
        asked: list[str] = []
        page.on("request", lambda r: asked.append(r.method))
        page.get_by_role("button").click()
        expect(page.locator("#h")).to_have_text("This was not sent")
        eventually(lambda: asked == ["POST", "POST"])
        assert posts(world) == []
