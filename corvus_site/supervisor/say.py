"""Writes the supervisor's and its children's lines without ever waiting for whoever reads them.

A terminal that is held or a full pipe must not stop the supervision: a thread writes, and lines
beyond what can wait are counted and left out.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol, TextIO

MOST_WAITING = 20_000
MOST_AT_ONCE = 500


class Voice(Protocol):
    """Where lines go."""

    def say(self, line: str) -> None:
        """Take a line of the supervisor's own."""

    def relay(self, name: str, lines: Sequence[str]) -> None:
        """Take lines of a child."""


def _as_json(logger: str, line: str) -> str:
    at = datetime.now(UTC).isoformat()
    event = {"event": line, "logger": logger, "level": "info", "timestamp": at}
    return json.dumps(event, ensure_ascii=False)


class Speaker:
    """A voice on one stream. With `json_lines` each line is a JSON object, made of what is none."""

    def __init__(self, stream: TextIO, *, json_lines: bool = False) -> None:
        self.json_lines = json_lines
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="speaker", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """Write a line of the supervisor's own soon."""
        self._put(_as_json("corvus.supervisor", line) if self.json_lines else line)

    def relay(self, name: str, lines: Sequence[str]) -> None:
        """Write lines of a child soon, each behind its name."""
        for line in lines:
            if not line.strip():
                continue
            if not self.json_lines:
                self._put(f"{name} | {line}")
            elif line.startswith("{"):
                self._put(line)
            else:
                self._put(_as_json(name, line))

    def close(self) -> None:
        """Write what is waiting, for at most two seconds."""
        try:
            self._lines.put(None, timeout=1)
        except queue.Full:
            return
        self._thread.join(timeout=2)

    def _put(self, line: str) -> None:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._left_out += 1

    def _write(self) -> None:
        ended = False
        while not ended:
            parts = [self._lines.get()]
            while len(parts) < MOST_AT_ONCE and not self._lines.empty():
                parts.append(self._lines.get())
            ended = None in parts
            self._flush([part for part in parts if part is not None])

    def _flush(self, lines: list[str]) -> None:
        if self._left_out:
            note = f"{self._left_out} lines left out: the output was not read"
            lines.append(_as_json("corvus.supervisor", note) if self.json_lines else note)
            self._left_out = 0
        try:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):
            return  # nobody reads any more; the work goes on
