"""The supervisor's voice and sockets, each by itself."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Sequence

import pytest

from corvus_site.env import BadSetting, HostPort
from corvus_site.supervisor.children import Child, Keeper
from corvus_site.supervisor.listeners import loopback_of, open_listeners, url_of
from corvus_site.supervisor.say import MOST_WAITING, Speaker


def _machine_has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


IPV6 = _machine_has_ipv6()


def test_a_reader_who_stops_reading_stops_nobody_and_learns_how_much_is_missing() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        speaker = Speaker(stream)
        began = time.monotonic()
        for _ in range(20):
            speaker.relay("gateway-1", ["x" * 200] * (MOST_WAITING // 10))
        assert time.monotonic() - began < 10
        read = b""
        with os.fdopen(reading, "rb", buffering=0) as source:
            while b"lines left out: the output was not read" not in read:
                read += source.read(65_536)
            speaker.close()
    assert read.startswith(b"gateway-1 | xxx")


def test_nobody_reading_any_more_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    speaker = Speaker(stream)
    speaker.say("still here")
    speaker.close()
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_json_lines_wrap_what_is_none_and_leave_what_is() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        speaker = Speaker(stream, json_lines=True)
        speaker.say('a "quoted" sentence')
        speaker.relay("store", ["plain", '{"event": "own"}', ""])
        speaker.close()
    with os.fdopen(reading) as source:
        events = [json.loads(line) for line in source]
    assert [event["event"] for event in events] == ['a "quoted" sentence', "plain", "own"]
    assert events[1]["logger"] == "store"


class Heard:
    """A voice that keeps what children say."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        raise AssertionError(line)

    def relay(self, name: str, lines: Sequence[str]) -> None:
        self.lines += lines


async def test_what_a_part_is_known_to_say_for_nothing_is_not_passed_on() -> None:
    heard = Heard()
    said = "noise: all is well\nnews\nready"
    program = f"import signal; print({said!r}, flush=True); signal.pause()"
    child = Child(
        name="part",
        argv=(sys.executable, "-c", program),
        ready_line="ready",
        unsaid=("noise: ",),
    )
    keeper = Keeper(child, heard)
    await keeper.start()
    await keeper.wait_ready()
    await keeper.stop(asyncio.Event())
    assert heard.lines == ["news", "ready"]


def connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def test_every_interface_means_both_families() -> None:
    (listener,) = open_listeners("CORVUS_LISTEN", HostPort("", 0), 1)
    with listener:
        _, port = loopback_of(listener)
        assert url_of(listener) == f"http://localhost:{port}"
        assert connects("127.0.0.1", port)
        assert connects("::1", port) == IPV6


def test_an_ipv6_address_is_itself_alone() -> None:
    if not IPV6:
        with pytest.raises(BadSetting, match="CORVUS_LISTEN"):
            open_listeners("CORVUS_LISTEN", HostPort("::1", 0), 1)
        return
    (listener,) = open_listeners("CORVUS_LISTEN", HostPort("::1", 0), 1)
    with listener:
        _, port = loopback_of(listener)
        assert url_of(listener) == f"http://[::1]:{port}"
        assert connects("::1", port)
        assert not connects("127.0.0.1", port)


def test_sockets_of_one_corvus_share_a_port_and_refuse_another_s() -> None:
    mine = open_listeners("CORVUS_LISTEN", HostPort("127.0.0.1", 0), 3)
    ports = {listener.getsockname()[1] for listener in mine}
    assert len(ports) == 1
    with pytest.raises(BadSetting, match=r"CORVUS_LISTEN: cannot listen .* the port is in use"):
        open_listeners("CORVUS_LISTEN", HostPort("127.0.0.1", ports.pop()), 1)
    for listener in mine:
        listener.close()


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(BadSetting, match="no such host"):
        open_listeners("CORVUS_LISTEN", HostPort("no..where", 0), 1)
