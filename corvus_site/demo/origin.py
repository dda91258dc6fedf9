"""The demo origin: a small ticket shop that really falls over above its limit (`demo_shop`).

Plain asyncio, no Django. By itself: `python -m corvus_site.demo --listen 127.0.0.1:8090`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    TextMessage,
)
from wsproto.events import Request as Handshake
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from corvus_site.demo import pages
from corvus_site.demo.http import MOST_HEAD, Answer, BadRequest, Request, keeps_alive, read_request
from corvus_site.demo.shop import Mood, Shop

COOKIE = "demo_shop"
TICKETS = 2_400
LIMIT = 5
STOP_WITHIN_S = 2.0


class Demo:
    """The shop's pages and streams over one listening socket."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._shop = Shop(limit)
        self._sold = 0
        self._busy: set[asyncio.Task[None]] = set()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        try:
            while (request := await read_request(reader, writer)) is not None:
                self._busy.add(task)
                keep = await self._exchange(request, reader, writer)
                self._busy.discard(task)
                if not keep:
                    break
        except BadRequest as bad:
            answer = Answer(f"{bad}\n", 400, "text/plain; charset=utf-8")
            writer.write(answer.encode(head_only=False, keep=False))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._busy.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def finish(self) -> None:
        """Give answers that are under way a moment to end."""
        if self._busy:
            await asyncio.wait(self._busy, timeout=STOP_WITHIN_S)

    async def _exchange(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self._shop.visit(request.cookie(COOKIE), time.monotonic())
        if request.path == "/events":
            await self._events(request, writer)
            return False
        if request.path == "/clock" and request.header("upgrade").lower() == "websocket":
            await self._clock(request, reader, writer)
            return False
        answer = await self._answer(request)
        keep = keeps_alive(request)
        writer.write(answer.encode(head_only=request.method == "HEAD", keep=keep))
        await writer.drain()
        return keep

    async def _answer(self, request: Request) -> Answer:
        match request.path:
            case "/healthz":
                return Answer("ok\n", kind="text/plain; charset=utf-8")
            case "/load":
                return Answer(self._load(), kind="application/json")
            case "/favicon.ico":
                return Answer("", 204, "image/x-icon")
            case _:
                return await self._page(request)

    async def _page(self, request: Request) -> Answer:
        """Make a page: that is the work that the shop bears only so much of."""
        shop = self._shop
        shop.working += 1
        try:
            mood = shop.mood(time.monotonic())
            await asyncio.sleep(shop.delay_s(time.monotonic()))
            if mood is Mood.DOWN:
                shoppers = shop.shoppers(time.monotonic())
                return Answer(pages.fallen(shoppers, shop.limit), 503)
            answer = await self._content(request)
        finally:
            shop.working -= 1
        if request.cookie(COOKIE):
            return answer
        cookie = f"{COOKIE}={secrets.token_urlsafe(9)}; Path=/; HttpOnly; SameSite=Lax"
        return Answer(answer.body, answer.status, answer.kind, (("Set-Cookie", cookie),))

    async def _content(self, request: Request) -> Answer:
        left = TICKETS - self._sold
        match request.method, request.path:
            case (("GET" | "HEAD"), "/"):
                return Answer(pages.concert(left))
            case (("GET" | "HEAD"), "/tickets"):
                return Answer(pages.tickets(left))
            case (("GET" | "HEAD"), "/about"):
                return Answer(pages.about())
            case (("GET" | "HEAD"), "/slow"):
                await asyncio.sleep(_seconds(request.query("seconds", "3")))
                return Answer(pages.about())
            case "POST", "/order":
                return self._order(request)
            case _, "/debug":
                lines = [("request line", f"{request.method} {request.target}"), *request.headers]
                return Answer(pages.debug([*lines, ("body", request.body.decode("latin-1"))]))
            case _:
                return Answer(pages.page("Not found", "<h1>There is no such page</h1>"), 404)

    def _order(self, request: Request) -> Answer:
        fields = request.form()
        seats = fields.get("seats", "1")
        self._sold += int(seats) if seats in ("1", "2", "3", "4") else 1
        return Answer(pages.ordered(fields, 1000 + self._sold))

    def _load(self) -> str:
        now = time.monotonic()
        shop = self._shop
        numbers = {"shoppers": shop.shoppers(now), "limit": shop.limit, "mood": shop.mood(now)}
        return json.dumps(numbers | {"left": TICKETS - self._sold})

    async def _events(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Send the shop's numbers every second (server-sent events) until the reader goes."""
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            b"Connection: close\r\n\r\n"
        )
        while True:
            self._shop.visit(request.cookie(COOKIE), time.monotonic())
            writer.write(f"data: {self._load()}\n\n".encode())
            await writer.drain()
            await asyncio.sleep(1)

    async def _clock(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Tell the time every second, and echo what is sent, over a WebSocket."""
        ws = WSConnection(ConnectionType.SERVER)
        with contextlib.suppress(LocalProtocolError, RemoteProtocolError):
            ws.receive_data(request.head)
            for event in ws.events():
                if isinstance(event, Handshake):
                    chosen = event.subprotocols[0] if event.subprotocols else None
                    writer.write(ws.send(AcceptConnection(subprotocol=chosen)))
            ticking = asyncio.create_task(self._tick(ws, writer))
            try:
                while await _heed(ws, reader, writer):
                    self._shop.visit(request.cookie(COOKIE), time.monotonic())
            finally:
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)

    async def _tick(self, ws: WSConnection, writer: asyncio.StreamWriter) -> None:
        while True:
            now = datetime.now(UTC).strftime("%H:%M:%S")
            writer.write(ws.send(TextMessage(now)))
            await writer.drain()
            await asyncio.sleep(1)


async def _heed(
    ws: WSConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Answer what came on the WebSocket; False when it is over."""
    data = await reader.read(65_536)
    ws.receive_data(data or None)
    goes_on = True
    for event in ws.events():
        match event:
            case TextMessage() | BytesMessage():
                writer.write(ws.send(event))
            case Ping():
                writer.write(ws.send(event.response()))
            case CloseConnection():
                if data:
                    writer.write(ws.send(event.response()))
                goes_on = False
            case _:
                pass
    await writer.drain()
    return goes_on


def _seconds(text: str) -> float:
    try:
        return min(60.0, max(0.0, float(text)))
    except ValueError:
        return 3.0


async def serve(listener: socket.socket, limit: int = LIMIT) -> None:
    """Serve until SIGTERM or SIGINT."""
    demo = Demo(limit)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await asyncio.start_server(demo.connection, sock=listener, limit=MOST_HEAD)
    await stop.wait()
    server.close()
    await demo.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it by hand or for the supervisor."""
    parser = argparse.ArgumentParser(description="A demo site that falls over above its limit.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int, help="an inherited listening socket")
    where.add_argument("--listen", help="host:port to listen on")
    parser.add_argument("--limit", type=int, default=LIMIT, help="how many people it bears")
    given = parser.parse_args(arguments)
    if given.fd is not None:
        listener = socket.socket(fileno=given.fd)
    else:
        host, _, port = given.listen.rpartition(":")
        listener = socket.create_server((host.strip("[]") or "127.0.0.1", int(port)))
    listener.setblocking(False)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(listener, max(1, given.limit)))
