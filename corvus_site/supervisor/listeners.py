"""Listening sockets that the supervisor opens and its children serve.

One socket per process with SO_REUSEPORT, kept open here too: a child that dies loses no connection
that it had not yet taken (measured, see docs/decisions/0008-own-supervisor.md). No Django.
"""

from __future__ import annotations

import errno
import os
import socket

from corvus_site.env import BadSetting, HostPort

BACKLOG = 4096


def open_listeners(setting: str, address: HostPort, count: int) -> list[socket.socket]:
    """Open `count` listening sockets on one address; port 0 takes any free one for all.

    Raises:
        BadSetting: the address is in use, not of this machine, or needs rights that we lack.
    """
    try:
        family, host = _resolve(address.host)
        port = _free_port(family, host, address.port)
        return [_listen(family, host, port) for _ in range(count)]
    except OSError as error:
        raise BadSetting(setting, f"cannot listen on “{address}”: {_why(error)}.") from None


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Give the address that a browser on this machine can open."""
    host, port = listener.getsockname()[:2]
    if host in ("::", "0.0.0.0"):  # noqa: S104 - compared, not bound
        host = "localhost"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def loopback_of(listener: socket.socket) -> tuple[str, int]:
    """Give the host and port at which this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    if host in ("::", "0.0.0.0"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return host, port


def _resolve(host: str) -> tuple[socket.AddressFamily, str]:
    if not host:
        return (socket.AF_INET6, "::") if _has_ipv6() else (socket.AF_INET, "0.0.0.0")  # noqa: S104
    try:
        host.encode("idna")
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "no such host") from None
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name with both families is most useful by its IPv4 address: that is what tools try first.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(address[0])


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def _free_port(family: socket.AddressFamily, host: str, port: int) -> int:
    """Bind once without SO_REUSEPORT: with it a second Corvus would share the port in silence."""
    with _bound(family, host, port) as probe:
        probe.listen(1)
        return int(probe.getsockname()[1])


def _listen(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = _bound(family, host, port, share=True)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _bound(
    family: socket.AddressFamily, host: str, port: int, *, share: bool = False
) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # `::` serves IPv4 too; a literal IPv6 address serves itself alone.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no such host"
    match error.errno:
        case errno.EADDRINUSE:
            return "the port is in use"
        case errno.EACCES:
            return "ports below 1024 need more rights than this user has"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address"
        case number:
            return os.strerror(number) if number else str(error)
