"""First run and the way into the console in a real Chromium, which enforces the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from playwright.sync_api import Page, sync_playwright

from portal import services
from portal.setup_token import Attempts
from queueing.models import Room
from tests.support.valkey import Valkey

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PASSWORD = "correct-horse-battery"


def signs_up(page: Page, address: str, token: str) -> None:
    page.goto(address)
    assert page.url.endswith("/first-run/")
    for name, value in (
        ("token", token),
        ("username", "ada"),
        ("password", PASSWORD),
        ("repeated", PASSWORD),
    ):
        page.fill(f"#id_{name}", value)
    page.click("button[type=submit]")
    assert page.url.endswith("/admin/")


def pauses_the_room(page: Page, address: str) -> None:
    page.goto(f"{address}/admin/queueing/room/")
    page.check("input[name=_selected_action]")
    page.select_option("select[name=action]", "pause")
    page.click("button[name=index]")
    assert "Numbers are kept" in page.inner_text("main")
    page.click("input[value^=Yes]")
    assert "Main room: paused." in page.inner_text(".messagelist")


def changes_a_setting(page: Page, address: str) -> None:
    page.goto(f"{address}/admin/proxy/savedsetting/")
    page.fill("#id_CORVUS_RETRY_AFTER", "0")
    page.click("input[type=submit]")
    assert "between 1s and 1h" in page.inner_text("#setting-CORVUS_RETRY_AFTER .errorlist")
    page.fill("#id_CORVUS_RETRY_AFTER", "7")
    page.fill("#id_CORVUS_CAPACITY", "9")
    page.click("input[type=submit]")
    assert "Saved: CORVUS_CAPACITY, CORVUS_RETRY_AFTER." in page.inner_text(".messagelist")


def test_an_operator_gets_from_the_token_to_a_paused_room_without_any_policy_violation(
    live_server: Any,
    settings: Any,
    valkey: Valkey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.DATA_DIR = tmp_path
    settings.STORE_URL = valkey.url
    monkeypatch.setattr(services, "attempts", Attempts())
    call_command("publish")
    token = services.ensure_setup_token() or ""
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.on("console", lambda m: complaints.append(m.text) if "olicy" in m.text else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        signs_up(page, live_server.url, token)
        pauses_the_room(page, live_server.url)
        changes_a_setting(page, live_server.url)
        browser.close()
    assert complaints == []
    assert User.objects.get().username == "ada"
    room = Room.objects.get(pk="main")
    assert (room.mode, room.capacity) == ("paused", 9)
