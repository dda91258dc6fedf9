"""What the server takes from Daphne and Twisted exists: an upgrade that moves it is noticed."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import daphne.http_protocol
import daphne.server
from twisted.internet import asyncioreactor, reactor

from corvus_site.server.gateway_server import (
    GatewayFactory,
    GatewayServer,
    ServerOptions,
    own_socket,
)
from tests.support.raw_client import RawClient
from tests.support.server_probe import ROOT, application


def test_the_names_of_daphne_and_twisted_that_the_server_uses_exist():
    assert issubclass(GatewayServer, daphne.server.Server)
    assert issubclass(GatewayFactory, daphne.http_protocol.HTTPFactory)
    assert isinstance(reactor, asyncioreactor.AsyncioSelectorReactor)
    assert reactor._asyncioEventloop is daphne.server.twisted_loop
    assert callable(reactor.callWhenRunning)


def test_the_factory_offers_what_daphne_offers():
    with own_socket("127.0.0.1", 0) as sock:
        server = GatewayServer(application, ServerOptions(sockets=(sock,)))
        assert server.factory.acceptableProtocols() == [b"h2", b"http/1.1"]


def test_two_servers_share_a_port_by_their_own_sockets():
    with own_socket("127.0.0.1", 0) as first, own_socket("127.0.0.1", first.getsockname()[1]):
        pass


def test_the_server_needs_no_django():
    code = "import corvus_site.server.gateway_server, sys; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


async def test_the_server_runs_on_a_loop_that_runs_already():

    sock = own_socket("127.0.0.1", 0)
    port = sock.getsockname()[1]
    server = GatewayServer(application, ServerOptions(sockets=(sock,)))
    await server.start()

    def ask() -> bytes:
        with RawClient(port) as raw:
            return raw.get("/hello").body

    assert await asyncio.to_thread(ask) == b"hello"
    await server.drain()
