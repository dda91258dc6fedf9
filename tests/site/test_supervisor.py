"""The supervisor with real processes: a store and two small servers on one port."""

from __future__ import annotations

import http.client
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from corvus_site.supervisor.children import FIRST_DELAY_S, LONGEST_DELAY_S, STABLE_S, next_delay
from tests.support.running import Running, eventually

Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a stand-in plan; whatever a test leaves is ended."""
    started: list[Running] = []

    def run(broken: str = "") -> Running:
        argv = ["-m", "tests.site.stand_in_plan", str(tmp_path / "data"), broken]
        started.append(Running(argv))
        return started[-1]

    yield run
    for running in started:
        running.end()


def port_of(running: Running) -> int:
    return int(running.line(r"shop at http://127\.0\.0\.1:(\d+)/")[1])


def fetch(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def get(port: int, path: str = "/healthz") -> int:
    return fetch(port, path)[0]


def test_it_starts_in_order_and_says_where(start: Start) -> None:
    running = start()
    assert get(port_of(running)) == 200
    running.line("ready after")
    names = sorted(command.split()[-1] for command in running.left().values())
    assert len(names) == 4, running.left()  # supervisor, store, two shops


def test_a_killed_child_is_started_again_and_the_port_keeps_answering(start: Start) -> None:
    running = start()
    port = port_of(running)
    running.line("ready after")
    before = {pid for pid, command in running.left().items() if "corvus_site.demo" in command}
    os.kill(min(before), signal.SIGKILL)
    assert [get(port) for _ in range(40)] == [200] * 40
    running.line(
        rf"shop-. \(process {min(before)}\) ended with SIGKILL; starting it again in 0.2 s"
    )
    eventually(
        lambda: sum("corvus_site.demo" in command for command in running.left().values()) == 2,
        what="two shops again",
    )


def test_a_stop_lets_a_slow_request_finish_and_leaves_no_process(start: Start) -> None:
    running = start()
    port = port_of(running)
    running.line("ready after")
    answers: list[int] = []
    slow = threading.Thread(target=lambda: answers.append(get(port, "/slow?seconds=1.5")))
    slow.start()
    # Either shop may have it: the kernel spreads the connections.
    eventually(lambda: b'"shoppers": 1' in fetch(port, "/load")[1], what="the page is being made")
    running.send(signal.SIGTERM)
    status, errors = running.wait()
    slow.join(10)
    assert (status, errors, answers) == (0, "", [200]), running.story()
    assert running.left() == {}
    with pytest.raises(ConnectionRefusedError):
        get(port)


def test_a_killed_supervisor_leaves_no_process(start: Start) -> None:
    running = start()
    running.line("ready after")
    assert len(running.left()) == 4
    running.send(signal.SIGKILL)
    eventually(lambda: not running.left(), what="everything has ended")


def test_the_store_keeps_its_data_over_a_kill_of_everything(start: Start, tmp_path: Path) -> None:
    def store() -> redis.Redis:
        return redis.Redis(unix_socket_path=str(tmp_path / "data/run/store.sock"))

    first = start()
    first.line("ready after")
    with store() as client:
        client.zadd("line", {"ann": 1, "bob": 2})
    first.send(signal.SIGKILL)
    eventually(lambda: not first.left(), what="everything has ended")
    second = start()
    second.line("ready after")
    with store() as client:
        assert client.zrange("line", 0, -1) == [b"ann", b"bob"]


def test_a_preparation_that_fails_stops_the_start_with_its_last_lines(start: Start) -> None:
    running = start("preparation")
    status, _ = running.wait()
    text = "\n".join(running.lines)
    assert status == 1
    assert "error: preparation ended with status 3" in text
    assert "no such table" in text
    assert running.left() == {}


def test_a_child_that_dies_at_the_start_stops_the_start(start: Start) -> None:
    running = start("shop")
    status, _ = running.wait()
    assert status == 1
    assert "error: shop-2 ended with status 4 while starting" in "\n".join(running.lines)
    assert running.left() == {}


def test_who_does_not_stop_in_time_is_killed_with_its_forks(start: Start) -> None:
    running = start("stubborn")
    running.line("ready after")
    running.send(signal.SIGTERM)
    status, _ = running.wait()
    assert status == 0
    assert "stubborn did not stop in time; killed" in running.lines
    assert running.left() == {}


def test_a_second_signal_hurries(start: Start) -> None:
    running = start("hurry")
    running.line("ready after")
    running.send(signal.SIGINT)
    running.send(signal.SIGINT)  # the same stop, told twice, is no hurry
    running.line("stopping")

    def ended_after_another() -> bool:
        running.send(signal.SIGINT)
        return running.process.poll() is not None

    eventually(ended_after_another, within_s=10, what="it has ended long before its 30 s")
    assert running.wait()[0] == 0
    assert "stubborn did not stop in time; killed" in running.lines
    assert running.left() == {}


def test_a_signal_while_starting_leaves_no_process(start: Start) -> None:
    running = start()
    eventually(lambda: any("valkey" in c or "redis" in c for c in running.left().values()))
    running.send(signal.SIGTERM)
    status, _ = running.wait()
    assert status == 0
    assert running.left() == {}


@given(st.floats(0, LONGEST_DELAY_S, allow_nan=False), st.floats(0, 10 * STABLE_S, allow_nan=False))
def test_the_pause_before_a_restart_grows_and_is_bounded(delay_s: float, lived_s: float) -> None:
    pause = next_delay(delay_s, lived_s)
    assert FIRST_DELAY_S <= pause <= LONGEST_DELAY_S
    if lived_s >= STABLE_S:
        assert pause == FIRST_DELAY_S
    else:
        assert pause >= min(delay_s, LONGEST_DELAY_S)
