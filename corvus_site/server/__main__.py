"""`python -m corvus_site.server`: serve one ASGI application on inherited or own sockets."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import cast

from corvus_site.server.gateway_server import GatewayServer, ServerOptions, own_socket
from corvus_site.server.house import Application
from corvus_site.server.limits import ServerLimits
from corvus_site.server.open_files import connections_allowed


def application_from(path: str) -> Application:
    """Import `package.module:attribute`. Raises ValueError."""
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute or "application")
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--app: “{path}” is not allowed: {error}") from error
    if not callable(found):
        raise ValueError(f"--app: “{path}” is not allowed: not an ASGI application")
    return cast(Application, found)


def run(application: Application, options: ServerOptions) -> None:
    """Serve an application until a signal ends it."""
    GatewayServer(application, options).run()


def main(arguments: list[str] | None = None) -> int:
    """`python -m corvus_site.server`: serve inherited sockets with limits from the environment."""
    parser = argparse.ArgumentParser(prog="python -m corvus_site.server", description=main.__doc__)
    parser.add_argument("--app", required=True, metavar="MODULE:NAME")
    parser.add_argument("--fd", type=int, action="append", default=[], help="a listening socket")
    parser.add_argument("--tls-fd", type=int, action="append", default=[])
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--listen", action="append", default=[], metavar="HOST:PORT")
    parser.add_argument("--tls-listen", action="append", default=[], metavar="HOST:PORT")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    try:
        options = ServerOptions(
            sockets=_sockets(given.fd, given.listen),
            tls_sockets=_sockets(given.tls_fd, given.tls_listen),
            tls_certificate=given.tls_cert,
            tls_key=given.tls_key,
            limits=ServerLimits.from_environment(os.environ),
            connections=connections_allowed(),
        )
        if not options.sockets + options.tls_sockets:
            raise ValueError("--fd, --listen, --tls-fd or --tls-listen is needed")
        if options.tls_sockets and not (options.tls_certificate and options.tls_key):
            raise ValueError("TLS needs --tls-cert and --tls-key")
        run(application_from(given.app), options)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    return 0


def _sockets(inherited: list[int], own: list[str]) -> tuple[socket.socket, ...]:
    return (
        *(socket.socket(fileno=number) for number in inherited),
        *(own_socket(*_host_port(text)) for text in own),
    )


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--listen: “{text}” is not allowed: host:port")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    sys.exit(main())
