"""A PHP page that fails above four at once, behind two gateways and before two hundred clients."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from queueing.config import RoomConfig, Unit
from queueing.page_builder import build_bundle
from tests.support.crowd import Reply, Visitor, together
from tests.support.gateways import Gateways, running_gateways
from tests.support.php_server import running_php
from tests.support.running import eventually
from tests.support.valkey import running_valkey

CLIENTS = 200
WORKERS = 4
WITHIN_S = 90


@dataclass(frozen=True)
class Pool:
    """The site, and what it counted."""

    url: str
    count_file: Path

    def counted(self) -> tuple[int, int, int, int]:
        """Give how many are inside, the most there were, how many were served, how many failed."""
        inside, most, served, failed = map(int, self.count_file.read_text().split())
        return inside, most, served, failed


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    count = tmp_path / "count"
    count.write_text("0 0 0 0\n")
    with running_php(tmp_path, POOL_COUNT=str(count)) as url:
        yield Pool(url, count)


@pytest.fixture(scope="module")
def bundle() -> bytes:
    return build_bundle()


@pytest.fixture
def world(bundle: bytes) -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, bundle, 2) as running:
        yield running


class Client:
    """An API client that keeps its cookies, polls its place, and goes to another gateway when its
    own does not answer, as behind a load balancer.
    """

    def __init__(self, name: str, room: RoomConfig, ports: list[int]) -> None:
        self.name = name
        self.room = room
        self.ports = ports
        self.visitor = Visitor(ports[0])
        self.pages: list[Reply] = []
        self.turns_lost = 0

    async def ask(self, target: str, method: str = "GET") -> Reply:
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                return await self.visitor.get(target, method)
            except (OSError, asyncio.IncompleteReadError):
                assert time.monotonic() < deadline, f"{self.name} reaches no gateway"
                await self.visitor.close()
                self.ports = self.ports[1:] + self.ports[:1]
                self.visitor = Visitor(self.ports[0], cookies=self.visitor.cookies)

    async def be_served(self) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not self.pages:
            answer = await self.ask(f"/pool.php?visitor={self.name}")
            if answer.status != 429:
                self.pages.append(answer)
            while not self.pages and (behind := await self._behind()):
                assert time.monotonic() < deadline, f"{self.name} waits too long"
                await asyncio.sleep(min(2.0, 0.03 + 0.02 * behind))
        await self.visitor.close()

    async def _behind(self) -> int:
        """Tell the place in line; 0 when it is this client's turn to ask for the page."""
        answer = (await self.ask(f"/__corvus/wr/{self.room.id}/status")).json
        if answer["state"] == "missed":
            # The page was under way in the killed gateway, so the turn is used up.
            self.turns_lost += 1
            await self.ask(answer["rejoin_url"], "POST")
            return 1
        assert answer["state"] in ("waiting", "granted", "none", "active"), answer
        return int(answer["position"]) if answer["state"] == "waiting" else 0


def crowd(world: Gateways, room: RoomConfig) -> list[Client]:
    ports = [gateway.port for gateway in world.gateways]
    orders = itertools.cycle([ports, ports[::-1]])
    return [Client(f"c{number:03d}", room, list(next(orders))) for number in range(CLIENTS)]


def a_room(world: Gateways, pool: Pool) -> RoomConfig:
    room = world.room(
        capacity=WORKERS,
        unit=Unit.REQUESTS,
        entries_per_minute=0,
        polls_per_second=100,
        lease_ttl_ms=3_000,
    )
    world.publish(room, origin=pool.url)
    return room


def assert_all_were_served(clients: list[Client], pool: Pool) -> None:
    for client in clients:
        (page,) = client.pages
        assert page.status == 200, page.body
        assert page.json["served"] == client.name, page.body
    inside, most, served, failed = pool.counted()
    assert (inside, failed) == (0, 0)
    assert served >= CLIENTS
    assert most <= WORKERS


def free_slots(world: Gateways, room: RoomConfig) -> bool:
    counts = world.operator(room, "stats").counts
    return (counts.active, counts.granted, counts.waiting, counts.parked) == (0, 0, 0, 0)


async def test_two_hundred_clients_are_served_and_never_more_than_four_pages_run(
    world: Gateways, pool: Pool
) -> None:
    room = a_room(world, pool)
    clients = crowd(world, room)
    await together(clients, Client.be_served, width=CLIENTS)
    assert_all_were_served(clients, pool)
    assert pool.counted()[2] == CLIENTS, "nobody was served twice"
    assert pool.counted()[1] > 1, "slots are used side by side"
    assert sum(client.turns_lost for client in clients) == 0
    await asyncio.to_thread(eventually, lambda: free_slots(world, room), what="slots given back")


async def test_the_bound_holds_while_a_gateway_is_killed(world: Gateways, pool: Pool) -> None:
    room = a_room(world, pool)
    clients = crowd(world, room)
    visits = asyncio.ensure_future(together(clients, Client.be_served, width=CLIENTS))
    await asyncio.to_thread(
        eventually, lambda: pool.counted()[2] >= 40 or visits.done(), what="some were served"
    )
    assert not visits.done()
    victim = world.gateways[0].process
    victim.send_signal(signal.SIGKILL)
    await asyncio.to_thread(victim.wait)
    await visits
    assert_all_were_served(clients, pool)
    assert sum(client.turns_lost for client in clients) <= WORKERS
    await asyncio.to_thread(eventually, lambda: free_slots(world, room), what="dead leases ran out")
