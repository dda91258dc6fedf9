"""Decode a chunked request body, strictly (RFC 9112 7.1), as its bytes arrive.

Pure. Trailers are checked and dropped: ASGI has no way to hand them on, and a trailer that became a
header would be a way around every check of the head.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from corvus_site.server.head import FIELD_LINE, Refused
from corvus_site.server.limits import ServerLimits

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_LONGEST_SIZE_LINE: Final = 288


class _Expect(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILERS = auto()


class ChunkedBody:
    """The decoder of one body; `done` when it has ended, and then `rest` is what came behind it."""

    __slots__ = ("_expect", "_held", "_left", "_limits", "done", "rest")

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._expect = _Expect.SIZE
        self._held = b""
        self._left = 0
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the network, give the body's bytes in them. Raises Refused (400, 431)."""
        if self._held:
            data = self._held + data
            self._held = b""
        parts: list[bytes] = []
        at = 0
        while not self.done:
            if self._expect is _Expect.DATA:
                part = data[at : at + self._left]
                if not part:
                    break
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if self._left:
                    break
                self._expect = _Expect.DATA_END
                continue
            following = self._read_framing(data, at)
            if following is None:
                self._held = data[at:]
                break
            at = following
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_framing(self, data: bytes, at: int) -> int | None:
        """Read one line that is not body; give where the next thing begins, None if it is cut."""
        if self._expect is _Expect.DATA_END:
            if not b"\r\n".startswith(data[at : at + 2]):
                raise Refused(400, "a chunk is longer than it said")
            if len(data) - at < 2:
                return None
            self._expect = _Expect.SIZE
            return at + 2
        if self._expect is _Expect.SIZE:
            return self._read_size(data, at)
        return self._read_trailers(data, at)

    def _read_size(self, data: bytes, at: int) -> int | None:
        end = data.find(b"\r\n", at, at + _LONGEST_SIZE_LINE)
        if end < 0:
            if len(data) - at >= _LONGEST_SIZE_LINE or b"\n" in data[at:]:
                raise Refused(400, "a malformed chunk size")
            return None
        size = _SIZE_LINE.fullmatch(data, at, end)
        if size is None:
            raise Refused(400, "a malformed chunk size")
        self._left = int(size[1], 16)
        self._expect = _Expect.DATA if self._left else _Expect.TRAILERS
        return end + 2

    def _read_trailers(self, data: bytes, at: int) -> int | None:
        if data.startswith(b"\r\n", at):
            self._end(data, at + 2)
            return at + 2
        end = data.find(b"\r\n\r\n", at)
        block = data[at : end + 2] if end >= 0 else data[at:]
        if len(block) > self._limits.max_header_bytes:
            raise Refused(431, "the trailer is too large")
        if end < 0:
            if block.count(b"\n") != block.count(b"\r\n"):
                raise Refused(400, "a malformed trailer")
            return None
        lines = block.count(b"\n")
        if lines > self._limits.max_header_count:
            raise Refused(431, "too many trailers")
        if len(FIELD_LINE.findall(block)) != lines:
            raise Refused(400, "a malformed trailer")
        self._end(data, end + 4)
        return end + 4

    def _end(self, data: bytes, at: int) -> None:
        self.done = True
        self.rest = data[at:]
