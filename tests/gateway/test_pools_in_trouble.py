"""Pools under a hostile world: full tables and disks, halted and killed processes, a crash of the
machine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.gateway import pool_memory
from proxy.gateway.pools import ASSETS, Pools, pass_key
from tests.support.pool_processes import DEADLINE_S, Other, until_taken

PASS = pass_key("shop", "sid-1", "h1")

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


# Runs out of file descriptors between two lines of its input.
POOR = """
import pathlib, resource, sys
from proxy.gateway.pools import ASSETS, Pools
pools = Pools(pathlib.Path(sys.argv[1]))
print(pools.try_take(ASSETS, 2), flush=True)
sys.stdin.readline()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
print([pools.try_take(ASSETS, 2) for _ in range(2)], flush=True)
pools.give_back(ASSETS)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for _ in range(2):
    while not pools.try_take(ASSETS, 2):
        pass
print(pools.in_use(ASSETS))
pools.close()
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
    deadline = time.monotonic() + DEADLINE_S
    while pools.figures()["processes"] > 1:  # who held nothing is missed at the next look
        assert time.monotonic() < deadline
        assert pools.in_use(ASSETS) == 4


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


def test_a_halted_process_with_the_lock_stops_nobody_for_long(pools: Pools, tmp_path: Path) -> None:
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


def test_want_of_file_descriptors_refuses_and_breaks_nothing(tmp_path: Path) -> None:
    holder, poor = Other(tmp_path), Other(tmp_path, POOR)
    assert poor.told() == "True"
    assert holder.takes(ASSETS, 2)
    holder.kill()
    poor.tell("go")
    assert poor.told() == "[False, False]", "the dead one's place cannot be found out"
    poor.tell("go")
    assert poor.told() == "2"
    assert poor.end() == 0


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
