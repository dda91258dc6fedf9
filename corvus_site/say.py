"""Writes the supervisor's and its children's lines without ever waiting for whoever reads them.

A terminal that is held or a full pipe must not stop the supervision: a thread writes, and lines
beyond what can wait are counted and left out.
"""

from __future__ import annotations

import queue
import threading
from typing import TextIO

MOST_WAITING = 20_000


class Speaker:
    """A line at a time to one stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="speaker", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """Write a line soon."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._left_out += 1

    def close(self) -> None:
        """Write what is waiting, for at most two seconds."""
        try:
            self._lines.put(None, timeout=1)
        except queue.Full:
            return
        self._thread.join(timeout=2)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            parts = [line]
            while len(parts) < 500:
                try:
                    more = self._lines.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._put(parts)
                    return
                parts.append(more)
            self._put(parts)

    def _put(self, lines: list[str]) -> None:
        if self._left_out:
            lines.append(f"({self._left_out} lines left out: the output was not read)")
            self._left_out = 0
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return  # nobody reads any more; the work goes on
