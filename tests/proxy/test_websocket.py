"""WebSockets: ASGI events on one side, a raw origin that speaks frames on the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from wsproto.events import CloseConnection, Event, Message, Ping, Pong, TextMessage

from proxy.gateway.headers import CorvusHeaders, Sender, origin_head
from proxy.gateway.running import StopSignal
from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_errors import (
    OriginProtocolError,
    OriginRefused,
    OriginTimeout,
)
from proxy.gateway.upstream_messages import Headers, Origin
from proxy.gateway.websocket import Relayed, relay
from tests.support.asgi_driver import Conversation, websocket_scope
from tests.support.origin_socket import OriginSocket, accept_token, accept_websocket
from tests.support.raw_origin import OriginConnection, RawOrigin

CONNECT = {"type": "websocket.connect"}
PLAIN: dict[str, Any] = {}


@pytest.fixture
async def upstream() -> AsyncIterator[UpstreamClient]:
    upstream = UpstreamClient()
    yield upstream
    await upstream.close()


def gateway(
    upstream: UpstreamClient,
    origin: Origin,
    stop: StopSignal | None = None,
    told: Callable[[int, CorvusHeaders], Headers | None] | None = None,
    on_open: Callable[[], None] | None = None,
) -> Any:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> Relayed:
        sender = Sender(peer="203.0.113.9", client="203.0.113.9", trusted=False, scheme="http")
        head = origin_head(
            method=b"GET", target=scope["raw_path"], headers=scope["headers"], sender=sender
        )
        return await relay(
            scope=scope,
            receive=receive,
            send=send,
            origin=origin,
            head=head,
            upstream=upstream,
            stop=stop,
            extra_headers=[(b"set-cookie", b"corvus_main=x")],
            on_origin_headers=told,
            on_open=on_open,
        )

    return app


Talk = Callable[[OriginSocket], Awaitable[None]]


def accepting(talk: Talk, lines: bytes = b"") -> Any:
    """Accept the handshake, then talk."""

    async def handle(connection: OriginConnection) -> None:
        await talk(await accept_websocket(connection, lines))

    return handle


async def echo(socket: OriginSocket) -> None:
    while True:
        event = await socket.hears()
        if isinstance(event, CloseConnection):
            await socket.say(event.response())
            return
        await socket.say(event)


async def test_messages_are_relayed_both_ways_until_the_visitor_closes(
    upstream: UpstreamClient,
) -> None:
    closed: list[Event] = []

    async def talk(socket: OriginSocket) -> None:
        await socket.say(TextMessage("hello"))
        assert await socket.hears_message() == "grüße"
        assert await socket.hears_message() == b"\0\xff"
        closed.append(await socket.hears())

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        accept = await ws.hears("websocket.accept")
        assert accept["subprotocol"] is None
        assert accept["headers"] == [(b"set-cookie", b"corvus_main=x")]
        assert (await ws.hears("websocket.send"))["text"] == "hello"
        ws.say({"type": "websocket.receive", "text": "grüße", "bytes": None})
        ws.say({"type": "websocket.receive", "bytes": b"\0\xff"})
        ws.say({"type": "websocket.disconnect", "code": 4001, "reason": "done"})
        assert await ws.result() == Relayed(101, 4001)
        await raw.connections[0].ended()
    (close,) = closed
    assert isinstance(close, CloseConnection)
    assert (int(close.code), close.reason) == (4001, "done")


async def test_the_handshake_is_our_own_and_the_rest_of_the_head_passes(
    upstream: UpstreamClient,
) -> None:
    heads: list[bytes] = []

    async def handle(connection: OriginConnection) -> None:
        heads.append(await connection.head())
        await connection.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    scope = websocket_scope(
        b"/chat%2F?a",
        [
            (b"host", b"shop.example"),
            (b"connection", b"Upgrade"),
            (b"upgrade", b"websocket"),
            (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
            (b"sec-websocket-version", b"13"),
            (b"sec-websocket-extensions", b"permessage-deflate"),
            (b"origin", b"https://shop.example"),
            (b"cookie", b"corvus_main=1; sid=2"),
        ],
        subprotocols=["chat.v2", "chat.v1"],
    )
    async with RawOrigin(handle) as raw:
        await Conversation(gateway(upstream, raw.origin()), scope, [CONNECT]).result()
    (head,) = heads
    assert head.startswith(b"GET /chat%2F HTTP/1.1\r\nhost: shop.example\r\norigin: https://shop")
    assert b"dGhlIHNhbXBsZSBub25jZQ==" not in head
    assert b"extensions" not in head
    assert b"\r\ncookie: sid=2\r\n" in head
    assert b"\r\nsec-websocket-protocol: chat.v2, chat.v1\r\n" in head
    assert head.lower().count(b"\r\nupgrade: websocket\r\n") == 1
    assert head.lower().count(b"\r\nconnection: ") == 1


async def test_the_sub_protocol_that_the_origin_chose_reaches_the_visitor(
    upstream: UpstreamClient,
) -> None:
    lines = b"Sec-WebSocket-Protocol: chat.v1\r\nSet-Cookie: a=1\r\nCorvus-Session: revoke\r\n"
    heard: list[CorvusHeaders] = []

    def told(status: int, said: CorvusHeaders) -> None:
        heard.append(said)

    async with RawOrigin(accepting(echo, lines)) as raw:
        scope = websocket_scope(subprotocols=["chat.v2", "chat.v1"])
        ws = Conversation(gateway(upstream, raw.origin(), told=told), scope, [CONNECT])
        accept = await ws.hears("websocket.accept")
        assert accept["subprotocol"] == "chat.v1"
        assert accept["headers"] == [(b"set-cookie", b"a=1"), (b"set-cookie", b"corvus_main=x")]
        ws.say({"type": "websocket.disconnect", "code": 1000})
        await ws.result()
    assert heard == [CorvusHeaders(revoke=True)]


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 3000, 4999])
async def test_the_origins_close_code_reaches_the_visitor(
    upstream: UpstreamClient, code: int
) -> None:
    async def talk(socket: OriginSocket) -> None:
        await socket.say(CloseConnection(code=code, reason="why"))
        answer = await socket.hears()
        assert isinstance(answer, CloseConnection)
        assert int(answer.code) == code

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        assert await ws.result() == Relayed(101, code)
        close = ws.sent[-1]
        assert close == {"type": "websocket.close", "code": code, "reason": "why"}
        await raw.connections[0].ended()


async def test_a_close_without_code_stays_without_one(upstream: UpstreamClient) -> None:
    codes: list[int] = []

    async def talk(socket: OriginSocket) -> None:
        event = await socket.hears()
        assert isinstance(event, CloseConnection)
        codes.append(int(event.code))

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        ws.say({"type": "websocket.disconnect", "code": 1005})
        assert await ws.result() == Relayed(101, 1005)
        await raw.connections[0].ended()
    assert codes == [1005]


async def test_a_visitor_that_vanishes_closes_the_origins_connection(
    upstream: UpstreamClient,
) -> None:
    ended = asyncio.Event()

    async def talk(socket: OriginSocket) -> None:
        await socket.raw.ended()
        ended.set()

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        ws.say({"type": "websocket.disconnect", "code": 1006})
        assert await ws.result() == Relayed(101, 1006)
        await asyncio.wait_for(ended.wait(), 5)


async def test_an_origin_that_vanishes_is_told_as_an_error(upstream: UpstreamClient) -> None:
    async def talk(socket: OriginSocket) -> None:
        await socket.say(TextMessage("last words"))
        socket.raw.close()

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        assert await ws.result() == Relayed(101, 1006)
        assert ws.sent[-2]["text"] == "last words"
        assert ws.sent[-1]["code"] == 1011


@pytest.mark.parametrize("frame", [b"\x83\x00", b"\xff\x01a", b"\x81\x82abcdzz", b"\x88\x01a"])
async def test_broken_frames_of_the_origin_end_the_stream(
    upstream: UpstreamClient, frame: bytes
) -> None:
    async def talk(socket: OriginSocket) -> None:
        await socket.raw.send(frame)
        await socket.raw.reader.read()

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        assert (await ws.result()).code == 1011
        assert ws.sent[-1]["code"] == 1011


async def test_pings_of_the_origin_are_answered(upstream: UpstreamClient) -> None:
    async def talk(socket: OriginSocket) -> None:
        await socket.say(Ping(payload=b"are you there"))
        pong = await socket.hears()
        assert isinstance(pong, Pong)
        assert bytes(pong.payload) == b"are you there"
        await socket.say(CloseConnection(code=1000))

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        assert await ws.result() == Relayed(101, 1000)


async def test_the_gateway_can_close_a_stream_with_4408(upstream: UpstreamClient) -> None:
    closed: list[Event] = []

    async def talk(socket: OriginSocket) -> None:
        closed.append(await socket.hears())

    stop = StopSignal()
    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin(), stop), websocket_scope(), [CONNECT])
        await ws.hears("websocket.accept")
        stop.close(4408, "your time is over")
        stop.close(1000, "too late to say otherwise")
        assert await ws.result() == Relayed(101, 4408)
        assert ws.sent[-1]["code"] == 4408
        assert ws.sent[-1]["reason"] == "your time is over"
        await raw.connections[0].ended()
    assert isinstance(closed[0], CloseConnection)
    assert int(closed[0].code) == 4408


@pytest.mark.parametrize("accepted", [True, False])
async def test_that_it_opened_is_told_before_the_visitor_hears_and_never_of_a_refusal(
    upstream: UpstreamClient, accepted: bool
) -> None:
    opened: list[list[str]] = []

    async def handle(connection: OriginConnection) -> None:
        if accepted:
            await echo(await accept_websocket(connection))
        else:
            await connection.head()
            await connection.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with RawOrigin(handle) as raw:
        ws = Conversation(
            gateway(
                upstream,
                raw.origin(),
                on_open=lambda: opened.append([event["type"] for event in ws.sent]),
            ),
            websocket_scope(),
            [CONNECT],
        )
        await ws.hears("websocket.accept" if accepted else "websocket.http.response.start")
        assert opened == ([[]] if accepted else [])
        ws.say({"type": "websocket.disconnect", "code": 1000})
        await ws.result()
    assert len(opened) == accepted


async def test_what_the_origin_says_to_the_gateway_with_its_101_reaches_nobody(
    upstream: UpstreamClient,
) -> None:
    heard: list[CorvusHeaders] = []

    def told(_: int, said: CorvusHeaders) -> None:
        heard.append(said)

    lines = b"Corvus-Priority: member\r\nCorvus-Priority: staff\r\nCorvus-Session: revoke\r\n"
    async with RawOrigin(accepting(echo, lines)) as raw:
        ws = Conversation(gateway(upstream, raw.origin(), told=told), websocket_scope(), [CONNECT])
        accept = await ws.hears("websocket.accept")
        assert accept["headers"] == [(b"set-cookie", b"corvus_main=x")]
        ws.say({"type": "websocket.disconnect", "code": 1000})
        await ws.result()
    assert heard == [CorvusHeaders(revoke=True, priority="staff")]


async def test_a_cancelled_relay_closes_the_origins_connection(upstream: UpstreamClient) -> None:
    async def talk(socket: OriginSocket) -> None:
        await socket.raw.ended()

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        await ws.hears("websocket.accept")
        ws.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ws.result()
        assert await raw.connections[0].ended()


async def test_a_refusal_of_the_origin_is_passed_on_with_its_body(upstream: UpstreamClient) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(
            b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nKeep-Alive: 5\r\n"
            b"Content-Length: 6\r\n\r\nplease"
        )

    async with RawOrigin(handle) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        assert await ws.result() == Relayed(401, 0)
        start = ws.sent[0]
        assert (start["type"], start["status"]) == ("websocket.http.response.start", 401)
        assert start["headers"][:2] == [(b"www-authenticate", b"Basic"), (b"content-length", b"6")]
        assert ws.sent[-1] == {
            "type": "websocket.http.response.body",
            "body": b"please",
            "more_body": False,
        }
        plain = Conversation(
            gateway(upstream, raw.origin()), websocket_scope(extensions=PLAIN), [CONNECT]
        )
        assert await plain.result() == Relayed(401, 0)
        assert [event["type"] for event in plain.sent] == ["websocket.close"]


@pytest.mark.parametrize(
    "lines",
    [
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: wrong\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"Sec-WebSocket-Accept: %b\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n"
        b"Sec-WebSocket-Protocol: unasked\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n"
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
    ],
)
async def test_a_wrong_handshake_of_the_origin_is_no_answer(
    upstream: UpstreamClient, lines: bytes
) -> None:
    async def handle(connection: OriginConnection) -> None:
        token = accept_token(await connection.head())
        await connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\n" + lines.replace(b"%b", token) + b"\r\n"
        )
        await connection.ended()

    async with RawOrigin(handle) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        with pytest.raises(OriginProtocolError):
            await ws.result()
        assert ws.sent == []
        assert await raw.connections[0].ended()


async def test_no_origin_leaves_the_visitor_unanswered(upstream: UpstreamClient) -> None:
    async def silent(connection: OriginConnection) -> None:
        await connection.head()
        await connection.ended()

    async with RawOrigin(silent) as raw:
        origin = raw.origin(response_timeout_s=0.1)
        ws = Conversation(gateway(upstream, origin), websocket_scope(), [CONNECT])
        with pytest.raises(OriginTimeout):
            await ws.result()
    ws = Conversation(gateway(upstream, origin), websocket_scope(), [CONNECT])
    with pytest.raises(OriginRefused):
        await ws.result()
    assert ws.sent == []


# Size.


@pytest.mark.parametrize("kind", ["text", "bytes"])
@pytest.mark.parametrize("extensions", [None, PLAIN], ids=["pieces", "whole"])
async def test_messages_of_5_mb_pass_both_ways(
    upstream: UpstreamClient, kind: str, extensions: dict[str, Any] | None
) -> None:
    message: Any = "ä€😀x" * 500_000 if kind == "text" else bytes(range(250)) * 20_000

    async def talk(socket: OriginSocket) -> None:
        got = await socket.hears_message()
        assert got == message
        await socket.say(TextMessage(got) if kind == "text" else Message(got))
        await socket.hears()

    async with RawOrigin(accepting(talk)) as raw:
        scope = websocket_scope(extensions=extensions)
        ws = Conversation(gateway(upstream, raw.origin()), scope, [CONNECT])
        if extensions is None:
            step = 100_000
            for start in range(0, len(message), step):
                piece = message[start : start + step]
                more = start + step < len(message)
                ws.say({"type": "websocket.receive", kind: piece, "more": more})
        else:
            ws.say({"type": "websocket.receive", kind: message})
        await ws.hears("websocket.accept")
        got = message[:0]
        pieces = 0
        while True:
            event = await ws.hears("websocket.send")
            got += event[kind]
            pieces += 1
            if not event.get("more"):
                break
        assert got == message
        assert (pieces > 20) is (extensions is None)
        ws.say({"type": "websocket.disconnect", "code": 1000})
        await ws.result()


async def test_an_empty_message_is_a_message(upstream: UpstreamClient) -> None:
    async with RawOrigin(accepting(echo)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        await ws.hears("websocket.accept")
        for kind, data in (("text", ""), ("bytes", b"")):
            ws.say({"type": "websocket.receive", kind: data})
            event = await ws.hears("websocket.send")
            assert event == {"type": "websocket.send", kind: data, "more": False}
        ws.say({"type": "websocket.disconnect", "code": 1000})
        await ws.result()


async def test_a_slow_visitor_holds_the_origins_messages_back(upstream: UpstreamClient) -> None:
    sent = 0

    async def talk(socket: OriginSocket) -> None:
        nonlocal sent
        for _ in range(400):
            await socket.say(Message(data=bytes(100_000)))
            sent += 100_000
        await socket.say(CloseConnection(code=1000))
        await socket.hears()

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        await ws.hears("websocket.accept")
        ws.hold()
        before = -1
        while before != sent or not sent:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 15_000_000
        ws.go_on()
        assert await ws.result() == Relayed(101, 1000)
        assert sum(len(e["bytes"]) for e in ws.sent[1:-1]) == 40_000_000


async def test_a_slow_origin_holds_the_visitors_messages_back(upstream: UpstreamClient) -> None:
    go_on = asyncio.Event()

    async def talk(socket: OriginSocket) -> None:
        await go_on.wait()
        for _ in range(200):
            assert len(await socket.hears_message()) == 100_000
        await socket.say(CloseConnection(code=1000))
        await socket.hears()

    async with RawOrigin(accepting(talk)) as raw:
        ws = Conversation(gateway(upstream, raw.origin()), websocket_scope(), [CONNECT])
        for _ in range(200):
            ws.say({"type": "websocket.receive", "bytes": bytes(100_000)})
        before = -1
        while before != ws.received or not ws.received:
            before = ws.received
            await asyncio.sleep(0.05)
        assert ws.received < 15_000_000
        go_on.set()
        assert await ws.result() == Relayed(101, 1000)
