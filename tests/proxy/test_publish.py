"""Publishing: what stands in database and store after a save, and what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command

from proxy import publishing, queries, services
from proxy import store as keys
from proxy.gateway.snapshot import Snapshot, load, pages_key
from proxy.models import ConfigVersion, ProxyHost
from queueing import services as rooms
from queueing.config import Mode, RoomId
from queueing.models import Room
from queueing.store import SyncRoomStore

pytestmark = pytest.mark.django_db(transaction=True)


MAIN = RoomId("main")
OWN_PAGE = (
    '<!doctype html><html lang="en"><head><title>x</title></head>'
    "<body><h1>{{position}}</h1></body></html>"
)


def in_store(client: Any) -> Snapshot:
    return load(client.get(keys.SNAPSHOT_KEY))


def a_room(**changed: Any) -> Room:
    return Room(
        **{"id": "sale", "name": "Sale", "on_outage": "closed", "inside_now": "queue", **changed}
    )


@pytest.fixture
def started(store: Any) -> Any:
    """Start like the supervisor does."""
    call_command("publish")
    return store


def test_a_start_publishes_a_gateway_that_works_with_the_upstream_alone(
    store: Any, settings: Any
) -> None:
    from corvus_site import env

    settings.CORVUS = env.load({"CORVUS_UPSTREAM": "http://127.0.0.1:3000", "CORVUS_CAPACITY": "7"})
    call_command("publish")
    snapshot = in_store(store)
    (host,) = snapshot.hosts
    assert (host.names, host.origin) == (("*",), "http://127.0.0.1:3000")
    assert [(r.path, r.room) for r in host.rooms] == [("/*", "main")]
    assert snapshot.rooms[RoomId("main")].capacity == 7
    assert "/robots.txt" in host.bypass


def test_without_an_upstream_the_demo_site_stands_in(started: Any) -> None:
    assert in_store(started).hosts[0].origin == "http://127.0.0.1:8090"


def test_wr_64_a_new_room_is_in_the_store_as_soon_as_it_is_saved(started: Any) -> None:
    listener = started.pubsub()
    listener.subscribe(keys.CHANNEL)
    assert listener.get_message(timeout=2)["type"] == "subscribe"
    rooms.save_room(room=a_room(capacity=5), author="ada")
    snapshot = in_store(started)
    assert snapshot.rooms[RoomId("sale")].capacity == 5
    assert int(started.get(keys.VERSION_KEY)) == snapshot.version == 2
    message = listener.get_message(timeout=2)
    assert int(message["data"]) == snapshot.version
    listener.close()


def test_wr_64_the_script_knows_the_rooms_configuration_at_once(started: Any) -> None:
    room = a_room()
    rooms.save_room(room=room, author="ada")
    assert SyncRoomStore(started).stats(RoomId("sale")).config_version == room.version


def test_wr_64_the_version_names_its_page_bundle_and_the_store_has_it(started: Any) -> None:
    bundle = started.get(pages_key(in_store(started).pages))
    assert "languages" in json.loads(bundle)


def test_wr_65_the_same_configuration_makes_no_new_version(started: Any) -> None:
    room = a_room()
    rooms.save_room(room=room, author="ada")
    before = started.get(keys.SNAPSHOT_KEY)
    assert rooms.save_room(room=Room.objects.get(pk="sale"), author="ada") == frozenset()
    assert publishing.publish(author="ada").number == 2
    call_command("publish")
    assert started.get(keys.SNAPSHOT_KEY) == before
    assert ConfigVersion.objects.count() == 2


def test_wr_65_a_change_and_its_reverse_are_two_versions(started: Any) -> None:
    rooms.set_capacity(room_id="main", capacity=10, author="ada")
    rooms.set_capacity(room_id="main", capacity=434, author="ada")
    assert ConfigVersion.objects.count() == 3


def test_what_cannot_hold_is_refused_and_changes_neither_database_nor_store(started: Any) -> None:
    before = started.get(keys.SNAPSHOT_KEY)
    room = Room.objects.get(pk="main")
    room.active_ttl_ms, room.refresh_ms = 20_000, 15_000
    with pytest.raises(ValidationError) as refusal:
        rooms.save_room(room=room, author="ada")
    assert "active_ttl_ms" in refusal.value.message_dict
    assert Room.objects.get(pk="main").active_ttl_ms == 300_000
    assert started.get(keys.SNAPSHOT_KEY) == before


def test_a_refused_publication_undoes_the_save_that_caused_it(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A damaged database: two hosts claim one name, which no form lets through.
    from proxy.compile import Host

    broken = Host(id=9, names=("*",), origin="http://127.0.0.1:1")
    real = publishing.compile_snapshot

    def damaged(**given: Any) -> Snapshot:
        from dataclasses import replace

        snapshot = real(**given)
        return replace(snapshot, hosts=(*snapshot.hosts, broken))

    monkeypatch.setattr(publishing, "compile_snapshot", damaged)
    with pytest.raises(ValidationError, match="belongs to host"):
        rooms.save_room(room=a_room(), author="ada")
    assert not Room.objects.filter(pk="sale").exists()
    assert ConfigVersion.objects.count() == 1


def test_with_the_store_down_the_save_stands_and_is_published_later(
    no_store: None, settings: Any, valkey: Any
) -> None:
    call_command("publish")
    rooms.save_room(room=a_room(), author="ada")
    assert Room.objects.filter(pk="sale").exists()
    assert queries.is_behind()
    settings.STORE_URL = valkey.url
    assert publishing.keep_published() == "version 2 delivered"
    assert RoomId("sale") in in_store(valkey.client).rooms
    assert not queries.is_behind()
    assert publishing.keep_published() == "version 2 is in the store"


def test_a_store_that_lost_everything_gets_it_again_and_holds_its_rooms(started: Any) -> None:
    started.flushall()
    assert publishing.keep_published() == "version 1 delivered"
    assert in_store(started).version == 1
    assert SyncRoomStore(started).stats(RoomId("main")).hold


def test_a_restored_database_publishes_above_what_the_store_knows(started: Any) -> None:
    for capacity in (10, 20, 30):
        rooms.set_capacity(room_id="main", capacity=capacity, author="ada")
    ConfigVersion.objects.filter(number__gt=1).delete()
    Room.objects.filter(pk="main").update(capacity=434, version=1)
    call_command("publish")
    publishing.keep_published()
    snapshot = in_store(started)
    assert snapshot.version == 5
    assert SyncRoomStore(started).stats(MAIN).config_version == Room.objects.get(pk="main").version
    assert ConfigVersion.objects.first().number == 5  # type: ignore[union-attr]


def test_an_older_version_never_replaces_a_newer_one_in_the_store(started: Any) -> None:
    old = queries.newest_version()
    assert old
    rooms.set_capacity(room_id="main", capacity=10, author="ada")
    assert publishing.deliver(old) is False
    assert in_store(started).version == 2


def test_every_mode_reaches_the_gateways(started: Any) -> None:
    for mode in Mode:
        rooms.set_mode(room_id="main", mode=mode, author="ada")
        assert in_store(started).rooms[RoomId("main")].mode is mode


def test_old_versions_are_pruned_and_the_newest_stay(started: Any) -> None:
    for capacity in range(1, 6):
        rooms.set_capacity(room_id="main", capacity=capacity, author="ada")
    assert publishing.prune_versions(keep=2) == 4
    assert [v.number for v in ConfigVersion.objects.all()] == [6, 5]


def test_a_host_with_its_own_name_and_room_is_published(started: Any) -> None:
    rooms.save_room(room=a_room(), author="ada")
    host = services.save_host(
        host=ProxyHost(label="Shop", origin="https://10.0.0.5:8443/"),
        names=["shop.example.org"],
        rules=[services.Rule("/tickets/*", "sale")],
        author="ada",
    )
    found = next(h for h in in_store(started).hosts if h.id == host.pk)
    assert (found.names, found.origin) == (("shop.example.org",), "https://10.0.0.5:8443")
    assert [(r.path, r.room) for r in found.rooms] == [("/tickets/*", "sale")]
    services.remove_host(host=host, author="ada")
    assert len(in_store(started).hosts) == 1


def test_wr_64_keep_counts_from_the_moment_a_room_gets_its_first_host(started: Any) -> None:
    rooms.save_room(room=a_room(inside_now="keep"), author="ada")
    assert in_store(started).rooms[RoomId("sale")].opened_ms == 0
    host = ProxyHost(label="Shop", origin="http://127.0.0.1:1", session_cookie="sessionid")
    for path in ("/tickets/*", "/other/*"):
        services.save_host(
            host=host, names=["a.example"], rules=[services.Rule(path, "sale")], author="ada"
        )
        snapshot = in_store(started)
        opened = snapshot.rooms[RoomId("sale")].opened_ms
        if path == "/tickets/*":
            first = opened
            assert 0 <= snapshot.published_ms - opened < 60_000
    assert opened == first


def test_an_operators_own_page_is_in_the_store_in_its_compiled_form(started: Any) -> None:
    room = Room.objects.get(pk="main")
    room.page_html = OWN_PAGE
    rooms.save_room(room=room, author="ada")
    digest = in_store(started).rooms[RoomId("main")].page
    assert digest
    assert "template" in json.loads(started.get(pages_key(digest)))


def test_an_own_page_that_a_newer_release_refuses_does_not_stop_publishing(started: Any) -> None:
    Room.objects.filter(pk="main").update(page_html="<p>once this was enough")
    assert publishing.publish(author="ada").number == 1
    assert in_store(started).rooms[MAIN].page == ""


def test_after_a_restore_a_rooms_next_change_reaches_the_script(started: Any) -> None:
    for capacity in (10, 20, 30):
        rooms.set_capacity(room_id="main", capacity=capacity, author="ada")
    Room.objects.filter(pk="main").update(version=1)
    rooms.set_mode(room_id="main", mode=Mode.PAUSED, author="ada")
    stored = SyncRoomStore(started).stats(MAIN).config_version
    assert stored == Room.objects.get(pk="main").version > 4


def test_the_schedule_names_tasks_that_exist_and_they_can_be_repeated(started: Any) -> None:
    from corvus_site.celery import app

    app.loader.import_default_modules()
    for entry in app.conf.beat_schedule.values():
        task = app.tasks[entry["task"]]
        assert task() == task()


def test_the_worker_says_that_the_store_is_down_and_goes_on(started: Any, no_store: None) -> None:
    from proxy.tasks import keep_published

    assert keep_published().startswith("the store cannot be reached")
