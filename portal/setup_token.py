"""The one-time setup token: only its hash lies in the data folder, and using it removes it.

No Django. The file is 0600.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from portal.private_file import replace_private

TOKEN_FILE = "setup-token"  # noqa: S105 - a file's name
SHORTEST = 12


def _hash(token: str) -> str:
    return hashlib.sha256(b"corvus setup token:" + token.encode()).hexdigest()


class SetupToken:
    """The token of one data folder; `given` is the operator's own, which is never written."""

    def __init__(self, folder: Path, given: str = "") -> None:
        self._path = folder / TOKEN_FILE
        self._given = given

    def issue(self) -> str:
        """Make the token good and give it; one that was made before is void.

        Raises:
            OSError: the data folder cannot be written.
        """
        token = self._given or secrets.token_urlsafe(18)
        replace_private(self._path, _hash(token))
        return token

    def matches(self, token: str) -> bool:
        """Compare in constant time; false when there is no token."""
        try:
            kept = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return False
        return hmac.compare_digest(kept, _hash(token))

    def use_up(self) -> bool:
        """Remove it; of two who come at once only one is told True."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True


class Attempts:
    """Wrong tokens of the last minute in this process: too many close the page for everybody.

    Not counted by address: one token guards one installation, and addresses are cheap.
    """

    def __init__(
        self, most: int = 5, within_s: float = 60, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._within_s = within_s
        self._clock = clock
        self._failed: deque[float] = deque(maxlen=most)

    def wait_s(self) -> int:
        """Give how long to wait before the next try; 0: now."""
        if len(self._failed) < self._most:
            return 0
        left = self._failed[0] + self._within_s - self._clock()
        return max(0, int(left) + 1) if left > 0 else 0

    def failed(self) -> None:
        """Count a wrong token."""
        self._failed.append(self._clock())
