"""Pools hold among all processes of a machine, whatever is killed; who waits is served in order."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.gateway.pools import ASSETS, STREAMS, Pools, pass_key
from tests.support.pool_processes import DEADLINE_S, Other, until_taken

PASS = pass_key("shop", "sid-1", "h1")

# Counts by a file and a lock of its own who is inside at the same time, and how many ever were.
HAMMER = """
import asyncio, fcntl, os, pathlib, struct, sys
from proxy.gateway.pools import ASSETS, Pools
folder, counter, most, tasks, rounds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
pools, file = Pools(pathlib.Path(folder)), os.open(counter, os.O_RDWR)

def count(change):
    fcntl.flock(file, fcntl.LOCK_EX)
    now, highest, came = struct.unpack("<QQQ", os.pread(file, 24, 0))
    now += change
    came += change > 0
    os.pwrite(file, struct.pack("<QQQ", now, max(now, highest), came), 0)
    fcntl.flock(file, fcntl.LOCK_UN)

async def work():
    for _ in range(rounds):
        if await pools.take(ASSETS, most, 15):
            count(1)
            await asyncio.sleep(0)
            count(-1)
            pools.give_back(ASSETS)

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(work() for _ in range(tasks)))

asyncio.run(main())
pools.close()
"""

# A crowd of this process that would fill the pool for ever.
CROWD = """
import asyncio, pathlib, sys
from proxy.gateway.pools import ASSETS, Pools
pools = Pools(pathlib.Path(sys.argv[1]))

async def work(number):
    while True:
        if await pools.take(ASSETS, 2, 15):
            await asyncio.sleep(0.001)
            pools.give_back(ASSETS)
            if number == 0:
                print("round", flush=True)

async def main():
    await asyncio.gather(*(work(number) for number in range(40)))

