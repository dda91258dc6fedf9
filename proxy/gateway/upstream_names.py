"""Addresses of origins by name, asked again after a while (GW-40).

One question for a name at a time; a failure is not remembered, and an answer that worked is used a
little longer when the name server does not answer.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address

from proxy.gateway.upstream_errors import OriginUnreachable

STALE_S = 300.0
"""How long an old answer may still serve when a new one cannot be had."""


class Names:
    """The addresses of names, remembered for `ttl_s`."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._known: dict[tuple[str, int], tuple[float, list[str]]] = {}
        self._asking: dict[tuple[str, int], asyncio.Task[list[str]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Give the addresses, the one that worked last first.

        Raises:
            OriginUnreachable: the name is not found and was not found lately.
        """
        with suppress(ValueError):
            return [str(ip_address(host))]
        key = (host, port)
        now = asyncio.get_running_loop().time()
        asked_at, found = self._known.get(key, (-STALE_S, []))
        if found and now - asked_at < self._ttl_s:
            return found
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done))
        try:
            return await asyncio.shield(task)
        except OSError as error:
            if found and now - asked_at < STALE_S:
                return found
            raise OriginUnreachable(f"the name {host} was not found: {error}") from error

    def worked(self, host: str, port: int, address: str) -> None:
        """Put the address that accepted a connection first."""
        known = self._known.get((host, port))
        if known is not None and address in known[1] and known[1][0] != address:
            known[1].sort(key=lambda other: other != address)

    async def _ask(self, key: tuple[str, int]) -> list[str]:
        loop = asyncio.get_running_loop()
        answers = await loop.getaddrinfo(*key, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        self._known[key] = (loop.time(), found)
        return found

    def _asked(self, key: tuple[str, int], task: asyncio.Task[list[str]]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # told to those who wait; nobody may wait any more
