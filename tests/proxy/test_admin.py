"""Hosts, settings, versions and keys in the console, as an operator uses them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from proxy import queries, services
from proxy import store as keys
from proxy.gateway.snapshot import Snapshot, load
from proxy.models import ConfigVersion, ProxyHost, RoomBinding
from queueing import services as rooms
from queueing.models import Room

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


# Tiers.

CONFLICT = (
    "“/static/*” (assets) and “/static/live” (streams) cover the same path: a path belongs to one"
    " list."
)


def test_a_conflict_of_lists_is_said_at_both_fields_and_nothing_is_saved(console: Client) -> None:
    form = host_form(assets="/static/*\n/fonts/*", streams="/static/live")
    response = console.post(f"{HOSTS}add/", form)
    errors = response.context["adminform"].form.errors
    assert errors == {"assets": [CONFLICT], "streams": [CONFLICT]}
    assert not ProxyHost.objects.filter(label="Shop").exists()


def test_settings_say_the_same_sentence_at_the_same_lists(console: Client) -> None:
    form = as_sent(console, CORVUS_ASSETS="/static/*", CORVUS_STREAM_PATHS="/static/live")
    response = console.post(SETTINGS, form)
    assert response.status_code == 400
    errors = response.context["form"].errors
    assert errors == {"CORVUS_ASSETS": [CONFLICT], "CORVUS_STREAM_PATHS": [CONFLICT]}
    assert queries.saved_settings() == {}


@pytest.mark.parametrize("pattern", ["/*", "/__corvus/x"])
@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("bypass", "CORVUS_BYPASS"),
        ("assets", "CORVUS_ASSETS"),
        ("public_assets", "CORVUS_ASSET_PUBLIC"),
        ("streams", "CORVUS_STREAM_PATHS"),
        ("ban_paths", "CORVUS_BAN_PATHS"),
    ],
)
def test_the_whole_site_and_our_own_addresses_are_refused_in_every_list(
    console: Client, pattern: str, field: str, name: str
) -> None:
    page = console.post(f"{HOSTS}add/", host_form(**{field: pattern}))
    [message] = page.context["adminform"].form.errors[field]
    assert pattern in message
    settings_page = console.post(SETTINGS, as_sent(console, **{name: pattern}))
    assert settings_page.context["form"].errors == {name: [message]}


def test_an_allowed_origin_is_one_site(console: Client) -> None:
    page = console.post(f"{HOSTS}add/", host_form(allowed_origins="*"))
    assert "allowed_origins" in page.context["adminform"].form.errors


def test_the_case_rule_of_the_catch_all_counts_for_the_lists_in_its_settings(
    console: Client, store: Any
) -> None:
    lists = {"CORVUS_ASSETS": "/Static/*", "CORVUS_STREAM_PATHS": "/static/live"}
    console.post(SETTINGS, as_sent(console, **lists))
    host = ProxyHost.objects.get(catch_all=True)
    form = host_form(host_names="*", path_case="insensitive")
    page = console.post(f"{HOSTS}{host.pk}/change/", form)
    assert list(page.context["adminform"].form.errors) == ["path_case"]
    console.post(SETTINGS, as_sent(console, CORVUS_STREAM_PATHS="/live"))
    assert console.post(f"{HOSTS}{host.pk}/change/", form).status_code == 302
    settings_page = console.post(SETTINGS, as_sent(console, **lists))
    assert set(settings_page.context["form"].errors) == set(lists)
    found = next(h for h in snapshot(store).hosts if h.names == ("*",))
    assert (found.assets, found.streams) == (("/Static/*",), ("/live",))


def test_return_paths_of_the_catch_all_and_its_settings_are_held_against_each_other(
    console: Client,
) -> None:
    host = ProxyHost.objects.get(catch_all=True)
    form = host_form(host_names="*", return_paths="/checkout/3ds")
    assert console.post(f"{HOSTS}{host.pk}/change/", form).status_code == 302
    settings_page = console.post(SETTINGS, as_sent(console, CORVUS_ASSETS="/checkout/*"))
    assert list(settings_page.context["form"].errors) == ["CORVUS_ASSETS"]
    page = console.post(f"{HOSTS}{host.pk}/change/", {**form, "return_paths": "/robots.txt"})
    errors = page.context["adminform"].form.errors
    assert list(errors) == ["return_paths"]
    assert "“/robots.txt” (paths that never wait)" in errors["return_paths"][0]


def tiers_page(console: Client, host: ProxyHost, url: str) -> str:
    response = console.get(f"{HOSTS}{host.pk}/tiers/", {"url": url})
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


@pytest.fixture
def shop(console: Client) -> ProxyHost:
    lists = {"assets": "/static/*", "ban_paths": "/.env", "streams": "/live"}
    form = host_form(**lists, **{"bindings-0-path": "/tickets/*"})
    assert console.post(f"{HOSTS}add/", form).status_code == 302
    return ProxyHost.objects.get(label="Shop")


def test_the_page_of_a_host_shows_its_rules_in_the_order_in_which_they_are_applied(
    console: Client, shop: ProxyHost
) -> None:
    for host in (shop, ProxyHost.objects.get(catch_all=True)):
        page = console.get(f"{HOSTS}{host.pk}/change/").content.decode()
        shown = page.split("Rules, in the order in which they are applied")[1]
        places = [
            shown.index(f'<th scope="row">{name}</th>')
            for name in (
                "Ban paths",
                "Corvus&#x27;s own addresses",
                "Paths that never wait",
                "Assets",
                "Public assets",
                "Streams",
                "Pages",
            )
        ]
        assert places == sorted(places)
    assert "everything else" in shown
    assert "<code>/static/*</code>" in console.get(f"{HOSTS}{shop.pk}/change/").content.decode()
    assert 'name="url"' not in console.get(f"{HOSTS}add/").content.decode()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/static/a.css", "Belongs to the assets; no room governs it."),
        ("/static/a.css", "The rule that matched: <code>/static/*</code>"),
        ("https://Shop.example.org:443/static/a.css?v=1#x", "<code>/static/a.css</code>"),
        ("http://shop.example.org", "Belongs to the pages; no room governs it."),
        ("/tickets/1", "Belongs to the pages; governed by the room main."),
        ("/tickets/1", "No rule matched."),
        ("/live", "Belongs to the streams"),
        ("/robots.txt", "Belongs to the paths that never wait"),
        ("/static/..%2f.env", "A ban path: never reaches the site."),
        ("/static/../tickets/x", "Belongs to the pages; governed by the room main."),
        ("//__corvus/healthz", "One of Corvus&#x27;s own addresses: answered here."),
        ("/a%00", "Refused with 400: the path holds NUL."),
        ("/bücher neu", "<code>/b%C3%BCcher%20neu</code>"),
        ("/bücher neu", "<td><code>/bücher neu</code></td>"),
        ("tickets", "“tickets” is not allowed: write a path that begins with /"),
        ("https://a b/x", "is not allowed: the host name is none."),
        ("/<script>alert(1)</script>", "%3Cscript%3E"),
    ],
)
def test_the_tester_says_the_tier_of_a_url_and_why(
    console: Client, shop: ProxyHost, url: str, said: str
) -> None:
    page = tiers_page(console, shop, url)
    if "<script>" in url:
        assert url not in page
        said = "&lt;script&gt;alert(1)"
    assert said in page


def test_the_tester_says_when_the_readings_belong_to_two_rooms(
    console: Client, shop: ProxyHost
) -> None:
    rooms.save_room(
        room=Room(id="sale", name="Sale", on_outage="open", inside_now="keep"), author="a"
    )
    services.save_host(
        host=shop,
        names=["shop.example.org"],
        rules=[services.Rule("/tickets/*", "sale"), services.Rule("/*", "main")],
        author="ada",
    )
    page = tiers_page(console, shop, "/x/..%2ftickets")
    assert "Refused with 400: the path belongs to two rooms" in page
    assert "<td>sale</td>" in page
    assert "<td>main</td>" in page


def test_the_tester_leads_a_url_of_another_host_to_that_host(
    console: Client, shop: ProxyHost
) -> None:
    rest = ProxyHost.objects.get(catch_all=True)
    page = tiers_page(console, shop, "https://other.example/x")
    assert f'href="{HOSTS}{rest.pk}/tiers/?url=https%3A//other.example/x"' in page
    assert "Belongs to" not in page
    assert "Belongs to the pages; governed by the room main." in tiers_page(
        console, rest, "https://other.example/x"
    )
    assert f"{HOSTS}{shop.pk}/tiers/" in tiers_page(console, rest, "https://shop.example.org/")


def test_the_tester_needs_the_right_to_see_hosts_and_no_more(
    console: Client, shop: ProxyHost
) -> None:
    client = Client()
    viewer = User.objects.create_user("eve", password="x", is_staff=True)
    client.force_login(viewer)
    assert client.get(f"{HOSTS}{shop.pk}/tiers/").status_code == 403
    viewer.user_permissions.add(Permission.objects.get(codename="view_proxyhost"))
    assert "assets" in tiers_page(client, shop, "/static/x")
    assert "Which tier is this URL?" in client.get(f"{HOSTS}{shop.pk}/change/").content.decode()
    assert console.get(f"{HOSTS}99999/tiers/").status_code == 404
    assert Client().get(f"{HOSTS}{shop.pk}/tiers/").status_code == 302


def test_the_tester_has_neither_script_nor_style_in_its_page(
    console: Client, shop: ProxyHost
) -> None:
    page = tiers_page(console, shop, "/static/a.css")
    assert "style=" not in page
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
