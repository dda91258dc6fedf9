"""How often visitors cost the store a call, in rooms of either unit.

Run: `python -m benchmarks.store_calls [--seconds 40] [--pages 300]`. Unit `visitors`: one visitor
browses at 20 requests a second; the gateway counts which of them were let through by the pass
alone. Unit `requests`: pages one after the other through a relay that notes each call, then as many
as wrk can ask for, with the gateway's CPU per page.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter

from benchmarks.rig import NginxOrigin, admitted_cookie, gateway_before, wrk
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import Unit
from tests.support.crowd import Visitor
from tests.support.gateways import Gateways
from tests.support.halting_relay import halting_relay

Row = tuple[str, str]


def visitors(world: Gateways, seconds: int) -> list[Row]:
    """Browse as one admitted visitor."""
    room = world.room(capacity=10)
    world.publish(room)
    with world.one.api() as visitor:
        visitor.get("/")
        visitor.get("/")
        started, requests, renewed = time.monotonic(), 0, 0
        while time.monotonic() - started < seconds:
            answer = visitor.get("/")
            assert answer.status_code == 200
            requests += 1
            renewed += "set-cookie" in answer.headers
            time.sleep(0.05)
    fast = world.stats()["rooms"][room.id]["counters"]["fast"]
    return [
        ("requests of one admitted visitor", f"{requests} in {seconds} s"),
        ("let through by the pass alone (0 store calls)", f"{fast}"),
        ("store calls per visitor and minute", f"{(requests - fast) * 60 / seconds:.1f}"),
        ("passes renewed", f"{renewed}"),
    ]


async def calls_per_page(world: Gateways, pages: int) -> list[Row]:
    """Count the calls of pages that each hold a slot; ticks and looks go on without visitors."""
    room = world.room(capacity=10, unit=Unit.REQUESTS, entries_per_minute=0)
    async with halting_relay(world.store_url) as relay:
        gateway = await asyncio.to_thread(world.start, {"CORVUS_STORE_URL": relay.url})
        try:
            await asyncio.to_thread(world.publish, room)
            visitor = Visitor(gateway.port)
            await visitor.get("/")
            assert (await visitor.get("/")).status == 200
            await asyncio.sleep(0.5)
            relay.asked.clear()
            for _ in range(pages):
                assert (await visitor.get("/")).status == 200
            await asyncio.sleep(0.5)
            asked = Counter(relay.asked)
            await visitor.close()
        finally:
            gateway.process.kill()
            await asyncio.to_thread(gateway.process.wait)
            world.gateways.remove(gateway)
    visits = ("enter", "poll", "heartbeat", "release", "lane")
    return [
        (f"calls of {pages} pages, unit requests", f"{name}: {asked[name]}")
        for name in visits
        if asked[name]
    ] + [("store calls per page", f"{sum(asked[name] for name in visits) / pages:.2f}")]


def cost_of_a_page(world: Gateways, seconds: int) -> list[Row]:
    """Load a room that counts requests, and a room of visitors for comparison."""
    rows = []
    for unit in Unit:
        room = world.room(
            capacity=1_000,
            unit=unit,
            entries_per_minute=0,
            refresh_ms=120_000,
            active_ttl_ms=300_000,
        )
        world.publish(room, settings=GatewaySettings(access_log=False))
        pass_ = admitted_cookie(world.one, room)
        wrk(world.one.url + "/", world.one.process.pid, 1, pass_)
        figure = wrk(world.one.url + "/", world.one.process.pid, seconds, pass_)
        text = f"{figure.per_second:,.0f}/s, {figure.cpu_us:.0f} µs, {figure.bad} bad"
        rows.append((f"pages of an admitted visitor, unit {unit}", text))
    return rows


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--pages", type=int, default=300)
    given = parser.parse_args()
    with gateway_before(NginxOrigin()) as world:
        rows = visitors(world, given.seconds)
        rows += cost_of_a_page(world, max(1, given.seconds // 5))
        rows += asyncio.run(calls_per_page(world, given.pages))
    print("| what | figure |")
    print("|---|---|")
    for what, figure in rows:
        print(f"| {what} | {figure} |")


if __name__ == "__main__":
    main()
