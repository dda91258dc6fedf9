"""The console as a browser meets it: headers, hosts, static files; and what it never shows."""

from __future__ import annotations

import asyncio
import gc
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import AsyncClient, Client

from corvus_site import asgi, backends
from corvus_site.env import BadSetting, HostPort
from tests.support.valkey import Valkey

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/", "/first-run/", "/healthz", "/static/corvus/console.css"])
def test_every_answer_has_a_policy_without_inline_code_and_is_not_framed(
    client: Client, path: str
) -> None:
    response = client.get(path)
    policy = response["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response["X-Frame-Options"] == "DENY"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "Server" not in response


def test_pages_are_never_cached_and_static_files_may_be(client: Client) -> None:
    assert client.get("/first-run/")["Cache-Control"] == "no-store, private"
    assert "max-age" in client.get("/static/corvus/console.css")["Cache-Control"]


def test_no_page_of_the_console_has_inline_scripts_or_styles(
    client: Client, settings: Any, valkey: Valkey
) -> None:
    settings.STORE_URL = valkey.url
    call_command("publish")
    first = client.get("/first-run/").content.decode()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    pages = [
        "/admin/",
        "/admin/queueing/room/",
        "/admin/queueing/room/add/",
        "/admin/queueing/room/main/change/",
        "/admin/proxy/savedsetting/",
        "/admin/proxy/proxyhost/add/",
        "/admin/proxy/keygeneration/",
        "/admin/proxy/keygeneration/rotate/",
        "/admin/proxy/configversion/",
    ]
    for html in [first, *(client.get(p).content.decode() for p in pages)]:
        assert " style=" not in html
        assert " onclick=" not in html
        assert "<style" not in html
        for script in html.split("<script")[1:]:
            opening = script.split(">")[0]
            assert " src=" in opening or "application/json" in opening


def test_a_page_of_another_host_name_is_refused(client: Client) -> None:
    response = client.get("/first-run/", headers={"host": "evil.example"})
    assert response.status_code == 400


def test_gateway_addresses_do_not_exist_on_the_console(client: Client) -> None:
    User.objects.create_superuser("ada", password="x")
    for path in ("/__corvus/healthz", "/__corvus/stats", "/__corvus/wr/main/status"):
        assert client.get(path).status_code == 404


async def test_static_files_are_served_whole_over_asgi() -> None:
    response = await AsyncClient().get("/static/corvus/portal.css")
    assert response.status_code == 200
    assert not response.streaming
    assert b"--accent" in response.content


def test_an_operator_stays_signed_in_while_the_store_is_down(client: Client) -> None:
    client.force_login(User.objects.create_superuser("ada", password="x"))
    assert client.get("/admin/").status_code == 200


@pytest.mark.parametrize(
    ("listen", "given", "hosts"),
    [
        (HostPort("127.0.0.1", 1), (), ["localhost", "127.0.0.1", "[::1]"]),
        (HostPort("", 1), (), ["*"]),
        (HostPort("10.0.0.5", 1), (), ["10.0.0.5", "localhost", "127.0.0.1", "[::1]"]),
        (HostPort("fd00::1", 1), (), ["[fd00::1]", "localhost", "127.0.0.1", "[::1]"]),
        (HostPort("", 1), ("ops.example",), ["ops.example", "localhost", "127.0.0.1", "[::1]"]),
    ],
)
def test_the_console_answers_to_its_own_names(
    listen: HostPort, given: tuple[str, ...], hosts: list[str]
) -> None:
    assert backends.console_hosts(listen, given) == hosts


def test_postgresql_without_its_driver_is_one_clear_line(tmp_path: Any) -> None:
    with pytest.raises(BadSetting, match="DATABASE_URL: PostgreSQL needs the package psycopg"):
        backends.database("postgresql://u:secret@db/corvus", tmp_path)


def test_the_broker_is_the_store_in_the_words_of_the_worker() -> None:
    assert backends.broker("unix:///run/s.sock?db=0") == "redis+socket:///run/s.sock?virtual_host=0"
    assert backends.broker("redis://h:1/0") == "redis://h:1/0"


def test_a_data_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSetting, match=r"CORVUS_DATA_DIR: .* cannot be made"):
        backends.data_folder(tmp_path / "file" / "data")


@pytest.mark.parametrize("path", ["/nowhere", "/admin/nowhere/"])
def test_an_unknown_address_has_a_page_of_the_console(client: Client, path: str) -> None:
    client.force_login(User.objects.create_superuser("ada", password="x"))
    response = client.get(path)
    assert response.status_code == 404
    assert "There is nothing here" in response.content.decode()


def test_a_fault_shows_a_page_and_no_inside(client: Client, settings: Any) -> None:
    User.objects.create_superuser("ada", password="x")
    client.raise_request_exception = False
    settings.ROOT_URLCONF = "tests.site.broken_urls"
    response = client.get("/broken")
    assert response.status_code == 500
    page = response.content.decode()
    assert "Something went wrong" in page
    assert "secret detail" not in page


async def test_a_websocket_that_no_page_opens_is_closed() -> None:
    from channels.testing import WebsocketCommunicator

    from corvus_site.asgi import application

    for origin in (b"http://localhost", b"http://evil.example"):
        headers = [(b"host", b"localhost"), (b"origin", origin)]
        connected, _ = await WebsocketCommunicator(application, "/live", headers).connect()
        assert not connected


def test_a_forged_form_is_told_that_nothing_was_changed() -> None:
    User.objects.create_superuser("ada", password="x")
    client = Client(enforce_csrf_checks=True)
    response = client.post("/admin/login/", {"username": "ada", "password": "x"})
    assert response.status_code == 403
    assert "Nothing was changed" in response.content.decode()


def test_what_is_used_daily_stands_first_on_the_index_and_lists_have_plain_titles(
    client: Client, settings: Any, valkey: Valkey
) -> None:
    settings.STORE_URL = valkey.url
    call_command("publish")
    client.force_login(User.objects.create_superuser("ada", password="x"))
    index = client.get("/admin/").content.decode()
    assert index.index("Waiting rooms") < index.index("Gateway") < index.index("Accounts")
    rooms = client.get("/admin/queueing/room/").content.decode()
    assert "<h1>Rooms</h1>" in rooms
    assert "Select room" not in rooms
    versions = client.get("/admin/proxy/configversion/").content.decode()
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", versions)


async def test_a_request_whose_client_has_left_ends_without_an_error() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    left = asyncio.Event()
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise OSError("nobody is there")

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": "/healthz", "query_string": b""}
    request = asyncio.ensure_future(asgi.pages({**scope, "headers": headers}, receive, send))
    for _ in range(3):
        await asyncio.sleep(0)
    left.set()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    del request
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []
