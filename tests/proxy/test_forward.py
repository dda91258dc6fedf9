"""Whole exchanges: ASGI events on one side, a raw origin on the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from proxy.gateway.forward import AnswerCut, Ended, Outcome, forward
from proxy.gateway.headers import CorvusHeaders, Sender, origin_head
from proxy.gateway.running import StopSignal
from proxy.gateway.upstream import BodyMismatch, UpstreamClient
from proxy.gateway.upstream_errors import OriginTimeout, OriginTruncated, OriginUnreachable
from proxy.gateway.upstream_messages import Header, Headers, Origin
from tests.support.asgi_driver import Conversation, http_scope, request_body
from tests.support.raw_origin import OriginConnection, RawOrigin, answering

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HOST = (b"host", b"shop.example")
PLAIN: dict[str, Any] = {}
"""What a server without extensions offers."""


@pytest.fixture
async def upstream() -> AsyncIterator[UpstreamClient]:
    upstream = UpstreamClient()
    yield upstream
    await upstream.close()


def gateway(
    upstream: UpstreamClient,
    origin: Origin,
    extra: tuple[Header, ...] = (),
    told: Callable[[int, CorvusHeaders], Headers | None] | None = None,
    **more: Any,
) -> Any:
    """Give the smallest application around `forward`."""

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> Outcome:
        query = scope["query_string"]
        head = origin_head(
            method=scope["method"].encode(),
            target=scope["raw_path"] + (b"?" + query if query else b""),
            headers=scope["headers"],
            sender=Sender(
                peer="203.0.113.9", client="203.0.113.9", trusted=False, scheme=scope["scheme"]
            ),
            undeclared_body=scope["http_version"] == "2",
        )
        return await forward(
            scope=scope,
            receive=receive,
            send=send,
            origin=origin,
            head=head,
            upstream=upstream,
            extra_headers=extra,
            on_origin_headers=told,
            **more,
        )

    return app


async def test_the_origin_gets_the_request_and_the_visitor_the_answer(
    upstream: UpstreamClient,
) -> None:
    async def handle(connection: OriginConnection) -> None:
        assert await connection.head() == (
            b"GET /a%2Fb/../c;v=1?q=%zz&&a HTTP/1.1\r\n"
            b"host: shop.example\r\naccept: a\r\ncookie: sid=1\r\naccept: b\r\n"
            b"x-forwarded-for: 203.0.113.9\r\nx-forwarded-proto: https\r\n"
            b"x-forwarded-host: shop.example\r\nx-real-ip: 203.0.113.9\r\n"
            b'forwarded: for=203.0.113.9;host="shop.example";proto=https\r\n\r\n'
        )
        await connection.send(
            b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nKeep-Alive: timeout=5\r\nCorvus-Secret: x\r\n"
            b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nSet-Cookie: b=2\r\n"
            b"Content-Length: 2\r\n\r\nok"
        )

    async with RawOrigin(handle) as raw:
        scope = http_scope(
            target=b"/a%2Fb/../c;v=1?q=%zz&&a",
            headers=[
                HOST,
                (b"accept", b"a"),
                (b"cookie", b"sid=1; corvus_main=v2.x"),
                (b"accept", b"b"),
                (b"x-forwarded-for", b"6.6.6.6"),
                (b"corvus-priority", b"staff"),
            ],
            scheme="https",
        )
        talk = Conversation(gateway(upstream, raw.origin()), scope)
        assert await talk.result() == Outcome(200, 2, Ended.DELIVERED)
    assert talk.headers == [
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"content-length", b"2"),
    ]
    assert talk.body == b"ok"
    assert [event["type"] for event in talk.sent] == ["http.response.start", "http.response.body"]


async def test_what_the_origin_tells_the_gateway_is_heard_and_hidden(
    upstream: UpstreamClient,
) -> None:
    heard: list[tuple[int, CorvusHeaders]] = []

    def told(status: int, said: CorvusHeaders) -> Headers:
        heard.append((status, said))
        return [(b"set-cookie", b"corvus_rank_main=x")]

    answer = (
        b"HTTP/1.1 201 Created\r\nCorvus-Session: revoke\r\nCORVUS-Priority:  checkout \r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    async with RawOrigin(answering(answer)) as raw:
        talk = Conversation(gateway(upstream, raw.origin(), told=told), http_scope())
        await talk.result()
    assert heard == [(201, CorvusHeaders(revoke=True, priority="checkout"))]
    assert not [name for name, _ in talk.headers if name.startswith(b"corvus-")]
    assert (b"set-cookie", b"corvus_rank_main=x") in talk.headers


async def test_no_corvus_line_reaches_a_visitor_by_hints_or_trailers(
    upstream: UpstreamClient,
) -> None:
    answer = (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nCorvus-Priority: staff\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTrailer: X-Sum, Corvus-Session\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nok\r\n0\r\nX-Sum: 7\r\nCorvus-Session: revoke\r\nCorvus-Priority: staff\r\n\r\n"
    )
    heard: list[CorvusHeaders] = []
    async with RawOrigin(answering(answer)) as raw:
        app = gateway(upstream, raw.origin(), told=lambda _, said: heard.append(said))
        talk = Conversation(app, http_scope())
        await talk.result()
    told = [line for event in talk.sent for line in event.get("headers", ())]
    assert (b"x-sum", b"7") in told
    assert (b"link", b"</a>") in told
    assert not [name for name, _ in told if name.startswith(b"corvus-")]
    assert heard == [CorvusHeaders()], "what comes too late or too early counts for nothing"


CACHEABLE = (
    b"HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\nETag: W/1\r\nExpires: x\r\n"
    b"CDN-Cache-Control: max-age=9\r\nVary: Accept-Encoding\r\nContent-Length: 0\r\n\r\n"
)


async def test_wr_41_a_page_with_our_cookie_is_uncacheable(upstream: UpstreamClient) -> None:
    async with RawOrigin(answering(CACHEABLE)) as raw:
        cookie = (b"set-cookie", b"corvus_main=v2.x")
        talk = Conversation(gateway(upstream, raw.origin(), (cookie,)), http_scope())
        await talk.result()
    assert talk.headers == [
        (b"vary", b"Accept-Encoding"),
        (b"content-length", b"0"),
        (b"cache-control", b"no-store, private"),
        (b"vary", b"Cookie, Accept"),
        cookie,
    ]


async def test_wr_41_without_our_cookie_the_origins_caching_rules_stay(
    upstream: UpstreamClient,
) -> None:
    async with RawOrigin(answering(CACHEABLE)) as raw:
        extra = (b"x-corvus-decision", b"pass")
        talk = Conversation(gateway(upstream, raw.origin(), (extra,)), http_scope())
        await talk.result()
    assert talk.headers == [
        (b"cache-control", b"public, max-age=60"),
        (b"etag", b"W/1"),
        (b"expires", b"x"),
        (b"cdn-cache-control", b"max-age=9"),
        (b"vary", b"Accept-Encoding"),
        (b"content-length", b"0"),
        extra,
    ]


@pytest.mark.parametrize("extensions", [None, PLAIN], ids=["own server", "plain server"])
async def test_each_event_of_a_stream_reaches_the_visitor_before_the_next(
    upstream: UpstreamClient, extensions: dict[str, Any] | None
) -> None:
    seen = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(3):
            await connection.send(b"data: x\n\n")
            await seen.wait()
            seen.clear()
        connection.close()

    async with RawOrigin(handle) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope(extensions=extensions))
        await talk.hears("http.response.start")
        for _ in range(3):
            event = await talk.hears("http.response.body")
            assert (event["body"], event["more_body"]) == (b"data: x\n\n", True)
            seen.set()
        assert (await talk.hears("http.response.body"))["more_body"] is False
        assert (await talk.result()).ended is Ended.DELIVERED


@pytest.mark.parametrize("extensions", [None, PLAIN], ids=["own server", "plain server"])
@pytest.mark.parametrize("chunked", [True, False])
async def test_an_upload_reaches_the_origin_part_by_part(
    upstream: UpstreamClient, extensions: dict[str, Any] | None, chunked: bool
) -> None:
    arrived = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        head = await connection.head()
        if chunked:
            assert b"\r\ntransfer-encoding: chunked\r\n" in head
            assert b"content-length" not in head
            assert await connection.exactly(10) == b"5\r\nfirst\r\n"
            arrived.set()
            assert await connection.chunked() == [b"second"]
        else:
            assert b"\r\ncontent-length: 11\r\n" in head
            assert await connection.exactly(5) == b"first"
            arrived.set()
            assert await connection.exactly(6) == b"second"
        await connection.send(OK)

    framing = (b"transfer-encoding", b"chunked") if chunked else (b"content-length", b"11")
    async with RawOrigin(handle) as raw:
        scope = http_scope("POST", headers=[HOST, framing], extensions=extensions)
        talk = Conversation(gateway(upstream, raw.origin()), scope)
        talk.say({"type": "http.request", "body": b"first", "more_body": True})
        await asyncio.wait_for(arrived.wait(), 5)
        talk.say({"type": "http.request", "body": b"", "more_body": True})
        talk.say({"type": "http.request", "body": b"second", "more_body": False})
        assert await talk.result() == Outcome(200, 2, Ended.DELIVERED)


async def test_expect_is_answered_by_the_server_and_not_forwarded(upstream: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        assert b"expect" not in (await connection.head()).lower()
        assert await connection.exactly(4) == b"body"
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        lines = [HOST, (b"expect", b"100-continue"), (b"content-length", b"4")]
        scope = http_scope("PUT", headers=lines)
        talk = Conversation(gateway(upstream, raw.origin()), scope, request_body(b"body"))
        assert (await talk.result()).status == 200


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n"),
    ],
)
async def test_answers_without_a_body_keep_their_headers(
    upstream: UpstreamClient, method: str, answer: bytes
) -> None:
    async with RawOrigin(answering(answer, OK)) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope(method))
        assert (await talk.result()).body_bytes == 0
        assert talk.ended_cleanly
        assert (b"content-length", b"500") in talk.headers or b"204" in answer
        again = Conversation(gateway(upstream, raw.origin()), http_scope())
        assert (await again.result()).body_bytes == 2
        assert len(raw.connections) == 1


async def test_early_hints_reach_the_visitor_before_the_answer(upstream: UpstreamClient) -> None:
    go_on = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nCorvus-X: 1\r\n\r\n")
        await go_on.wait()
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope())
        hints = await talk.hears("http.response.informational")
        assert (hints["status"], hints["headers"]) == (103, [(b"link", b"</a>")])
        go_on.set()
        await talk.hears("http.response.start")
        plain = Conversation(gateway(upstream, raw.origin()), http_scope(extensions=PLAIN))
        await plain.hears("http.response.start")
        await asyncio.gather(talk.result(), plain.result())


async def test_trailers_are_delivered_where_the_server_can(upstream: UpstreamClient) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nok\r\n0\r\nX-Sum: 7\r\nConnection: x\r\n\r\n"
    )
    async with RawOrigin(answering(answer, answer)) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope())
        await talk.result()
        assert talk.sent[0]["trailers"] is True
        assert talk.headers == [(b"trailer", b"X-Sum")]
        assert talk.sent[-1] == {
            "type": "http.response.trailers",
            "headers": [(b"x-sum", b"7")],
        }
        plain = Conversation(gateway(upstream, raw.origin()), http_scope(extensions=PLAIN))
        await plain.result()
        assert plain.headers == []
        assert "trailers" not in plain.sent[0]
        assert plain.body == b"ok"


@pytest.mark.parametrize(
    ("method", "parts", "framing", "body"),
    [
        ("POST", [b"all"], b"content-length: 3", b"all"),
        ("POST", [b""], b"content-length: 0", b""),
        ("DELETE", [b""], b"", b""),
        ("DELETE", [b"x"], b"content-length: 1", b"x"),
        ("PUT", [b"", b"a", b"b"], b"transfer-encoding: chunked", b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
    ],
)
async def test_a_body_without_declared_length_gets_the_framing_that_it_needs(
    upstream: UpstreamClient, method: str, parts: list[bytes], framing: bytes, body: bytes
) -> None:
    async def handle(connection: OriginConnection) -> None:
        head = await connection.head()
        assert (b"content-length" in head or b"transfer-encoding" in head) is bool(framing)
        assert framing in head
        assert await connection.exactly(len(body)) == body
        await connection.send(OK)
        await connection.ended()

    async with RawOrigin(handle) as raw:
        scope = http_scope(method, http_version="2")
        talk = Conversation(gateway(upstream, raw.origin()), scope, request_body(*parts))
        assert await talk.result() == Outcome(200, 2, Ended.DELIVERED)
        await upstream.close()


# How exchanges fail.


async def test_a_failure_before_the_headers_leaves_the_visitor_unanswered(
    upstream: UpstreamClient,
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        if connection.number == 1:
            connection.close()
        await connection.ended()

    async with RawOrigin(handle) as raw:
        origin = raw.origin(response_timeout_s=0.1)
        for expected in (OriginUnreachable, OriginTimeout):
            talk = Conversation(gateway(upstream, origin), http_scope())
            with pytest.raises(expected):
                await talk.result()
            assert talk.sent == []


@pytest.mark.parametrize("extensions", [None, PLAIN], ids=["own server", "plain server"])
async def test_a_truncated_answer_never_ends_as_if_it_were_whole(
    upstream: UpstreamClient, extensions: dict[str, Any] | None
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        connection.close()

    async with RawOrigin(handle) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope(extensions=extensions))
        with pytest.raises(AnswerCut) as cut:
            await talk.result()
    assert cut.value.outcome == Outcome(200, 4, Ended.CUT)
    assert isinstance(cut.value.cause, OriginTruncated)
    assert talk.body == b"half"
    assert not talk.ended_cleanly


async def test_a_cancelled_exchange_closes_the_origins_connection_at_once(
    upstream: UpstreamClient,
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
        await connection.ended()

    async with RawOrigin(handle) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope())
        await talk.hears("http.response.start")
        await talk.hears("http.response.body")
        talk.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await talk.result()
        assert await raw.connections[0].ended()


def leave(talk: Conversation, extensions: dict[str, Any] | None) -> None:
    """Go away, as the server with these extensions tells it."""
    if extensions is None:
        talk.task.cancel()
    else:
        talk.say({"type": "http.disconnect"})


async def gone(talk: Conversation, extensions: dict[str, Any] | None) -> None:
    """Wait until the exchange has ended as that of a visitor who left."""
    if extensions is None:
        with pytest.raises(asyncio.CancelledError):
            await talk.result()
    else:
        assert (await talk.result()).ended is Ended.CLIENT_GONE


class Works:
    """An origin that answers when it is told to, and notes whether its answer was taken whole."""

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before, self.after = before, after
        self.asked, self.go_on, self.taken = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(self.before)
        self.asked.set()
        await self.go_on.wait()
        await connection.send(self.after)
        self.taken.set()
        await connection.head()  # the connection lives on: the next request may come
        await connection.send(OK)


SERVERS = pytest.mark.parametrize("extensions", [None, PLAIN], ids=["own server", "plain server"])


@SERVERS
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsome", b"more"),
    ],
    ids=["before its head", "within its body"],
)
async def test_a_leased_exchange_lasts_until_the_origin_has_answered_nobody(
    upstream: UpstreamClient, extensions: dict[str, Any] | None, before: bytes, after: bytes
) -> None:
    works = Works(before, after)
    async with RawOrigin(works) as raw:
        app = gateway(upstream, raw.origin(), is_leased=True)
        talk = Conversation(app, http_scope(extensions=extensions))
        await works.asked.wait()
        if before:
            await talk.hears("http.response.start")
            await talk.hears("http.response.body")
        leave(talk, extensions)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(talk.task), 0.2)
        works.go_on.set()
        await gone(talk, extensions)
        assert works.taken.is_set()
        assert talk.body == (b"some" if before else b"")
        assert not talk.ended_cleanly
        again = Conversation(gateway(upstream, raw.origin()), http_scope())
        assert (await again.result()).ended is Ended.DELIVERED
        assert len(raw.connections) == 1, "the origin's connection is kept"


@SERVERS
async def test_an_origin_that_never_ends_is_awaited_for_its_time_alone(
    upstream: UpstreamClient, extensions: dict[str, Any] | None
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nsome"
    works = Works(head, b"")
    async with RawOrigin(works) as raw:
        app = gateway(upstream, raw.origin(response_timeout_s=0.5), is_leased=True)
        talk = Conversation(app, http_scope(extensions=extensions))
        await talk.hears("http.response.start")
        await talk.hears("http.response.body")
        loop = asyncio.get_running_loop()
        left_at = loop.time()
        leave(talk, extensions)
        await gone(talk, extensions)
        assert 0.4 < loop.time() - left_at < 3
        works.go_on.set()
        assert await raw.connections[0].ended()


async def test_no_more_than_16_mb_are_read_on_for_nobody(upstream: UpstreamClient) -> None:
    sent = 0

    async def handle(connection: OriginConnection) -> None:
        nonlocal sent
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await connection.send(b"x" * 1_000_000)
            sent += 1_000_000

    async with RawOrigin(handle) as raw:
        app = gateway(upstream, raw.origin(), is_leased=True)
        talk = Conversation(app, http_scope())
        talk.hold()
        await until(lambda: sent >= 1_000_000)
        talk.task.cancel()
        await gone(talk, None)
    assert 16_000_000 < sent < 40_000_000


async def until(ask: Callable[[], bool]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(10):
        while not ask():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@SERVERS
@pytest.mark.parametrize(
    "lines", [[(b"transfer-encoding", b"chunked")], [(b"content-length", b"9")]]
)
async def test_an_upload_that_its_visitor_broke_off_ends_at_the_origin_at_once(
    upstream: UpstreamClient, extensions: dict[str, Any] | None, lines: Headers
) -> None:
    arrived = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.exactly(3)
        arrived.set()
        await connection.reader.read()
        arrived.clear()

    async with RawOrigin(handle) as raw:
        app = gateway(upstream, raw.origin(), is_leased=True)
        talk = Conversation(app, http_scope("POST", headers=[HOST, *lines], extensions=extensions))
        talk.say({"type": "http.request", "body": b"pay", "more_body": True})
        await asyncio.wait_for(arrived.wait(), 5)
        leave(talk, extensions)
        await gone(talk, extensions)
        await until(lambda: not arrived.is_set())


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "all there, the end not said"])
async def test_a_form_that_came_whole_is_awaited(upstream: UpstreamClient, ended: bool) -> None:
    got = asyncio.Event()
    go_on = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        assert await connection.exactly(9) == b"seat=7&ok"
        got.set()
        await go_on.wait()
        await connection.send(OK)
        got.clear()
        await connection.ended()

    async with RawOrigin(handle) as raw:
        app = gateway(upstream, raw.origin(), is_leased=True)
        lines = [HOST, (b"content-length", b"9")]
        talk = Conversation(app, http_scope("POST", headers=lines))
        talk.say({"type": "http.request", "body": b"seat=", "more_body": True})
        talk.say({"type": "http.request", "body": b"7&ok", "more_body": not ended})
        await asyncio.wait_for(got.wait(), 5)
        talk.task.cancel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(talk.task), 0.2)
        go_on.set()
        await gone(talk, None)
        assert not got.is_set()


async def test_an_event_stream_ends_with_its_visitor_whatever_it_holds(
    upstream: UpstreamClient,
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\n\r\ndata: 1\n\n"
    works = Works(head, b"")
    async with RawOrigin(works) as raw:
        talk = Conversation(gateway(upstream, raw.origin(), is_leased=True), http_scope())
        await talk.hears("http.response.start")
        await talk.hears("http.response.body")
        talk.task.cancel()
        await asyncio.wait_for(gone(talk, None), 1)
        works.go_on.set()
        assert await raw.connections[0].ended()


@pytest.mark.parametrize("twice", ["the server ends", "the lease is lost"])
async def test_nobody_is_awaited_when_the_server_ends_or_the_lease_is_lost(
    upstream: UpstreamClient, twice: str
) -> None:
    works = Works(b"", OK)
    stop = StopSignal()
    async with RawOrigin(works) as raw:
        app = gateway(upstream, raw.origin(), is_leased=True, stop=stop)
        talk = Conversation(app, http_scope())
        await works.asked.wait()
        if twice == "the lease is lost":
            stop.cut(talk.task)
        else:
            talk.task.cancel()
            talk.task.cancel()
        await asyncio.wait_for(gone(talk, None), 1)
        works.go_on.set()
        assert await raw.connections[0].ended()


@SERVERS
async def test_a_lease_that_is_lost_ends_the_waiting_for_nobody(
    upstream: UpstreamClient, extensions: dict[str, Any] | None
) -> None:
    works = Works(b"", OK)
    stop = StopSignal()
    async with RawOrigin(works) as raw:
        app = gateway(upstream, raw.origin(), is_leased=True, stop=stop)
        talk = Conversation(app, http_scope(extensions=extensions))
        await works.asked.wait()
        leave(talk, extensions)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(talk.task), 0.1)
        stop.cut(talk.task)
        await asyncio.wait_for(gone(talk, extensions), 1)
        works.go_on.set()
        assert await raw.connections[0].ended()


async def test_a_leased_exchange_is_an_exchange_like_any(upstream: UpstreamClient) -> None:
    async with RawOrigin(answering(OK)) as raw:
        talk = Conversation(gateway(upstream, raw.origin(), is_leased=True), http_scope())
        assert await talk.result() == Outcome(200, 2, Ended.DELIVERED)
    async with RawOrigin(lambda c: c.head()) as raw:  # type: ignore[arg-type, return-value]
        talk = Conversation(gateway(upstream, raw.origin(), is_leased=True), http_scope())
        with pytest.raises(OriginUnreachable):
            await talk.result()


@pytest.mark.parametrize(
    ("lines", "is_stream", "ends"),
    [
        (b"Content-Type: text/event-stream\r\n\r\n", False, "cleanly"),
        (b"Content-Type: text/event-stream\r\n\r\n", True, "cleanly"),
        (b"Content-Type: application/x-ndjson\r\n\r\n", True, "cut"),
        (b"Content-Type: application/octet-stream\r\nContent-Length: 9\r\n\r\n", True, "cut"),
        (b"Content-Type: text/html\r\nContent-Length: 9\r\n\r\n", False, "whole"),
    ],
)
async def test_wr_51_what_is_stopped_is_a_stream_and_never_ends_as_if_it_were_whole(
    upstream: UpstreamClient, lines: bytes, is_stream: bool, ends: str
) -> None:
    works = Works(b"HTTP/1.1 200 OK\r\n" + lines + b"some\n", b"rest")
    stop = StopSignal()
    async with RawOrigin(works) as raw:
        app = gateway(upstream, raw.origin(), stop=stop, is_stream=is_stream)
        talk = Conversation(app, http_scope())
        await talk.hears("http.response.start")
        await talk.hears("http.response.body")
        stop.close(4408)
        if ends == "cut":
            with pytest.raises(AnswerCut) as cut:
                await asyncio.wait_for(talk.result(), 1)
            assert cut.value.outcome == Outcome(200, 5, Ended.STOPPED)
        elif ends == "cleanly":
            outcome = await asyncio.wait_for(talk.result(), 1)
            assert outcome == Outcome(200, 5, Ended.STOPPED)
        works.go_on.set()
        if ends == "whole":
            assert (await talk.result()).ended is Ended.DELIVERED
        else:
            assert await raw.connections[0].ended()
        assert talk.ended_cleanly is (ends != "cut")


@pytest.mark.parametrize("answered", [True, False])
async def test_a_plain_server_tells_of_a_client_gone_and_the_origin_is_let_go(
    upstream: UpstreamClient, answered: bool
) -> None:
    arrived = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        if answered:
            await connection.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
        arrived.set()
        await connection.ended()

    async with RawOrigin(handle) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope(extensions=PLAIN))
        await arrived.wait()
        if answered:
            await talk.hears("http.response.start")
            await talk.hears("http.response.body")
        talk.say({"type": "http.disconnect"})
        outcome = await talk.result()
        assert outcome == Outcome(200 if answered else 0, 4 if answered else 0, Ended.CLIENT_GONE)
        assert await raw.connections[0].ended()
        assert not talk.ended_cleanly


async def test_a_client_gone_inside_its_upload_never_ends_the_message_for_the_origin(
    upstream: UpstreamClient,
) -> None:
    got: list[bytes] = []
    first = asyncio.Event()
    closed = asyncio.Event()

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        got.append(await connection.reader.read(100))
        first.set()
        try:
            got.append(await connection.reader.read())
        finally:
            closed.set()

    async with RawOrigin(handle) as raw:
        lines = [HOST, (b"transfer-encoding", b"chunked")]
        talk = Conversation(gateway(upstream, raw.origin()), http_scope("POST", headers=lines))
        talk.say({"type": "http.request", "body": b"pay", "more_body": True})
        await asyncio.wait_for(first.wait(), 5)
        talk.say({"type": "http.disconnect"})
        assert (await talk.result()).ended is Ended.CLIENT_GONE
        await asyncio.wait_for(closed.wait(), 5)
    assert b"".join(got) == b"3\r\npay\r\n"


async def test_a_server_that_raises_on_send_means_a_client_gone(upstream: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
        await connection.ended()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> Outcome:
        async def failing(event: dict[str, Any]) -> None:
            if event["type"] == "http.response.body":
                raise ConnectionResetError

        outcome: Outcome = await gateway(upstream, raw.origin())(scope, receive, failing)
        return outcome

    async with RawOrigin(handle) as raw:
        talk = Conversation(app, http_scope())
        assert await talk.result() == Outcome(200, 0, Ended.CLIENT_GONE)
        assert await raw.connections[0].ended()


@pytest.mark.parametrize("body", [b"four", b"1", b""])
async def test_a_body_of_another_length_than_declared_is_refused(
    upstream: UpstreamClient, body: bytes
) -> None:
    async with RawOrigin(answering(OK)) as raw:
        scope = http_scope("POST", headers=[HOST, (b"content-length", b"2")])
        talk = Conversation(gateway(upstream, raw.origin()), scope, request_body(body))
        with pytest.raises(BodyMismatch):
            await talk.result()
        assert talk.sent == []
        assert not raw.connections


# Size.


async def test_gw_05_a_slow_visitor_holds_a_download_back(upstream: UpstreamClient) -> None:
    size = 40_000_000
    sent = 0

    async def handle(connection: OriginConnection) -> None:
        nonlocal sent
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await connection.send(bytes(100_000))
            sent += 100_000

    async with RawOrigin(handle) as raw:
        talk = Conversation(gateway(upstream, raw.origin()), http_scope())
        await talk.hears("http.response.start")
        talk.hold()
        before = -1
        while before != sent or not sent:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 15_000_000  # the kernel's buffers, and bounded ones of ours
        talk.go_on()
        assert await talk.result() == Outcome(200, size, Ended.DELIVERED)
        assert max(len(e["body"]) for e in talk.sent[1:]) <= 131_072


async def test_gw_05_a_slow_origin_holds_an_upload_back(upstream: UpstreamClient) -> None:
    go_on = asyncio.Event()
    parts = 400

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await go_on.wait()
        await connection.exactly(100_000 * parts)
        await connection.send(OK)

    async with RawOrigin(handle) as raw:
        length = b"%d" % (100_000 * parts)
        scope = http_scope("POST", headers=[HOST, (b"content-length", length)])
        talk = Conversation(
            gateway(upstream, raw.origin()), scope, request_body(*[bytes(100_000)] * parts)
        )
        before = -1
        while before != talk.received or not talk.received:
            before = talk.received
            await asyncio.sleep(0.05)
        assert talk.received < 15_000_000
        go_on.set()
        assert (await talk.result()).status == 200
