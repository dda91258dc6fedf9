"""What request slots, assets and a long line cost a gateway.

Run: `python -m benchmarks.tiers [--seconds 6] [--line 10000]`. Pages in unit `requests` and assets
with a pass: one gateway process on the first core, nginx, wrk and the store on the last. The line:
so many people wait for pages in a room that counts requests, and each asks once in the interval
that the gateway tells it; what gateway and store then use of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace

from benchmarks.rig import Figure, NginxOrigin, admitted_cookie, cpu_seconds, gateway_before, wrk
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import Unit
from tests.support.crowd import Visitor, together
from tests.support.gateways import Gateways, Origin

# One pass on 64 connections: more than one visitor may have at once.
QUIET = GatewaySettings(access_log=False, asset_user_cap_h1=1024)


def throughput(world: Gateways, seconds: int) -> dict[str, Figure]:
    """Load pages of either unit and assets, one after the other, with the same kind of pass."""
    found: dict[str, Figure] = {}
    pid, tiers = world.one.process.pid, {"assets": ("/static/*",), "public_assets": ("/img/*",)}
    for unit in Unit:
        room = world.room(
            capacity=1_000,
            unit=unit,
            entries_per_minute=0,
            refresh_ms=120_000,
            active_ttl_ms=300_000,
        )
        world.publish(room, settings=QUIET, **tiers)
        held = admitted_cookie(world.one, room)
        for what, path in (("pages", "/"), ("assets with a pass", "/static/app.css")):
            wrk(world.one.url + path, pid, 1, held)
            name = f"{what}, unit {unit}"
            found[name] = wrk(world.one.url + path, pid, seconds, held)
    found["public assets"] = wrk(world.one.url + "/img/logo.png", pid, seconds)
    found["assets without a pass (403)"] = wrk(world.one.url + "/static/app.css", pid, seconds)
    settings = replace(QUIET, asset_user_cap_h1=8)
    world.publish(room, settings=settings, **tiers)
    held = admitted_cookie(world.one, room)
    crowded = wrk(world.one.url + "/static/app.css", pid, seconds, held)
    found["assets, one pass on 64 connections, 8 at once"] = crowded
    return found


async def line(world: Gateways, waiting: int, seconds: int) -> list[tuple[str, str]]:
    """Let a crowd wait for one slot that is taken, checking in as told; measure both processes."""
    room = world.room(capacity=1, unit=Unit.REQUESTS, entries_per_minute=0, lease_ttl_ms=600_000)
    await asyncio.to_thread(world.publish, room, settings=QUIET)
    world.origin.hold.clear()
    crowd = [Visitor(world.one.port) for _ in range(waiting)]

    async def join(visitor: Visitor) -> None:
        await visitor.get("/")
        await visitor.get("/slow")
        await visitor.close()

    first = Visitor(world.one.port)
    await first.get("/")
    inside = asyncio.create_task(first.get("/slow"))
    await asyncio.sleep(0.5)
    began = time.monotonic()
    await together(crowd, join, width=100)
    joined_s = time.monotonic() - began
    pids = {"gateway": world.one.process.pid}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    began, polls = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        some = crowd[polls % waiting : polls % waiting + 100]
        await together(some, lambda v: _look(v, room.id), width=50)
        polls += len(some)
        ahead = began + polls * 30 / waiting - time.monotonic()
        await asyncio.sleep(max(0.0, ahead))
    spent = time.monotonic() - began
    used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    world.origin.hold.set()
    await inside
    await first.close()
    return [
        (f"{waiting} people join", f"{waiting / joined_s:,.0f}/s"),
        ("status checks, one of each visitor in 30 s", f"{polls / spent:,.0f}/s"),
        ("gateway, of a core", f"{100 * used['gateway'] / spent:.0f} %"),
        ("gateway, CPU for a check", f"{1e6 * used['gateway'] / max(1, polls):,.0f} µs"),
    ]


async def _look(visitor: Visitor, room: str) -> None:
    answer = await visitor.get(f"/__corvus/wr/{room}/status")
    assert answer.json["state"] in ("waiting", "granted"), answer.json
    await visitor.close()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--line", type=int, default=10_000)
    given = parser.parse_args()
    print("| what | requests/s | CPU µs/request | p99 ms | bad |")
    print("|---|---|---|---|---|")
    with gateway_before(NginxOrigin()) as world:
        for name, f in throughput(world, given.seconds).items():
            row = f"{f.per_second:,.0f} | {f.cpu_us:.0f} | {f.p99_ms:.1f} | {f.bad}"
            print(f"| {name} | {row} |", flush=True)
    print("\n| a line in unit requests | figure |")
    print("|---|---|")
    with gateway_before(Origin()) as world:
        for what, figure in asyncio.run(line(world, given.line, max(10, given.seconds * 2))):
            print(f"| {what} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
