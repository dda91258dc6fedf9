"""The whole product as `manage.py up` runs it: started, hurt, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import stat
import threading
from pathlib import Path

import httpx
import pytest

from corvus_site.supervisor.console_certificate import ensure_certificate
from tests.e2e.conftest import StartProduct
from tests.support.product import NAVIGATION, Product
from tests.support.running import Running, eventually
from tests.support.valkey import running_valkey


def test_it_prints_where_everything_is_and_the_setup_token_once(demo_product: Product) -> None:
    lines = demo_product.running.lines
    assert len([line for line in lines if line.startswith("setup_token=")]) == 1
    assert len(demo_product.setup_token) >= 12
    assert httpx.get(demo_product.demo).status_code == 200
    assert httpx.get(f"{demo_product.site}/__corvus/readyz").json() == {"ready": True}
    assert httpx.get(demo_product.console, follow_redirects=True).status_code == 200


def test_the_demo_says_that_it_made_the_room_small(demo_product: Product) -> None:
    said = [line for line in demo_product.running.lines if "CORVUS_CAPACITY=3" in line]
    assert len(said) == 1
    inside = [demo_product.visitor() for _ in range(4)]
    states = [visitor.get("/").headers.get("content-security-policy") for visitor in inside]
    titles = [re.search(r"<title>(.*?)</title>", v.get("/").text) for v in inside]
    for visitor in inside:
        visitor.close()
    shop = [title is not None and "Night Herons" in title[1] for title in titles]
    assert shop == [True, True, True, False]
    assert states[3], "the waiting page has a content policy of its own"


def test_the_data_port_shows_nothing_of_the_console(demo_product: Product) -> None:
    with demo_product.visitor() as visitor:
        for path in ("/admin/", "/first-run/", "/static/admin/css/base.css"):
            text = visitor.get(path).text
            assert "csrfmiddlewaretoken" not in text
            assert "Django" not in text


def test_everything_in_the_data_folder_is_for_its_owner_alone(demo_product: Product) -> None:
    for path in [demo_product.data_dir, *demo_product.data_dir.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_it_starts_with_one_connection_for_each_client_too(start_product: StartProduct) -> None:
    product = start_product(CORVUS_CONNECTIONS_PER_CLIENT="1")
    assert httpx.get(f"{product.site}/__corvus/healthz").text.strip() == "ok"


def test_no_process_list_shows_a_secret(start_product: StartProduct) -> None:
    secrets = {
        "CORVUS_SECRET": "master-secret-of-more-than-32-characters",
        "CORVUS_SETUP_TOKEN": "setup-token-of-the-operator",
        "CORVUS_ADMIN_TOKEN": "admin-token-of-the-operator",
    }
    product = start_product(**secrets)
    commands = " ".join(product.running.left().values())
    said = "\n".join(product.running.lines)
    for secret in secrets.values():
        assert secret not in commands
        assert secret not in said
    for pid, command in product.running.left().items():
        environ = Path(f"/proc/{pid}/environ").read_text()
        if "corvus_site.demo" in command or "valkey" in command:
            assert "CORVUS_" not in environ
        if "gateway_asgi" in command:
            assert secrets["CORVUS_SETUP_TOKEN"] not in environ
    answer = httpx.get(
        f"{product.site}/__corvus/stats",
        headers={"Authorization": f"Bearer {secrets['CORVUS_ADMIN_TOKEN']}"},
    )
    assert answer.status_code == 200


def test_a_killed_gateway_comes_back_and_the_port_keeps_answering(
    start_product: StartProduct,
) -> None:
    product = start_product()
    before = {pid for pid, command in product.running.left().items() if "gateway_asgi" in command}
    assert len(before) == 2
    os.kill(min(before), signal.SIGKILL)
    answers = [httpx.get(f"{product.site}/__corvus/healthz", timeout=20) for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}
    product.running.line(r"gateway-. \(process \d+\) ended with SIGKILL; starting it again")
    after = eventually(
        lambda: (
            {p for p, command in product.running.left().items() if "gateway_asgi" in command}
            - {min(before)}
        ),
    )
    assert max(before) in after


def test_a_stop_drains_a_slow_request_and_leaves_no_process(start_product: StartProduct) -> None:
    product = start_product()
    with product.visitor() as visitor:
        visitor.get("/")
        answers: list[int] = []
        slow = threading.Thread(
            target=lambda: answers.append(visitor.get("/slow?seconds=2").status_code)
        )
        slow.start()
        load = f"{product.demo}/load"
        eventually(lambda: httpx.get(load).json()["shoppers"] == 1, what="the page is being made")
        status = product.stop()
        slow.join(20)
    assert (status, answers) == (0, [200]), product.running.story()
    assert product.running.left() == {}
    with pytest.raises(httpx.ConnectError):
        httpx.get(product.site)


def test_a_killed_supervisor_leaves_no_process(start_product: StartProduct) -> None:
    product = start_product()
    assert len(product.running.left()) >= 8  # itself, store, worker, beat, console, demo, gateways
    product.running.send(signal.SIGKILL)
    eventually(lambda: not product.running.left(), what="everything has ended")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_wr_74_a_restart_keeps_everybody_s_place(
    start_product: StartProduct, how: signal.Signals
) -> None:
    product = start_product(CORVUS_CAPACITY="1", CORVUS_ACTIVE_TTL="5m")
    with product.visitor() as inside, product.visitor() as first, product.visitor() as second:
        for visitor in (inside, first, second):
            visitor.get("/")
        product.restart(how)
        assert "Night Herons" in inside.get("/").text
        status = "/__corvus/wr/main/status"
        places = [v.get(status).json()["position"] for v in (first, second)]
        assert places == [1, 2]
        with product.visitor() as newcomer:
            newcomer.get("/")
            assert newcomer.get(status).json()["position"] == 3


def test_a_console_beyond_loopback_is_https_with_a_certificate_of_its_own(
    start_product: StartProduct,
) -> None:
    product = start_product(CORVUS_CONSOLE_LISTEN="0.0.0.0:0")
    assert product.console.startswith("https://localhost:")
    page = httpx.get(product.console, verify=False, follow_redirects=True)  # noqa: S501
    assert page.status_code == 200
    certificate = product.data_dir / "console-cert.pem"
    first = certificate.read_bytes()
    assert stat.S_IMODE((product.data_dir / "console-key.pem").stat().st_mode) == 0o600
    assert product.stop() == 0
    again = Product(product.data_dir, {"CORVUS_CONSOLE_LISTEN": "0.0.0.0:0"})
    again.end()
    assert certificate.read_bytes() == first


def test_an_external_store_holds_the_line_and_may_be_away_at_a_start(
    start_product: StartProduct,
) -> None:
    with running_valkey("--maxmemory-policy", "allkeys-lru") as store:
        product = start_product(CORVUS_REDIS_URL=store.url, CORVUS_SECRET="s" * 40)
        product.running.line("warning: CORVUS_REDIS_URL: maxmemory-policy is allkeys-lru")
        assert not any("valkey" in command for command in product.running.left().values())
        with product.visitor() as visitor:
            assert "Night Herons" in visitor.get("/").text
        store.process.kill()
        store.process.wait()
        product.restart()
        product.running.line("warning: CORVUS_REDIS_URL: the store cannot be used")
        with product.visitor() as visitor:
            assert visitor.get("/").status_code == 503
        assert httpx.get(f"{product.site}/__corvus/healthz").status_code == 200
        assert product.stop() == 0


def test_visitors_come_by_https_where_a_certificate_is_given(
    start_product: StartProduct, tmp_path: Path
) -> None:
    files = ensure_certificate(tmp_path, "localhost")
    product = start_product(
        CORVUS_LISTEN_TLS="127.0.0.1:0",
        CORVUS_TLS_CERT=str(files.certificate),
        CORVUS_TLS_KEY=str(files.key),
    )
    address = product.running.line(r"^\s+(https://\S+)/$")[1]
    trust = ssl.create_default_context(cafile=str(files.certificate))
    with httpx.Client(headers=NAVIGATION, follow_redirects=True, verify=trust) as visitor:
        page = visitor.get(address)
        assert "Night Herons" in page.text
        own = [c for c in visitor.cookies.jar if c.name == "corvus_main"]
        assert [cookie.secure for cookie in own] == [True]


def test_json_logs_are_one_object_a_line_whoever_writes_them(tmp_path: Path) -> None:
    free = dict.fromkeys(
        ("CORVUS_LISTEN", "CORVUS_CONSOLE_LISTEN", "CORVUS_DEMO_LISTEN"), "127.0.0.1:0"
    )
    running = Running(
        ["manage.py", "up", "--log-format", "json", "--gateways", "1"],
        free | {"CORVUS_DATA_DIR": str(tmp_path / "data")},
    )
    try:
        running.line('"event": "ready after')
        running.send(signal.SIGTERM)
        assert running.wait()[0] == 0
    finally:
        running.end()
    events = [json.loads(line) for line in running.lines]
    loggers = {event["logger"] for event in events}
    assert {"corvus.supervisor", "corvus.gateway"} <= loggers
