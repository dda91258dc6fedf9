"""One memory of "the store is down", shared by every gateway process of a machine (rule 11).

A small memory-mapped file in the machine's run folder; its clock is CLOCK_MONOTONIC, which all
processes share. It begins anew with the machine, so a file that outlived a restart may hold times
that lie ahead. After one failure nobody asks the store for `PAUSE_S`; then one ticker (never a
visitor's request) tries, so that an outage adds no latency. It also holds the machine's allowance
of outage entries (`open_rate`).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE_S = 3.0
_STATE = struct.Struct("<ddddQ")  # down since, next trial, tokens, tokens counted at, outages


class Breaker:
    """Closed (calls pass) or open (the store is left alone). Times are monotonic seconds."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / "breaker", os.O_RDWR | os.O_CREAT, 0o600)
        self._map = self._opened()

    def _opened(self) -> mmap.mmap:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            if os.fstat(self._file).st_size < _STATE.size:
                # Written and not only made longer: a hole that a full disk cannot fill when it is
                # touched ends the process (SIGBUS).
                os.pwrite(self._file, bytes(_STATE.size), 0)
            return mmap.mmap(self._file, _STATE.size)
        except OSError:
            os.ftruncate(self._file, 0)
            return mmap.mmap(-1, _STATE.size)  # each process knows for itself, until it restarts
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    @property
    def is_open(self) -> bool:
        """Whether the store is to be left alone now."""
        return bool(_STATE.unpack_from(self._map)[0])

    @property
    def open_for_s(self) -> float | None:
        """Since how many seconds the store has been away; None when it is not."""
        since: float = _STATE.unpack_from(self._map)[0]
        return max(0.0, time.monotonic() - since) if since else None

    @property
    def outages(self) -> int:
        """How many outages this machine has seen since its run folder was made."""
        return int(_STATE.unpack_from(self._map)[4])

    def trip(self) -> None:
        """Note a failure: all processes skip the store until a trial succeeds."""
        now = time.monotonic()
        with self._locked() as (since, _, tokens, counted, outages):
            first = not since
            self._write(since or now, now + PAUSE_S, tokens, counted, outages + first)

    def may_try(self) -> bool:
        """Claim the next trial; true for one caller per pause."""
        now = time.monotonic()
        with self._locked() as (since, trial, tokens, counted, outages):
            if not since:
                return True
            if now < trial <= now + PAUSE_S:  # a later one is of before the machine's restart
                return False
            self._write(since, now + PAUSE_S, tokens, counted, outages)
            return True

    def close(self) -> None:
        """Note that the store answers again."""
        with self._locked() as (_, _, tokens, counted, outages):
            self._write(0.0, 0.0, tokens, counted, outages)

    def take_outage_entry(self, per_second: int) -> bool:
        """Take one of the machine's outage entries; false when it is not yet time for another.

        The allowance is not saved up (a burst of one), so no second holds more than the rate + 1.
        """
        now = time.monotonic()
        with self._locked() as (since, trial, tokens, counted, outages):
            tokens = min(1.0, tokens + max(0.0, now - counted) * per_second)
            taken = tokens >= 1.0
            self._write(since, trial, tokens - taken, now, outages)
            return taken

    @contextmanager
    def _locked(self) -> Iterator[tuple[float, float, float, float, int]]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield _STATE.unpack_from(self._map)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _write(
        self, since: float, trial: float, tokens: float, counted: float, outages: int
    ) -> None:
        _STATE.pack_into(self._map, 0, since, trial, tokens, counted, outages)
