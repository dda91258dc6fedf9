"""`manage.py revoke`: one visitor's stay ends, and what cannot be is said clearly."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueing.config import RoomId
from queueing.models import Room
from queueing.store import SyncRoomStore
from tests.support.valkey import Valkey
from tests.support.visits import come, guest, open_room

pytestmark = pytest.mark.django_db


@pytest.fixture
def sale(settings: Any, valkey: Valkey) -> SyncRoomStore:
    """A room with one inside and one waiting."""
    settings.STORE_URL = valkey.url
    Room.objects.create(id="sale", name="Sale", on_outage="closed", inside_now="queue")
    open_room(valkey, "sale")
    come(valkey, "sale", range(2))
    return SyncRoomStore(valkey.client)


def revoke(*words: str) -> str:
    said = StringIO()
    call_command("revoke", *words, stdout=said)
    return said.getvalue()


def test_the_slot_is_free_and_every_gateway_is_told(sale: SyncRoomStore) -> None:
    before = sale.stats(RoomId("sale"))
    assert f"{guest(0)} is no longer inside sale" in revoke("sale", guest(0))
    after = sale.stats(RoomId("sale"))
    assert after.journal == before.journal + 1
    assert after.totals["revoked"] == 1
    assert (after.counts.active, after.counts.granted) == (0, 1), "the slot goes to who waits"


def test_who_is_not_inside_is_said_and_no_error(sale: SyncRoomStore) -> None:
    assert "held no slot of sale" in revoke("sale", guest(7))


@pytest.mark.parametrize(
    ("room", "visitor", "said"),
    [
        ("sall", guest(0), "room: “sall” is not allowed: there is no such room."),
        ("sale", "ada", "visitor: “ada” is not allowed: 16 of A-Z, a-z, 0-9, - and _"),
        ("sale", "guest-000000000\n", "visitor: “guest-000000000\n” is not allowed"),
        ("sale", "x" * 500, f"visitor: “{'x' * 40}” is not allowed"),
    ],
)
def test_what_cannot_be_is_one_clear_error(
    sale: SyncRoomStore, room: str, visitor: str, said: str
) -> None:
    with pytest.raises(CommandError) as refusal:
        revoke(room, visitor)
    assert said in str(refusal.value)
    assert sale.stats(RoomId("sale")).counts.active == 1


def test_a_store_that_is_away_is_one_clear_error(
    sale: SyncRoomStore, settings: Any, tmp_path: Path
) -> None:
    settings.STORE_URL = f"unix://{tmp_path}/nothing.sock"
    with pytest.raises(CommandError, match="the store did not do it"):
        revoke("sale", guest(0))


def test_it_says_who_did_it_to_whom(sale: SyncRoomStore, caplog: pytest.LogCaptureFixture) -> None:
    revoke("sale", guest(0))
    (line,) = [r.getMessage() for r in caplog.records if "visitor revoked" in r.getMessage()]
    assert guest(0) in line
    assert "shell:" in line
