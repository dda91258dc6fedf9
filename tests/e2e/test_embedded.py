"""WR-55: the site inside another site's frame, over HTTPS, with what browsers do to its cookies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, FrameLocator, Page, expect, sync_playwright

from corvus_site.supervisor.console_certificate import CertificateFiles
from queueing.config import RoomConfig
from queueing.page_builder import build_bundle
from tests.support.gateways import Gateways, running_gateways
from tests.support.other_sites import RESOLVED, certificate_in, serving
from tests.support.valkey import running_valkey
from tests.support.waiting_browser import CHROMIUM

pytestmark = pytest.mark.browser

BLOCK_THIRD_PARTIES = {"profile": {"block_third_party_cookies": True, "cookie_controls_mode": 1}}
BLOCK_ALL = {"profile": {"default_content_setting_values": {"cookies": 2}}}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return certificate_in(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def world(certificate: CertificateFiles) -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, build_bundle(), 0) as running:
        running.start(certificate=certificate)
        yield running


@contextmanager
def browsing(folder: Path, preferences: dict[str, object]) -> Iterator[BrowserContext]:
    """Run a Chromium with settings that a visitor made."""
    (folder / "Default").mkdir(parents=True)
    (folder / "Default" / "Preferences").write_text(json.dumps(preferences))
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder,
            executable_path=CHROMIUM,
            args=["--no-sandbox", RESOLVED],
            ignore_https_errors=True,
        )
        try:
            yield context
        finally:
            context.close()


@contextmanager
def framed(
    world: Gateways, certificate: CertificateFiles, context: BrowserContext
) -> Iterator[tuple[Page, FrameLocator, list[str]]]:
    """Open a portal that shows the site in a frame; also gives what the frame asked for."""
    site = f"https://tickets.test:{world.one.tls_port}"
    portal = f'<!doctype html><title>Portal</title><iframe src="{site}/shop?a=1"></iframe>'
    with serving({"/": portal}, certificate=certificate) as port:
        page = context.new_page()
        asked: list[str] = []
        page.on(
            "request",
            lambda r: asked.append(r.url.removeprefix(site)) if r.url.startswith(site) else None,
        )
        page.goto(f"https://portal.test:{port}/")
        yield page, page.frame_locator("iframe"), asked
        page.close()


def embedding(world: Gateways) -> RoomConfig:
    room = world.room(capacity=0, embed=True)
    world.publish(room)
    world.origin.clear()
    return room


@pytest.mark.parametrize(
    "preferences", [{}, BLOCK_THIRD_PARTIES], ids=["cookies allowed", "third parties blocked"]
)
def test_wr_55_a_visitor_waits_and_enters_inside_a_frame(
    world: Gateways,
    certificate: CertificateFiles,
    tmp_path: Path,
    preferences: dict[str, object],
) -> None:
    room = embedding(world)
    with (
        browsing(tmp_path / "profile", preferences) as context,
        framed(world, certificate, context) as (_, frame, asked),
    ):
        expect(frame.locator("#h")).to_have_text("You are in line")
        expect(frame.locator("[data-c=position]")).to_have_text("1")
        world.publish(replace(room, capacity=1))
        expect(frame.locator("h1")).to_have_text("the shop", timeout=20_000)
        assert [c["sameSite"] for c in context.cookies() if c["name"] == f"corvus_{room.id}"] == [
            "None"
        ]
        assert len([a for a in asked if a.startswith("/shop")]) == 4, "check, place, turn"


def test_wr_55_who_keeps_no_cookies_in_a_frame_gets_one_way_out_and_no_loop(
    world: Gateways, certificate: CertificateFiles, tmp_path: Path
) -> None:
    embedding(world)
    with (
        browsing(tmp_path / "profile", BLOCK_ALL) as context,
        framed(world, certificate, context) as (_, frame, asked),
    ):
        expect(frame.locator("#h")).to_have_text("Cookies are needed")
        link = frame.get_by_role("link", name="Open in a new window")
        expect(link).to_have_count(1)
        assert link.get_attribute("target") == "_blank"
        assert link.get_attribute("rel") == "noopener"
        with context.expect_page() as opened:
            link.click()
        assert opened.value.url.endswith("/shop?a=1") or "__wr=1" in opened.value.url
        assert asked == ["/shop?a=1", "/shop?a=1&__wr=1"]
        assert not world.origin.seen


def test_wr_55_without_embed_no_other_site_may_frame_the_page(
    world: Gateways, certificate: CertificateFiles, tmp_path: Path
) -> None:
    world.publish(world.room(capacity=0))
    with (
        browsing(tmp_path / "profile", {}) as context,
        framed(world, certificate, context) as (page, frame, _),
    ):
        page.wait_for_load_state()
        expect(frame.locator("#h")).to_have_count(0)
