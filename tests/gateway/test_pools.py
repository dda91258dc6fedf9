"""Pools hold among all processes of a machine, whatever is killed; who waits is served in order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.gateway import pool_memory
from proxy.gateway.pools import ASSETS, STREAMS, Pools, pass_key

DEADLINE_S = 20
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

# Does what the lines of its input say: `t <key> <most>`, `g <key>`, `close`.
HOLDER = """
import pathlib, sys
from proxy.gateway.pools import Pools
pools = Pools(pathlib.Path(sys.argv[1]))
for line in sys.stdin:
    act, *words = line.split()
    if act == "t":
        print(pools.try_take(bytes.fromhex(words[0]), int(words[1])), flush=True)
    elif act == "g":
        print(pools.give_back(bytes.fromhex(words[0])), flush=True)
    else:
        pools.close()
        print("closed", flush=True)
"""

# Takes and gives back as fast as it can, until it is killed.
VICTIM = """
import pathlib, sys
from proxy.gateway.pools import ASSETS, Pools, pass_key
pools = Pools(pathlib.Path(sys.argv[1]))
keys = [ASSETS, *(pass_key("r", str(n), "h1") for n in range(20))]
print("ready", flush=True)
while True:
    taken = [key for key in keys for _ in range(3) if pools.try_take(key, 4)]
    for key in taken:
        pools.give_back(key)
