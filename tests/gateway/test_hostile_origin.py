"""An origin that misbehaves harms its own answers, and neither the line nor the log."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.gateways import BROWSER, Gateways, place_of


@contextmanager
def origin_that_sends(answer: bytes) -> Iterator[str]:
    """Serve these bytes to whoever asks, and close."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(answer)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_an_origin_cannot_set_or_delete_the_cookies_that_hold_a_place(world: Gateways) -> None:
    room = world.room(capacity=1)
    world.publish(room)
    name = f"corvus_{room.id}"
    with world.one.browser() as inside:
        inside.get("/")
        mine = inside.cookies[name]
        world.origin.answer_headers = [
            ("Set-Cookie", f"{name}=v2.evil; Path=/"),
            ("Set-Cookie", f"{name}=; Max-Age=0"),
            ("Set-Cookie", "session=1; Path=/"),
        ]
        answer = inside.get("/account")
        assert answer.headers.get_list("set-cookie") == ["session=1; Path=/"]
        assert inside.cookies[name] == mine
        session = inside.get(f"/__corvus/wr/{room.id}/session").json()
        assert session["state"] == "active"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n",
    ],
)
def test_an_origin_that_dies_in_its_answers_does_not_flood_the_log(
    world: Gateways, answer: bytes
) -> None:
    with origin_that_sends(answer) as url:
        world.publish(origin=url)
        before = len(world.one.log.read_text())
        with world.one.client() as client:
            for _ in range(5):
                with pytest.raises(httpx.RemoteProtocolError):
                    client.get("/", headers=BROWSER)
        said = world.one.log.read_text()[before:]
    assert said.count("origin failed within its answer") == 5
    assert "Traceback" not in said


def test_a_place_survives_an_origin_that_answers_nonsense(world: Gateways) -> None:
    room = world.room(capacity=1)
    with origin_that_sends(b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n") as url:
        world.publish(room, origin=url)
        with world.one.browser() as inside, world.one.browser() as waiting:
            assert inside.get("/").status_code == 502
            waiting.get("/")
            status = waiting.get(f"/__corvus/wr/{room.id}/status")
            assert place_of(status) == ("waiting", 1)
