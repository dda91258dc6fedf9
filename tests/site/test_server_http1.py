"""HTTP/1.1 on the gateway's server, byte by byte, over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from corvus_site.server.head import parse_head
from corvus_site.server.limits import ServerLimits
from tests.support.raw_client import RawClient
from tests.support.server_probe import ServerProcess, eventually, serving


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[RawClient]:
    with RawClient(server.port) as raw:
        yield raw


def log(server: ServerProcess) -> list[str]:
    with RawClient(server.port) as raw:
        return json.loads(raw.get("/log").body)


def test_headers_leave_in_order_with_their_bytes_and_nothing_but_framing_is_added(client):
    answer = client.get("/headers")
    names = [name for name, _ in answer.headers]
    assert names == [
        b"X-One", b"set-cookie", b"x-ONE", b"Set-Cookie", b"Server", b"Date", b"Content-Length",
    ]  # fmt: skip
    assert answer.values(b"set-cookie") == [b"a=1", b"b=\xe9"]
    assert answer.values(b"server") == [b"origin/1"]


def test_no_server_name_is_told(client):
    assert client.get("/hello").values(b"server") == []


def test_pipelined_requests_are_answered_in_order(client):
    request = b"GET /status/%d HTTP/1.1\r\nHost: a\r\n\r\n"
    client.send(b"".join(request % status for status in (201, 202, 203, 404)))
    assert [client.answer().status for _ in range(4)] == [201, 202, 203, 404]


def test_a_request_cut_into_single_bytes_is_read(client):
    head = b"POST /whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    for byte in head + b"3\r\nabc\r\n0\r\n\r\n":
        client.send(bytes((byte,)))
    assert client.answer().body == b"abc"


def test_the_application_is_called_before_the_body_comes(server, client):
    client.send(b"POST /whole/early HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
    eventually(lambda: "begin /whole/early" in log(server))
    client.send(b"abc")
    assert client.answer().body == b"abc"


def test_a_body_streams_both_ways(client):
    client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
    client.read_until(b"\r\n\r\n")
    assert client.read_until(b"one\r\n") == b"3\r\none\r\n"
    client.send(b"3;name=value\r\ntwo\r\n0\r\nTrailer: x\r\n\r\n")
    assert client.read_until(b"0\r\n\r\n") == b"3\r\ntwo\r\n0\r\n\r\n"


def test_a_multipart_form_is_not_parsed_but_streamed(client):
    body = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'
    client.send(
        b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    assert client.answer().body == body


def test_the_head_leaves_before_a_slow_body(server, client):
    client.send(b"GET /head-first/slow HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"x-head: 1\r\n" in client.read_until(b"\r\n\r\n")
    with RawClient(server.port) as other:
        other.get("/open/slow")
    assert client.read_until(b"0\r\n\r\n") == b"4\r\nlate\r\n0\r\n\r\n"


def test_expect_continue_is_answered_when_the_body_is_asked_for(client):
    client.send(
        b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"ok")
    assert client.answer().body == b"ok"


def test_expect_continue_is_never_sent_after_an_answer(client):
    client.send(
        b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    )
    answer = client.answer()
    assert (answer.status, answer.values(b"connection")) == (200, [b"close"])
    assert client.closed()


def test_an_early_answer_to_a_big_upload_arrives_and_the_connection_closes(client):
    client.send(
        b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 300_000
    )
    answer = client.answer()
    assert (answer.body, answer.values(b"connection")) == (b"hello", [b"close"])
    assert client.closed()


def test_an_early_answer_to_a_small_upload_keeps_the_connection(client):
    client.send(b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    assert client.answer().values(b"connection") == []
    client.send(b"12345GET /status/201 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.answer().status == 201


@pytest.mark.parametrize("path", ["/silent", "/boom", "/split"])
def test_a_failing_application_gives_500_and_no_hang(client, path):
    answer = client.get(path)
    assert answer.status == 500
    assert b"evil" not in answer.head
    assert client.closed()


def test_an_answer_that_breaks_off_is_seen_as_broken(client):
    client.send(b"GET /half HTTP/1.1\r\nHost: a\r\n\r\n")
    assert not client.read_to_end().endswith(b"0\r\n\r\n")


def test_a_client_that_has_gone_cancels_the_application(server):
    with RawClient(server.port) as raw:
        raw.send(b"GET /hang/gone HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: "begin /hang/gone" in log(server))
    eventually(lambda: "cancelled /hang/gone" in log(server), 0.5)


def test_a_client_that_goes_during_an_unread_upload_is_noticed(server):
    with RawClient(server.port) as raw:
        raw.send(b"POST /hang/upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n")
        raw.send(b"x" * 120_000)
        eventually(lambda: "begin /hang/upload" in log(server))
    eventually(lambda: "cancelled /hang/upload" in log(server), 2)


def test_work_after_the_answer_outlives_the_client(server):
    with RawClient(server.port) as raw:
        assert raw.get("/after/work").body == b"answered"
    with RawClient(server.port) as other:
        other.get("/open/work")
    eventually(lambda: "end /after/work" in log(server))
    assert "cancelled /after/work" not in log(server)


def test_the_end_of_send_means_delivered(server):
    with RawClient(server.port) as raw:
        raw.send(b"GET /download/30000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        raw.read_until(b"\r\n\r\n")
        assert "delivered /download/30000000" not in log(server)
        raw.read_exactly(30_000_000)
    eventually(lambda: "delivered /download/30000000" in log(server))


@pytest.mark.parametrize(
    ("request_line", "status", "length"),
    [
        ("HEAD /status/200?length", 200, [b"5"]),
        ("HEAD /stream", 200, []),
        ("GET /status/204?length", 204, []),
        ("GET /status/304?length", 304, [b"5"]),
    ],
)
def test_answers_without_a_body_have_none(client, request_line, status, length):
    client.send(f"{request_line} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    answer = client.answer(head_request=True)
    assert (answer.status, answer.values(b"content-length")) == (status, length)
    assert answer.values(b"transfer-encoding") == []
    assert client.get("/hello").body == b"hello"


def test_early_hints_and_trailers_are_sent(client):
    client.send(b"GET /inform HTTP/1.1\r\nHost: a\r\n\r\n")
    hints = client.answer()
    assert (hints.status, hints.values(b"link")) == (103, [b"</style.css>; rel=preload"])
    assert client.answer().body == b"done"
    assert client.get("/trailers").body == b"body"
    assert client.trailers == b"x-sum: 42\r\n"


def test_http_1_0_gets_no_chunks_and_a_close(server):
    with RawClient(server.port) as raw:
        raw.send(b"GET /stream HTTP/1.0\r\n\r\n")
        answer = raw.answer()
    assert (answer.body, answer.values(b"connection")) == (b"onetwo", [b"close"])


def test_http_1_0_keeps_alive_when_asked(client):
    client.send(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert client.answer().values(b"connection") == [b"keep-alive"]
    assert client.get("/hello").status == 200


def test_the_scope_tells_the_raw_target_and_believes_no_header(client):
    client.send(
        b"GET /scope/%2F%C3%A9?a=%20&b HTTP/1.1\r\nHost: a\r\n"
        b"Daphne-Root-Path: /x\r\nX_Y: 1\r\n\r\n"
    )
    scope = eval(client.answer().body)  # noqa: S307 - our own repr
    assert scope["raw_path"] == b"/scope/%2F%C3%A9"
    assert scope["path"] == "/scope//é"
    assert scope["query_string"] == b"a=%20&b"
    assert scope["root_path"] == ""
    assert scope["extensions"]["corvus.server"] == {"target": b"/scope/%2F%C3%A9?a=%20&b"}
    assert scope["headers"] == [(b"host", b"a"), (b"daphne-root-path", b"/x")]
    assert scope["client"][0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("target", "host", "seen"),
    [
        (b"http://Example.test/x?y", b"example.test", b"/x?y"),
        (b"http://example.test:80", b"example.test", b"/"),
        (b"https://example.test?q", b"example.test:443", b"/?q"),
    ],
)
def test_an_absolute_target_that_names_the_host_becomes_a_path(target, host, seen):

    head = b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n"
    assert parse_head(head, ServerLimits()).target == seen


def test_idle_connections_end_at_once_and_running_exchanges_finish_on_sigterm():
    with serving() as server:
        with RawClient(server.port) as idle, RawClient(server.port) as busy:
            assert idle.get("/hello").status == 200
            busy.send(b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n")
            eventually(lambda: "begin /whole" in log(server))
            server.process.terminate()
            assert idle.closed()
            with pytest.raises(ConnectionRefusedError):
                eventually(lambda: RawClient(server.port).socket.close())
            busy.send(b"ok")
            answer = busy.answer()
            assert (answer.body, answer.values(b"connection")) == (b"ok", [b"close"])
            assert busy.closed()
        assert server.process.wait(5) == 0


def test_what_does_not_finish_is_cut_after_the_drain_time():
    with serving(DRAIN=1) as server, RawClient(server.port) as hanging:
        hanging.send(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: "begin /hang" in log(server))
        began = time.monotonic()
        assert server.stop() == 0
        assert 0.9 < time.monotonic() - began < 5
