"""How fast the room script is, and what a waiting visitor costs.

Run: `python -m benchmarks.room_script`.

Fills one room of a private Valkey with 0, 10⁴, 10⁵ and 10⁶ waiting visitors and measures enter,
poll and heartbeat: calls/s of one connection that sends one call at a time (so the figure is a
round trip), and the script's own time, which is what holds the store, as p50 and p99, and the bytes
per waiting visitor. Then the same of a room in order of rank with people in front, of the lane, and
of calls that reach every bound.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from queueing.config import Order, RoomConfig, RoomId
from queueing.connection import Connection
from queueing.keys import room_key
from queueing.places import Reason
from queueing.store import RoomStore
from tests.support.valkey import Valkey, running_valkey

ROOM = RoomId("bench")
INSIDE = 400


def sid(number: int) -> str:
    """Give the n-th visitor of the benchmark."""
    return f"{number:016d}"


def rank_of(number: int) -> int:
    """Give a third of the visitors a rank from 1 to 6."""
    return number % 7 if number % 3 == 0 else 0


def fill(valkey: Valkey, start: int, stop: int, *, ranked: bool = False) -> None:
    """Put visitors start+1…stop into the line, with check-ins spread over the last 30 s."""
    clock, _ = valkey.client.hget(room_key(ROOM, "config"), "clock").split(b",")
    now, pipe = int(clock), valkey.client.pipeline(transaction=False)
    for number in range(start + 1, stop + 1):
        pipe.zadd(room_key(ROOM, "queue"), {sid(number): number})
        pipe.zadd(room_key(ROOM, "seen"), {sid(number): now - random.randrange(30_000)})
        rank = rank_of(number) if ranked else 0
        client = f"203.0.{number % 65536 // 256}.{number % 256}"
        record = f"{number},{rank},{now},0,0,0,0,{client},0,"
        if rank:
            pipe.zadd(room_key(ROOM, "ranked"), {sid(number): (7 - rank) * 2**40 + number})
        pipe.hset(room_key(ROOM, "visitor"), sid(number), record)
        if number % 5000 == 0:
            pipe.execute()
    pipe.set(room_key(ROOM, "seq"), stop)
    pipe.hincrby(room_key(ROOM, "counters"), "joined", stop - start)
    pipe.execute()


async def measure(valkey: Valkey, calls: int, act: Callable[[int], Awaitable[object]]) -> str:
    """Run `act` one after the other; give calls/s and the script's own p50 and p99 in µs."""
    valkey.client.config_resetstat()
    trips = []
    began = time.perf_counter()
    for number in range(calls):
        sent = time.perf_counter()
        await act(number)
        trips.append(time.perf_counter() - sent)
    seconds = time.perf_counter() - began
    stats = valkey.client.info("latencystats")["latency_percentiles_usec_evalsha"]
    trips.sort()
    trip = f"{trips[len(trips) // 2] * 1e6:5.0f} {trips[len(trips) * 99 // 100] * 1e6:6.0f}"
    return f"{calls / seconds:8.0f} {stats['p50']:8.0f} {stats['p99']:8.0f}   {trip}"


async def run(sizes: list[int], calls: int) -> None:
    """Print the table."""
    with running_valkey() as valkey:
        connection = Connection(valkey.url, timeout_s=5)
        store = RoomStore(connection)
        config = RoomConfig(id=ROOM, capacity=INSIDE, max_queue=0, entries_per_minute=0)
        await store.configure(config)
        now = int(time.time() * 1000)
        inside = [f"inside{number:010d}" for number in range(INSIDE)]
        await store.adopt(ROOM, inside)
        print("operation    waiting  calls/s   p50 µs   p99 µs   trip p50/p99 µs")
        filled, fresh = 0, 10**9
        for size in sizes:
            before = valkey.client.info("memory")["used_memory"]
            fill(valkey, filled, size)
            after = valkey.client.info("memory")["used_memory"]

            async def enter(number: int, first: int = fresh) -> None:
                await store.enter(ROOM, sid(first + number), client="203.0.113.9", iat_ms=now)

            async def poll(number: int, size: int = size) -> None:
                who = sid(random.randrange(1, max(2, size)))
                await store.poll(ROOM, who, iat_ms=now, ticket=1, shown=1)

            async def heartbeat(_: int) -> None:
                await store.heartbeat(ROOM, [random.choice(inside)])

            async def tick(_: int) -> None:
                await store.tick(ROOM)

            for act in (enter, poll, heartbeat, tick):
                row = await measure(valkey, calls, act)
                print(f"{act.__name__:10s} {size:9d} {row}", flush=True)
            if size > filled:
                print(f"  bytes per waiting visitor: {(after - before) / (size - filled):.0f}")
            filled, fresh = size, fresh + calls
        await connection.close()


