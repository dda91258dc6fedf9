"""How the supervisor finds out that a child answers. No Django."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from corvus_site.supervisor.children import Probe

ANSWER_WITHIN_S = 5.0


async def answers_http(host: str, port: int, path: str, *, secure: bool = False) -> bool:
    """Tell whether a GET is answered with a status below 500."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            tls = _any_certificate() if secure else None
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                writer.write(request.encode())
                parts = (await reader.readline()).split()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return len(parts) > 1 and parts[0].startswith(b"HTTP/1.") and parts[1] < b"500"


def _any_certificate() -> ssl.SSLContext:
    """Trust whatever is there: it is asked whether it answers, and nothing is told to it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def exists(path: Path) -> bool:
    """Tell whether a child has left its file."""
    return path.exists()  # noqa: ASYNC240 - a local folder


def all_answer(host: str, port: int, path: str, sockets: int) -> Probe:
    """Ask a port that several sockets share until surely each of them has answered.

    The kernel spreads connections at random: eight times as many as there are sockets miss one of
    them with a probability of e⁻⁸. A connection to a process that still starts waits in the
    backlog of its socket. The answer is shared by all who ask.
    """
    lock = asyncio.Lock()
    said_yes = False

    async def ask() -> bool:
        nonlocal said_yes
        async with lock:
            times = 0 if said_yes else 1 if sockets == 1 else 8 * sockets
            for _ in range(times):  # one by one: connections per client may be limited
                if not await answers_http(host, port, path):
                    return False
            said_yes = True
            return said_yes

    return ask
