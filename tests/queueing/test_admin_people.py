"""The page “People” of a room: who is where, and what an operator does to one of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client

from queueing.config import RoomId
from queueing.models import Room
from queueing.store import SyncRoomStore
from tests.support.valkey import Valkey
from tests.support.visits import come, guest, open_room

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/queueing/room/main/people/"


@pytest.fixture
def console(client: Client, settings: Any, valkey: Valkey) -> Client:
    """A signed-in administrator; one person inside the main room, three wait."""
    settings.STORE_URL = valkey.url
    call_command("publish")
    open_room(valkey, "main", version=10**6)
    come(valkey, "main", range(4))
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def signed_in(*permissions: str) -> Client:
    """Somebody with no more than these permissions."""
    user = User.objects.create_user("eve", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def shown(page: str, table: str) -> list[str]:
    """Name the visitors of a table, in their order."""
    part = page.partition(f'id="{table}"')[2].partition("</table>")[0]
    return re.findall(r'<th scope="row"><code>([^<]+)</code>', part)


def read(client: Client, query: str = "") -> str:
    return client.get(PAGE + query).content.decode()


def do(client: Client, act: str, visitor: str = "", **values: str) -> str:
    form = {"act": act, "visitor": visitor, **values}
    return client.post(PAGE, form, follow=True).content.decode()


def counts(valkey: Valkey) -> Any:
    return SyncRoomStore(valkey.client).stats(RoomId("main")).counts


def test_who_is_inside_and_who_waits_is_shown_in_order(console: Client) -> None:
    page = read(console)
    assert shown(page, "inside") == [guest(0)]
    assert shown(page, "waiting") == [guest(1), guest(2), guest(3)]
    assert "1 inside, 0 called, 3 waiting, 0 silent" in page
    assert "192.0.2.2" in page


def test_a_rank_is_shown_by_its_name(console: Client, valkey: Valkey) -> None:
    come(valkey, "main", range(4, 5), rank=2)
    assert ">prospect</td>" in read(console)


def test_the_rooms_own_page_leads_there(console: Client) -> None:
    assert f'href="{PAGE}"' in console.get("/admin/queueing/room/main/change/").content.decode()


def test_a_long_line_comes_in_pages_of_fifty(console: Client, valkey: Valkey) -> None:
    come(valkey, "main", range(4, 105))
    first = read(console)
    assert shown(first, "waiting") == [guest(n) for n in range(1, 51)]
    assert 'href="?waiting=2#waiting"' in first
    last = read(console, "?waiting=3")
    assert shown(last, "waiting") == [guest(n) for n in range(101, 105)]
    assert "Next 50" not in last
    assert 'href="?waiting=2#waiting"' in last


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 30, "٣"])
def test_a_page_number_that_is_none_shows_the_first_page(console: Client, number: str) -> None:
    assert shown(read(console, f"?waiting={number}"), "waiting")[:1] == [guest(1)]


def test_a_page_behind_the_end_says_that_nobody_is_there(console: Client) -> None:
    page = read(console, "?waiting=99&inside=2")
    assert page.count("Nobody on this page.") == 2


def test_revoking_frees_the_slot_for_who_waits(console: Client, valkey: Valkey) -> None:
    page = do(console, "revoke", guest(0))
    assert f"{guest(0)} is no longer inside" in page
    assert (counts(valkey).active, counts(valkey).granted, counts(valkey).waiting) == (0, 1, 2)
    assert "held no slot any more" in do(console, "revoke", guest(0))


def test_removing_takes_the_place_away(console: Client, valkey: Valkey) -> None:
    assert f"{guest(2)} was removed" in do(console, "remove", guest(2))
    assert counts(valkey).waiting == 2
    assert shown(read(console), "waiting") == [guest(1), guest(3)]
    assert "was not there any more" in do(console, "remove", guest(2))


def test_who_is_moved_to_the_front_is_next_and_whom_it_passes_is_told_why(
    console: Client, valkey: Valkey
) -> None:
    assert f"{guest(3)} stands in front now" in do(console, "front", guest(3))
    (marked,) = re.findall(
        r"<tr>(?:(?!</tr>).)*in front(?:(?!</tr>).)*</tr>", read(console), re.DOTALL
    )
    assert guest(3) in marked
    (place,) = come(valkey, "main", range(1, 2), ticket=1, shown=1)
    assert (place.ahead, place.reason) == (1, "operator")
    assert "inside already" in do(console, "front", guest(0))
    assert "not in the line" in do(console, "front", guest(9))


def test_the_capacity_is_set_in_place(console: Client) -> None:
    assert "The capacity is 7 now" in do(console, "capacity", capacity="7")
    assert Room.objects.get(pk="main").capacity == 7


@pytest.mark.parametrize("text", ["", "many", "-1", "2147483648", "1.5", "٣"])
def test_a_capacity_that_cannot_be_is_refused(console: Client, text: str) -> None:
    assert "Nothing was done: " in do(console, "capacity", capacity=text)
    assert Room.objects.get(pk="main").capacity == 434


@pytest.mark.parametrize(
    ("act", "visitor"),
    [("revoke", "ada"), ("remove", ""), ("front", "<script>alert(1)</script>"), ("dance", "x")],
)
def test_what_cannot_be_done_is_said_and_does_nothing(
    console: Client, valkey: Valkey, act: str, visitor: str
) -> None:
    before = counts(valkey)
    page = do(console, act, visitor)
    assert "Nothing was done: " in page
    assert "<script>alert" not in page
    assert counts(valkey) == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("act", "visitor", "label"),
    [
        ("revoke", guest(0), "Revoked"),
        ("remove", guest(1), "Removed"),
        ("front", guest(3), "Moved to the front"),
    ],
)
def test_who_did_what_to_whom_is_in_the_rooms_history(
    console: Client, act: str, visitor: str, label: str
) -> None:
    do(console, act, visitor)
    entry = LogEntry.objects.get(object_id="main")
    assert entry.user.username == "ada"
    assert entry.get_change_message() == f"{label}: {visitor}"


def test_a_store_that_is_away_is_said_in_words(
    console: Client, settings: Any, tmp_path: Path
) -> None:
    settings.STORE_URL = f"unix://{tmp_path}/nothing.sock"
    response = console.get(PAGE)
    assert response.status_code == 200
    assert "The store cannot be reached at the moment" in response.content.decode()
    assert "The store did not do it" in do(console, "remove", guest(1))


def test_who_may_only_look_sees_people_and_can_do_nothing(console: Client, valkey: Valkey) -> None:
    viewer = signed_in("view_room")
    page = read(viewer)
    assert shown(page, "waiting")[0] == guest(1)
    assert 'name="act"' not in page
    for act in ("revoke", "remove", "front", "capacity"):
        response = viewer.post(PAGE, {"act": act, "visitor": guest(1), "capacity": "1"})
        assert response.status_code == 403
    assert counts(valkey).waiting == 3


def test_without_the_permission_and_without_signing_in_nobody_is_shown(console: Client) -> None:
    assert signed_in("view_proxyhost").get(PAGE).status_code == 403
    assert Client().get(PAGE).status_code == 302


def test_a_room_that_there_is_not_has_no_page(console: Client) -> None:
    assert console.get("/admin/queueing/room/nowhere/people/").status_code == 404


def test_an_act_needs_the_forms_token(console: Client, valkey: Valkey) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="ada"))
    assert strict.post(PAGE, {"act": "remove", "visitor": guest(1)}).status_code == 403
    assert counts(valkey).waiting == 3