async def ranks(size: int, calls: int) -> None:
    """Print the same of a line in order of rank, a third of it ranked and 300 in front."""
    with running_valkey() as valkey:
        connection = Connection(valkey.url, timeout_s=5)
        store = RoomStore(connection)
        config = RoomConfig(
            id=ROOM, capacity=INSIDE, max_queue=0, entries_per_minute=0, order=Order.RANK
        )
        await store.configure(config)
        now = int(time.time() * 1000)
        await store.adopt(ROOM, [f"inside{number:010d}" for number in range(INSIDE)])
        before = valkey.client.info("memory")["used_memory"]
        fill(valkey, 0, size, ranked=True)
        each = (valkey.client.info("memory")["used_memory"] - before) / size

        async def ranked_enter(number: int) -> None:
            await store.enter(
                ROOM, sid(10**9 + number), client="203.0.113.9", iat_ms=now, rank=number % 3
            )

        async def ranked_poll(_: int) -> None:
            await store.poll(ROOM, sid(random.randrange(1, size)), iat_ms=now, ticket=1, shown=1)

        async def ranked_turn(number: int) -> None:
            await store.release(ROOM, f"inside{number:010d}")

        async def pay(number: int) -> None:
            who = sid(random.randrange(1, size))
            await store.advance(ROOM, who, reason=Reason.PAID, payment=f"p{number}")

        async def front_poll(number: int) -> None:
            await ranked_poll(number)

        for act, times in (
            (ranked_enter, calls),
            (ranked_poll, calls),
            (ranked_turn, INSIDE),
            (pay, 300),
            (front_poll, calls),
        ):
            row = await measure(valkey, times, act)
            print(f"{act.__name__:12s} {size:9d} {row}", flush=True)
        print(f"  bytes per waiting visitor, a third ranked: {each:.0f}")
        await connection.close()


async def lane(waiting: int, calls: int) -> None:
    """Print what a form costs in a lane of 1,000 slots for which as many others wait as given."""
    with running_valkey() as valkey:
        connection = Connection(valkey.url, timeout_s=5)
        store = RoomStore(connection)
        config = RoomConfig(
            id=ROOM, capacity=1, priority_cap=1_000, lease_ttl_ms=600_000, priority_wait_ms=60_000
        )
        await store.configure(config)
        await store.adopt(ROOM, ["inside"])

        async def form(number: int) -> None:
            words = {"client": "203.0.113.9", "iat_ms": int(time.time() * 1000)}
            who, lease = sid(number), f"lease-{number}"
            await store.enter(ROOM, who, **words, lease=lease, form=True, lane_wait=True)

        async def form_ends(number: int) -> None:
            await store.release(ROOM, f"lease-{number}")

        async def form_asks(number: int) -> None:
            first = calls + number % waiting
            await store.lane(ROOM, [f"lease-{1_000 + n}" for n in range(first, first + 25)])

        for act, times in ((form, 1_000 + waiting + calls), (form_ends, 1_000), (form_asks, 1_000)):
            print(f"{act.__name__:12s} {waiting:9d} {await measure(valkey, times, act)}")
        await connection.close()


async def churn(calls: int) -> None:
    """Print what a call costs that reaches every bound: 25 parked, 25 granted."""
    with running_valkey() as valkey:
        connection = Connection(valkey.url, timeout_s=5)
        store = RoomStore(connection)
        await store.configure(RoomConfig(id=ROOM, capacity=10**6, mode="paused", max_queue=0))
        await store.tick(ROOM)
        fill(valkey, 0, 200 * calls)
        seen = room_key(ROOM, "seen")
        pipe = valkey.client.pipeline(transaction=False)
        for number in range(1, 100 * calls + 1):
            pipe.zadd(seen, {sid(2 * number): 1_000_000_000_000})
        pipe.execute()
        valkey.client.hset(room_key(ROOM, "config"), "mode", "open")

        async def tick(_: int) -> None:
            await store.tick(ROOM)

        print(f"{'busy tick':10s} {100 * calls:9d} {await measure(valkey, calls, tick)}")
        await connection.close()


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="0,10000,100000,1000000")
    parser.add_argument("--calls", type=int, default=20_000)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    asyncio.run(run(sizes, options.calls))
    asyncio.run(ranks(max(sizes), options.calls))
    asyncio.run(lane(5_000, options.calls // 4))
    asyncio.run(churn(500))


if __name__ == "__main__":
    main()