"""


class Other:
    """Another gateway process of the machine."""

    def __init__(self, folder: Path, code: str = HOLDER, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def takes(self, key: bytes, most: int) -> bool:
        self.tell(f"t {key.hex()} {most}")
        return self.told() == "True"

    def gives_back(self, key: bytes) -> None:
        self.tell(f"g {key.hex()}")
        assert self.told() == "None"

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return self.process.wait(DEADLINE_S)


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


def until_taken(pools: Pools, key: bytes, most: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not pools.try_take(key, most):
        assert time.monotonic() < deadline


async def waits(pools: Pools, key: bytes, most: int) -> asyncio.Task[bool]:
    """Start to wait for a place; returns when it stands in the line."""
    before = pools.figures()["waiting_here"]
    task = asyncio.create_task(pools.take(key, most, DEADLINE_S))
    while pools.figures()["waiting_here"] == before:
        await asyncio.sleep(0)
    return task


def test_four_processes_with_a_hundred_tasks_never_hold_more_than_there_is(tmp_path: Path) -> None:
    most, tasks, rounds = 7, 25, 12
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
    assert time.monotonic() - began < 2
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


def test_whatever_moment_processes_are_killed_in_the_counts_stay_right(
    pools: Pools, tmp_path: Path
) -> None:
    keys = [ASSETS, *(pass_key("r", str(n), "h1") for n in range(20))]
    assert all(pools.try_take(key, 4) for key in keys)
    for _ in range(6):
        victims = [Other(tmp_path, VICTIM) for _ in range(2)]
        for victim in victims:
            assert victim.told() == "ready"
        for _ in range(200):  # they run meanwhile, and are struck somewhere
            for key in keys:
                assert 1 <= pools.in_use(key) <= 4
        for victim in victims:
            victim.kill()
    for key in keys:
        for _ in range(3):
            until_taken(pools, key, 4)
        assert not pools.try_take(key, 4)
        assert pools.in_use(key) == 4
    assert pools.figures()["processes"] == 1


async def test_places_of_other_processes_reach_who_waits(pools: Pools, other: Other) -> None:
    assert other.takes(PASS, 1)
    waiting = await waits(pools, PASS, 1)
    other.gives_back(PASS)
    assert await waiting
    assert not other.takes(PASS, 1)


async def test_first_come_first_served_within_a_process(pools: Pools) -> None:
    assert pools.try_take(PASS, 1)
    served: list[int] = []

    async def come(number: int) -> None:
        assert await pools.take(PASS, 1, DEADLINE_S)
        served.append(number)

    tasks = []
    for number in range(8):
        tasks.append(asyncio.create_task(come(number)))
        while pools.figures()["waiting_here"] <= number:
            await asyncio.sleep(0)
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
    await asyncio.sleep(0.05)  # two looks
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


def test_tens_of_thousands_of_passes_at_once_and_no_trace_of_them_later(pools: Pools) -> None:
    keys = [pass_key("shop", f"sid-{n}", "h2") for n in range(60_000)]
    assert all(pools.try_take(key, 8) for key in keys)
    assert not pools.try_take(keys[0], 1)
    assert pools.figures()["refused_no_room"] == 0
    for key in keys:
        pools.give_back(key)
    assert not any(map(pools.in_use, keys[::100]))
    assert not any(pools._memory._table.keys), "every slot is as new"


async def test_a_full_table_refuses_and_counts(pools: Pools) -> None:
    crowd = [(n << 17 | 5).to_bytes(8, "little") for n in range(1, 130)]  # all in one corner
    taken = [key for key in crowd if pools.try_take(key, 1)]
    assert len(taken) == 128
    assert not await pools.take(crowd[-1], 1, 0.03)
    assert pools.figures()["refused_no_room"] >= 2
    assert pools.try_take(PASS, 1), "elsewhere there is room"
    pools.give_back(taken[60])
    assert pools.try_take(crowd[-1], 1)


def test_a_halted_process_with_the_lock_stops_nobody_for_long(
    pools: Pools, tmp_path: Path
) -> None:
    assert pools.try_take(ASSETS, 2)
    lock = os.open(tmp_path / "pools", os.O_RDWR)  # as if it were halted in its few microseconds
    fcntl.flock(lock, fcntl.LOCK_EX)
    began = time.monotonic()
    for _ in range(100):
        assert not pools.try_take(ASSETS, 2)
    pools.give_back(ASSETS)
    assert time.monotonic() - began < 2, "a tenth of a second each would be ten"
    assert pools.figures()["lock_stuck"] >= 100
    os.close(lock)
    assert pools.try_take(ASSETS, 1), "what was given back meanwhile is free"
    assert pools.in_use(ASSETS) == 1


def test_a_halted_process_keeps_its_places(pools: Pools, other: Other) -> None:
    assert other.takes(ASSETS, 1)
    other.process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        assert not pools.try_take(ASSETS, 1)
    other.process.send_signal(signal.SIGCONT)


def test_a_full_disk_costs_the_sharing_and_not_the_process(tmp_path: Path) -> None:
    code = (
        "import resource, sys, pathlib; from proxy.gateway.pools import ASSETS, Pools;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"  # no file can take a byte
        "pools = Pools(pathlib.Path(sys.argv[1]));"
        "print([pools.try_take(ASSETS, 2) for _ in range(3)], pools.figures()['shared']);"
        "pools.give_back(ASSETS); print(pools.try_take(ASSETS, 2)); pools.close()"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path], check=True, capture_output=True, text=True
    )
    assert told.stdout.splitlines() == ["[True, True, False] 0", "True"]
    after = Pools(tmp_path)
    assert after.figures()["shared"] == 1
    after.close()


def test_what_a_crash_of_the_machine_left_is_cleared_by_the_first_process(tmp_path: Path) -> None:
    Pools(tmp_path).close()
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
        file.write_bytes(os.urandom(file.stat().st_size))
    first = Pools(tmp_path)
    assert first.figures()["processes"] == 1
    assert [first.try_take(ASSETS, 2) for _ in range(3)] == [True, True, False]
    assert first.in_use(PASS) == 0
    first.close()


def test_one_process_too_many_counts_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_memory, "MEMBERS", 2)
    two = [Pools(tmp_path) for _ in range(2)]
    third = Pools(tmp_path)
    assert [each.figures()["shared"] for each in (*two, third)] == [1, 1, 0]
    two.pop().close()
    again = Pools(tmp_path)
    assert again.figures()["shared"] == 1
    for each in (*two, third, again):
        each.close()
