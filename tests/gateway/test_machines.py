"""Who shares the store, and each machine's part of what they share."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.gateway import machines
from proxy.gateway.machines import KEY, Machines
from queueing.connection import Connection
from tests.support.valkey import Valkey, running_valkey


@pytest.fixture
async def connection(valkey: Valkey) -> AsyncIterator[Connection]:
    connection = Connection(valkey.url)
    yield connection
    await connection.close()


async def everybody_beats(*those: Machines) -> list[int]:
    for _ in range(2):
        for machine in those:
            await machine.beat()
    return [machine.count for machine in those]


async def test_one_two_and_three_machines_share_what_there_is(
    connection: Connection, tmp_path: Path
) -> None:
    one, two, three = (Machines(connection, tmp_path / name) for name in "abc")
    assert one.share(1000) == 1000, "alone until it hears of others"
    assert await everybody_beats(one) == [1]
    assert one.share(1000) == 1000
    assert await everybody_beats(one, two) == [2, 2]
    assert one.share(1000) + two.share(1000) == 1000
    assert await everybody_beats(one, two, three) == [3, 3, 3]
    assert one.share(1000) == 333
    assert one.share(2) == 1, "none is left without"
    assert one.share(0) == 0, "what is switched off stays off"


async def test_all_processes_of_a_machine_count_as_one(
    connection: Connection, valkey: Valkey, tmp_path: Path
) -> None:
    processes = [Machines(connection, tmp_path) for _ in range(5)]
    assert await everybody_beats(*processes) == [1] * 5
    assert valkey.client.zcard(KEY) == 1
    assert (tmp_path / "machine").stat().st_mode & 0o777 == 0o600


async def test_a_machine_that_died_counts_for_ten_seconds_and_leaves_nothing_behind(
    connection: Connection, valkey: Valkey, tmp_path: Path
) -> None:
    living, dead = Machines(connection, tmp_path / "a"), Machines(connection, tmp_path / "b")
    await living.beat()
    (name,) = valkey.client.zrange(KEY, 0, -1)
    await dead.beat()
    (gone,) = set(valkey.client.zrange(KEY, 0, -1)) - {name}
    valkey.client.zincrby(KEY, -9_000, gone)  # as if it had beaten nine seconds ago
    await living.beat()
    assert living.count == 2
    valkey.client.zincrby(KEY, -1_001, gone)
    await living.beat()
    assert living.count == 1
    assert valkey.client.zrange(KEY, 0, -1) == [name]
    assert 0 < valkey.client.pttl(KEY) <= 60_000, "and when all are gone, so is the list"


async def test_a_store_clock_that_was_set_back_keeps_no_dead_machine(
    connection: Connection, valkey: Valkey, tmp_path: Path
) -> None:
    machine = Machines(connection, tmp_path)
    await machine.beat()
    seconds, _ = valkey.client.time()
    valkey.client.zadd(KEY, {"of the time before": (seconds + 3600) * 1000})
    await machine.beat()
    assert machine.count == 1


async def test_while_the_store_is_away_the_last_count_stays_also_for_a_new_process(
    tmp_path: Path,
) -> None:
    with running_valkey() as valkey:
        connection = Connection(valkey.url)
        one, two = Machines(connection, tmp_path / "a"), Machines(connection, tmp_path / "b")
        assert await everybody_beats(one, two) == [2, 2]
    await one.beat()
    assert one.count == 2
    assert one.share(1000) == 500
    restarted = Machines(connection, tmp_path / "a")
    await restarted.beat()
    assert restarted.share(1000) == 500
    await connection.close()


async def test_a_copied_disk_makes_another_machine(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Machines(connection, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(machines, "_start_of_machine", lambda: b"started elsewhere")
    second = Machines(connection, tmp_path / "b")
    assert await everybody_beats(first, second) == [2, 2]


async def test_a_broken_or_unwritable_file_makes_a_machine_of_its_own(
    connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "machine").write_bytes(b"cut off")
    assert await everybody_beats(Machines(connection, tmp_path / "a")) == [1]
    (tmp_path / "b" / "machine").mkdir(parents=True)
    assert await everybody_beats(Machines(connection, tmp_path / "b")) == [2]
