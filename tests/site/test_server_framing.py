"""Ambiguous or malformed requests: 400 (or what fits), closed, never seen by the application."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corvus_site.server.chunks import ChunkedBody
from corvus_site.server.head import CHUNKED, Refused, RequestHead, check_unfinished, parse_head
from corvus_site.server.limits import ServerLimits
from tests.support.raw_client import RawClient
from tests.support.server_probe import ServerProcess, serving

CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"
POST = b"POST /seen HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /seen HTTP/1.1\r\n"

REFUSED: dict[str, bytes] = {
    "both lengths": POST + b"Content-Length: 3\r\n" + CHUNKS + b"0\r\n\r\n",
    "length repeated": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "lengths that differ": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "length with a plus": POST + b"Content-Length: +3\r\n\r\nabc",
    "length list": POST + b"Content-Length: 3,3\r\n\r\nabc",
    "length with junk": POST + b"Content-Length: 3 4\r\n\r\nabc",
    "length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "length negative": POST + b"Content-Length: -3\r\n\r\nabc",
    "length empty": POST + b"Content-Length: \r\n\r\n",
    "length huge": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "length in other digits": POST + "Content-Length: ٣\r\n\r\nabc".encode(),
    "coding unknown": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding list": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding twice": POST + b"Transfer-Encoding: chunked\r\n" + CHUNKS + b"0\r\n\r\n",
    "coding doubled": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "coding identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "coding empty": POST + b"Transfer-Encoding:\r\n\r\n",
    "coding with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "coding on 1.0": b"POST /seen HTTP/1.0\r\nHost: a\r\n" + CHUNKS + b"0\r\n\r\n",
    "folded header": POST + b"X: 1\r\n 2\r\n\r\n",
    "folded first header": b"GET /seen HTTP/1.1\r\n Host: a\r\n\r\n",
    "folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "space before colon": POST + b"Content-Length : 3\r\n\r\nabc",
    "NUL in a value": POST + b"X: a\0b\r\n\r\n",
    "bare CR in a value": POST + b"X: a\rContent-Length: 3\r\n\r\n",
    "bare LF in a head": b"GET /seen HTTP/1.1\nHost: a\n\n",
    "bare LF between headers": POST + b"X: 1\nY: 2\r\n\r\n",
    "empty name": POST + b": x\r\n\r\n",
    "no colon": POST + b"Garbage\r\n\r\n",
    "name with a space": POST + b"Bad Name: 1\r\n\r\n",
    "name beyond ASCII": POST + b"\xc3\xa9: 1\r\n\r\n",
    "no Host": GET + b"\r\n",
    "two Hosts": GET + b"Host: a\r\nHost: a\r\n\r\n",
    "empty Host": GET + b"Host:\r\n\r\n",
    "Host with a path": GET + b"Host: a/b\r\n\r\n",
    "Host with a user": GET + b"Host: u@a\r\n\r\n",
    "Host with a comma": GET + b"Host: a,b\r\n\r\n",
    "Host with a bad port": GET + b"Host: a:8x\r\n\r\n",
    "two spaces in the line": b"GET  /seen HTTP/1.1\r\nHost: a\r\n\r\n",
    "tab in the line": b"GET\t/seen HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /seen\r\nHost: a\r\n\r\n",
    "space in the target": b"GET /seen x HTTP/1.1\r\nHost: a\r\n\r\n",
    "target beyond ASCII": b"GET /seen\xe9 HTTP/1.1\r\nHost: a\r\n\r\n",
    "fragment": b"GET /seen#x HTTP/1.1\r\nHost: a\r\n\r\n",
    "relative target": b"GET seen HTTP/1.1\r\nHost: a\r\n\r\n",
    "asterisk with GET": b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    "other authority": b"GET http://other/seen HTTP/1.1\r\nHost: a\r\n\r\n",
    "authority with a user": b"GET http://u@a/seen HTTP/1.1\r\nHost: a\r\n\r\n",
    "other scheme": b"GET ftp://a/seen HTTP/1.1\r\nHost: a\r\n\r\n",
    "chunk size with junk": POST + CHUNKS + b"3x\r\nabc\r\n0\r\n\r\n",
    "chunk size in 0x": POST + CHUNKS + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size negative": POST + CHUNKS + b"-3\r\nabc\r\n0\r\n\r\n",
    "chunk size empty": POST + CHUNKS + b"\r\nabc\r\n0\r\n\r\n",
    "chunk size huge": POST + CHUNKS + b"f" * 17 + b"\r\n",
    "chunk size with bare LF": POST + CHUNKS + b"3\nabc\r\n0\r\n\r\n",
    "chunk extension overlong": POST + CHUNKS + b"3;" + b"x" * 400 + b"\r\nabc\r\n0\r\n\r\n",
    "chunk longer than said": POST + CHUNKS + b"3\r\nabcd\r\n0\r\n\r\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving(
        MAX_BODY=1000, MAX_HEADER_BYTES=2000, MAX_HEADERS=20, MAX_URL=300, IDLE_TIMEOUT=60
    ) as process:
        yield process


def log(server: ServerProcess) -> list[str]:
    with RawClient(server.port) as raw:
        return json.loads(raw.get("/log").body)


@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_request_is_400_and_closed(server, name):
    with RawClient(server.port, timeout=2) as raw:
        raw.send(REFUSED[name] + b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = raw.answer()
        assert (answer.status, answer.values(b"connection")) == (400, [b"close"])
        assert raw.closed()
    assert [line for line in log(server) if "/seen" in line or "/smuggled" in line] == []


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /seen HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405),
        (b"GET /seen HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417),
        (b"GET /" + b"x" * 300 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /" + b"x" * 3000, 414),
        (b"GET /seen HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2000 + b"\r\n\r\n", 431),
        (b"GET /seen HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2000, 431),
        (b"GET /seen HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 20 + b"\r\n", 431),
        (POST + b"Content-Length: 1001\r\n\r\n", 413),
    ],
)
def test_a_limit_or_version_has_its_own_status(server, data, status):
    with RawClient(server.port, timeout=2) as raw:
        raw.send(data)
        assert raw.answer().status == status
        assert raw.closed()
    assert [line for line in log(server) if "/seen" in line] == []


def test_a_chunked_body_over_the_limit_is_413_while_it_is_counted(server):
    with RawClient(server.port, timeout=2) as raw:
        raw.send(b"POST /whole HTTP/1.1\r\nHost: a\r\n" + CHUNKS)
        raw.send((b"190\r\n" + b"x" * 400 + b"\r\n") * 3)
        assert raw.answer().status == 413
        assert raw.closed()


def test_a_refusal_survives_data_that_nobody_reads(server):
    with RawClient(server.port, timeout=2) as raw:
        raw.send(b"GET /seen\r\n\r\n" + b"x" * 200_000)
        assert raw.answer().status == 400


def test_asterisk_with_options_reaches_the_application():
    head = parse_head(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n", ServerLimits())
    assert (head.method, head.target) == ("OPTIONS", b"*")


LINES = st.sampled_from(
    [
        b"Host: a", b"Host: b", b"host: a:80", b"Content-Length: 3", b"content-length: 3",
        b"Content-Length: 4", b"Content-Length: +3", b"Content-Length:3,3", b"Content-Length : 3",
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: Chunked", b"TRANSFER-ENCODING:gzip",
        b"Transfer-Encoding: gzip, chunked", b" folded", b"\tfolded", b"X: 1", b"X: \0", b"X: \r",
        b"X\n: 1", b"X", b": 1", b"Content_Length: 9", b"X: 1\nContent-Length: 9", b"X: \x80",
    ]
)  # fmt: skip


def accepted(head: bytes) -> RequestHead | None:
    try:
        check_unfinished(head, ServerLimits())
        return parse_head(head, ServerLimits())
    except Refused:
        return None


@given(
    st.lists(LINES, max_size=6),
    st.sampled_from([b"1.0", b"1.1"]),
    st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=2)), max_size=3),
)
@example([b"Host: a", b"Content-Length: 3", b"Transfer-Encoding: chunked"], b"1.1", [])
def test_no_head_is_both_accepted_and_ambiguous(lines, version, changes):
    head = b"".join(line + b"\r\n" for line in [b"POST /x HTTP/" + version, *lines])
    for at, data in changes:
        place = at % len(head)
        head = head[:place] + data + head[place + 1 :]
    request = accepted(head)
    if request is None:
        return
    # read again by the most lenient reader one can think of: it must find the same
    text = head.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    fields = [line.split(b":", 1) for line in text.split(b"\n")[1:] if line]
    assert all(len(field) == 2 for field in fields)
    named: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        named.setdefault(name.strip().lower(), []).append(value.strip())
    assert not text.split(b"\n", 1)[1].startswith((b" ", b"\t"))
    lengths, codings = named.get(b"content-length", []), named.get(b"transfer-encoding", [])
    assert len(lengths) + len(codings) <= 1
    if codings:
        assert request.length == CHUNKED
        assert [coding.lower() for coding in codings] == [b"chunked"]
    else:
        assert request.length == (int(lengths[0]) if lengths else 0)
    assert len(named.get(b"host", [])) == 1 or not request.http11
    assert not any(b"_" in name for name, _ in request.headers)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.binary(max_size=10),
)
def test_a_chunked_body_is_the_same_however_it_is_cut(parts, cuts, rest):
    wire = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n" + rest
    body = ChunkedBody(ServerLimits())
    found, at, turn = b"", 0, 0
    while not body.done:
        size = cuts[turn % len(cuts)]
        found += body.feed(wire[at : at + size])
        at, turn = at + size, turn + 1
    assert found == b"".join(parts)
    assert body.rest + wire[at:] == rest


@given(st.binary(max_size=60))
def test_no_bytes_crash_the_chunk_decoder(data):
    with contextlib.suppress(Refused):
        ChunkedBody(ServerLimits()).feed(data)


def test_random_conversations_break_nothing(server):
    """Cut, repeat and spoil valid conversations; the server must answer on and log no failure."""
    chance = random.Random(7)
    stock = [
        b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
        POST.replace(b"/seen", b"/whole") + b"Content-Length: 5\r\n\r\nhello",
        POST.replace(b"/seen", b"/echo") + CHUNKS + b"5\r\nhello\r\n0\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"\x81\x85\0\0\0\0hello\x88\x80\0\0\0\0",
        b"HEAD /stream HTTP/1.0\r\n\r\n",
    ]
    for _ in range(300):
        data = bytearray(b"".join(chance.choices(stock, k=3)))
        for _ in range(chance.randrange(3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with RawClient(server.port) as raw, contextlib.suppress(ConnectionError):
            at = chance.randrange(len(data))
            raw.send(bytes(data[:at]))
            raw.send(bytes(data[at:]))
            if chance.random() < 0.5:
                raw.socket.recv(chance.randrange(1, 300))
    with RawClient(server.port) as raw:
        assert raw.get("/hello").body == b"hello"
    assert server.errors().replace("INFO", "") == ""
