"""A supervisor as a real process: its lines, its children, and whether anything of it is left."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from corvus_site.supervisor.leash import tied_to

ROOT = Path(__file__).resolve().parents[2]
MARK = "RUN_UNDER_TEST"
T = TypeVar("T")


def eventually(
    ask: Callable[[], T | None], within_s: float = 15.0, what: Callable[[], str] | str = ""
) -> T:
    """Ask until the answer is true; fail when it never is."""
    deadline = time.monotonic() + within_s
    while True:
        if answer := ask():
            return answer
        if time.monotonic() >= deadline:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {within_s} s: {told or ask}")
        time.sleep(0.02)


def _fresh(tie: Callable[[], None]) -> Callable[[], None]:
    """A test run that is killed leaves nothing behind; one in the background, where shells ignore
    Ctrl-C, hands that on to nobody."""

    def prepare() -> None:
        tie()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return prepare


class Running:
    """A command under test with everything that it starts, told by a mark in the environment."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        self.mark = uuid.uuid4().hex
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("CORVUS_", "DATABASE_"))}
        self.process = subprocess.Popen(
            [sys.executable, *argv],
            cwd=cwd,
            env=clean | dict(environ or {}) | {MARK: self.mark, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_fresh(tied_to(os.getpid())),
        )
        self.lines: list[str] = []
        self._new: queue.Queue[str] = queue.Queue()
        self._threads = [threading.Thread(target=self._read, daemon=True)]
        self._threads[0].start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._new.put(line)

    def line(self, pattern: str, within_s: float = 30.0) -> re.Match[str]:
        """Wait for a line that matches."""

        def find() -> re.Match[str] | None:
            found = (re.search(pattern, line) for line in list(self.lines))
            if match := next((m for m in found if m), None):
                return match
            assert self.process.poll() is None or self._new.empty() is False, self.story()
            return None

        deadline = time.monotonic() + within_s
        while (match := find()) is None:
            assert time.monotonic() < deadline, f"no line {pattern!r}; {self.story()}"
            try:
                self._new.get(timeout=0.1)
            except queue.Empty:
                continue
        return match

    def story(self) -> str:
        """Give what was said so far, for a failing test."""
        return f"status {self.process.poll()}, lines:\n" + "\n".join(self.lines[-60:])

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor alone."""
        self.process.send_signal(number)

    def wait(self, within_s: float = 30.0) -> tuple[int, str]:
        """Wait for the end; give the exit status and what went to standard error."""
        status = self.process.wait(within_s)
        assert self.process.stderr is not None
        errors = self.process.stderr.read()
        self._threads[0].join(5)
        return status, errors

    def left(self) -> dict[int, str]:
        """Name every living process of this run, the supervisor included."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() not in (folder / "environ").read_bytes():
                    continue
                if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    continue
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
            found[int(folder.name)] = command
        return found

    def pid_of(self, name: str) -> int:
        """Give the process id of a child by a part of its command line."""
        return next(pid for pid, command in self.left().items() if name in command)

    def end(self) -> None:
        """Leave nothing behind, however the test went."""
        for pid in [self.process.pid, *self.left()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