asyncio.run(main())
"""


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    pools = Pools(tmp_path)
    yield pools
    pools.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    other = Other(tmp_path)
    yield other
    other.kill()


async def waits(pools: Pools, key: bytes, most: int) -> asyncio.Task[bool]:
    """Start to wait for a place; returns when it stands in the line."""
    task = asyncio.create_task(pools.take(key, most, DEADLINE_S))
    await asyncio.sleep(0)
    assert pools.figures()["waiting_here"]
    return task


def test_four_processes_with_a_hundred_tasks_never_hold_more_than_there_is(tmp_path: Path) -> None:
    most, tasks, rounds = 7, 25, 40
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(24))
    hammers = [
        Other(tmp_path / "run", HAMMER, str(counter), str(most), str(tasks), str(rounds))
        for _ in range(4)
    ]
    assert [hammer.told() for hammer in hammers] == ["ready"] * 4
    for hammer in hammers:
        hammer.tell("go")
    assert [hammer.process.wait(60) for hammer in hammers] == [0] * 4
    for hammer in hammers:
        hammer.end()
    now, highest, came = struct.unpack("<QQQ", counter.read_bytes())
    assert (now, highest) == (0, most)
    assert came == 4 * tasks * rounds, "and nobody went without in fifteen seconds"
    after = Pools(tmp_path / "run")
    assert after.in_use(ASSETS) == 0
    after.close()


def test_each_pool_is_bound_over_all_processes(pools: Pools, other: Other) -> None:
    assert pools.try_take(PASS, 2)
    assert other.takes(PASS, 2)
    assert not pools.try_take(PASS, 2)
    assert not other.takes(PASS, 2)
    assert other.takes(pass_key("shop", "sid-1", "h2"), 2), "each family has its own"
    assert other.takes(pass_key("shop", "sid-2", "h1"), 2)
    assert other.takes(STREAMS, 1)
    assert pools.in_use(PASS) == 2
    pools.give_back(PASS)
    assert other.takes(PASS, 2)
    assert not pools.try_take(STREAMS, 1)
    assert pools.try_take(ASSETS, 1)
    assert not pools.try_take(ASSETS, 0)


def test_a_killed_process_frees_its_places_and_a_new_one_does_not_inherit(
    pools: Pools, tmp_path: Path
) -> None:
    holder = Other(tmp_path)
    assert [holder.takes(ASSETS, 3) for _ in range(4)] == [True, True, True, False]
    assert holder.takes(PASS, 1)
    assert not pools.try_take(ASSETS, 3)
    holder.kill()
    began = time.monotonic()
    until_taken(pools, ASSETS, 3)
    assert time.monotonic() - began < 5
    assert pools.try_take(PASS, 1)
    heir = Other(tmp_path)
    assert [heir.takes(ASSETS, 3) for _ in range(3)] == [True, True, False]
    assert not heir.takes(PASS, 1)
    assert pools.figures()["processes_died"] == 1
    heir.kill()


async def test_who_waits_gets_the_place_of_a_process_that_is_killed(
    pools: Pools, tmp_path: Path
) -> None:
    holder = Other(tmp_path)
    assert holder.takes(ASSETS, 1)
    waiting = await waits(pools, ASSETS, 1)
    holder.kill()
    assert await waiting
    assert pools.in_use(ASSETS) == 1


async def test_places_of_other_processes_reach_who_waits(pools: Pools, other: Other) -> None:
    assert other.takes(PASS, 1)
    waiting = await waits(pools, PASS, 1)
    other.gives_back(PASS)
    assert await waiting
    assert not other.takes(PASS, 1)


async def test_a_crowd_in_one_process_does_not_shut_out_those_of_another(
    pools: Pools, tmp_path: Path
) -> None:
    crowd = Other(tmp_path, CROWD)
    assert crowd.told() == "round"
    for _ in range(3):
        began = time.monotonic()
        assert await pools.take(ASSETS, 2, DEADLINE_S)
        assert time.monotonic() - began < 5
        pools.give_back(ASSETS)
    crowd.kill()


async def test_first_come_first_served_within_a_process(pools: Pools) -> None:
    assert pools.try_take(PASS, 1)
    served: list[int] = []

    async def come(number: int) -> None:
        assert await pools.take(PASS, 1, DEADLINE_S)
        served.append(number)

    tasks = []
    for number in range(8):
        tasks.append(asyncio.create_task(come(number)))
        await asyncio.sleep(0)
        assert pools.figures()["waiting_here"] == number + 1
    assert not pools.try_take(PASS, 1)
    for _ in range(8):
        pools.give_back(PASS)
        assert not pools.try_take(PASS, 1), "it belongs to who waits already"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert served == list(range(8))
    assert pools.in_use(PASS) == 1


async def test_who_waits_long_enough_goes_without(pools: Pools) -> None:
    assert pools.try_take(PASS, 1)
    began = time.monotonic()
    assert not await pools.take(PASS, 1, 0.05)
    assert 0.04 < time.monotonic() - began < 5
    assert not await pools.take(PASS, 1, 0)
    assert pools.in_use(PASS) == 1
    assert pools.figures()["waiting_here"] == 0


async def test_a_cancelled_waiter_leaves_nothing_behind_and_the_next_is_served(
    pools: Pools,
) -> None:
    assert pools.try_take(PASS, 1)
    first, second, third = [await waits(pools, PASS, 1) for _ in range(3)]
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert pools.figures()["waiting_here"] == 2
    pools.give_back(PASS)  # goes to the second,
    second.cancel()  # who has gone before it knew
    await asyncio.gather(second, return_exceptions=True)
    assert first.cancelled()
    assert second.cancelled()
    assert await third
    assert pools.in_use(PASS) == 1
    pools.give_back(PASS)
    assert pools.in_use(PASS) == 0
    assert pools.figures()["waiting_here"] == 0


async def test_a_new_limit_holds_from_the_next_call(pools: Pools) -> None:
    assert all(pools.try_take(ASSETS, 4) for _ in range(4))
    for _ in range(2):
        pools.give_back(ASSETS)
        assert not pools.try_take(ASSETS, 2), "lowered: it has to empty first"
    pools.give_back(ASSETS)
    assert pools.try_take(ASSETS, 2)
    waiting = [await waits(pools, ASSETS, 2) for _ in range(3)]
    newcomer = await waits(pools, ASSETS, 4)  # raised by two: for those who were here before
    assert await waiting[0]
    assert await waiting[1]
    assert pools.in_use(ASSETS) == 4
    assert not pools.try_take(ASSETS, 3), "lowered again, with people waiting"
    pools.give_back(ASSETS)
    deadline = time.monotonic() + 0.06  # two looks
    while time.monotonic() < deadline:
        await asyncio.sleep(0)
        assert not waiting[2].done()
    for _ in range(3):
        pools.give_back(ASSETS)
    assert await asyncio.gather(waiting[2], newcomer) == [True, True]


async def test_closing_gives_back_and_lets_nobody_wait_on(tmp_path: Path, other: Other) -> None:
    closing = Pools(tmp_path)
    assert closing.try_take(ASSETS, 1)
    waiting = await waits(closing, ASSETS, 1)
    closing.close()
    assert not await waiting
    assert other.takes(ASSETS, 1)
    closing.give_back(ASSETS)  # of an exchange that ends late
    assert not closing.try_take(ASSETS, 5)
    assert not await closing.take(ASSETS, 5, 5)
    closing.close()
    assert not other.takes(ASSETS, 1)


def test_giving_back_what_was_not_taken_is_an_error(pools: Pools, other: Other) -> None:
    assert other.takes(PASS, 5)
    with pytest.raises(ValueError, match="no place of pool"):
        pools.give_back(PASS)
    with pytest.raises(ValueError, match="8 bytes"):
        pools.try_take(b"short", 1)
    assert pools.in_use(PASS) == 1
