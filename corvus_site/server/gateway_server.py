"""The gateway's ASGI server: Daphne, extended (docs/decisions/0004-daphne-extended.md).

Owns the process around the application: sockets, limits per client, time-outs, draining. Daphne's
`Server` and `HTTPFactory` are subclassed; the protocols are our own, because a proxy's server must
stream both ways (`http1`, `http2`, `websocket`, `tls`).
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from daphne.server import Server  # isort: skip - installs Daphne's reactor: comes first
from daphne.http_protocol import HTTPFactory
from twisted.internet import reactor

from corvus_site.server.connection import Connection, address_of
from corvus_site.server.house import Application, Swept
from corvus_site.server.http1 import Http1Connection
from corvus_site.server.http2 import Http2Connection
from corvus_site.server.limits import ServerLimits
from corvus_site.server.tls import TlsConnection, tls_context

BACKLOG: Final = 4096
ACCEPTS_PER_TURN: Final = 64
SWEEP_S: Final = 0.25
DRAIN_LOOK_S: Final = 0.05
CUT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where a server listens and what it allows.

    `sockets` and `tls_sockets` are listening or bound sockets, which the server closes.
    """

    sockets: tuple[socket.socket, ...] = ()
    tls_sockets: tuple[socket.socket, ...] = ()
    tls_certificate: Path | None = None  # PEM, with its chain
    tls_key: Path | None = None
    limits: ServerLimits = field(default_factory=ServerLimits)
    connections: int = 0  # of all clients together, at once; 0 = no limit


def own_socket(host: str, port: int) -> socket.socket:
    """Bind a socket of our own that shares its port with other processes (SO_REUSEPORT)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def client_key(host: str) -> str:
    """Give what counts as one client: an IPv4 address or an IPv6 /64."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


class GatewayFactory(HTTPFactory):  # type: ignore[misc]
    """Daphne's factory, building our protocols; its ALPN offer stays (h2, then HTTP/1.1)."""

    server: GatewayServer

    def buildProtocol(self, addr: object) -> Connection:
        """Build the protocol of a connection without TLS."""
        return Http1Connection(self.server, secure=False)

    def protocol_for(self, alpn: str | None) -> Connection:
        """Build the protocol that the TLS handshake agreed on."""
        if alpn == "h2":
            return Http2Connection(self.server, secure=True)
        return Http1Connection(self.server, secure=True)


class GatewayServer(Server):  # type: ignore[misc]
    """Daphne's server with our protocols; `run` uses its event loop, `start` the running one."""

    def __init__(self, application: Application, options: ServerOptions) -> None:
        places = [f"fd:{s.fileno()}" for s in options.sockets + options.tls_sockets]
        super().__init__(application, endpoints=places, signal_handlers=False, verbosity=0)
        self.options = options
        self.limits = options.limits
        self.factory = GatewayFactory(self)
        self.connections: set[Swept] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.draining = False
        self._clients: Counter[str] = Counter()
        self._listening: list[asyncio.Server] = []
        self._loop: asyncio.AbstractEventLoop
        self._sweeper: asyncio.TimerHandle | None = None

    # What connections ask for

    def now(self) -> float:
        """Give the loop's clock, in seconds."""
        return self._loop.time()

    def protocol_for(self, alpn: str | None) -> Connection:
        """Build the protocol that a TLS handshake agreed on."""
        return self.factory.protocol_for(alpn)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run an application's coroutine; draining waits for it."""
        task = self._loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def admit(self, transport: asyncio.Transport) -> str | None:
        """Count a new connection; None (and it is cut) when its client, or all, have enough."""
        if 0 < self.options.connections <= len(self.connections):
            transport.abort()
            return None
        peer = address_of(transport.get_extra_info("peername"))
        if peer is None:
            return ""
        key = client_key(peer[0])
        if 0 < self.limits.connections_per_client <= self._clients[key]:
            transport.abort()
            return None
        self._clients[key] += 1
        return key

    def release(self, key: str | None) -> None:
        """Count a connection out."""
        if key:
            self._clients[key] -= 1
            if self._clients[key] <= 0:
                del self._clients[key]

    # Life

    def run(self) -> None:
        """Serve on Daphne's reactor until SIGTERM or SIGINT, drain, and return. Raises OSError."""
        daphne_reactor = cast(Any, reactor)
        self._loop = daphne_reactor._asyncioEventloop
        asyncio.set_event_loop(self._loop)
        failures: list[OSError] = []

        async def serve() -> None:
            try:
                await self._serve_until_signalled()
            except OSError as error:
                failures.append(error)
            finally:
                daphne_reactor.stop()

        tasks: list[asyncio.Task[None]] = []
        daphne_reactor.callWhenRunning(lambda: tasks.append(self._loop.create_task(serve())))
        daphne_reactor.run(installSignalHandlers=False)
        for failure in failures:
            raise failure

    async def _serve_until_signalled(self) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, stop.set)
        await self.start()
        gc.freeze()  # modules and configuration are never garbage
        await stop.wait()
        await self.drain()

    async def start(self) -> None:
        """Listen, on the running loop. Raises OSError, also for a certificate that is none."""
        self._loop = asyncio.get_running_loop()
        options = self.options
        for sock in options.sockets:
            await self._listen(sock, lambda: self.factory.buildProtocol(None))
        if options.tls_sockets:
            if options.tls_certificate is None or options.tls_key is None:
                raise OSError("TLS needs a certificate file and a key file")
            offer = [name.decode("ascii") for name in self.factory.acceptableProtocols()]
            context = tls_context(options.tls_certificate, options.tls_key, offer)
            for sock in options.tls_sockets:
                await self._listen(sock, lambda: TlsConnection(self, context))
        self._sweep()

    async def _listen(self, sock: socket.socket, build: Callable[[], asyncio.Protocol]) -> None:
        sock.setblocking(False)
        server = await self._loop.create_server(build, sock=sock, backlog=ACCEPTS_PER_TURN)
        # asyncio takes `backlog` connections a turn, and has told the kernel that number too
        sock.listen(BACKLOG)
        self._listening.append(server)

    def _sweep(self) -> None:
        now = self.now()
        for connection in list(self.connections):
            connection.sweep(now)
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    async def drain(self) -> None:
        """Stop accepting, give running exchanges `drain_s` seconds, then cut what is left."""
        self.draining = True
        for server in self._listening:
            server.close()
        for connection in list(self.connections):
            connection.drain()
        end = self.now() + self.limits.drain_s
        # two sets that many hands empty: looking is simpler than telling
        while (self.connections or self.tasks) and self.now() < end:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_LOOK_S)
        for connection in list(self.connections):
            connection.cut()
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=CUT_S)
        if self._sweeper is not None:
            self._sweeper.cancel()
