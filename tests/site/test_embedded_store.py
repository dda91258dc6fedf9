"""The embedded store as an attacker on the machine, and an operator after a crash, see it."""

from __future__ import annotations

import asyncio
import io
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import redis

from corvus_site.env import BadSetting
from corvus_site.supervisor import embedded_store as store_module
from corvus_site.supervisor.children import Keeper
from corvus_site.supervisor.data_folder import DataFolder, open_data_folder
from corvus_site.supervisor.embedded_store import (
    NoStoreProgram,
    embedded_store,
    store_program,
    store_url,
)
from corvus_site.supervisor.external_store import examine, plain_url
from corvus_site.supervisor.say import Speaker


@contextmanager
def folder_at(path: Path | None) -> Iterator[DataFolder]:
    data = open_data_folder("CORVUS_DATA_DIR", path)
    try:
        yield data
    finally:
        data.close()


@asynccontextmanager
async def running_store(data: DataFolder) -> AsyncIterator[redis.Redis]:
    child = embedded_store(store_program(), data.path / "store", data.run, lasting=data.lasting)
    keeper = Keeper(child, Speaker(io.StringIO()))
    await keeper.start()
    try:
        await keeper.wait_ready()
        with redis.Redis.from_url(store_url(data.run)) as client:
            yield client
    finally:
        await keeper.stop(asyncio.Event())


async def test_it_has_no_tcp_port_and_only_its_owner_reaches_its_socket(tmp_path: Path) -> None:
    with folder_at(tmp_path / "data") as data:
        async with running_store(data) as client:
            assert client.info("server")["tcp_port"] == 0
            mode = stat.S_IMODE((data.run / "store.sock").stat().st_mode)
            assert mode == 0o600
            assert stat.S_IMODE(data.path.stat().st_mode) == 0o700
            files = [p for p in data.path.rglob("*") if p.is_file()]
            assert files
            assert {stat.S_IMODE(p.stat().st_mode) & 0o077 for p in files} == {0}


async def test_it_never_evicts_and_keeps_an_append_only_file(tmp_path: Path) -> None:
    with folder_at(tmp_path / "data") as data:
        async with running_store(data) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            client.set("ticket", 7)
        async with running_store(data) as client:
            assert client.get("ticket") == b"7"


async def test_a_torn_append_only_file_costs_its_last_command_alone(tmp_path: Path) -> None:
    with folder_at(tmp_path / "data") as data:
        async with running_store(data) as client:
            client.set("first", 1)
            client.set("second", 2)
        log = max((data.path / "store").rglob("*.incr.aof"))
        log.write_bytes(log.read_bytes()[:-5])
        async with running_store(data) as client:
            assert client.get("first") == b"1"
            assert client.get("second") is None


async def test_without_a_data_folder_nothing_is_left() -> None:
    with folder_at(None) as data:
        async with running_store(data) as client:
            client.set("ticket", 7)
            assert client.config_get("appendonly") == {"appendonly": "no"}
        assert data.path.exists()
    assert not data.path.exists()


def test_the_machine_s_own_server_stands_in_when_the_bundled_one_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, own = tmp_path / "broken", tmp_path / "redis-server"
    for program, body in ((broken, "#!/bin/sh\nexit 127\n"), (own, "#!/bin/sh\n")):
        program.write_text(body)
        program.chmod(0o700)
    monkeypatch.setattr(store_module, "_bundled_program", lambda: broken)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert store_program() == str(own)
    own.unlink()
    with pytest.raises(NoStoreProgram, match="CORVUS_REDIS_URL"):
        store_program()


async def test_an_external_store_is_asked_whether_it_drops_people(tmp_path: Path) -> None:
    with folder_at(tmp_path / "data") as data:
        async with running_store(data) as client:
            assert await examine(store_url(data.run)) == []
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("appendonly", "no")
            eviction, persistence = await examine(store_url(data.run))
    assert "maxmemory-policy is allkeys-lru" in eviction
    assert "append-only" in persistence


async def test_an_external_store_with_a_wrong_password_is_refused(tmp_path: Path) -> None:
    with folder_at(tmp_path / "data") as data:
        async with running_store(data) as client:
            client.config_set("requirepass", "right")
            url = store_url(data.run).replace("unix://", "unix://:wrong@")
            with pytest.raises(BadSetting, match="CORVUS_REDIS_URL") as refused:
                await examine(url)
    assert "wrong@" not in str(refused.value)


def test_the_schemes_of_valkey_are_those_of_redis() -> None:
    assert plain_url("valkeys://a:1/2") == "rediss://a:1/2"
    assert plain_url("redis://a:1/2") == "redis://a:1/2"


def test_the_program_runs_here() -> None:
    shown = subprocess.run([store_program(), "--version"], capture_output=True, check=True)
    assert b"server v=" in shown.stdout
