"""One memory of an outage for all processes of a machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from proxy.gateway import breaker
from proxy.gateway.breaker import Breaker


def test_one_process_trips_it_for_all(tmp_path: Path) -> None:
    first = Breaker(tmp_path)
    assert not first.is_open
    code = (
        "import sys, pathlib; from proxy.gateway.breaker import Breaker;"
        "Breaker(pathlib.Path(sys.argv[1])).trip()"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert first.is_open
    assert first.open_for_s is not None
    assert 0 <= first.open_for_s < 30
    assert first.outages == 1
    Breaker(tmp_path).close()
    assert not first.is_open
    assert first.open_for_s is None


def test_one_trial_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Breaker(tmp_path), Breaker(tmp_path)
    assert one.may_try(), "nothing is wrong"
    one.trip()
    assert not one.may_try()
    assert not two.may_try()
    later = time.monotonic() + breaker.PAUSE_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert two.may_try()
    assert not one.may_try()
    two.trip()
    assert one.outages == 1, "still the same outage"


def test_outage_entries_are_bounded_over_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = [Breaker(tmp_path), Breaker(tmp_path)]
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    taken = []
    for number in range(4000):
        clock[0] = 1000 + number / 1000
        if processes[number % 2].take_outage_entry(10):
            taken.append(clock[0])
    assert 38 <= len(taken) <= 41
    for start in taken:
        assert len([t for t in taken if start <= t < start + 1]) <= 11
    assert not processes[0].take_outage_entry(0)


def test_a_file_that_outlived_a_restart_of_the_machine_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Breaker(tmp_path)
    monkeypatch.setattr(time, "monotonic", lambda: 900_000.0)
    memory.take_outage_entry(10)
    memory.trip()
    monkeypatch.setattr(time, "monotonic", lambda: 40.0)  # the clock begins anew with the machine
    restarted = Breaker(tmp_path)
    assert restarted.open_for_s == 0
    assert restarted.may_try(), "the store is tried at once, not in ten days"
    assert not restarted.may_try()
    assert not restarted.take_outage_entry(10)
    monkeypatch.setattr(time, "monotonic", lambda: 40.2)
    assert restarted.take_outage_entry(10)


def test_a_full_disk_costs_the_shared_memory_and_not_the_process(tmp_path: Path) -> None:
    code = (
        "import resource, sys, pathlib; from proxy.gateway.breaker import Breaker;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"  # no file can take a byte
        "breaker = Breaker(pathlib.Path(sys.argv[1])); breaker.trip();"
        "print(breaker.is_open, breaker.may_try()); breaker.close(); print(breaker.is_open)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == ["True", "False", "False"]
    after = Breaker(tmp_path)
    assert not after.is_open, "and what it left behind is whole or nothing"
    after.trip()
    assert Breaker(tmp_path).is_open
