"""Requests per second and CPU per request of the gateway, against its server and its origin.

Run: `python -m benchmarks.gateway [--seconds 8]`. One gateway process on the first core; nginx as
the origin, wrk with 64 connections and the store on the last. Compare ratios, not absolutes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import median

from benchmarks.rig import (
    Figure,
    NginxOrigin,
    admitted_cookie,
    gateway_before,
    server_of,
    wrk,
)
from proxy.gateway.snapshot import GatewaySettings
from tests.support.gateways import BROWSER

HELLO = ["corvus_site.server", "--app", "benchmarks.hello:application", "--fd", "{fd}"]
STOCK = ["daphne", "--fd", "{fd}", "-v", "0", "benchmarks.hello:application"]


def best(figures: list[Figure]) -> Figure:
    """Give the run in the middle by CPU."""
    middle = median(f.cpu_us for f in figures)
    return min(figures, key=lambda f: abs(f.cpu_us - middle))


def rows(seconds: int, rounds: int) -> dict[str, Figure]:
    """Measure every row, in turn, `rounds` times."""
    found: dict[str, list[Figure]] = {}
    for _ in range(rounds):
        with server_of(STOCK) as (url, pid):
            found.setdefault("stock Daphne, raw hello", []).append(wrk(url, pid, seconds))
        with server_of(HELLO) as (url, pid):
            found.setdefault("our server, raw hello", []).append(wrk(url, pid, seconds))
        origin = NginxOrigin()
        with gateway_before(origin) as world:
            pid, url = world.one.process.pid, world.one.url + "/"
            found.setdefault("(a) origin alone", []).append(wrk(origin.url, origin.worker, seconds))
            # One pass on 64 connections: more than one visitor may have at once (WR-35).
            quiet = GatewaySettings(access_log=False, asset_user_cap_h1=1024)
            room = world.room(capacity=100, refresh_ms=120_000, active_ttl_ms=300_000)
            world.publish(room, settings=quiet)
            pass_ = admitted_cookie(world.one, room)
            world.publish(settings=quiet)
            wrk(url, pid, 1)
            bare = wrk(url, pid, seconds)
            found.setdefault("(b) gateway, no room, no cookie", []).append(bare)
            # The same bytes as an admitted visitor sends, so that (c) differs by the room alone.
            found.setdefault("(b) gateway, no room", []).append(wrk(url, pid, seconds, pass_))
            world.publish(room, settings=quiet)
            found.setdefault("(c) room, admitted", []).append(wrk(url, pid, seconds, pass_))
            flood = wrk(url, pid, seconds, BROWSER)
            found.setdefault("(d) cookie-less flood", []).append(flood)
            world.publish(room, settings=replace(quiet, access_log=True))
            pass_ = admitted_cookie(world.one, room)
            logged = wrk(url, pid, seconds, pass_)
            found.setdefault("(c) with the access log", []).append(logged)
    return {name: best(figures) for name, figures in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    figures = rows(given.seconds, given.rounds)
    print("| what | requests/s | CPU µs/request | p99 ms | bad |")
    print("|---|---|---|---|---|")
    for name, f in figures.items():
        print(f"| {name} | {f.per_second:,.0f} | {f.cpu_us:.0f} | {f.p99_ms:.1f} | {f.bad} |")
    hello, plain = figures["our server, raw hello"], figures["(b) gateway, no room"]
    stock, inside = figures["stock Daphne, raw hello"], figures["(c) room, admitted"]
    print()
    print(f"(b) / our raw hello: {plain.per_second / hello.per_second:.2f}")
    print(f"(b) / stock Daphne's raw hello: {plain.per_second / stock.per_second:.2f}")
    print(f"(c) / (b): {inside.per_second / plain.per_second:.2f}")
    print(f"fast path adds {inside.cpu_us - plain.cpu_us:.0f} µs")


if __name__ == "__main__":
    main()
