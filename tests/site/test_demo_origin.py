"""The demo shop as its visitors see it: pages, orders, clocks, and how it falls over."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Request, TextMessage

from corvus_site.demo.shop import EASY_S, MEMORY_S, SLOWEST_S, Mood, Shop
from tests.support.running import Running, eventually

LIMIT = 3


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    argv = ["-m", "corvus_site.demo", "--listen", f"127.0.0.1:{port}", f"--limit={LIMIT}"]
    running = Running(argv)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/healthz").status_code == 200
        except httpx.ConnectError:
            return False

    eventually(answers, what="the shop answers")
    yield address
    running.end()


def test_its_pages_are_whole_and_need_nothing_from_elsewhere(shop: str) -> None:
    with httpx.Client(base_url=shop) as client:
        for path in ("/", "/tickets", "/about", "/debug"):
            page = client.get(path)
            assert page.status_code == 200
            assert page.text.startswith("<!doctype html>")
            assert "http://" not in page.text
            assert "https://" not in page.text
        assert client.get("/nowhere").status_code == 404


def test_an_order_comes_back_as_it_was_sent_and_harmless(shop: str) -> None:
    order = {"name": "Zoë <b>&amp;", "seats": "2"}
    page = httpx.post(f"{shop}/order", data=order)
    assert page.status_code == 200
    assert "Zoë &lt;b&gt;&amp;amp;" in page.text


def test_a_chunked_order_arrives_too(shop: str) -> None:
    def parts() -> Iterator[bytes]:
        yield b"name=A"
        yield b"nn&seats=1"

    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert "Ann" in httpx.post(f"{shop}/order", content=parts(), headers=headers).text


def test_debug_shows_the_headers_that_arrived(shop: str) -> None:
    page = httpx.get(f"{shop}/debug", headers={"X-Forwarded-For": "192.0.2.7"})
    assert "192.0.2.7" in page.text


def test_a_head_has_no_body(shop: str) -> None:
    answer = httpx.head(f"{shop}/")
    assert int(answer.headers["content-length"]) > 1000
    assert answer.content == b""


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/3.0\r\n\r\n",
        b"POST /order HTTP/1.1\r\nContent-Length: minus\r\n\r\n",
        b"POST /order HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"POST /order HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_request_is_refused(shop: str, raw: bytes) -> None:
    host, port = shop.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(raw)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


def test_its_numbers_come_as_events(shop: str) -> None:
    with httpx.stream("GET", f"{shop}/events", timeout=5) as stream:
        first = next(line for line in stream.iter_lines() if line)
    assert json.loads(first.removeprefix("data: "))["limit"] == LIMIT


async def test_its_clock_ticks_and_echoes_over_a_websocket(shop: str) -> None:
    host, port = shop.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    ws = WSConnection(ConnectionType.CLIENT)
    writer.write(ws.send(Request(host=host, target="/clock", subprotocols=["tick"])))
    seen: list[object] = []
    async with asyncio.timeout(5):
        while not any(isinstance(e, TextMessage) and e.data == "hello" for e in seen):
            ws.receive_data(await reader.read(4096))
            new = list(ws.events())
            if any(isinstance(event, AcceptConnection) for event in new):
                writer.write(ws.send(TextMessage("hello")))
            seen += new
        writer.write(ws.send(CloseConnection(1000)))
        while not any(isinstance(e, CloseConnection) for e in seen):
            ws.receive_data(await reader.read(4096))
            seen += list(ws.events())
    writer.close()
    await writer.wait_closed()
    texts = [e.data for e in seen if isinstance(e, TextMessage)]
    assert any(text.count(":") == 2 for text in texts)
    accepted = next(e for e in seen if isinstance(e, AcceptConnection))
    assert accepted.subprotocol == "tick"


async def test_it_really_falls_over_and_gets_up_again(shop: str) -> None:
    async with httpx.AsyncClient(base_url=shop, timeout=20) as crowd:
        pages = [crowd.get("/") for _ in range(4 * LIMIT)]
        statuses = [answer.status_code for answer in await asyncio.gather(*pages)]
        assert 503 in statuses
        assert (await crowd.get("/load")).json()["mood"] == Mood.EASY
        assert (await crowd.get("/")).status_code == 200


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 60), st.floats(0, 5)), max_size=120))
def test_its_mood_follows_its_load(limit: int, visits: list[tuple[int, float]]) -> None:
    shop, now = Shop(limit), 0.0
    for session, pause in visits:
        now += pause
        shop.visit(f"s{session}", now)
        mood, shoppers = shop.mood(now), shop.shoppers(now)
        assert EASY_S <= shop.delay_s(now) <= SLOWEST_S
        if shoppers <= limit:
            assert (mood, shop.delay_s(now)) == (Mood.EASY, EASY_S)
        if shoppers >= 2 * limit:
            assert mood is Mood.DOWN
    assert shop.mood(now + MEMORY_S + 1) is Mood.EASY


def test_the_python_that_runs_it_loads_no_django() -> None:
    code = "import corvus_site.demo.origin, sys; sys.exit('django' in sys.modules)"
    running = Running(["-c", code])
    status, _ = running.wait()
    running.end()
    assert status == 0, sys.version
