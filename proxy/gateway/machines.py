"""How many machines share the store, so that each takes its part of the limits that all share.

Owns the machine's name, the list in the store and the last known count. A machine whose gateways
have all been silent for 10 s of the store's time does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import struct
from fcntl import LOCK_EX, flock
from pathlib import Path
from platform import node

from queueing.connection import Connection, StoreError

KEY = "corvus:machines"
SILENT_MS = 10_000

_FILE = struct.Struct("<16sI")  # random name, machines at the last beat
_MOST = 100_000


class Machines:
    """The machines that share a store; one object for each process, one name for each machine."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        """Read or make the machine's name in `folder`; where it cannot be kept, the process counts
        as a machine of its own, which makes its share smaller.

        Raises:
            OSError: the folder cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._connection = connection
        self._path = folder / "machine"
        random, self.count = _read_or_make(self._path)
        # Two machines may have the same file (a copied disk), but not the same start.
        self._name = hashlib.sha256(random + _start_of_machine()).hexdigest()[:32]

    async def beat(self) -> None:
        """Tell that this machine lives and count the others; about once a second.

        While the store is away the count stays.
        """
        with contextlib.suppress(StoreError):  # the ticker reports it
            count = await self._beaten()
            if count != self.count:
                self.count = count
                self._keep(count)

    def share(self, total: int) -> int:
        """Give this machine's part of what all together may have: at least 1, unless it is none."""
        return max(1, total // self.count) if total > 0 else 0

    async def _beaten(self) -> int:
        call = self._connection.call
        seconds, microseconds = await call("TIME", repeatable=True)
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        # One write, so in this order. Scores ahead: the store's clock was set back.
        _, _, _, _, count = await asyncio.gather(
            call("ZADD", KEY, now_ms, self._name, repeatable=True),
            call("ZREMRANGEBYSCORE", KEY, "-inf", now_ms - SILENT_MS, repeatable=True),
            call("ZREMRANGEBYSCORE", KEY, now_ms + SILENT_MS, "+inf", repeatable=True),
            call("PEXPIRE", KEY, 6 * SILENT_MS, repeatable=True),
            call("ZCARD", KEY, repeatable=True),
        )
        return max(1, int(count))

    def _keep(self, count: int) -> None:
        """Remember the count, for a process that starts while the store is away."""
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_RDWR)
            try:
                os.pwrite(file, struct.pack("<I", count), 16)
            finally:
                os.close(file)


def _read_or_make(path: Path) -> tuple[bytes, int]:
    random = secrets.token_bytes(16)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return random, 1
    try:
        flock(file, LOCK_EX)
        kept = os.pread(file, _FILE.size, 0)
        if len(kept) == _FILE.size:
            random, count = _FILE.unpack(kept)
            return random, min(max(1, count), _MOST)
        if os.pwrite(file, _FILE.pack(random, 1), 0) < _FILE.size:
            os.ftruncate(file, 0)
        return random, 1
    except OSError:
        return random, 1
    finally:
        os.close(file)


def _start_of_machine() -> bytes:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return node().encode()
