"""The store connection against real servers: one that works, ones that break, ones that lie."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from queueing.connection import (
    Connection,
    StoreBusy,
    StoreFault,
    StoreUnreachable,
    parse_url,
)
from tests.support.fake_stores import fake_store, free_port, relayed
from tests.support.valkey import Valkey, running_valkey


@contextlib.asynccontextmanager
async def connected(url: str, **options: float) -> AsyncIterator[Connection]:
    patient = {"timeout_s": 10.0, "connect_timeout_s": 10.0}  # the machine may be busy
    connection = Connection(url, **(patient | options))  # type: ignore[arg-type]
    try:
        yield connection
    finally:
        await connection.close()


def await_clients(valkey: Valkey, kind: str, number: int) -> None:
    """Wait until the server counts so many clients of a kind."""
    deadline = time.monotonic() + 10
    while valkey.client.info("clients")[kind] < number:
        assert time.monotonic() < deadline


def test_urls_are_read_as_redis_py_spells_them() -> None:
    address = parse_url("redis://user:p%40ss@store.example:7000/3")
    assert (address.host, address.port, address.database) == ("store.example", 7000, 3)
    assert (address.username, address.password, address.tls) == ("user", "p@ss", None)
    address = parse_url("unix://:secret@/run/valkey%20a.sock?db=2")
    assert (address.path, address.password, address.database) == ("/run/valkey a.sock", "secret", 2)
    assert parse_url("redis://localhost").port == 6379
    address = parse_url("rediss://store.example?ssl_cert_reqs=none")
    assert address.tls is not None
    assert address.tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("url", ["http://:secret@store", "redis://:secret@store/first", "store"])
def test_a_bad_url_is_one_clear_error_without_the_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"store URL: the .* is not allowed: use ") as caught:
        Connection(url)
    assert "secret" not in str(caught.value)


async def test_a_thousand_calls_at_once_each_get_their_own_answer(valkey: Valkey) -> None:
    async with connected(valkey.url) as connection:
        answers = await asyncio.gather(*(connection.call("ECHO", n) for n in range(1_000)))
        assert answers == [str(n).encode() for n in range(1_000)]
        used = [client for client in valkey.client.client_list() if client["cmd"] == "echo"]
        assert len(used) == 1


async def test_a_cancelled_call_does_not_shift_the_answers_of_others(valkey: Valkey) -> None:
    async with connected(valkey.url) as connection:
        first = asyncio.create_task(connection.call("BLPOP", "x", 5))  # holds back all the others
        tasks = [asyncio.create_task(connection.call("ECHO", n)) for n in range(10)]
        await asyncio.to_thread(await_clients, valkey, "blocked_clients", 1)
        for task in tasks[::2]:
            task.cancel()
        valkey.client.rpush("x", "go")
        assert await first == [b"x", b"go"]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert done[1::2] == [str(n).encode() for n in range(1, 10, 2)]
        assert all(isinstance(answer, asyncio.CancelledError) for answer in done[::2])


async def test_it_logs_in_and_selects_a_database() -> None:
    with running_valkey("--requirepass", "secret") as valkey:
        url = f"unix://:secret@{valkey.socket_path}?db=3"
        async with connected(url) as connection:
            await connection.call("SET", "a", 1)
        async with connected(f"unix://:secret@{valkey.socket_path}") as connection:
            assert await connection.call("GET", "a") is None
        async with connected(f"unix://:wrong@{valkey.socket_path}") as connection:
            with pytest.raises(StoreFault, match="WRONGPASS"):
                await connection.call("GET", "a")


async def test_it_speaks_tcp() -> None:
    port = free_port()
    with running_valkey("--port", str(port), "--bind", "127.0.0.1"):
        async with connected(f"redis://127.0.0.1:{port}/1") as connection:
            assert await connection.call("PING") == b"PONG"


async def test_it_speaks_tls_and_checks_the_certificate(valkey: Valkey, tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async with relayed(valkey, lambda _, answer: answer, tls=context) as port:
        url = f"rediss://127.0.0.1:{port}"
        async with connected(f"{url}?ssl_ca_certs={certificate}") as connection:
            assert await connection.call("ECHO", "sealed") == b"sealed"
        async with connected(url) as connection:
            with pytest.raises(StoreUnreachable, match="certificate verify failed"):
                await connection.call("PING")


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "store.crt", folder / "store.key"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


async def test_a_cut_connection_heals_by_itself(valkey: Valkey) -> None:
    async with connected(valkey.url) as connection:
        for _ in range(3):
            assert await connection.call("PING") == b"PONG"
            valkey.client.client_kill_filter(_type="normal", skipme=True)
            assert await connection.call("PING", repeatable=True) == b"PONG"


async def test_a_lost_answer_is_asked_for_again_only_when_that_is_harmless(valkey: Valkey) -> None:
    async with connected(valkey.url) as connection:
        for repeatable in (False, True):
            waiting = asyncio.create_task(
                connection.call("BLPOP", "later", 5, repeatable=repeatable)
            )
            await asyncio.to_thread(await_clients, valkey, "blocked_clients", 1)
            valkey.client.client_kill_filter(_type="normal", skipme=True)
            if repeatable:
                valkey.client.rpush("later", "value")
                assert await waiting == [b"later", b"value"]
            else:
                with pytest.raises(StoreUnreachable):
                    await waiting


async def test_no_answer_in_time_is_unreachable_and_is_not_asked_twice(valkey: Valkey) -> None:
    async with connected(valkey.url, timeout_s=0.5) as connection:
        await connection.call("PING")
        before = valkey.client.info("stats")["total_connections_received"]
        with pytest.raises(StoreUnreachable, match=r"no answer within 0\.5 s"):
            await connection.call("BLPOP", "never", 5, repeatable=True)
        assert valkey.client.info("stats")["total_connections_received"] == before
        assert await connection.call("PING") == b"PONG"


async def test_nobody_there_fails_everyone_at_once(tmp_path: Path) -> None:
    async with connected(f"unix://{tmp_path}/nothing.sock") as connection:
        calls = [connection.call("PING", repeatable=True) for _ in range(100)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, StoreUnreachable) for answer in answers)


async def test_a_host_that_does_not_answer_the_login_is_given_up(tmp_path: Path) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with (
        fake_store(tmp_path / "mute.sock", mute) as url,
        connected(f"{url}?db=1", connect_timeout_s=0.1) as connection,
    ):
        with pytest.raises(StoreUnreachable, match=r"no connection within 0\.1 s"):
            await connection.call("PING")


async def test_a_server_that_talks_nonsense_is_unreachable(tmp_path: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with (
        fake_store(tmp_path / "babble.sock", babble) as url,
        connected(url) as connection,
    ):
        with pytest.raises(StoreUnreachable, match="not RESP"):
            await connection.call("GET", "a", repeatable=True)


async def test_a_surplus_answer_never_becomes_the_answer_of_another_call(tmp_path: Path) -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"+yours\r\n+surplus\r\n")
        await reader.read()
        writer.close()

    async with (
        fake_store(tmp_path / "chatter.sock", chatter) as url,
        connected(url) as connection,
    ):
        for _ in range(3):
            assert await connection.call("GET", "a") == b"yours"


async def test_more_calls_than_may_wait_are_told_that_the_store_is_busy(valkey: Valkey) -> None:
    async with connected(valkey.url, max_in_flight=10, timeout_s=5) as connection:
        await connection.call("PING")
        waiting = [asyncio.create_task(connection.call("BLPOP", "x", 5)) for _ in range(10)]
        await asyncio.to_thread(await_clients, valkey, "blocked_clients", 1)
        with pytest.raises(StoreBusy):
            await connection.call("PING")
        valkey.client.rpush("x", *range(10))
        assert len(await asyncio.gather(*waiting)) == 10


async def test_closing_fails_what_is_in_flight(valkey: Valkey) -> None:
    async with connected(valkey.url) as connection:
        waiting = asyncio.create_task(connection.call("BLPOP", "x", 5, repeatable=True))
        await asyncio.to_thread(await_clients, valkey, "blocked_clients", 1)
        await connection.close()
        with pytest.raises(StoreUnreachable, match="closed"):
            await waiting


async def test_an_out_of_memory_store_is_busy_and_not_unreachable(valkey: Valkey) -> None:
    async with connected(valkey.url) as connection:
        valkey.client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreBusy, match=r"^OOM"):
                await connection.call("SET", "a", 1)
        finally:
            valkey.client.config_set("maxmemory", 0)


async def test_a_replica_is_busy_and_its_address_is_dialled_again(valkey: Valkey) -> None:
    async with connected(valkey.url) as connection:
        before = await connection.call("CLIENT", "ID")
        valkey.client.replicaof("127.0.0.1", 1)
        try:
            with pytest.raises(StoreBusy, match=r"^READONLY"):
                await connection.call("SET", "a", 1)
        finally:
            valkey.client.replicaof("NO", "ONE")
        assert await connection.call("SET", "a", 1) == b"OK"
        assert await connection.call("CLIENT", "ID") != before
