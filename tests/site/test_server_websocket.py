"""WebSockets on the gateway's server, over real sockets, with wsproto as the client's side."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import (
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    Pong,
    TextMessage,
)

from tests.support.raw_client import Answer, RawClient
from tests.support.server_probe import ServerProcess, eventually, serving

MIB = 1024 * 1024
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


class Socket:
    """One WebSocket client."""

    def __init__(self, server: ServerProcess, path: str, *lines: bytes) -> None:
        self.raw = RawClient(server.port)
        self.raw.send(handshake(path, *lines))
        self.answer: Answer = self.raw.answer()
        self.frames = Connection(ConnectionType.CLIENT, trailing_data=self.raw.held())
        self.events: list[Event] = []

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.socket.close()

    def send(self, event: Event) -> None:
        self.raw.send(self.frames.send(event))

    def event(self) -> Event:
        self.events += list(self.frames.events())
        while not self.events:
            self.frames.receive_data(self.raw.socket.recv(1 << 18) or None)
            self.events += list(self.frames.events())
        return self.events.pop(0)

    def message(self) -> str | bytes:
        parts = []
        while True:
            event = self.event()
            assert isinstance(event, Message), event
            parts.append(event.data)
            if event.message_finished:
                return type(parts[0])().join(parts)


def handshake(path: str, *lines: bytes, version: bytes = b"13", key: bytes = KEY) -> bytes:
    return b"\r\n".join(
        [
            b"GET %b HTTP/1.1" % path.encode(),
            b"Host: a",
            b"Upgrade: WebSocket",
            b"Connection: keep-alive, Upgrade",
            b"Sec-WebSocket-Version: " + version,
            b"Sec-WebSocket-Key: " + key,
            *lines,
            b"\r\n",
        ]
    )


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving(WRITE_TIMEOUT=1) as process:
        yield process


def log(server: ServerProcess) -> list[str]:
    with RawClient(server.port) as raw:
        return json.loads(raw.get("/log").body)


def test_gw_01_an_upgrade_echoes_both_kinds_of_message(server):
    with Socket(server, "/echo") as ws:
        assert ws.answer.status == 101
        assert ws.answer.values(b"sec-websocket-accept") == [b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]
        ws.send(TextMessage("grüße"))
        assert ws.message() == "grüße"
        ws.send(BytesMessage(b"\0\1"))
        assert ws.message() == b"\0\1"
        ws.send(TextMessage(""))
        assert ws.message() == ""


def test_a_sub_protocol_is_offered_and_chosen(server):
    with Socket(server, "/echo", b"Sec-WebSocket-Protocol: one, two") as ws:
        assert ws.answer.values(b"sec-websocket-protocol") == [b"two"]


def test_a_message_sent_with_the_handshake_is_not_lost(server):
    with RawClient(server.port) as raw:
        frames = Connection(ConnectionType.CLIENT)
        raw.send(handshake("/echo") + frames.send(TextMessage("early")))
        raw.answer()
        assert raw.read_exactly(7) == b"\x81\x05early"


def test_a_small_message_in_frames_arrives_whole(server):
    with Socket(server, "/echo") as ws:
        before = log(server).count("piece False")
        for part in ("a", "b", "c"):
            ws.send(TextMessage(part, message_finished=part == "c"))
        assert ws.message() == "abc"
        assert log(server).count("piece False") == before + 1


def test_a_long_text_travels_in_pieces_cut_between_characters(server):
    text = "日本語" * 100_000
    with Socket(server, "/echo") as ws:
        ws.raw.socket.settimeout(20)
        ws.send(TextMessage(text))
        assert ws.message() == text
    assert "piece True" in log(server)


def test_a_ping_is_answered(server):
    with Socket(server, "/echo") as ws:
        ws.send(Ping(b"hello"))
        event = ws.event()
        assert isinstance(event, Pong)
        assert event.payload == b"hello"


def test_a_clients_close_code_reaches_the_application_and_is_answered(server):
    with Socket(server, "/echo") as ws:
        ws.send(CloseConnection(4005, "enough"))
        event = ws.event()
        assert isinstance(event, CloseConnection)
        assert event.code == 4005
        eventually(lambda: "disconnect 4005 enough" in log(server))
        assert ws.raw.closed()


def test_the_applications_close_code_reaches_the_client(server):
    with Socket(server, "/close") as ws:
        event = ws.event()
        assert isinstance(event, CloseConnection)
        assert (event.code, event.reason) == (4001, "bye")
        ws.send(event.response())
        assert ws.raw.closed()


def test_a_client_that_vanishes_is_1006(server):
    before = log(server).count("disconnect 1006 ")
    with Socket(server, "/echo"):
        pass
    eventually(lambda: log(server).count("disconnect 1006 ") == before + 1)


def test_a_failing_application_closes_with_1011(server):
    with Socket(server, "/boom") as ws:
        event = ws.event()
        assert isinstance(event, CloseConnection)
        assert event.code == 1011


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),  # not UTF-8
        (b"\x81\x02hi", 1002),  # not masked
        (b"\xf1\x80\0\0\0\0", 1002),  # reserved bits
        (b"\x80\x80\0\0\0\0", 1002),  # continues nothing
    ],
)
def test_a_violation_closes_with_its_code(server, frame, code):
    with Socket(server, "/echo") as ws:
        ws.raw.send(frame)
        event = ws.event()
        assert isinstance(event, CloseConnection)
        assert event.code == code
        assert ws.raw.closed()


def test_a_refusal_is_403_and_a_denial_is_the_applications_answer(server):
    with Socket(server, "/forbid") as ws:
        assert ws.answer.status == 403
    with Socket(server, "/deny") as ws:
        assert (ws.answer.status, ws.answer.body) == (429, b"later")
        assert ws.answer.values(b"X-Why") == [b"full"]
        assert ws.raw.closed()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (handshake("/echo", version=b"8"), 426),
        (handshake("/echo", key=b"short"), 400),
        (handshake("/echo", b"Sec-WebSocket-Key: " + KEY), 400),
        (handshake("/echo", b"Content-Length: 1") + b"x", 400),
        (handshake("/echo").replace(b"GET", b"POST"), 400),
    ],
)
def test_a_bad_handshake_is_refused(server, data, status):
    with RawClient(server.port) as raw:
        raw.send(data)
        assert raw.answer().status == status
        assert raw.closed()


def test_an_upgrade_to_something_else_is_ignored(server):
    with RawClient(server.port) as raw:
        assert raw.get("/hello", "Connection: Upgrade", "Upgrade: h2c").body == b"hello"


def test_a_huge_message_to_a_slow_application_waits_outside_the_process(server):
    with Socket(server, "/wait/huge") as ws:
        before = server.rss_bytes()
        data = ws.frames.send(BytesMessage(b"z" * (40 * MIB)))
        ws.raw.socket.setblocking(False)
        sent = 0
        view = memoryview(data)

        def stuck() -> bool:
            nonlocal sent
            try:
                sent += ws.raw.socket.send(view[sent : sent + MIB])
            except BlockingIOError:
                return True
            return False

        eventually(stuck)
        assert sent < 20 * MIB
        with RawClient(server.port) as other:
            other.get("/open/huge")
        ws.raw.socket.settimeout(20)
        highest = 0
        while sent < len(data):
            sent += ws.raw.socket.send(view[sent : sent + MIB])
            highest = max(highest, server.rss_bytes())
        assert ws.message() == str(40 * MIB)
        assert highest - before < 16 * MIB


def test_a_flood_of_empty_messages_to_a_slow_application_waits_outside_the_process(server):
    with Socket(server, "/wait/empty") as ws:
        before = server.rss_bytes()
        data = ws.frames.send(BytesMessage(b"")) * 100_000
        ws.raw.socket.setblocking(False)
        sent = 0

        def stuck() -> bool:
            nonlocal sent
            try:
                sent += ws.raw.socket.send(data[: MIB // 6 * 6])
            except BlockingIOError:
                return True
            assert sent < 20 * MIB, "each of them holds fifty times its size in memory"
            return False

        eventually(stuck)
        assert server.rss_bytes() - before < 16 * MIB


def test_empty_fragments_of_one_message_are_not_hoarded(server):
    with Socket(server, "/echo") as ws:
        ws.send(BytesMessage(b"a", message_finished=False))
        before = server.rss_bytes()
        for _ in range(20):
            ws.raw.send(ws.frames.send(BytesMessage(b"", message_finished=False)) * 10_000)
        ws.send(BytesMessage(b"z", message_finished=True))
        assert ws.message() == b"az"
        assert server.rss_bytes() - before < 4 * MIB


def test_a_client_that_takes_nothing_is_dropped(server):
    def gone() -> int:
        return log(server).count("oserror /echo") + log(server).count("disconnect 1006 ")

    before = gone()
    with Socket(server, "/echo") as ws:
        data = ws.frames.send(BytesMessage(b"z" * MIB))

        def dropped() -> bool:
            try:
                ws.raw.send(data)
            except (ConnectionResetError, BrokenPipeError):
                return True
            return False

        eventually(dropped)
    eventually(lambda: gone() > before)


def test_open_sockets_are_closed_with_1001_when_the_drain_time_is_over():
    with serving(DRAIN=1) as server, Socket(server, "/echo") as ws:
        server.process.terminate()
        ws.send(TextMessage("still here"))
        assert ws.message() == "still here"
        event = ws.event()
        assert isinstance(event, CloseConnection)
        assert event.code == 1001
        assert server.process.wait(5) == 0
