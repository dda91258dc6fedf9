"""A flood of requests without cookies: it costs the store nothing and nobody waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.crowd import Visitor, together
from tests.support.gateways import BROWSER, Gateway, Gateways
from tests.support.halting_relay import halting_relay

FLOODERS = 50
EACH = 100


def resident_bytes(gateway: Gateway) -> int:
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def lasting_keys(world: Gateways) -> list[bytes]:
    """Name the store's keys but those that limit the living visitor's own checks."""
    with world.redis as store:
        return sorted(key for key in store.scan_iter() if b":checks:" not in key)


class Flood:
    """Clients that keep no cookie; pages and programs by turns."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered = 0
        self.statuses: set[int] = set()

    async def strike(self, visitor: Visitor) -> None:
        reply = await visitor.get(f"/?{self.answered}")
        self.answered += 1
        self.statuses.add(reply.status)
        assert len(visitor.cookies) == 1, "one signed cookie each"
        visitor.cookies.clear()

    async def one_connection(self, number: int) -> None:
        visitor = Visitor(self.port, headers=dict(BROWSER) if number % 2 else {})
        for _ in range(EACH):
            await self.strike(visitor)
        await visitor.close()

    async def one_shot(self, number: int) -> None:
        visitor = Visitor(self.port, headers=dict(BROWSER) if number % 2 else {})
        await self.strike(visitor)
        await visitor.close()


BEAT = {"TIME", "ZADD", "ZREMRANGEBYSCORE", "PEXPIRE", "ZCARD"}
"""How a machine tells, once a second whatever visitors do, that it lives."""


async def test_wr_31_a_cookieless_flood_writes_nothing_and_starves_nobody(world: Gateways) -> None:
    room = world.room(capacity=0, polls_per_second=100)
    async with halting_relay(world.store_url) as relay:
        gateway = await asyncio.to_thread(world.start, {"CORVUS_STORE_URL": relay.url})
        try:
            await asyncio.to_thread(world.publish, room)
            living = Visitor(gateway.port)
            await living.get("/")
            assert (await living.get("/")).json["position"] == 1
            flood = Flood(gateway.port)
            await together(range(500), flood.one_shot, width=FLOODERS)  # warm by then
            before = resident_bytes(gateway)
            stats, keys = world.operator(room, "stats"), lasting_keys(world)
            relay.asked.clear()

            striking = asyncio.create_task(together(range(FLOODERS), flood.one_connection))
            overtaken, polls = [], 0
            while not striking.done():
                since = flood.answered
                reply = await living.get(f"/__corvus/wr/{room.id}/status")
                assert (reply.status, reply.json["position"]) == (200, 1)
                overtaken.append(flood.answered - since)
                polls += 1
            await striking

            assert flood.statuses == {302, 429}
            assert max(overtaken) <= 10 * FLOODERS, "a living visitor gets its turn"
            assert relay.asked.count("poll") == polls
            reads = {"poll", "tick", "stats", "GET", "XRANGE", "XREVRANGE"}
            assert set(relay.asked) - reads <= BEAT, "no writes"
            after = world.operator(room, "stats")
            assert (after.totals, after.counts) == (stats.totals, stats.counts)
            assert lasting_keys(world) == keys
            assert resident_bytes(gateway) - before < 10_000_000
            await living.close()
        finally:
            gateway.process.kill()
            await asyncio.to_thread(gateway.process.wait)
            world.gateways.remove(gateway)
