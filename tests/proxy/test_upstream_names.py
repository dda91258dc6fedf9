"""Names of origins: asked once at a time, again after a while, and an old answer in need."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_errors import OriginUnreachable
from proxy.gateway.upstream_messages import Origin, RequestHead, UpstreamLimits
from tests.support.raw_origin import OriginConnection, RawOrigin

GET = RequestHead(b"GET", b"/", [(b"host", b"shop.example")])


class NameServer:
    """Stands for the system's resolver: the answer is what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        self.asked = 0
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._answer)

    async def _answer(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked += 1
        await asyncio.sleep(0)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(socket.AF_INET, 1, 6, "", (address, port)) for address in self.addresses]


async def closing(connection: OriginConnection) -> None:
    await connection.head()
    await connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")


async def test_gw_40_an_origin_works_as_soon_as_its_name_is_known_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = NameServer(monkeypatch)
    client = UpstreamClient()
    async with RawOrigin(closing) as raw:
        origin = Origin(host="backend", port=raw.port)
        with pytest.raises(OriginUnreachable, match="backend"):
            await client.request(origin, GET)
        names.addresses = ["127.0.0.1"]
        assert (await client.request(origin, GET)).status == 200
        await client.close()


async def test_an_answer_is_remembered_and_many_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameServer(monkeypatch)
    names.addresses = ["127.0.0.1"]
    client = UpstreamClient()
    async with RawOrigin(closing) as raw:
        origin = Origin(host="backend", port=raw.port)
        await asyncio.gather(*(client.request(origin, GET) for _ in range(5)))
        await client.request(origin, GET)
        assert names.asked == 1
        await client.close()


async def test_an_old_answer_serves_while_the_name_server_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = NameServer(monkeypatch)
    names.addresses = ["127.0.0.1"]
    client = UpstreamClient(UpstreamLimits(dns_s=0.0))
    async with RawOrigin(closing) as raw:
        origin = Origin(host="backend", port=raw.port)
        await client.request(origin, GET)
        names.addresses = []
        assert (await client.request(origin, GET)).status == 200
        assert names.asked == 2
        await client.close()


async def test_a_dead_address_is_passed_over_and_the_working_one_tried_first_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = NameServer(monkeypatch)
    names.addresses = ["127.0.0.9", "127.0.0.1"]  # the origin listens on the second alone
    client = UpstreamClient()
    async with RawOrigin(closing) as raw:
        origin = Origin(host="backend", port=raw.port)
        for _ in range(2):
            assert (await client.request(origin, GET)).status == 200
        assert await client._names.addresses("backend", raw.port) == ["127.0.0.1", "127.0.0.9"]
        await client.close()
