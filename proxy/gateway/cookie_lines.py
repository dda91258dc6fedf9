"""What a stage made of a cookie line, so that its visitor's next requests need no reading of it.

Pure and bounded. How long what is kept still holds is for the stage that kept it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from queueing.passes import Credential

T = TypeVar("T")

_MOST = 8192
_LONGEST = 2048


class CookieLines(Generic[T]):
    """By the whole `Cookie` line, as sent."""

    def __init__(self) -> None:
        self._kept: dict[bytes, T] = {}

    def get(self, line: bytes) -> T | None:
        """Give what was kept of this line."""
        return self._kept.get(line)

    def keep(self, line: bytes, made: T, credential: Credential) -> None:
        """Keep what was made of a line with this pass, unless its network is judged each time."""
        if credential.network or len(line) > _LONGEST:
            return
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[line] = made
