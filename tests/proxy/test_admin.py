"""Hosts, settings, versions and keys in the console, as an operator uses them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from proxy import queries
from proxy import store as keys
from proxy.gateway.snapshot import Snapshot, load
from proxy.models import ConfigVersion, ProxyHost, RoomBinding

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = "/admin/proxy/savedsetting/"
HOSTS = "/admin/proxy/proxyhost/"
SECRET = "a secret of the operator, 40 characters long"


@pytest.fixture
def console(client: Client, store: Any) -> Client:
    """A signed-in administrator of a running Corvus."""
    call_command("publish")
    client.force_login(User.objects.create_superuser("ada", password="x"))
    return client


def snapshot(store: Any) -> Snapshot:
    return load(store.get(keys.SNAPSHOT_KEY))


def as_sent(client: Client, **changed: str) -> dict[str, str]:
    """What a browser sends back of the settings page."""
    form = client.get(SETTINGS).context["form"]
    values = {n: form[n].value() or "" for n in form.fields if not n.startswith("reset-")}
    return {**values, **changed}


def host_form(**changed: Any) -> dict[str, Any]:
    return {
        "label": "Shop",
        "host_names": "shop.example.org",
        "origin": "http://127.0.0.1:3000",
        "preserve_host": "on",
        "verify_origin": "on",
        "path_case": "sensitive",
        "bypass": "/robots.txt",
        "session_cookie": "",
        "bindings-TOTAL_FORMS": "1",
        "bindings-INITIAL_FORMS": "0",
        "bindings-0-path": "/*",
        "bindings-0-room": "main",
        **changed,
    }


def test_the_settings_page_shows_every_setting_with_source_bounds_and_help(
    console: Client,
) -> None:
    page = console.get(SETTINGS).content.decode()
    for setting in queries.configured().settings():
        assert f"<code>{setting.name}</code>" in page
    assert "a whole number between 0 and 2147483647" in page
    assert "How many may be inside at once" in page
    assert "default" in page


def test_no_secret_is_ever_on_the_settings_page(console: Client, settings: Any) -> None:
    from corvus_site import env

    settings.CORVUS = env.load({"CORVUS_SECRET": SECRET, "CORVUS_REDIS_URL": "redis://:pw99@h"})
    page = console.get(SETTINGS).content.decode()
    assert SECRET not in page
    assert "pw99" not in page
    assert "(set)" in page


def test_many_settings_are_saved_at_once_and_published(console: Client, store: Any) -> None:
    form = as_sent(console, CORVUS_CAPACITY="9", CORVUS_API_JSON="false", CORVUS_REFRESH="20s")
    page = console.post(SETTINGS, form, follow=True).content.decode()
    assert "Saved: CORVUS_API_JSON, CORVUS_CAPACITY, CORVUS_REFRESH." in page
    assert queries.saved_settings() == {
        "CORVUS_CAPACITY": "9",
        "CORVUS_API_JSON": "false",
        "CORVUS_REFRESH": "20s",
    }
    assert snapshot(store).settings.api_json is False
    assert "saved in the console" in page


def test_one_fault_on_the_page_saves_nothing_and_is_marked_at_its_setting(console: Client) -> None:
    response = console.post(SETTINGS, as_sent(console, CORVUS_CAPACITY="9", CORVUS_RETRY_AFTER="0"))
    assert response.status_code == 400
    assert list(response.context["form"].errors) == ["CORVUS_RETRY_AFTER"]
    assert 'value="9"' in response.content.decode()
    assert queries.saved_settings() == {}


def test_a_saved_setting_can_be_given_back_on_the_page(console: Client) -> None:
    console.post(SETTINGS, as_sent(console, CORVUS_CAPACITY="9"))
    console.post(SETTINGS, as_sent(console, **{"reset-CORVUS_CAPACITY": "on"}))
    assert queries.saved_settings() == {}


def test_sending_the_page_unchanged_saves_nothing(console: Client) -> None:
    page = console.post(SETTINGS, as_sent(console), follow=True).content.decode()
    assert "Nothing was changed" in page
    assert queries.saved_settings() == {}


def test_somebody_who_may_only_look_saves_nothing(console: Client) -> None:
    viewer = User.objects.create_user("eve", password="x", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_savedsetting"))
    client = Client()
    client.force_login(viewer)
    assert "Save all changes" not in client.get(SETTINGS).content.decode()
    assert client.post(SETTINGS, as_sent(client, CORVUS_CAPACITY="9")).status_code == 403


def test_somebody_without_rights_does_not_see_the_settings(console: Client) -> None:
    client = Client()
    client.force_login(User.objects.create_user("eve", password="x", is_staff=True))
    assert client.get(SETTINGS).status_code == 403


def test_a_host_is_made_with_its_names_and_rooms_in_one_version(
    console: Client, store: Any
) -> None:
    response = console.post(
        f"{HOSTS}add/", host_form(host_names="Shop.example.org\nbücher.example")
    )
    assert response.status_code == 302, response.context["errors"]
    host = next(h for h in snapshot(store).hosts if h.names != ("*",))
    assert host.names == ("shop.example.org", "xn--bcher-kva.example")
    assert [(r.path, r.room) for r in host.rooms] == [("/*", "main")]
    assert ConfigVersion.objects.count() == 2


def test_a_host_is_changed_with_its_rooms(console: Client, store: Any) -> None:
    console.post(f"{HOSTS}add/", host_form())
    host = ProxyHost.objects.get(label="Shop")
    binding = host.bindings.get()
    console.post(
        f"{HOSTS}{host.pk}/change/",
        host_form(
            origin="http://127.0.0.1:4000",
            **{
                "bindings-INITIAL_FORMS": "1",
                "bindings-0-id": binding.pk,
                "bindings-0-host": host.pk,
                "bindings-0-path": "/tickets/*",
            },
        ),
    )
    found = next(h for h in snapshot(store).hosts if h.id == host.pk)
    assert found.origin == "http://127.0.0.1:4000"
    assert [r.path for r in found.rooms] == ["/tickets/*"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"host_names": "http://a"}, "host_names"),
        ({"host_names": "*"}, "host_names"),
        ({"origin": "127.0.0.1:80"}, "origin"),
        ({"bypass": "robots.txt"}, "bypass"),
    ],
)
def test_each_fault_of_a_host_is_said_at_its_field(
    console: Client, changed: dict[str, str], field: str
) -> None:
    response = console.post(f"{HOSTS}add/", host_form(**changed))
    assert response.status_code == 200
    assert field in response.context["adminform"].form.errors


def test_two_rooms_on_one_path_are_refused_and_nothing_is_saved(console: Client) -> None:
    form = host_form(
        **{"bindings-TOTAL_FORMS": "2", "bindings-1-path": "/*", "bindings-1-room": "main"}
    )
    page = console.post(f"{HOSTS}add/", form, follow=True).content.decode()
    assert "Please correct" in page or "Nothing was saved" in page
    assert not ProxyHost.objects.filter(label="Shop").exists()


def test_what_settings_say_of_the_catch_all_is_not_edited_on_the_host(console: Client) -> None:
    host = ProxyHost.objects.get(catch_all=True)
    console.post(f"{HOSTS}{host.pk}/change/", host_form(host_names="*", origin="http://evil:1"))
    assert ProxyHost.objects.get(catch_all=True).origin == "http://127.0.0.1:8090"
    assert console.post(f"{HOSTS}{host.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_store_that_is_down_is_said_after_a_save(console: Client, no_store: None) -> None:
    page = console.post(f"{HOSTS}add/", host_form(), follow=True).content.decode()
    assert "The store cannot be reached" in page
    assert ProxyHost.objects.filter(label="Shop").exists()
    assert "The store cannot be reached" in console.get("/admin/queueing/room/").content.decode()


def test_the_warning_ends_when_the_store_has_the_newest_configuration(console: Client) -> None:
    newest = ConfigVersion.objects.filter(number=1)
    newest.update(delivered_at=None)
    assert "The store cannot be reached" in console.get("/admin/").content.decode()
    newest.update(delivered_at=timezone.now())
    assert "The store cannot be reached" not in console.get("/admin/").content.decode()


def test_versions_are_shown_and_cannot_be_changed(console: Client) -> None:
    version = ConfigVersion.objects.get()
    base = "/admin/proxy/configversion/"
    assert "Start" in console.get(base).content.decode()
    page = console.get(f"{base}{version.pk}/change/").content.decode()
    assert "&quot;hosts&quot;" in page
    assert console.post(f"{base}{version.pk}/change/", {"note": "x"}).status_code == 403
    assert console.post(f"{base}{version.pk}/delete/", {"post": "yes"}).status_code == 403


def test_wr_28_the_button_rotates_and_refuses_a_second_rotation_at_once(
    console: Client, store: Any
) -> None:
    address = "/admin/proxy/keygeneration/rotate/"
    assert console.get(address).status_code == 200
    assert snapshot(store).key_generation == 1
    assert "Generation 2 signs now" in console.post(address, follow=True).content.decode()
    assert "would be worth nothing" in console.post(address, follow=True).content.decode()
    assert snapshot(store).key_generation == 2
    console.post(address, {"force": "yes"})
    assert snapshot(store).key_generation == 3


def test_who_saved_settings_and_rotated_keys_is_in_the_log_of_actions(console: Client) -> None:
    console.post(SETTINGS, as_sent(console, CORVUS_CAPACITY="9"))
    console.post("/admin/proxy/keygeneration/rotate/")
    entries = LogEntry.objects.select_related("user")
    kept = [(e.user.username, e.object_repr, e.get_change_message()) for e in entries]
    assert ("ada", "Settings", "Saved CORVUS_CAPACITY.") in kept
    assert ("ada", "generation 2", "Signing keys rotated") in kept
    assert "Saved CORVUS_CAPACITY." in console.get("/admin/admin/logentry/").content.decode()


def test_the_page_of_a_host_asks_the_database_no_more_than_once_a_rule(
    console: Client, django_assert_max_num_queries: Any
) -> None:
    host = ProxyHost.objects.get()
    for number in range(10):
        RoomBinding.objects.create(host=host, path=f"/hall-{number}", room_id="main")
    with django_assert_max_num_queries(10 + 12):
        console.get(f"{HOSTS}{host.pk}/change/")
