"""A crowd before the whole product while its gateways are killed and started again.

What is asserted is read from the store itself: the room's event log, in which every transition
stands with the counts of that moment, and the sets of who is inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import redis

from tests.support.crowd import Reply, Visitor, together
from tests.support.gateways import Origin
from tests.support.product import Product
from tests.support.running import eventually
from tests.support.valkey import Valkey, running_valkey

SECRET = "a master key that only this test knows"
CAPACITY = 8
CROWD = 70
STAY_S = 0.4
STATUS = "/__corvus/wr/main/status"
LEAVE = "/__corvus/wr/main/leave"
ROOM = "corvus:wr:{main}:"


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with running_valkey() as running:
        yield running


@pytest.fixture
def origin() -> Iterator[Origin]:
    running = Origin()
    yield running
    running.close()


@pytest.fixture
def product(
    valkey: Valkey, origin: Origin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    running = Product(
        tmp_path_factory.mktemp("load") / "data",
        {
            "CORVUS_UPSTREAM": origin.url,
            "CORVUS_REDIS_URL": valkey.url,
            "CORVUS_SECRET": SECRET,
            "CORVUS_GATEWAYS": "3",
            "CORVUS_CAPACITY": str(CAPACITY),
            "CORVUS_ACTIVE_TTL": "20s",
            "CORVUS_REFRESH": "1s",
            "CORVUS_GRANT_TTL": "60s",
            "CORVUS_ENTRIES_PER_MINUTE": "0",
            "CORVUS_POLLS_PER_SECOND": "100",
            "CORVUS_CONNECTIONS_PER_CLIENT": "0",
            "CORVUS_ACCESS_LOG": "false",
        },
    )
    yield running
    running.end()


@dataclass
class Guest:
    """One visitor who keeps asking, whatever happens to the gateway it talks to."""

    visitor: Visitor
    broken: int = 0
    ticket: int = 0
    positions: list[int] = field(default_factory=list)

    async def ask(self, target: str, method: str = "GET") -> Reply:
        """Ask again on a new connection when a gateway dies under the request."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return await asyncio.wait_for(self.visitor.get(target, method), 10)
            except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError):
                assert time.monotonic() < deadline
                self.broken += 1
                await self.visitor.close()
                await asyncio.sleep(0.05)

    async def arrive(self) -> Reply:
        """Take a cookie, then a place."""
        if not self.visitor.cookies:
            await self.ask("/tickets")
        return await self.ask("/tickets")

    async def wait_and_visit(self) -> None:
        """Poll to the turn, go in, stay a little, leave."""
        deadline = time.monotonic() + 60
        while (reply := await self.ask("/tickets")).status != 200:
            assert reply.status == 429, reply.body
            assert reply.json["state"] in ("waiting", "granted"), reply.json
            assert time.monotonic() < deadline
            self.positions.append(reply.json["position"])
            self.positions += [p async for p in self.polled_until_granted(deadline)]
        await asyncio.sleep(STAY_S)
        assert (await self.ask(LEAVE, "POST")).status == 200
        await self.visitor.close()

    async def polled_until_granted(self, deadline: float) -> Any:
        """Give the positions that the status answers told."""
        while (reply := await self.ask(STATUS)).json["state"] == "waiting":
            assert time.monotonic() < deadline
            yield reply.json["position"]
            await asyncio.sleep(0.15)


def gateway_pids(product: Product) -> list[int]:
    return sorted(p for p, command in product.running.left().items() if "gateway_asgi" in command)


async def kill_gateways(product: Product, valkey: Valkey) -> set[int]:
    """Kill three gateways, one after the other, each once the line has moved on meanwhile."""
    killed: set[int] = set()
    for _ in range(3):
        seen = valkey.client.xlen(ROOM + "events")
        while valkey.client.xlen(ROOM + "events") < seen + 25:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
        victim = next(p for p in gateway_pids(product) if p not in killed)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        killed.add(victim)
    return killed


def events(client: redis.Redis) -> list[dict[str, str]]:
    return [
        {name.decode(): value.decode() for name, value in fields.items()}
        for _, fields in client.xrange(ROOM + "events")
    ]


def most_holders(log: list[dict[str, str]]) -> int:
    """Replay the log: how many held a slot at once, at most."""
    holders: set[str] = set()
    most = 0
    for event in log:
        match event["kind"]:
            case "granted" | "admitted":
                holders.add(event["sid"])
            case "joined" | "returned":
                pass
            case _:
                holders.discard(event["sid"])
        most = max(most, len(holders))
    return most


async def test_wr_01_wr_02_gateways_die_under_load_and_no_slot_is_lost_or_given_twice(
    product: Product, valkey: Valkey
) -> None:
    port = int(product.site.rpartition(":")[2])
    guests = [Guest(Visitor(port)) for _ in range(CROWD)]
    try:
        arrivals = await together(guests, Guest.arrive, width=30)
        assert [a.status for a in arrivals].count(200) == CAPACITY
        async with asyncio.TaskGroup() as tasks:
            killing = tasks.create_task(kill_gateways(product, valkey))
            for guest in guests:
                tasks.create_task(guest.wait_and_visit())
    finally:
        await together(guests, lambda guest: guest.visitor.close())
    killed = killing.result()

    log = events(valkey.client)
    assert all(int(e["active"]) + int(e["granted"]) <= CAPACITY for e in log)
    assert most_holders(log) == CAPACITY
    granted = [int(e["ticket"]) for e in log if e["kind"] == "granted"]
    assert granted == list(range(1, CROWD - CAPACITY + 1)), "by number, each once"
    for guest in guests:
        assert all(later <= earlier for earlier, later in pairwise(guest.positions))
    assert sum(guest.broken for guest in guests) > 0, "somebody was hit"

    for part in ("active", "granted", "queue", "parked", "visitor", "inside"):
        key = ROOM + part
        eventually(
            lambda key=key: not valkey.client.exists(key), within_s=30, what=f"{part} is empty"
        )
    back = eventually(lambda: len(pids) == 3 and pids if (pids := gateway_pids(product)) else None)
    assert not killed & set(back)
