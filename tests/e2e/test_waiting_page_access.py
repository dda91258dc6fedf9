"""The visitors' pages for everybody: axe, contrast, zoom, keyboard, motion, no JavaScript."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from queueing.page_builder import LANGUAGES, TEMPLATES, build_bundle
from queueing.pages import PageBundle, PageState
from queueing.pages.view import LIVE
from tests.support.page_server import ROOM, PageServer, status, waiting_view
from tests.support.pseudo_words import pseudo_words
from tests.support.waiting_browser import visit

pytestmark = pytest.mark.browser
STAY = "localStorage.setItem('corvus', '{\"auto\":false}')"
NOTICES = [PageState.FULL, PageState.COOKIES, PageState.BANNED, PageState.BAD_GATEWAY]


AXE = Axe().axe_script


def violations(page: Page, *rules: str) -> list[str]:
    """Give what axe finds, of all rules or of those named; axe must be on the page."""
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found: list[str] = page.evaluate(
        "(o) => axe.run(document, o)"
        ".then((r) => r.violations.map((v) => v.id + ': ' + v.nodes[0].html))",
        options,
    )
    return found


@pytest.mark.parametrize("language", ["de", "ar", "ja"])
def test_wr_75_axe_finds_nothing_in_any_state_light_or_dark(
    browser: Browser, server: PageServer, language: str
) -> None:
    server.language = language
    # Without motion, so that no colour is measured half-way to the other scheme.
    with visit(browser, server, clock=False, reduced_motion="reduce") as seen:
        seen.page.add_init_script(STAY)
        # The page that passes a form on goes away by itself: here it stays, to be looked at.
        seen.page.add_init_script("HTMLFormElement.prototype.submit = () => {}")
        for state in PageState:
            server.view = waiting_view(
                state=state, unsafe=state is PageState.WAITING, reason="returned", poll_after=600
            )
            server.answer = (200, status(str(state)))
            seen.open()
            seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            seen.page.emulate_media(color_scheme="light", reduced_motion="reduce")
            seen.page.evaluate(AXE)
            assert violations(seen.page) == [], state
            seen.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
            # Only colours differ between the schemes.
            assert violations(seen.page, "color-contrast") == [], state


def colours(css: str) -> list[dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    return [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in blocks]


def contrast(first: str, second: str) -> float:
    """Give the ratio of WCAG 2.2, “contrast ratio”."""

    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_wr_75h_text_and_controls_have_contrast_in_light_and_dark(scheme: int) -> None:
    css = (TEMPLATES / "waiting/page.css").read_text("utf-8")
    c = colours(css)[scheme]
    for text in ("ink", "soft"):
        for ground in ("paper", "card", "tint"):
            assert contrast(c[text], c[ground]) >= 4.5, (text, ground)
    assert contrast(c["key-ink"], c["key"]) >= 4.5
    assert contrast(c["glow"], c["card"]) >= 4.5
    for control in ("edge", "glow", "key"):
        assert contrast(c[control], c["card"]) >= 3, control
    assert contrast(c["glow"], c["paper"]) >= 3  # focus ring in the footer


def test_wr_75g_with_reduced_motion_nothing_moves(browser: Browser, server: PageServer) -> None:
    with visit(browser, server, reduced_motion="reduce", clock=False) as seen:
        seen.open()
        moving = seen.page.evaluate(
            "[...document.querySelectorAll('*')].filter((e) => { const s = getComputedStyle(e);"
            " return s.animationName !== 'none' || !/^0s(, 0s)*$/.test(s.transitionDuration) ||"
            " !/^0s(, 0s)*$/.test(s.animationDuration); }).map((e) => e.outerHTML)"
        )
        assert moving == []
    css = (TEMPLATES / "waiting/page.css").read_text("utf-8")
    assert "animation" not in css  # nor does anything move by itself without that wish


SPACING = (
    "for (const e of document.querySelectorAll('*')) { const s = e.style;"
    " s.setProperty('line-height', '1.5', 'important');"
    " s.setProperty('letter-spacing', '0.12em', 'important');"
    " s.setProperty('word-spacing', '0.16em', 'important'); }"
)
FITS = """() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const cut = [...document.querySelectorAll('h1,p,dd,dt,a,button,label,li,summary,strong')].filter(
    (e) => e.offsetParent && !e.classList.contains('unseen') &&
    (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline'));
  const out = [...document.querySelectorAll('main *')].filter((e) => {
    const r = e.getBoundingClientRect();
    return r.width && !e.closest('.unseen,svg') && (r.left < -0.5 || r.right > innerWidth + 0.5);
  });
  return [wide, ...cut.map((e) => e.outerHTML), ...out.map((e) => e.outerHTML)];
}"""


@pytest.mark.parametrize("language", [*LANGUAGES, "pseudo"])
def test_wr_75i_zoom_narrow_and_spaced_text_never_scroll_sideways(
    browser: Browser, server: PageServer, language: str
) -> None:
    if language == "pseudo":
        with pseudo_words():
            server.bundle = PageBundle.load(build_bundle(["en"]))
    server.language = language
    long = waiting_view(
        position=98_765_432,
        ahead=98_765_431,
        waiting=198_765_432,
        ticket=298_765_432,
        room="Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz",
        message="https://example.test/" + "a" * 80,
    )
    # 200 % of a 640 px window is 320 CSS px; text spacing on top of it is the hardest case.
    with visit(browser, server, width=320, height=700, clock=False) as seen:
        seen.page.add_init_script(STAY)
        for state in (PageState.WAITING, PageState.GRANTED, PageState.MISSED, *NOTICES):
            server.view = waiting_view(
                **{f: getattr(long, f) for f in ("position", "ahead", "waiting", "ticket")},
                room=long.room,
                message=long.message,
                state=state,
                poll_after=600,
                unsafe=True,
            )
            server.answer = (200, status(str(state), position=98_765_432))
            seen.open()
            seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            assert seen.page.evaluate(FITS) == [0], state
            # The override of a user style sheet, which the page's own policy does not govern.
            seen.page.evaluate(SPACING)
            assert seen.page.evaluate(FITS) == [0], state


def test_wr_75i_text_at_double_size_fits_a_phone(browser: Browser, server: PageServer) -> None:
    server.language = "de"
    with visit(browser, server, width=640, height=900, clock=False) as seen:
        seen.open()
        seen.page.evaluate("document.documentElement.style.fontSize = '200%'")
        assert seen.page.evaluate(FITS) == [0]


SIZES = """() => [...document.querySelectorAll('a,button,input,summary')].filter((e) => {
  const r = (e.closest('label') || e).getBoundingClientRect();
  return e.offsetParent && (r.width < 24 || r.height < 24);
}).map((e) => e.outerHTML)"""


@pytest.mark.parametrize("language", ["en", "ja", "ar"])
def test_wr_75j_all_works_by_keyboard_with_visible_focus_and_large_targets(
    browser: Browser, server: PageServer, language: str
) -> None:
    server.language = language
    with visit(browser, server, width=375, height=700) as seen:
        seen.open()
        assert seen.page.evaluate(SIZES) == []
        seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert seen.page.evaluate(SIZES) == []
        wanted = seen.page.evaluate(
            "[...document.querySelectorAll('a,button,input,summary')]"
            ".filter((e) => e.offsetParent).length"
        )
        reached = []
        for _ in range(wanted):
            seen.page.keyboard.press("Tab")
            reached.append(
                seen.page.evaluate(
                    "(() => { const e = document.activeElement, s = getComputedStyle(e),"
                    " r = e.getBoundingClientRect(); return [e.outerHTML,"
                    " s.outlineStyle === 'solid' && parseFloat(s.outlineWidth) >= 2"
                    " && r.top >= 0 && r.bottom <= innerHeight]; })()"
                )
            )
        assert len({tag for tag, _ in reached}) == wanted
        assert [tag for tag, visible in reached if not visible] == []


def test_wr_75k_with_forced_colours_everything_can_still_be_seen(
    browser: Browser, server: PageServer
) -> None:
    with visit(browser, server, forced_colors="active", clock=False) as seen:
        seen.open()
        borders = seen.page.evaluate(
            "['main', '#check', '.quiet'].map((s) =>"
            " getComputedStyle(document.querySelector(s)).borderTopStyle)"
        )
        assert borders == ["solid"] * 3
        assert seen.page.locator("progress, [role=progressbar]").count() == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_wr_75l_mirroring_follows_the_direction(
    browser: Browser, server: PageServer, language: str
) -> None:
    server.language = language
    with visit(browser, server, clock=False) as seen:
        seen.open()
        left = seen.page.evaluate(
            "(() => { const m = document.querySelector('main').getBoundingClientRect(),"
            " c = document.querySelector('#check').getBoundingClientRect();"
            " return c.left - m.left < m.right - c.right; })()"
        )
        assert left == (language != "ar")


def test_wr_75n_without_javascript_every_step_works(browser: Browser, server: PageServer) -> None:
    with visit(browser, server, java_script_enabled=False, clock=False) as seen:
        server.view = waiting_view(refresh_s=5)
        seen.open()
        expect(seen.page.locator("[data-c=position]")).to_have_text("1,234")
        reload = seen.page.locator("noscript .small")
        expect(reload).to_contain_text("This page reloads every 5 seconds.")
        expect(seen.page.locator("#opts")).to_be_hidden()
        server.view = waiting_view(refresh_s=0, position=900, ahead=899)
        expect(seen.page.locator("[data-c=position]")).to_have_text("900", timeout=9000)
        expect(reload).to_contain_text("This page does not reload by itself.")
        loads = len(server.paths("/shop"))
        server.view = waiting_view(state=PageState.GRANTED, refresh_s=0, continue_url="/inside")
        seen.page.get_by_role("link", name="Check my place").click()
        expect(seen.page.locator("h1")).to_have_text("It is your turn")
        assert len(server.paths("/shop")) == loads + 1
        seen.page.get_by_role("link", name="Enter now").click()
        expect(seen.page.locator("h1")).to_have_text("Inside")
        server.view = waiting_view(refresh_s=0)
        for state, button, path in (
            (PageState.WAITING, "Leave the line", "leave"),
            (PageState.GRANTED, "I need more time", "extend"),
            (PageState.MISSED, "Join the line again", "rejoin"),
            (PageState.LEFT, "Join the line again", "rejoin"),
        ):
            server.view = waiting_view(state=state, refresh_s=0)
            seen.open()
            seen.page.get_by_role("button", name=button).click()
            expect(seen.page.locator("h1")).to_have_text("Done")
            assert ("POST", f"{ROOM}/{path}") in server.requests
        assert server.paths("status") == []


def test_wr_75n_every_state_shows_its_text_without_javascript(
    browser: Browser, server: PageServer
) -> None:
    words = json.loads(build_bundle(["fr"]))["languages"]["fr"]["states"]
    server.language = "fr"
    with visit(browser, server, java_script_enabled=False, clock=False) as seen:
        for state in PageState:
            server.view = waiting_view(state=state, refresh_s=0)
            seen.open()
            expect(seen.page.locator("h1")).to_have_text(words[state][1])
            expect(seen.page.locator("#lead")).to_have_text(words[state][2])
            visible = seen.page.locator("main section:visible").count()
            assert visible == (1 if state in LIVE else 0)


def test_the_pictures_in_the_documentation_exist() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs" / "images"
    for name in ("light", "dark", "phone", "arabic"):
        assert (folder / f"waiting-{name}.png").stat().st_size > 5_000
