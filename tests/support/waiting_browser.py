"""A real Chromium on a served page, with a clock that a test turns.

Playwright's clock moves the page's timers; requests stay real. `advance` moves on only when no
status poll is under way, so that a test sees every answer before the next second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.page_server import PageServer

CHROMIUM = "/usr/bin/chromium"
START_S = 1_900_000_000

_WATCH = """
window.__busy = 0;
const real = window.fetch;
window.fetch = (...a) => {
  window.__busy += 1;
  const p = real(...a);
  p.then((r) => r.clone().text()).catch(() => 0).then(() => {
    let n = 8;
    const c = new MessageChannel();
    c.port1.onmessage = () => { if (--n) c.port2.postMessage(0); else window.__busy -= 1; };
    c.port2.postMessage(0);
  });
  return p;
};
let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden });
Object.defineProperty(document, "visibilityState", { get: () => hidden ? "hidden" : "visible" });
window.__hide = (yes) => { hidden = yes; document.dispatchEvent(new Event("visibilitychange")); };
"""


@dataclass
class Visit:
    """One open page, what it logged and what it is served from."""

    page: Page
    server: PageServer
    problems: list[str] = field(default_factory=list)

    def open(self, path: str = "/shop?item=1") -> None:
        """Load the page."""
        self.page.goto(self.server.address + path)

    def advance(self, seconds: float, step: float = 1.0) -> None:
        """Turn the clock, a step at a time, with every answer in before the next."""
        left = seconds
        while left > 0:
            part = min(step, left)
            self.page.clock.run_for(int(part * 1000))
            self.settle()
            left -= part

    def settle(self) -> None:
        """Wait until no request of the page is under way."""
        until(lambda: self.page.evaluate("window.__busy || 0") == 0)

    def spoken(self) -> str:
        """Give the polite live region's text."""
        return self.page.locator("#say").text_content() or ""

    def alert(self) -> str:
        """Give the alert region's text."""
        return self.page.locator("#alert").text_content() or ""


def until(claim: Callable[[], bool], seconds: float = 8.0) -> None:
    """Wait for a claim to hold, or fail."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it did not become so in time"
        time.sleep(0.01)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run one browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Browser,
    server: PageServer,
    *,
    width: int = 800,
    height: int = 900,
    clock: bool = True,
    **context: object,
) -> Iterator[Visit]:
    """Open a fresh context; whatever the browser complains about fails the test at its end."""
    opened = browser.new_context(viewport={"width": width, "height": height}, **context)  # type: ignore[arg-type]
    page = opened.new_page()
    seen = Visit(page, server)
    page.on("pageerror", lambda error: seen.problems.append(str(error)))
    page.on("console", lambda message: _note(seen, message.type, message.text))
    if clock:
        # It stands still from before the first load, so that only `advance` moves it.
        page.clock.install(time=START_S)
        page.clock.pause_at(START_S + 3600)
        page.add_init_script(_WATCH)
    try:
        yield seen
        assert seen.problems == []
    finally:
        opened.close()


def _note(seen: Visit, kind: str, text: str) -> None:
    # Chromium reports every answer of 400 and above, also those that design §5 prescribes.
    if kind in ("error", "warning") and "Failed to load resource" not in text:
        seen.problems.append(text)
