"""Time-outs, connections per client and bounded memory of the gateway's server."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corvus_site.server.connection import address_of
from corvus_site.server.gateway_server import client_key
from corvus_site.server.limits import ServerLimits
from tests.support import server_probe
from tests.support.raw_client import RawClient
from tests.support.server_probe import ServerProcess, eventually, serving

MIB = 1024 * 1024


def log(server: ServerProcess) -> list[str]:
    with RawClient(server.port) as raw:
        return json.loads(raw.get("/log").body)


def test_wr_06_silent_head_blocks_nobody_and_ends_with_408():
    with serving(HEADER_TIMEOUT=2) as server:
        slow = [RawClient(server.port) for _ in range(50)]
        for raw in slow:
            raw.send(b"GET /hello HTTP/1.1\r\nHost")
        with RawClient(server.port) as other:
            assert other.get("/hello").status == 200
        answered, _, _ = select.select([raw.socket for raw in slow], [], [], 0)
        assert answered == [], "while all of them still hold on"
        for raw in slow:
            with raw:
                assert raw.answer().status == 408
                assert raw.closed()


def test_a_connection_that_sends_nothing_is_closed():
    with serving(HEADER_TIMEOUT=1) as server, RawClient(server.port) as raw:
        assert raw.closed()


def test_a_head_that_trickles_does_not_extend_its_time():
    with serving(HEADER_TIMEOUT=1) as server, RawClient(server.port) as raw:
        raw.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n")
        raw.socket.settimeout(0.1)
        began = time.monotonic()

        def refused() -> bool:
            with contextlib.suppress(TimeoutError):
                raw.send(b"X: 1\r\n")
                return raw.answer().status == 408
            return False

        eventually(refused, 5)
        assert time.monotonic() - began < 3


def test_a_body_that_stops_ends_with_408_and_cancels():
    with serving(BODY_TIMEOUT=1) as server, RawClient(server.port) as raw:
        raw.send(b"POST /whole/stopped HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        assert raw.answer().status == 408
        assert raw.closed()
        eventually(lambda: "cancelled /whole/stopped" in log(server))


def test_a_body_that_the_application_does_not_read_is_no_time_out():
    with serving(BODY_TIMEOUT=1) as server, RawClient(server.port) as raw:
        raw.send(b"POST /wait/a HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n")
        raw.send(b"x" * 600_000)
        raw.socket.settimeout(2)  # twice the time-out
        with pytest.raises(TimeoutError):
            raw.answer()
        raw.socket.settimeout(20)
        with RawClient(server.port) as other:
            other.get("/open/a")
        assert raw.answer().body == b"600000"


def test_an_idle_connection_is_closed():
    with serving(IDLE_TIMEOUT=1) as server, RawClient(server.port) as raw:
        assert raw.get("/hello").status == 200
        assert raw.closed()


def test_a_client_that_takes_nothing_is_dropped():
    with serving(WRITE_TIMEOUT=1) as server, RawClient(server.port) as raw:
        raw.send(b"GET /download/50000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        eventually(lambda: "cancelled /download/50000000" in log(server))


def test_connections_of_one_client_are_limited():
    with serving(CONNECTIONS_PER_CLIENT=3) as server:
        held = [RawClient(server.port) for _ in range(3)]
        assert all(raw.get("/hello").status == 200 for raw in held)
        with RawClient(server.port) as fourth:
            assert fourth.closed()
        held.pop().socket.close()

        def admitted() -> bool:
            with RawClient(server.port) as again:
                try:
                    return again.get("/hello").status == 200
                except (EOFError, OSError):
                    return False

        eventually(admitted)
        for raw in held:
            raw.socket.close()


def test_connections_of_all_clients_leave_files_for_the_other_side(tmp_path, monkeypatch):
    shell = tmp_path / "python"
    shell.write_text(f'#!/bin/sh\nulimit -n 800\nexec {sys.executable} "$@"\n')
    shell.chmod(0o755)
    monkeypatch.setattr(server_probe.sys, "executable", str(shell))
    with serving(CONNECTIONS_PER_CLIENT=0) as server, contextlib.ExitStack() as held:
        clients = [held.enter_context(RawClient(server.port)) for _ in range(850)]
        sockets = [raw.socket for raw in clients]
        eventually(lambda: len(select.select(sockets, [], [], 0)[0]) > 100)
        folder = Path(f"/proc/{server.process.pid}/fd")
        # A turn of the loop may accept a few more before it counts them and cuts them off.
        eventually(lambda: len(list(folder.iterdir())) <= 800 - 200)
        assert "Too many open files" not in server.errors()
        held.close()

        def admitted() -> bool:
            with RawClient(server.port) as again:
                try:
                    return again.get("/hello").status == 200
                except (EOFError, OSError):
                    return False

        eventually(admitted)


def test_an_ipv6_network_of_64_bits_is_one_client():
    assert client_key("2001:db8::1") == client_key("2001:db8::ffff:1%eth0")
    assert client_key("2001:db8::1") != client_key("2001:db8:0:1::1")
    assert client_key("::ffff:192.0.2.1") == client_key("192.0.2.1")


def test_an_ipv4_client_of_a_socket_for_both_families_is_told_as_ipv4():
    assert address_of(("::ffff:192.0.2.1", 5, 0, 0)) == ("192.0.2.1", 5)
    assert address_of(("2001:db8::1", 5, 0, 0)) == ("2001:db8::1", 5)
    assert address_of("/run/socket") is None


def test_200_mb_to_a_slow_reader_are_not_held_in_memory():
    with serving() as server, RawClient(server.port) as raw:
        raw.get("/hello")
        before = server.rss_bytes()
        raw.send(b"GET /download/200000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        raw.read_until(b"\r\n\r\n")
        eventually(lambda: "begin /download/200000000" in log(server))
        highest, left = 0, 200_000_000
        while left:
            left -= len(raw.read_exactly(min(left, 4_000_000)))
            highest = max(highest, server.rss_bytes())
        assert highest - before < 64 * MIB


def test_200_mb_to_a_slow_application_are_not_held_in_memory():
    with serving() as server, RawClient(server.port) as raw:
        raw.get("/hello")
        before = server.rss_bytes()
        raw.send(b"POST /wait/up HTTP/1.1\r\nHost: a\r\nContent-Length: 200000000\r\n\r\n")
        raw.socket.setblocking(False)
        part, sent = b"u" * MIB, 0

        def stuck() -> bool:
            nonlocal sent
            try:
                sent += raw.socket.send(part)
            except BlockingIOError:
                return True
            return False

        eventually(stuck)
        assert sent < 100_000_000
        assert server.rss_bytes() - before < 64 * MIB
        with RawClient(server.port) as other:
            other.get("/open/up")
        raw.socket.settimeout(20)
        highest = 0
        while sent < 200_000_000:
            sent += raw.socket.send(part[: min(MIB, 200_000_000 - sent)])
            highest = max(highest, server.rss_bytes())
        assert raw.answer().body == b"200000000"
        assert highest - before < 64 * MIB


def test_limits_come_from_the_environment():
    limits = ServerLimits.from_environment({"CORVUS_MAX_BODY": "5", "CORVUS_DRAIN": " "})
    assert limits == ServerLimits(max_body_bytes=5)


def test_limits_are_written_as_every_other_setting():
    limits = ServerLimits.from_environment(
        {"CORVUS_MAX_BODY": "10MB", "CORVUS_DRAIN": "1m", "CORVUS_BODY_TIMEOUT": "250ms"}
    )
    assert limits == ServerLimits(max_body_bytes=10 << 20, drain_s=60, body_timeout_s=0.25)


def test_a_bad_limit_is_named_with_its_value():
    with pytest.raises(ValueError, match=r"CORVUS_MAX_URL: “much” is not allowed"):
        ServerLimits.from_environment({"CORVUS_MAX_URL": "much"})


def test_the_listening_queue_is_long():
    allowed = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with serving() as server, RawClient(server.port) as raw:
        raw.get("/hello")
        table = subprocess.run(
            ["ss", "-Hltn", f"sport = :{server.port}"], check=True, capture_output=True, text=True
        ).stdout
    assert int(table.split()[2]) == min(4096, allowed)
