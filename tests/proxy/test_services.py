"""Settings with their sources, the main room, and the rules of key rotation."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from corvus_site import env
from proxy import publishing, queries, services
from proxy import store as keys
from proxy.gateway.snapshot import Snapshot, load
from proxy.models import ConfigVersion, KeyGeneration, ProxyHost, SavedSetting
from queueing import services as rooms
from queueing.config import RoomId
from queueing.models import Room

pytestmark = pytest.mark.django_db(transaction=True)

MAIN = RoomId("main")


@pytest.fixture(autouse=True)
def _started(store: Any) -> None:
    call_command("publish")


def snapshot(store: Any) -> Snapshot:
    return load(store.get(keys.SNAPSHOT_KEY))


def test_a_saved_setting_counts_above_the_environment_and_its_source_is_known(
    store: Any, settings: Any
) -> None:
    settings.CORVUS = env.load({"CORVUS_CAPACITY": "50", "CORVUS_RETRY_AFTER": "9"})
    services.save_settings(values={"CORVUS_CAPACITY": "60"}, author="ada")
    effective = queries.effective()
    assert (effective.value("CORVUS_CAPACITY"), str(effective.source("CORVUS_CAPACITY"))) == (
        60,
        "saved in the console",
    )
    assert str(effective.source("CORVUS_RETRY_AFTER")) == "environment"
    assert snapshot(store).rooms[MAIN].capacity == 60
    assert snapshot(store).settings.retry_after_s == 9
    assert Room.objects.get(pk="main").capacity == 60


def test_a_setting_that_is_given_back_falls_to_the_environment(store: Any, settings: Any) -> None:
    settings.CORVUS = env.load({"CORVUS_CAPACITY": "50"})
    services.save_settings(values={"CORVUS_CAPACITY": "60"}, author="ada")
    services.save_settings(values={"CORVUS_CAPACITY": None}, author="ada")
    assert snapshot(store).rooms[MAIN].capacity == 50
    assert not SavedSetting.objects.exists()


def test_settings_are_saved_all_or_nothing_and_each_fault_is_named(store: Any) -> None:
    before = store.get(keys.SNAPSHOT_KEY)
    with pytest.raises(services.SettingsRefused) as refusal:
        services.save_settings(
            values={
                "CORVUS_CAPACITY": "12",
                "CORVUS_RETRY_AFTER": "0",
                "CORVUS_MAX_QUEUE": "many",
                "CORVUS_LISTEN": ":99",
                "CORVUS_SECRET": "x" * 40,
                "CORVUS_NONSENSE": "1",
            },
            author="ada",
        )
    assert set(refusal.value.message_dict) == {
        "CORVUS_RETRY_AFTER",
        "CORVUS_MAX_QUEUE",
        "CORVUS_LISTEN",
        "CORVUS_SECRET",
        "CORVUS_NONSENSE",
    }
    assert not SavedSetting.objects.exists()
    assert store.get(keys.SNAPSHOT_KEY) == before


def test_values_that_are_wrong_only_together_are_refused_by_name() -> None:
    with pytest.raises(services.SettingsRefused) as refusal:
        services.save_settings(
            values={"CORVUS_ACTIVE_TTL": "20s", "CORVUS_REFRESH": "15s"}, author="ada"
        )
    assert set(refusal.value.message_dict) == {"CORVUS_ACTIVE_TTL"}
    services.save_settings(
        values={"CORVUS_ACTIVE_TTL": "20s", "CORVUS_REFRESH": "10s"}, author="ada"
    )


def test_saving_the_same_settings_again_makes_no_version() -> None:
    services.save_settings(values={"CORVUS_CAPACITY": "60"}, author="ada")
    count = ConfigVersion.objects.count()
    assert services.save_settings(values={"CORVUS_CAPACITY": "60"}, author="ada") == frozenset()
    assert ConfigVersion.objects.count() == count


def test_editing_the_main_room_saves_what_changed_as_settings_and_nothing_else() -> None:
    room = Room.objects.get(pk="main")
    room.capacity, room.active_ttl_ms, room.bind_network = 12, 90_000, True
    rooms.save_room(room=room, author="ada")
    assert queries.saved_settings() == {
        "CORVUS_CAPACITY": "12",
        "CORVUS_ACTIVE_TTL": "90s",
        "CORVUS_BIND_NETWORK": "true",
    }
    assert queries.effective().value("CORVUS_ACTIVE_TTL") == 90


def test_editing_another_room_saves_no_setting(store: Any) -> None:
    room = Room(id="sale", name="Sale", on_outage="open", inside_now="keep", capacity=3)
    rooms.save_room(room=room, author="ada")
    assert queries.saved_settings() == {}


def test_what_the_console_saved_survives_a_restart_with_another_environment(
    store: Any, settings: Any
) -> None:
    rooms.set_capacity(room_id="main", capacity=12, author="ada")
    settings.CORVUS = env.load({"CORVUS_CAPACITY": "99", "CORVUS_MAX_QUEUE": "5"})
    call_command("publish")
    assert snapshot(store).rooms[MAIN].capacity == 12
    assert snapshot(store).rooms[MAIN].max_queue == 5


def test_the_mode_of_the_main_room_survives_a_restart(store: Any) -> None:
    rooms.set_mode(room_id="main", mode=rooms.Mode.PAUSED, author="ada")
    call_command("publish")
    assert snapshot(store).rooms[MAIN].mode is rooms.Mode.PAUSED


def test_a_saved_value_that_became_wrong_does_not_stop_the_start(store: Any) -> None:
    SavedSetting.objects.create(name="CORVUS_CAPACITY", value="lots", author="an older release")
    SavedSetting.objects.create(name="CORVUS_MAX_QUEUE", value="5", author="ada")
    call_command("publish")
    assert snapshot(store).rooms[MAIN].capacity == 434
    assert snapshot(store).rooms[MAIN].max_queue == 5


def test_a_new_upstream_is_in_force_without_a_restart(store: Any) -> None:
    services.save_settings(values={"CORVUS_UPSTREAM": "http://127.0.0.1:4000"}, author="ada")
    assert snapshot(store).hosts[0].origin == "http://127.0.0.1:4000"


def test_a_name_belongs_to_one_host() -> None:
    first = ProxyHost(label="One", origin="http://127.0.0.1:1")
    services.save_host(host=first, names=["a.example"], rules=[], author="ada")
    with pytest.raises(ValidationError, match=r"a\.example belongs to the host “One”"):
        services.save_host(
            host=ProxyHost(label="Two", origin="http://127.0.0.1:2"),
            names=["b.example", "a.example"],
            rules=[],
            author="ada",
        )
    assert not ProxyHost.objects.filter(label="Two").exists()


def test_a_path_of_a_host_has_one_room() -> None:
    with pytest.raises(ValidationError, match=r"/x/\* has two rooms"):
        services.save_host(
            host=ProxyHost(label="One", origin="http://127.0.0.1:1"),
            names=["a.example"],
            rules=[services.Rule("/x/*", "main"), services.Rule("/x/*", "main")],
            author="ada",
        )


def test_the_catch_all_stays() -> None:
    with pytest.raises(ValidationError, match="cannot be deleted"):
        services.remove_host(host=ProxyHost.objects.get(catch_all=True), author="ada")


def test_wr_28_a_rotation_publishes_the_next_generation(store: Any) -> None:
    assert snapshot(store).key_generation == 1
    assert services.rotate_secret(author="ada") == 2
    assert snapshot(store).key_generation == 2


def test_wr_28_a_second_rotation_at_once_is_refused_unless_forced(store: Any) -> None:
    services.rotate_secret(author="ada")
    with pytest.raises(services.TooSoon, match="would be worth nothing"):
        services.rotate_secret(author="ada")
    assert snapshot(store).key_generation == 2
    assert services.rotate_secret(author="ada", force=True) == 3


def test_wr_28_two_rotations_further_apart_than_the_longest_pass_are_fine() -> None:
    begin = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
    longest = dt.timedelta(milliseconds=services.longest_pass_ms())
    with time_machine.travel(begin, tick=False):
        services.rotate_secret(author="ada")
    with (
        time_machine.travel(begin + longest - dt.timedelta(seconds=1), tick=False),
        pytest.raises(services.TooSoon),
    ):
        services.rotate_secret(author="ada")
    with time_machine.travel(begin + longest, tick=False):
        assert services.rotate_secret(author="ada") == 3


def test_wr_28_the_longest_pass_is_that_of_the_most_patient_room() -> None:
    usual = services.longest_pass_ms()
    room = Room(
        id="sale", name="S", on_outage="open", inside_now="keep", return_window_ms=7_200_000
    )
    rooms.save_room(room=room, author="ada")
    assert services.longest_pass_ms() == usual + 7_200_000 - 600_000


def test_wr_28_the_command_says_when_it_can_be_done() -> None:
    call_command("rotate_secret")
    with pytest.raises(CommandError, match="would be worth nothing"):
        call_command("rotate_secret")
    call_command("rotate_secret", force=True)
    assert KeyGeneration.objects.count() == 2


def test_wr_28_a_ticket_signed_before_a_rotation_verifies_for_all_its_life(store: Any) -> None:
    from proxy.gateway.cookies import queued_life_ms
    from queueing.passes import Credential, Keyring, Kind, Verdict, new_sid

    def keys_now() -> Keyring:
        return Keyring(b"m" * 32, snapshot(store).key_generation)

    begin = dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC)
    begin_ms = int(begin.timestamp() * 1000)
    life_ms = queued_life_ms(snapshot(store).rooms[MAIN])
    values = [
        keys_now()
        .sign(
            Credential(
                kind=Kind.QUEUED,
                room=MAIN,
                sid=new_sid(),
                iat_ms=begin_ms,
                exp_ms=begin_ms + life_ms,
                ticket=number,
            )
        )
        .encode()
        for number in range(1, 1001)
    ]
    # The worst moment: all were signed just before the first of two rotations that are as near
    # to each other as the rule allows.
    with time_machine.travel(begin, tick=False):
        services.rotate_secret(author="ada")
    assert {keys_now().read(v, MAIN).verdict for v in values} == {Verdict.VALID}
    with time_machine.travel(begin + dt.timedelta(milliseconds=life_ms), tick=False):
        services.rotate_secret(author="ada")
    assert {keys_now().read(v, MAIN).verdict for v in values} == {Verdict.STALE}


def test_lists_of_the_environment_that_conflict_stop_the_start_in_one_line() -> None:
    with pytest.raises(env.BadSetting) as refusal:
        env.load({"CORVUS_ASSETS": "/robots.txt"})
    assert str(refusal.value) == (
        "CORVUS_ASSETS: “/robots.txt” (paths that never wait) and “/robots.txt” (assets) are the"
        " same rule: write it once."
    )


def test_a_start_whose_settings_are_against_the_catch_all_says_so_in_one_line(
    settings: Any,
) -> None:
    host = ProxyHost.objects.get(catch_all=True)
    host.return_paths = "/checkout/3ds"
    rule = services.Rule("/*", MAIN)
    services.save_host(host=host, names=["*"], rules=[rule], author="ada")
    settings.CORVUS = env.load({"CORVUS_ASSETS": "/checkout/*"})
    with pytest.raises(CommandError, match=r"^CORVUS_ASSETS: .*“/checkout/3ds” \(return paths\)"):
        call_command("publish")
    host.refresh_from_db()
    assert host.assets == ""


def test_lists_of_the_settings_become_the_catch_alls_and_are_published(
    store: Any, settings: Any
) -> None:
    settings.CORVUS = env.load({"CORVUS_ASSETS": "/static/*, /fonts/*"})
    services.save_settings(
        values={
            "CORVUS_ASSET_PUBLIC": "/uploads/*",
            "CORVUS_STREAM_PATHS": "/live",
            "CORVUS_BAN_PATHS": "/.env,/.git/*",
            "CORVUS_STREAM_CAP": "9",
            "CORVUS_CLIENT_PROTO_HEADER": "X-Client-Proto",
        },
        author="ada",
    )
    [host] = snapshot(store).hosts
    assert host.assets == ("/static/*", "/fonts/*")
    assert (host.public_assets, host.streams) == (("/uploads/*",), ("/live",))
    assert host.ban_paths == ("/.env", "/.git/*")
    assert snapshot(store).settings.stream_cap == 9
    assert snapshot(store).settings.client_proto_header == "X-Client-Proto"


def test_a_host_whose_lists_conflict_is_not_saved_by_any_way(store: Any) -> None:
    before = store.get(keys.SNAPSHOT_KEY)
    host = ProxyHost(label="Shop", origin="http://127.0.0.1:1", assets="/a/*", streams="/a/b")
    with pytest.raises(ValidationError) as refusal:
        services.save_host(host=host, names=["shop.example"], rules=[], author="ada")
    assert set(refusal.value.message_dict) == {"assets", "streams"}
    assert store.get(keys.SNAPSHOT_KEY) == before


def test_old_versions_that_would_be_refused_today_can_still_be_cleared_away() -> None:
    version = ConfigVersion.objects.get()
    version.document = version.document.replace('"/robots.txt"', '"/*"')
    version.save()
    assert publishing.prune_versions(keep=1) == 0
