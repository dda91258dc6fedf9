"""Rooms in the console, as an operator uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client

from queueing.config import RoomId
from queueing.models import Room
from queueing.store import SyncRoomStore
from tests.support.valkey import Valkey

pytestmark = pytest.mark.django_db(transaction=True)

ADD = "/admin/queueing/room/add/"
LIST = "/admin/queueing/room/"


@pytest.fixture
def console(client: Client, settings: Any, valkey: Valkey) -> Client:
    """A signed-in administrator of a running Corvus."""
    settings.STORE_URL = valkey.url
    call_command("publish")
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def filled(**changed: Any) -> dict[str, Any]:
    """What a browser sends for a room with its defaults."""
    return {
        "id": "sale",
        "name": "Sale",
        "mode": "open",
        "message": "",
        "unit": "visitors",
        "capacity": "5",
        "rate": "0",
        "inside_now": "queue",
        "active_ttl_ms": "5m",
        "refresh_ms": "15s",
        "absolute_ttl_ms": "0",
        "admit_ttl_ms": "10m",
        "queue_ttl_ms": "135s",
        "return_window_ms": "10m",
        "grant_ttl_ms": "60s",
        "max_queue": "100000",
        "entries_per_minute": "60",
        "polls_per_second": "3",
        "reject_status": "429",
        "on_outage": "closed",
        "open_rate": "10",
        "lease_ttl_ms": "30s",
        "lane_rank": "3",
        "priority_cap": "0",
        "priority_wait_ms": "5s",
        "priority_forms": "on",
        "order": "arrival",
        "max_overtake": "50",
        "skip_rate": "0",
        "skip_surge": "0",
        "skip_currency": "EUR",
        "skip_url": "",
        "vip_ttl_ms": "0",
        **changed,
    }


def errors(response: Any) -> dict[str, list[str]]:
    return dict(response.context["adminform"].form.errors)


def test_a_room_is_made_with_the_form(console: Client) -> None:
    response = console.post(ADD, filled(active_ttl_ms="90s"))
    assert response.status_code == 302, errors(response)
    assert Room.objects.get(pk="sale").active_ttl_ms == 90_000


def test_wr_03_the_form_refuses_an_idle_limit_below_twice_the_renewal(console: Client) -> None:
    response = console.post(ADD, filled(active_ttl_ms="20s", refresh_ms="15s"))
    assert response.status_code == 200
    assert "at least twice the pass renewal (15 s)" in errors(response)["active_ttl_ms"][0]
    assert "Constraint" not in response.content.decode()
    assert not Room.objects.filter(pk="sale").exists()


def test_wr_03_the_form_says_what_the_idle_limit_promises(console: Client) -> None:
    page = console.get(ADD).content.decode()
    assert "At least twice the pass renewal" in page
    assert "never loses the slot" in page


def test_wr_64_who_is_inside_now_and_what_an_outage_does_are_not_preselected(
    console: Client,
) -> None:
    page = console.get(ADD).content.decode()
    for name in ("inside_now", "on_outage"):
        chunks = [c for c in page.split("<input")[1:] if f'name="{name}"' in c.split(">")[0]]
        assert len(chunks) == 2
        assert not [c for c in chunks if "checked" in c.split(">")[0]]


@pytest.mark.parametrize("name", ["inside_now", "on_outage"])
def test_wr_64_what_is_not_chosen_is_an_error(console: Client, name: str) -> None:
    values = filled()
    del values[name]
    assert name in errors(console.post(ADD, values))


def test_wr_64_a_form_with_one_fault_saves_nothing_and_keeps_what_was_typed(
    console: Client,
) -> None:
    response = console.post(ADD, filled(grant_ttl_ms="a while", name="My sale"))
    assert "“a while” is not allowed" in errors(response)["grant_ttl_ms"][0]
    page = response.content.decode()
    assert 'value="a while"' in page
    assert 'value="My sale"' in page


def test_spans_are_shown_as_people_write_them(console: Client) -> None:
    page = console.get(f"{LIST}main/change/").content.decode()
    assert 'value="5m"' in page
    assert 'value="135s"' in page


def test_the_short_name_cannot_be_changed_later(console: Client) -> None:
    console.post(f"{LIST}main/change/", filled(id="other", name="Front"))
    assert Room.objects.get(pk="main").name == "Front"
    assert not Room.objects.filter(pk="other").exists()


def test_every_field_of_the_form_has_help(console: Client) -> None:
    form = console.get(ADD).context["adminform"].form
    assert [n for n, f in form.fields.items() if not f.help_text] == []


def test_an_own_page_is_checked_on_upload_and_refused_with_its_line(console: Client) -> None:
    page = SimpleUploadedFile("page.html", b'<html>\n<img src="https://evil.example/x.png">\n')
    response = console.post(ADD, filled(page_upload=page))
    assert any("Line 2" in text for text in errors(response)["page_upload"])
    assert not Room.objects.filter(pk="sale").exists()


def test_an_own_page_that_is_no_text_is_refused(console: Client) -> None:
    response = console.post(ADD, filled(page_upload=SimpleUploadedFile("p.html", b"\xff\xfe\x00")))
    assert "UTF-8" in errors(response)["page_upload"][0]


def test_an_own_page_is_uploaded_kept_by_later_saves_and_removed_again(console: Client) -> None:
    page = (
        '<!doctype html><html lang="en"><head><title>x</title></head>'
        "<body><h1>{{position}}</h1></body></html>"
    )
    change = f"{LIST}main/change/"
    upload = SimpleUploadedFile("page.html", page.encode())
    response = console.post(change, filled(id="main", page_upload=upload))
    assert response.status_code == 302, errors(response)
    assert Room.objects.get(pk="main").page_html == page
    console.post(change, filled(id="main", name="Another"))
    assert Room.objects.get(pk="main").page_html == page
    console.post(change, filled(id="main", page_remove="on"))
    assert Room.objects.get(pk="main").page_html == ""


def test_the_form_says_which_waiting_page_is_in_use(console: Client) -> None:
    form = f"{LIST}main/change/"
    assert "The built-in page" in console.get(form).content.decode()
    Room.objects.filter(pk="main").update(page_html="<p>Hold on</p>")
    assert "An own page of 14 bytes" in console.get(form).content.decode()


def test_the_list_shows_who_is_inside_and_who_waits(console: Client, valkey: Valkey) -> None:
    page = console.get(LIST).content.decode()
    assert 'field-show">0' in page or ">0</td>" in page


def test_the_list_comes_up_while_the_store_is_down(
    console: Client, settings: Any, tmp_path: Path
) -> None:
    settings.STORE_URL = f"unix://{tmp_path}/nothing.sock"
    response = console.get(LIST)
    assert response.status_code == 200
    assert "–" in response.content.decode()


@pytest.mark.parametrize(
    ("action", "mode"), [("pause", "paused"), ("close", "closed"), ("resume", "open")]
)
def test_wr_60_an_action_asks_first_and_then_changes_the_mode(
    console: Client, action: str, mode: str
) -> None:
    Room.objects.update(mode="reject")
    asked = console.post(LIST, {"action": action, "_selected_action": ["main"]})
    assert asked.status_code == 200
    assert Room.objects.get(pk="main").mode == "reject"
    done = console.post(
        LIST, {"action": action, "_selected_action": ["main"], "confirmed": "yes"}, follow=True
    )
    assert Room.objects.get(pk="main").mode == mode
    assert "Main room" in done.content.decode()


def test_wr_25_a_reset_begins_a_new_epoch(console: Client, valkey: Valkey) -> None:
    before = SyncRoomStore(valkey.client).stats(RoomId("main")).epoch
    form = {"action": "reset", "_selected_action": ["main"], "confirmed": "yes"}
    page = console.post(LIST, form, follow=True).content.decode()
    after = SyncRoomStore(valkey.client).stats(RoomId("main")).epoch
    assert after == before + 1
    assert f"this is epoch {after}" in page


def test_the_emergency_release_says_how_many_lost_their_slot(console: Client) -> None:
    form = {"action": "release", "_selected_action": ["main"], "confirmed": "yes"}
    assert "0 inside lost their slot" in console.post(LIST, form, follow=True).content.decode()


@pytest.mark.parametrize("action", ["pause", "resume", "close", "release", "reset"])
def test_who_did_what_to_a_room_is_in_its_history(console: Client, action: str) -> None:
    console.post(LIST, {"action": action, "_selected_action": ["main"], "confirmed": "yes"})
    entry = LogEntry.objects.get(object_id="main")
    assert entry.user.username == "ada"
    assert (
        entry.get_change_message().lower()
        in console.get(f"{LIST}main/history/").content.decode().lower()
    )


def test_an_action_that_the_store_did_not_do_is_said(
    console: Client, settings: Any, tmp_path: Path
) -> None:
    settings.STORE_URL = f"unix://{tmp_path}/nothing.sock"
    form = {"action": "reset", "_selected_action": ["main"], "confirmed": "yes"}
    assert "the store did not do it" in console.post(LIST, form, follow=True).content.decode()


def test_somebody_who_may_only_look_has_no_actions(console: Client) -> None:
    viewer = User.objects.create_user("eve", password="x", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_room"))
    client = Client()
    client.force_login(viewer)
    client.post(LIST, {"action": "pause", "_selected_action": ["main"], "confirmed": "yes"})
    assert Room.objects.get(pk="main").mode == "open"


def test_a_room_that_a_host_uses_cannot_be_deleted(console: Client) -> None:
    page = console.post(f"{LIST}main/delete/", {"post": "yes"}).content.decode()
    assert "protected" in page
    assert Room.objects.filter(pk="main").exists()


def test_a_room_that_nobody_uses_is_deleted(console: Client) -> None:
    console.post(ADD, filled())
    assert console.post(f"{LIST}sale/delete/", {"post": "yes"}).status_code == 302
    assert not Room.objects.filter(pk="sale").exists()
