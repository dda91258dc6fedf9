"""What a place in a pool costs: alone, against another process, when refused, when handed on.

Run: `python -m benchmarks.pools [--calls 100000]`. µs of wall time; both processes of a contended
row run flat out, which no gateway does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from proxy.gateway.pools import ASSETS, Pools, pass_key

MANY = 1 << 30
PASSES = [pass_key("shop", f"sid-{n}", "h2") for n in range(20_000)]

OTHER = """
import pathlib, sys
from proxy.gateway.pools import ASSETS, Pools
from benchmarks.pools import MANY, PASSES
pools, act = Pools(pathlib.Path(sys.argv[1])), sys.argv[2]
if act == "hold":
    for key in PASSES:
        pools.try_take(key, 8)
print("ready", flush=True)
if act == "hammer":
    while pools.try_take(ASSETS, MANY):
        pools.give_back(ASSETS)
sys.stdin.readline()
if act == "give":
    pools.give_back(ASSETS)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def other(folder: Path, act: str) -> Iterator[subprocess.Popen[str]]:
    """Run another process of the machine; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, folder, act],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def each_us(calls: int, act: Callable[[int], object]) -> float:
    """Give the median of five runs, µs a call."""
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        for number in range(calls // 5):
            act(number)
        rounds.append((time.perf_counter() - began) / (calls // 5) * 1e6)
    return statistics.median(rounds)


async def handed_on_us(pools: Pools, calls: int) -> float:
    """Give the µs for a place that goes from hand to hand among a hundred waiting tasks."""

    async def work() -> None:
        for _ in range(calls // 500):
            await pools.take(PASSES[0], 1, 60)
            pools.give_back(PASSES[0])

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(100)))
    return (time.perf_counter() - began) / (calls // 500 * 100) * 1e6


def report(folder: Path, calls: int) -> None:
    """Print the table."""
    pools = Pools(folder)

    def both(key: bytes) -> None:
        pools.try_take(key, MANY)
        pools.give_back(key)

    def row(name: str, value: float) -> None:
        print(f"| {name} | {value:,.1f} |")

    print("| | µs |\n|---|---|")
    row("`pass_key`", each_us(calls, lambda n: pass_key("shop", "0123456789abcdef", "h2")))
    row("take + give back, one pool", each_us(calls, lambda n: both(ASSETS)))
    row(
        "take + give back, 20,000 pools in turn", each_us(calls, lambda n: both(PASSES[n % 20_000]))
    )
    with other(folder, "hammer"):
        row("take + give back, same pool, a second process", each_us(calls, lambda n: both(ASSETS)))
        row(
            "take + give back, other pools, a second process",
            each_us(calls, lambda n: both(PASSES[n % 20_000])),
        )
    pools.try_take(ASSETS, MANY)
    row("refused, pool full", each_us(calls, lambda n: pools.try_take(ASSETS, 1)))
    pools.give_back(ASSETS)
    row("handed from waiter to waiter", asyncio.run(handed_on_us(pools, calls)))
    with other(folder, "hold") as holder:
        row(
            "take + give back, beside 20,000 pools in use",
            each_us(calls, lambda n: both(PASSES[n % 20_000])),
        )
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        began = time.perf_counter()
        while not pools.try_take(PASSES[-1], 1):
            pass
        row("20,000 places of a killed process are free", (time.perf_counter() - began) * 1e6)
    pools.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    with tempfile.TemporaryDirectory(prefix="corvus-pools-") as name:
        report(Path(name), parser.parse_args().calls)
