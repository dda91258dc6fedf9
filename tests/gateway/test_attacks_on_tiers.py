"""Attacks on slots of requests, on payments and on what other sites' scripts may read."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, Unit
from tests.gateway.test_departed_clients import is_taken
from tests.support.crowd import Visitor, until
from tests.support.gate_passes import admitted
from tests.support.gateways import Gateways

KEY = base64.b64encode(b"a key of a visit").decode()
HANDSHAKE = (
    "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    f"sec-websocket-key: {KEY}\r\n"
)
LEFT_S = 3.5
"""Longer than the server waits for a WebSocket's application after its client has gone."""


@asynccontextmanager
async def working(world: Gateways) -> AsyncIterator[tuple[RoomConfig, Visitor]]:
    """A room for one request, and somebody with a pass; its origin works on however long."""
    room = world.room(capacity=1, unit=Unit.REQUESTS, lane_rank=7, priority_forms=False)
    settings = GatewaySettings(access_log=False, upstream_timeout_s=30)
    await asyncio.to_thread(world.publish, room, settings=settings)
    visitor = await admitted(world, room)
    await until(lambda: is_taken(world, room, 0), what="the slot to be given back")
    world.origin.clear()
    world.origin.hold.clear()
    try:
        yield room, visitor
    finally:
        world.origin.hold.set()
        await visitor.close()


async def ask_and_leave(world: Gateways, visitor: Visitor, request: str, number: int) -> None:
    """Begin a request and hang up once the origin works on it, if it does."""
    jar = "; ".join(f"{k}={v}" for k, v in visitor.cookies.items())
    line, _, rest = request.partition("\n")
    head = f"{line} /slow HTTP/1.1\r\nhost: shop.example\r\ncookie: {jar}\r\n{rest}"
    port = world.gateways[number % 2].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    inside = world.origin.inside
    writer.write(head.encode())
    answer = asyncio.create_task(reader.read(1))

    async def is_decided() -> bool:
        await asyncio.sleep(0)  # let the answer come in
        return answer.done() or world.origin.inside > inside

    await until(is_decided, what="the request to reach the origin, or to be answered")
    writer.transport.abort()
    await asyncio.gather(answer, writer.wait_closed(), return_exceptions=True)


@pytest.mark.parametrize(
    "request_",
    [
        "GET\n\r\n",
        "HEAD\n\r\n",
        "OPTIONS\n\r\n",
        "GET\ncontent-length: 2\r\n\r\nx",
        "POST\ncontent-length: 2\r\n\r\nx",
        "GET\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n",
        f"GET\n{HANDSHAKE}\r\n",
    ],
    ids=["GET", "HEAD", "OPTIONS", "GET, body cut", "POST, body cut", "chunked, cut", "WebSocket"],
)
async def test_who_begins_requests_and_leaves_gets_no_second_one_to_a_full_origin(
    world: Gateways, request_: str
) -> None:
    """An origin need not read a body, nor know of WebSockets, to be at work on the page."""
    async with working(world) as (room, visitor):
        await ask_and_leave(world, visitor, request_, 0)
        with pytest.raises(AssertionError, match="the slot to be free"):
            await until(lambda: is_taken(world, room, 0), LEFT_S, "the slot to be free")
        for number in (1, 2, 3):
            await ask_and_leave(world, visitor, request_, number)
        assert world.origin.most_inside == 1
        assert await is_taken(world, room, 1)
        world.origin.hold.set()
        await until(lambda: is_taken(world, room, 0), what="the slot to be given back")


def test_the_helper_says_once_who_may_read_it(world: Gateways) -> None:
    """Of two such lines a browser takes none, and `*` goes with no credentials."""
    world.publish(world.room(capacity=1), allowed_origins=("https://app.example",))
    for origin in ("https://app.example", "https://evil.example"):
        with world.one.client() as client:
            answer = client.get("/__corvus/helper.js", headers={"origin": origin})
        assert answer.headers.get_list("access-control-allow-origin") == ["*"]
        assert "access-control-allow-credentials" not in answer.headers


def test_a_signature_of_odd_bytes_is_forged_and_writes_no_traceback(world: Gateways) -> None:
    gateway = world.start({"CORVUS_STRIPE_SECRET": "whsec_" + "s" * 32})
    try:
        room = world.room(capacity=1)
        world.publish(room)
        for signature in (b"t=1,v1=\xff", b"t=9999999999,v1=\xff", b"\xff", b"t=\xb2,v1=0"):
            with gateway.client() as client:
                answer = client.post(
                    f"/__corvus/wr/{room.id}/stripe",
                    content=b"{}",
                    headers={b"stripe-signature": signature},
                )
            assert answer.status_code == 401
        assert "Traceback" not in gateway.log.read_text()
    finally:
        gateway.process.kill()
        gateway.process.wait()
        world.gateways.remove(gateway)
