"""The gateway's application under another ASGI server: uvicorn instead of our own.

The application may lean on no extension of our server (docs/architecture.md): pages, forms,
downloads, WebSockets and the waiting page work by the plain ASGI specification.
"""

from __future__ import annotations

import hashlib
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    RejectConnection,
    Request,
    TextMessage,
)

from queueing.page_builder import build_bundle
from tests.support.gateways import ROOT, Gateway, Gateways, Origin
from tests.support.running import eventually
from tests.support.valkey import running_valkey


def start_uvicorn(world: Gateways) -> Gateway:
    """Run the application under uvicorn, which must see its lifespan through."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    log = world.folder / f"uvicorn-{len(world.gateways)}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "uvicorn", "corvus_site.gateway_asgi:application"),
                *("--fd", str(listener.fileno()), "--lifespan", "on", "--ws", "wsproto"),
                *("--http", "httptools", "--no-server-header", "--no-date-header"),
            ],
            cwd=ROOT,
            env=world.environment,
            pass_fds=[listener.fileno()],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    gateway = Gateway(process, listener.getsockname()[1], log)
    listener.close()
    world.gateways.append(gateway)
    eventually(lambda: "Application startup complete" in log.read_text(), what=log.read_text)
    return gateway


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    origin = Origin()
    folder = tmp_path_factory.mktemp("uvicorn")
    with running_valkey() as valkey:
        world = Gateways(valkey.url, build_bundle(), origin, folder)
        try:
            world.publish()
            start_uvicorn(world)
            yield world
        finally:
            world.close()
            origin.close()


@pytest.fixture
def world(processes: Gateways) -> Gateways:
    processes.origin.clear()
    return processes


class TwoHalves:
    """An origin whose download stops in the middle until it is told to go on."""

    HALF = random.Random(7).randbytes(400_000)

    def __init__(self) -> None:
        self.go_on = threading.Event()
        download = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-length", str(2 * len(download.HALF)))
                self.end_headers()
                self.wfile.write(download.HALF)
                download.go_on.wait(20)
                self.wfile.write(download.HALF)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def two_halves() -> Iterator[TwoHalves]:
    download = TwoHalves()
    yield download
    download.close()


@pytest.fixture(scope="module")
def demo_url() -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "corvus_site.demo", "--fd", str(listener.fileno())],
        cwd=ROOT,
        pass_fds=[listener.fileno()],
    )
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    try:
        yield url
    finally:
        process.kill()
        process.wait()


def test_a_page_and_its_path_arrive_as_they_were_sent(world: Gateways) -> None:
    world.publish(world.room(capacity=5))
    with world.one.browser() as browser:
        page = browser.get("/a%2Fb;c/%C3%A9?q=1&q=2&r=%2F")
    assert (page.status_code, page.text) == (200, "<h1>the shop</h1>")
    assert [seen.target for seen in world.origin.seen] == ["/a%2Fb;c/%C3%A9?q=1&q=2&r=%2F"]


def test_a_form_arrives_byte_for_byte(world: Gateways) -> None:
    world.publish(world.room(capacity=5))
    body = random.Random(1).randbytes(300_000)
    with world.one.browser() as browser:
        browser.get("/")
        answer = browser.post("/order", content=body, headers={"content-type": "text/x-odd"})
    assert answer.status_code == 200
    order = world.origin.seen[-1]
    assert (order.method, order.header("content-type")) == ("POST", "text/x-odd")
    assert hashlib.sha256(order.body).digest() == hashlib.sha256(body).digest()
    assert not [v for k, v in order.headers if k.lower() == "cookie" and "corvus" in v]


def test_a_download_streams_before_the_origin_has_finished(
    world: Gateways, two_halves: TwoHalves
) -> None:
    world.publish(world.room(capacity=5), origin=two_halves.url)
    with world.one.browser() as browser:
        two_halves.go_on.set()
        browser.get("/")
        two_halves.go_on.clear()
        with browser.stream("GET", "/file") as answer:
            parts = answer.iter_bytes()
            got = b""
            while len(got) < len(two_halves.HALF):
                got += next(parts)
            assert got == two_halves.HALF, "the first half is here while the origin still waits"
            two_halves.go_on.set()
            rest = b"".join(parts)
    assert rest == two_halves.HALF


def test_the_waiting_page_lets_in_by_itself(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    status = f"/__corvus/wr/{room.id}/status"
    with world.one.browser() as first, world.one.browser() as second:
        first.get("/")
        page = second.get("/")
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "You are in line" in page.text
        assert second.get(status).json()["position"] == 1
        first.post(f"/__corvus/wr/{room.id}/leave")
        eventually(lambda: second.get(status).json()["state"] == "granted")
        assert second.get("/").text == "<h1>the shop</h1>"


def test_an_api_client_is_told_by_429(world: Gateways) -> None:
    world.publish(world.room(capacity=0))
    with world.one.api() as client:
        client.get("/orders")
        answer = client.get("/orders")
    assert (answer.status_code, answer.json()["position"]) == (429, 1)
    assert not world.origin.seen


def test_a_websocket_is_relayed_and_refused_without_a_pass(world: Gateways, demo_url: str) -> None:
    room = world.room(capacity=1)
    world.publish(room, origin=demo_url)
    with world.one.browser() as browser:
        browser.get("/about")
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    with WebSocket(world.one.port, "/clock", cookie) as clock:
        assert isinstance(clock.next(), AcceptConnection)
        for sent in ("an echo: é", b"\0\xff" * 40_000):
            kind = TextMessage if isinstance(sent, str) else BytesMessage
            clock.send(kind(sent))
            assert clock.message(type(sent)) == sent
        clock.send(CloseConnection(code=1000))
        while not isinstance(end := clock.next(), CloseConnection):
            pass
    assert end.code == 1000
    with WebSocket(world.one.port, "/clock", "") as stranger:
        refused = stranger.next()
    assert isinstance(refused, RejectConnection)
    assert refused.status_code in (403, 429)


class WebSocket:
    """A plain client of one WebSocket."""

    def __init__(self, port: int, target: str, cookie: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []
        headers = [(b"cookie", cookie.encode())] if cookie else []
        self.send(Request(host=f"127.0.0.1:{port}", target=target, extra_headers=headers))

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, event: Event) -> None:
        self._socket.sendall(self._protocol.send(event))

    def next(self) -> Event:
        while not self._events:
            data = self._socket.recv(65_536)
            self._protocol.receive_data(data or None)
            self._events += self._protocol.events()
        return self._events.pop(0)

    def message(self, kind: type[str] | type[bytes]) -> str | bytes:
        """Give the next whole message that is no time of day."""
        while True:
            parts: list[Any] = []
            finished = False
            while not finished:
                event = self.next()
                assert isinstance(event, Message), event
                parts.append(event.data)
                finished = event.message_finished
            whole = type(parts[0])().join(parts)
            if isinstance(whole, kind) and not (kind is str and whole[2:3] == ":"):
                return whole


def test_the_lifespan_opens_before_the_first_request_and_closes_at_the_end(
    world: Gateways,
) -> None:
    gateway = start_uvicorn(world)
    with gateway.client() as client:
        assert client.get("/__corvus/readyz").json() == {"ready": True}
    gateway.process.send_signal(signal.SIGTERM)
    gateway.process.wait(15)
    world.gateways.remove(gateway)
    log = gateway.log.read_text()
    assert gateway.process.returncode in (0, -signal.SIGTERM), log
    assert "Application shutdown complete" in log
    assert "Traceback" not in log
    assert "Error" not in log
