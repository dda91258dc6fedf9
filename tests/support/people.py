"""People with browsers of their own before a running site: what they see, ask for and complain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Response, expect

SOON_MS = 40_000
"""A bound for what happens by itself in some seconds; only a failing test waits that long."""


@dataclass
class Person:
    """Somebody with a browser of their own: the page, what it asked for and what it complained."""

    context: BrowserContext
    page: Page
    address: str
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def come(self, path: str = "/") -> Response:
        answer = self.page.goto(self.address + path)
        assert answer is not None
        return answer

    def go_away(self) -> None:
        """Look at something else; nothing of the site stays open."""
        self.page.goto("about:blank")

    def is_inside(self, heading: str) -> None:
        """Wait until the site itself is on the screen."""
        expect(self.page.locator("h1")).to_have_text(heading, timeout=SOON_MS)

    def look(self) -> None:
        """Press "check my place"."""
        self.page.locator("#check").click()

    def leave(self) -> None:
        """Give the slot or the place back at once, with no page left that could ask again."""
        self.go_away()
        self.context.request.post(f"{self.address}/__corvus/wr/main/leave")

    def waits_at(self, position: int) -> None:
        """Wait until the waiting page shows this position."""
        shown = self.page.locator("[data-c=position]")
        expect(shown).to_have_text(str(position), timeout=SOON_MS)
        expect(self.page.locator("body")).to_have_attribute("data-state", "waiting")


@contextmanager
def people(browser: Browser, address: str, count: int, **options: Any) -> Iterator[list[Person]]:
    """Open browsers; what any of them complains about fails the test."""
    found: list[Person] = []
    for _ in range(count):
        context = browser.new_context(**options)
        person = Person(context, context.new_page(), address)
        person.page.on("request", lambda r, p=person: p.asked.append(f"{r.method} {r.url}"))
        person.page.on("pageerror", lambda e, p=person: p.complaints.append(str(e)))
        person.page.on("console", lambda m, p=person: _listen(p, m.type, m.text))
        found.append(person)
    try:
        yield found
        assert [p.complaints for p in found] == [[]] * count
    finally:
        for person in found:
            person.context.close()


def _listen(person: Person, kind: str, text: str) -> None:
    # Chromium reports answers of 400 and above, which some states have, and loads while offline.
    if kind in ("error", "warning") and "Failed to load resource" not in text:
        person.complaints.append(text)
