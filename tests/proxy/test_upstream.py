"""The pooled client against raw origins: exact bytes out, every kind of answer in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.gateway.upstream import BodyMismatch, UpstreamClient
from proxy.gateway.upstream_errors import (
    OriginError,
    OriginProtocolError,
    OriginRefused,
    OriginTimeout,
    OriginTruncated,
    OriginUnreachable,
)
from proxy.gateway.upstream_messages import (
    BadHead,
    Headers,
    Origin,
    RequestHead,
    UpstreamLimits,
    parse_origin,
)
from tests.support.raw_origin import OriginConnection, RawOrigin, answering

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def get(method: bytes = b"GET", target: bytes = b"/") -> RequestHead:
    return RequestHead(method, target, [(b"host", b"shop.example")])


def post(length: int | None) -> RequestHead:
    framing = (
        (b"transfer-encoding", b"chunked")
        if length is None
        else (b"content-length", b"%d" % length)
    )
    return RequestHead(
        b"POST", b"/", [(b"host", b"shop.example"), framing], length, chunked=length is None
    )


async def parts(*given: bytes) -> AsyncIterator[bytes]:
    for part in given:
        yield part


async def whole(client: UpstreamClient, origin: Origin, head: RequestHead) -> bytes:
    response = await client.request(origin, head)
    return b"".join([part async for part in response.chunks()])


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    client = UpstreamClient()
    yield client
    await client.close()


async def test_the_head_reaches_the_origin_byte_for_byte(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        assert await connection.head() == (
            b"GET /a%2Fb/../c?x=%20&&y HTTP/1.1\r\n"
            b"host: shop.example\r\nx-a: 1\r\nx-A: \xe9\r\n\r\n"
        )
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        head = RequestHead(
            b"GET",
            b"/a%2Fb/../c?x=%20&&y",
            [(b"host", b"shop.example"), (b"x-a", b"1"), (b"x-A", b"\xe9")],
        )
        assert await whole(client, raw.origin(), head) == b"ok"


async def test_the_answer_keeps_order_case_duplicates_and_raw_bytes(client: UpstreamClient) -> None:
    answer = (
        b"HTTP/1.1 299 Rather Fine\r\nSet-Cookie: a=1\r\nX-Odd:\r\nset-cookie: b=\xff\r\n"
        b"Content-Length: 0  \r\n\r\n"
    )
    async with RawOrigin(answering(answer)) as raw:
        response = await client.request(raw.origin(), get())
    assert (response.status, response.reason, response.http_version) == (299, b"Rather Fine", "1.1")
    assert response.headers == [
        (b"Set-Cookie", b"a=1"),
        (b"X-Odd", b""),
        (b"set-cookie", b"b=\xff"),
        (b"Content-Length", b"0"),
    ]


async def test_one_connection_carries_many_exchanges(client: UpstreamClient) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    no_body = b"HTTP/1.1 204 No Content\r\n\r\n"
    unchanged = b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 2\r\n\r\n'
    async with RawOrigin(answering(OK, chunked, no_body, unchanged, OK)) as raw:
        got = [await whole(client, raw.origin(), get()) for _ in range(5)]
        assert got == [b"ok", b"ok", b"", b"", b"ok"]
        assert len(raw.connections) == 1


async def test_a_head_answer_announces_a_body_and_has_none(client: UpstreamClient) -> None:
    announced = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with RawOrigin(answering(announced, chunked, OK)) as raw:
        response = await client.request(raw.origin(), get(b"HEAD"))
        assert response.headers == [(b"Content-Length", b"5000")]
        assert await response.read() == b""
        assert await whole(client, raw.origin(), get(b"HEAD")) == b""
        assert await whole(client, raw.origin(), get()) == b"ok"
        assert len(raw.connections) == 1


async def test_a_body_after_a_head_answer_is_not_taken_for_the_next_answer(
    client: UpstreamClient,
) -> None:
    smuggled = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 38\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    )
    async with RawOrigin(answering(smuggled)) as raw:
        for number in (1, 2):
            assert await whole(client, raw.origin(), get(b"HEAD")) == b""
            assert len(raw.connections) == number


@pytest.mark.parametrize(
    "rest", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"x", b"\r\n\r\nx"]
)
async def test_bytes_after_an_answer_end_the_connection(
    client: UpstreamClient, rest: bytes
) -> None:
    async with RawOrigin(answering(OK + rest)) as raw:
        for number in (1, 2):
            assert await whole(client, raw.origin(), get()) == b"ok"
            assert len(raw.connections) == number


async def test_bytes_that_nobody_asked_for_end_an_idle_connection(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(OK)
        if connection.number == 1:
            await connection.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            await connection.ended()

    async with RawOrigin(handle) as raw:
        assert await whole(client, raw.origin(), get()) == b"ok"
        await raw.connections[0].ended()
        assert await whole(client, raw.origin(), get()) == b"ok"
        assert len(raw.connections) == 2


async def test_a_body_without_length_ends_with_the_connection(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the ")
        await connection.send(b"end")
        connection.close()

    async with RawOrigin(handle) as raw:
        for number in (1, 2):
            assert await whole(client, raw.origin(), get()) == b"until the end"
            assert len(raw.connections) == number


async def test_connection_close_is_honoured(client: UpstreamClient) -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    async with RawOrigin(answering(last)) as raw:
        for number in (1, 2):
            assert await whole(client, raw.origin(), get()) == b"ok"
            assert len(raw.connections) == number


TRUNCATED = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
]


@pytest.mark.parametrize("answer", TRUNCATED)
async def test_a_truncated_body_is_an_error_after_what_came(
    client: UpstreamClient, answer: bytes
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(answer)
        connection.close()

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), get())
        got = await response.read()
        with pytest.raises(OriginTruncated):
            await response.read()
        assert got in (b"half", b"whole", b"hal")


AMBIGUOUS = {
    "both lengths": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "both lengths, reversed": b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "repeated length": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "list of lengths": b"Content-Length: 2, 2\r\n\r\nok",
    "signed length": b"Content-Length: +2\r\n\r\nok",
    "empty length": b"Content-Length:\r\n\r\nok",
    "other coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "repeated coding": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": b"Transfer-Encoding: identity\r\n\r\nok",
    "folded line": b"A: 1\r\n Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "space before colon": b"Content-Length : 2\r\n\r\nok",
    "NUL": b"A: \0\r\nContent-Length: 2\r\n\r\nok",
    "bare CR": b"A: b\rContent-Length: 0\r\nContent-Length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("rest", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_ambiguous_framing_is_refused_and_the_connection_closed(
    client: UpstreamClient, rest: bytes
) -> None:
    async with RawOrigin(answering(b"HTTP/1.1 200 OK\r\n" + rest)) as raw:
        with pytest.raises(OriginProtocolError):
            await client.request(raw.origin(), get())
        assert await raw.connections[0].ended()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 103 Hints\r\nContent-Length: 3\r\n\r\nabc",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nHalf: a he",
    ],
)
async def test_what_is_no_answer_is_refused(client: UpstreamClient, answer: bytes) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(answer)
        connection.close()

    async with RawOrigin(handle) as raw:
        with pytest.raises(OriginProtocolError):
            await client.request(raw.origin(), get())


async def test_a_bad_chunk_inside_the_body_is_an_error_after_what_came(
    client: UpstreamClient,
) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n-1\r\n"
    async with RawOrigin(answering(answer)) as raw:
        response = await client.request(raw.origin(), get())
        assert await response.read() == b"ok"
        with pytest.raises(OriginProtocolError):
            await response.read()
        assert await raw.connections[0].ended()


@pytest.mark.parametrize("line", [b"A: " + b"x" * 70_000, b"A: 1\r\n" * 12_000])
async def test_a_response_head_over_64_kb_is_refused(client: UpstreamClient, line: bytes) -> None:
    async with RawOrigin(answering(b"HTTP/1.1 200 OK\r\n" + line)) as raw:
        with pytest.raises(OriginProtocolError):
            await client.request(raw.origin(), get())


async def test_endless_head_and_endless_trailer_are_bounded(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        if connection.number == 1:
            await connection.send(b"HTTP/1.1 200 OK\r\nA: ")
        else:
            await connection.send(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: "
            )
        while True:
            await connection.send(b"x" * 10_000)

    async with RawOrigin(handle) as raw:
        with pytest.raises(OriginProtocolError):
            await client.request(raw.origin(), get())
        response = await client.request(raw.origin(), get())
        assert await response.read() == b"ok"
        with pytest.raises(OriginProtocolError):
            await response.read()


async def test_trailers_come_after_the_body(client: UpstreamClient) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        b"2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n"
    )
    async with RawOrigin(answering(answer, OK)) as raw:
        response = await client.request(raw.origin(), get())
        assert [part async for part in response.chunks()] == [b"ok"]
        assert response.trailers == [(b"X-Sum", b"1"), (b"X-Sum", b"2")]
        assert await whole(client, raw.origin(), get()) == b"ok"
        assert len(raw.connections) == 1


async def test_early_hints_are_told_and_100_is_not(client: UpstreamClient) -> None:
    told: list[tuple[int, Headers]] = []
    answer = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
        b"HTTP/1.1 103 Early Hints\r\nLink: </b.css>\r\n\r\n"
    )
    async with RawOrigin(answering(answer + OK)) as raw:
        response = await client.request(
            raw.origin(), get(), None, lambda status, headers: told.append((status, headers))
        )
        assert told == [(103, [(b"Link", b"</a.css>")]), (103, [(b"Link", b"</b.css>")])]
        assert response.reason == b"OK"
        assert response.headers == [(b"Content-Length", b"2")]


async def test_endless_interim_answers_are_refused(client: UpstreamClient) -> None:
    async with RawOrigin(answering(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 40 + OK)) as raw:
        with pytest.raises(OriginProtocolError, match="interim"):
            await client.request(raw.origin(), get())


# Bodies to the origin.


async def test_head_and_a_whole_body_travel_together(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        first = await connection.reader.read(65_536)
        assert first.endswith(b"content-length: 4\r\n\r\nbody")
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), post(4), b"body")
        assert await response.read() == b"ok"


async def test_head_and_first_part_travel_together_then_parts_as_they_come(
    client: UpstreamClient,
) -> None:
    seen = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        await seen.wait()
        yield b"second"

    async def handle(connection: OriginConnection) -> None:
        first = await connection.reader.read(65_536)
        assert first.endswith(b"transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        seen.set()
        assert await connection.chunked() == [b"second"]
        await connection.send(OK)
        await connection.head()
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), post(None), body())
        assert await response.read() == b"ok"
        assert await whole(client, raw.origin(), get()) == b"ok"
        assert len(raw.connections) == 1


@pytest.mark.parametrize(
    ("declared", "given"), [(5, (b"1234",)), (5, (b"123", b"456")), (2, (b"123",))]
)
async def test_a_body_of_another_length_than_declared_never_ends_well(
    client: UpstreamClient, declared: int, given: tuple[bytes, ...]
) -> None:
    got: list[bytes] = []

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        got.append(await connection.reader.read())

    async with RawOrigin(handle) as raw:
        with pytest.raises(BodyMismatch):
            await client.request(raw.origin(), post(declared), parts(*given))
        with pytest.raises(BodyMismatch):
            await client.request(raw.origin(), post(declared), b"".join(given))
    assert all(len(body) < declared for body in got)


async def test_a_failing_body_closes_the_connection_and_is_told(client: UpstreamClient) -> None:
    closed = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        raise LookupError("the visitor went")

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        try:
            await connection.chunked()
        finally:
            closed.set()

    async with RawOrigin(handle) as raw:
        with pytest.raises(LookupError):
            await client.request(raw.origin(), post(None), body())
        await asyncio.wait_for(closed.wait(), 5)


async def test_an_early_refusal_stops_the_upload_and_the_connection_is_not_reused(
    client: UpstreamClient,
) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 10_000
            await asyncio.sleep(0)

    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\n"

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(refusal + b"no")
        await asyncio.sleep(0)
        await connection.send(b"!")
        if connection.number == 1:
            while await connection.reader.read(65_536):
                pass

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), post(None), endless())
        assert response.status == 413
        stopped_at = taken
        assert b"".join([part async for part in response.chunks()]) == b"no!"
        assert taken == stopped_at
        assert await whole(client, raw.origin(), get()) == b"no!"
        assert len(raw.connections) == 2


async def test_an_answer_that_ends_before_the_upload_ends_it(client: UpstreamClient) -> None:
    waiting = asyncio.Event()
    cancelled = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await waiting.wait()
        await connection.send(OK)
        await connection.reader.read()

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), post(None), body())
        assert await response.read() == b"ok"
        await asyncio.wait_for(cancelled.wait(), 5)
        assert response.complete


async def test_an_echoing_origin_streams_both_ways_at_once(client: UpstreamClient) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        for number in range(5):
            yield b"%d" % number
            assert await heard.get() == b"%d" % number

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(5):
            await connection.send(await connection.exactly(6))
        await connection.send(await connection.exactly(5))

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), post(None), body())
        async for part in response.chunks():
            heard.put_nowait(part)


# Back-pressure.


async def test_a_slow_reader_holds_the_origin_back(client: UpstreamClient) -> None:
    size = 50_000_000
    sent = 0

    async def handle(connection: OriginConnection) -> None:
        nonlocal sent
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await connection.send(bytes(100_000))
            sent += 100_000

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), get())
        before = -1
        while before != sent:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 15_000_000  # what the two kernels' socket buffers hold
        first = response.take()
        assert len(first) <= 65_536 * 2
        got = len(first)
        async for part in response.chunks():
            assert len(part) <= 65_536 * 2
            got += len(part)
        assert got == size


async def test_a_slow_origin_holds_the_visitor_back(client: UpstreamClient) -> None:
    go_on = asyncio.Event()
    given = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(500):
            given += 100_000
            yield bytes(100_000)

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await go_on.wait()
        await connection.exactly(50_000_000)
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        answer = asyncio.create_task(client.request(raw.origin(), post(50_000_000), body()))
        before = -1
        while before != given or not given:
            before = given
            await asyncio.sleep(0.05)
        assert given < 15_000_000
        go_on.set()
        assert await (await answer).read() == b"ok"


# Connections.


async def test_a_get_on_a_stale_connection_is_sent_once_more(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(OK)
        if connection.number == 1:
            await connection.head()
            connection.reset()
        await connection.head()
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        for _ in range(3):
            assert await whole(client, raw.origin(), get()) == b"ok"
        assert len(raw.connections) == 2


async def test_a_get_is_not_sent_a_third_time(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        if connection.number == 1:
            await connection.send(OK)
            await connection.head()
        connection.close()

    async with RawOrigin(handle) as raw:
        assert await whole(client, raw.origin(), get()) == b"ok"
        with pytest.raises(OriginUnreachable):
            await client.request(raw.origin(), get())
        assert len(raw.connections) == 2


async def test_a_get_on_a_new_connection_is_not_sent_again(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        connection.close()

    async with RawOrigin(handle) as raw:
        with pytest.raises(OriginUnreachable):
            await client.request(raw.origin(), get())
        assert len(raw.connections) == 1


async def test_a_get_is_not_sent_again_after_the_first_byte_of_an_answer(
    client: UpstreamClient,
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(OK)
        await connection.head()
        await connection.send(b"H")
        connection.close()

    async with RawOrigin(handle) as raw:
        assert await whole(client, raw.origin(), get()) == b"ok"
        with pytest.raises(OriginProtocolError):
            await client.request(raw.origin(), get())
        assert len(raw.connections) == 1


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"])
async def test_a_post_is_never_sent_twice(client: UpstreamClient, method: bytes) -> None:
    heads: list[bytes] = []

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(OK)
        heads.append(await connection.head())
        connection.reset()

    async with RawOrigin(handle) as raw:
        assert await whole(client, raw.origin(), get()) == b"ok"
        with pytest.raises(OriginUnreachable):
            await client.request(raw.origin(), get(method))
        assert len(heads) == 1
        assert len(raw.connections) == 1


async def test_a_get_with_a_body_is_never_sent_twice(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(OK)
        await connection.head()
        connection.reset()

    async with RawOrigin(handle) as raw:
        assert await whole(client, raw.origin(), get()) == b"ok"
        head = RequestHead(b"GET", b"/", [(b"content-length", b"1")], 1)
        with pytest.raises(OriginUnreachable):
            await client.request(raw.origin(), head, b"x")
        assert len(raw.connections) == 1


async def test_a_closed_idle_connection_is_not_used_again(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(OK)
        connection.close()

    async with RawOrigin(handle) as raw:
        assert await whole(client, raw.origin(), get()) == b"ok"
        await raw.connections[0].ended()
        response = await client.request(raw.origin(), post(1), b"x")
        assert response.status == 200
        assert len(raw.connections) == 2


async def test_a_cancelled_request_closes_the_origins_connection(client: UpstreamClient) -> None:
    arrived = asyncio.Event()
    closed = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        arrived.set()
        await connection.ended()
        closed.set()

    async with RawOrigin(handle) as raw:
        request = asyncio.create_task(client.request(raw.origin(), get()))
        await arrived.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.wait_for(closed.wait(), 5)


async def test_an_answer_given_up_closes_the_connection(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await connection.ended()

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(), get())
        await response.aclose()
        assert await raw.connections[0].ended()


async def test_a_silent_origin_is_a_timeout_and_its_connection_is_closed(
    client: UpstreamClient,
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.ended()

    async with RawOrigin(handle) as raw:
        with pytest.raises(OriginTimeout) as failed:
            await client.request(raw.origin(response_timeout_s=0.1), get())
        assert failed.value.status == 504
        assert await raw.connections[0].ended()


async def test_an_origin_that_takes_no_body_is_a_timeout(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await asyncio.Event().wait()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(100_000)

    async with RawOrigin(handle) as raw:
        with pytest.raises(OriginTimeout):
            await client.request(raw.origin(response_timeout_s=0.2), post(None), endless())


async def test_a_slow_visitor_is_not_the_origins_timeout(client: UpstreamClient) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.sleep(0.7)
        yield b"2"

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.exactly(2)
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(response_timeout_s=0.3), post(2), slow())
        assert response.status == 200


async def test_a_slow_body_is_no_timeout(client: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
        await asyncio.sleep(0.7)
        await connection.send(b"k")

    async with RawOrigin(handle) as raw:
        response = await client.request(raw.origin(response_timeout_s=0.3), get())
        assert b"".join([part async for part in response.chunks()]) == b"ok"


async def test_nobody_listening_is_refused_and_an_unknown_name_unreachable(
    client: UpstreamClient,
) -> None:
    async with RawOrigin(answering()) as raw:
        origin = raw.origin()
    with pytest.raises(OriginRefused):
        await client.request(origin, get())
    with pytest.raises(OriginUnreachable) as failed:
        await client.request(parse_origin("http://no-such-host.invalid:80"), get())
    assert failed.value.status == 502


async def test_gw_40_a_name_is_asked_again_after_a_failure() -> None:
    client = UpstreamClient(UpstreamLimits(dns_s=0.0))
    async with RawOrigin(answering(OK)) as raw:
        for _ in range(2):
            with pytest.raises(OriginError):
                await client.request(parse_origin("http://no-such-host.invalid:80"), get())
        named = parse_origin(f"http://localhost:{raw.port}")
        assert await whole(client, named, get()) == b"ok"
    await client.close()


async def test_a_full_pool_makes_requests_wait_and_serves_them_in_turn() -> None:
    client = UpstreamClient(UpstreamLimits(max_connections=2))
    busy = highest = 0

    async def handle(connection: OriginConnection) -> None:
        nonlocal busy, highest
        while True:
            await connection.head()
            busy += 1
            highest = max(highest, busy)
            await asyncio.sleep(0.01)
            busy -= 1
            await connection.send(OK)

    async with RawOrigin(handle) as raw:
        got = await asyncio.gather(*(whole(client, raw.origin(), get()) for _ in range(12)))
        assert got == [b"ok"] * 12
        assert highest == 2
        assert len(raw.connections) == 2
    await client.close()


async def test_a_pool_that_stays_full_is_a_timeout() -> None:
    client = UpstreamClient(UpstreamLimits(max_connections=1))
    arrived: asyncio.Queue[int] = asyncio.Queue()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        arrived.put_nowait(connection.number)
        await connection.ended()

    async with RawOrigin(handle) as raw:
        origin = raw.origin(connect_timeout_s=0.1)
        for number in (1, 2):  # a place given up is free again
            holder = asyncio.create_task(client.request(origin, get()))
            assert await asyncio.wait_for(arrived.get(), 5) == number
            with pytest.raises(OriginTimeout):
                await client.request(origin, get())
            holder.cancel()
            await asyncio.gather(holder, return_exceptions=True)
    await client.close()


async def test_idle_connections_are_closed_in_time() -> None:
    client = UpstreamClient(UpstreamLimits(idle_s=0.1))
    async with RawOrigin(answering(OK)) as raw:
        assert await whole(client, raw.origin(), get()) == b"ok"
        assert await asyncio.wait_for(raw.connections[0].ended(), 5)
    await client.close()


async def test_closing_the_client_ends_every_exchange() -> None:
    client = UpstreamClient()
    arrived = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        arrived.set()
        await connection.ended()

    async with RawOrigin(handle) as raw:
        request = asyncio.create_task(client.request(raw.origin(), get()))
        await arrived.wait()
        await client.close()
        with pytest.raises(OriginUnreachable):
            await request
        with pytest.raises(OriginUnreachable):
            await client.request(raw.origin(), get())


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nb", b"a\rb", b"a\0b"])
async def test_a_line_break_in_a_header_never_reaches_the_origin(
    client: UpstreamClient, value: bytes
) -> None:
    async with RawOrigin(answering(OK)) as raw:
        with pytest.raises(BadHead):
            await client.request(raw.origin(), RequestHead(b"GET", b"/", [(b"x", value)]))
        assert not raw.connections


@pytest.mark.parametrize(
    "url", ["ftp://a:1", "http://", "a:80", "http://a/path", "http://u@a", "http://a:99999"]
)
def test_an_origin_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_origin(url)


def test_an_origin_knows_its_host_header() -> None:
    assert parse_origin("http://a:80").authority == b"a"
    assert parse_origin("https://a:80").authority == b"a:80"
    assert parse_origin("http://[::1]:8080").authority == b"[::1]:8080"
