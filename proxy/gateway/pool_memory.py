"""The places in use of all pools, shared by every gateway process of a machine; survives kill -9.

Owns the files, the machine's lock and what becomes of the places of a process that died. Who waits
for a place is `pools.py`'s. Beside the table of totals every process has a file of what it holds
itself, and a lock on that file for as long as it lives: who finds the lock free takes the dead
one's places out of the totals (docs/decisions/0011).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import time
from collections.abc import Iterable, Iterator
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from itertools import islice
from pathlib import Path

from proxy.gateway.pool_table import SLOTS, TABLE_BYTES, PoolTable

MEMBERS = 512  # processes at once
MOST_OF_ONE = 0xFFFF  # places of one pool that one process can hold

_LOOK_NS = 50_000_000  # the dead are looked for at most this often on a machine
_JOIN_S = 5.0
_PATIENCE_S = 0.1  # a process holds the lock for microseconds; for longer only if it is halted
_SULK_S = 1.0  # after that the lock is tried, and not waited for, this long
_FRESH_NS = 60_000_000  # what a process said of its waiters holds this long
_AHEAD_NS = 50_000_000  # by so much longer others have to wait for us to let them go first
_AT_A_TIME = 1000  # slots of a dead process that are freed under one lock

# Another layout takes another file name, so that old and new processes can run side by side.
# Words of 8 bytes before the table; then one for each process: its id, 0 where there is none; then
# three for each: a pool it waits for, since when, and when it said so (CLOCK_MONOTONIC ns).
_INTENT = 0  # slot + 1 of the change under way; not 0 under a new lock: its maker died meanwhile
_LOOKED = 1  # CLOCK_MONOTONIC ns of the last look
_NO_ROOM = 2  # refusals because the table had no room
_DIED = 3  # processes that died and were cleared away
_IDS = 8
_WAITS = _IDS + MEMBERS
_HEAD_BYTES = (_WAITS + 3 * MEMBERS) * 8
_FILE_BYTES = _HEAD_BYTES + TABLE_BYTES
_OWN_BYTES = SLOTS * 2
_PAGE = 4096


class PoolMemory:
    """Counts by number; for one thread of one process (a forked one makes its own)."""

    def __init__(self, folder: Path) -> None:
        """Join the machine's processes.

        Where the files cannot be written (disk full) or locked, this process counts for itself:
        `is_shared` is false.

        Raises:
            OSError: the folder cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._held: dict[int, int] = {}  # number → slot, of what this process holds
        self._owed: list[int] = []  # numbers given back while the lock could not be had
        self._sulks_until = 0.0
        self._file = self._life = -1
        self._index = 0
        self._others: list[int] = []  # processes as of the last `say_waiting`
        self.stuck = 0  # refusals because a halted process kept the lock, looks that failed
        try:
            self._file = _open(folder / "pools")
            self._maps = self._joined()
        except (OSError, ValueError):  # ValueError: somebody cut a file short
            self._close_files()
            self._maps = (mmap.mmap(-1, _FILE_BYTES), mmap.mmap(-1, _OWN_BYTES))
        self.is_shared = self._file >= 0
        self._views = (memoryview(self._maps[0]), memoryview(self._maps[1]))
        self._head = self._views[0][:_HEAD_BYTES].cast("Q")
        self._table = PoolTable(self._views[0][_HEAD_BYTES:])
        self._own = self._views[1].cast("H")
        self.say_waiting(0, 0)
        self._head[_IDS + self._index] = os.getpid()
        if self.is_shared:
            flock(self._file, LOCK_UN)
            self.look()

    def take(self, number: int, most: int) -> bool:
        """Take a place of a pool of which fewer than `most` are in use on the machine."""
        if most <= 0 or not self._lock():
            return False
        try:
            slot = self._held.get(number, -1)
            if slot < 0:
                slot = self._table.place(number)
            if slot < 0:
                self._head[_NO_ROOM] += 1
            else:
                total, mine = self._table.totals[slot], self._own[slot]
                if total < most and mine < MOST_OF_ONE:
                    head = self._head
                    head[_INTENT] = slot + 1
                    self._own[slot] = mine + 1
                    self._table.totals[slot] = total + 1
                    head[_INTENT] = 0
                    self._held[number] = slot
                    return True
        finally:
            self._unlock()
        return self.look() and self.take(number, most)

    def give(self, number: int) -> None:
        """Give a place back; at the next chance if a halted process keeps the lock.

        Raises:
            ValueError: this process holds no place of that pool.
        """
        if number not in self._held:
            raise ValueError(f"no place of pool {number:#x} was taken by this process")
        if not self._lock():
            self._owed.append(number)
            return
        try:
            self._put_back(number)
        finally:
            self._unlock()

    def total(self, number: int) -> int:
        """How many places of a pool are in use on the machine, as of a moment ago."""
        return self._table.total(number)

    def look(self) -> bool:
        """Free the places of processes that died; true if there were any.

        Does nothing when the machine's last look is more recent than 50 ms.
        """
        now, last = time.monotonic_ns(), self._head[_LOOKED]
        if not self.is_shared or 0 <= now - last < _LOOK_NS:
            return False
        self._head[_LOOKED] = now
        found = False
        try:
            for index in self._members():
                if index != self._index and (life := self._life_of_dead(index)) >= 0:
                    try:
                        found = self._clear(index, life) or found
                    finally:
                        os.close(life)
        except OSError:  # no descriptor free: who is not found dead counts on
            self.stuck += 1
        return found

    def held(self) -> Iterable[int]:
        """Name the pools that this process holds places of."""
        return self._held.keys()

    def say_waiting(self, number: int, since_ns: int) -> None:
        """Tell the other processes for what, and since when, someone waits here longest (0: none).

        To be said anew every 20 ms. Not a promise but a courtesy: nothing is counted by it.
        """
        at = _WAITS + 3 * self._index
        said = time.monotonic_ns() if number else 0
        self._head[at], self._head[at + 1], self._head[at + 2] = number, since_ns, said
        self._others = [index for index in self._members() if index != self._index]

    def has_elder(self, number: int, since_ns: int) -> bool:
        """Whether someone in another process waits for a pool clearly longer than since then."""
        head = self._head
        for at in (_WAITS + 3 * index for index in self._others):
            if head[at] == number and head[at + 1] + _AHEAD_NS < since_ns:
                return 0 <= time.monotonic_ns() - head[at + 2] < _FRESH_NS
        return False

    def figures(self) -> dict[str, int]:
        """Count what this machine's processes met."""
        return {
            "processes": len(self._members()),
            "shared": int(self.is_shared),
            "refused_no_room": self._head[_NO_ROOM],
            "processes_died": self._head[_DIED],
            "lock_stuck": self.stuck,
        }

    def leave(self) -> None:
        """Give everything back and leave the machine's processes."""
        if self.is_shared:
            with contextlib.suppress(OSError):  # what stays is freed as a dead process's is
                self._clear(self._index, self._life)
        for view in (self._head, self._own):
            view.release()
        self._table.close()
        for view in self._views:
            view.release()
        for memory in self._maps:
            memory.close()
        self._close_files()

    # The lock

    def _lock(self) -> bool:
        if self._file >= 0:
            try:
                flock(self._file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                if not self._wait_for_lock():
                    return False
            if self._head[_INTENT] and not self._repaired():
                flock(self._file, LOCK_UN)
                self.stuck += 1
                return False
        if self._owed:
            owed, self._owed = self._owed, []
            for number in owed:
                self._put_back(number)
        return True

    def _unlock(self) -> None:
        if self._file >= 0:
            flock(self._file, LOCK_UN)

    def _wait_for_lock(self) -> bool:
        """Try on for a while; give up on a process that is halted, since the loop stands still."""
        if time.monotonic() < self._sulks_until:
            self.stuck += 1
            return False
        if _locked_within(self._file, _PATIENCE_S):
            return True
        self._sulks_until = time.monotonic() + _SULK_S
        self.stuck += 1
        return False

    # Under the lock

    def _put_back(self, number: int) -> None:
        slot = self._held[number]
        totals, own = self._table.totals, self._own
        total, mine = totals[slot] - 1, own[slot] - 1
        self._head[_INTENT] = slot + 1
        totals[slot] = total
        own[slot] = mine
        self._head[_INTENT] = 0
        if not mine:
            del self._held[number]
            if not total:
                self._table.vacate(slot)

    def _repaired(self) -> bool:
        """Count anew the one total whose change was begun by a process that died in it."""
        slot = self._head[_INTENT] - 1
        try:
            total = sum(self._held_by(index, slot) for index in self._members())
        except OSError:  # no descriptor free: another process will do it, or the next call
            return False
        self._table.totals[slot] = total
        self._head[_INTENT] = 0
        if not total:
            self._table.vacate(slot)
        return True

    def _held_by(self, index: int, slot: int) -> int:
        file = _open(self._path(index))
        try:
            return int.from_bytes(os.pread(file, 2, slot * 2), sys.byteorder)
        finally:
            os.close(file)

    def _clear(self, index: int, life: int) -> bool:
        """Take what a process holds out of the totals and strike it off; its file is locked by us.

        False when the lock could not be had: the next look goes on.
        """
        if os.fstat(life).st_size < _OWN_BYTES:
            return self._strike_off(index)
        with mmap.mmap(life, _OWN_BYTES) as memory:
            slots = _held_slots(memory)
            while batch := list(islice(slots, _AT_A_TIME)):
                if not self._lock():
                    return False
                try:
                    with memoryview(memory) as view, view.cast("H") as own:
                        for slot in batch:
                            self._free(slot, own)
                finally:
                    self._unlock()
        return self._strike_off(index)

    def _free(self, slot: int, own: memoryview) -> None:
        totals = self._table.totals
        total = totals[slot] - own[slot]
        self._head[_INTENT] = slot + 1
        totals[slot] = total
        own[slot] = 0
        self._head[_INTENT] = 0
        if not total:
            self._table.vacate(slot)

    def _strike_off(self, index: int) -> bool:
        if not self._lock():
            return False
        if self._head[_IDS + index] and index != self._index:
            self._head[_DIED] += 1
        self._head[_IDS + index] = 0
        self._unlock()
        return True

    # Files

    def _joined(self) -> tuple[mmap.mmap, mmap.mmap]:
        """Map the table and a file of our own; returns with the machine's lock held.

        Where no process is alive, the table begins anew: the machine may have been cut off in the
        middle of a write.
        """
        if not _locked_within(self._file, _JOIN_S):
            raise TimeoutError("a halted process keeps the lock of the pools")
        raw = os.pread(self._file, MEMBERS * 8, _IDS * 8)
        ids = memoryview(raw.ljust(MEMBERS * 8, b"\0")).cast("Q").tolist()
        if not any(id_ and self._is_alive(index) for index, id_ in enumerate(ids)):
            _fill(self._file, _FILE_BYTES)
            ids = [0] * MEMBERS
        for index, id_ in enumerate(ids):
            if not id_ and (life := self._life_of_dead(index)) >= 0:
                self._index, self._life = index, life
                _fill(life, _OWN_BYTES)
                return mmap.mmap(self._file, _FILE_BYTES), mmap.mmap(life, _OWN_BYTES)
        raise OSError(f"more than {MEMBERS} processes share the pools")

    def _members(self) -> list[int]:
        return [index for index, id_ in enumerate(self._head[_IDS:_WAITS].tolist()) if id_]

    def _path(self, index: int) -> Path:
        return self._folder / f"pools-{index:03d}"

    def _life_of_dead(self, index: int) -> int:
        """Open and lock the file of a process that is not alive; -1 if it is."""
        life = _open(self._path(index))
        try:
            flock(life, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            os.close(life)
            return -1
        return life

    def _is_alive(self, index: int) -> bool:
        life = self._life_of_dead(index)
        if life >= 0:
            os.close(life)
        return life < 0

    def _close_files(self) -> None:
        for file in (self._file, self._life):
            if file >= 0:
                os.close(file)
        self._file = self._life = -1


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _fill(file: int, size: int) -> None:
    """Write zeros, and not only make it longer: a hole that a full disk cannot fill is a SIGBUS."""
    try:
        written = 0
        while written < size:
            written += os.pwrite(file, bytes(size - written), written)
    except OSError:
        os.ftruncate(file, 0)
        raise


def _locked_within(file: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    tries = 0
    while True:
        try:
            flock(file, LOCK_EX | LOCK_NB)
            return True
        except BlockingIOError:
            tries += 1
        if tries > 50:  # its holder does not run just now
            if time.monotonic() > deadline:
                return False
            time.sleep(0.0002)


def _held_slots(memory: mmap.mmap) -> Iterator[int]:
    """Name the slots that are not 0; whole pages of zeros cost next to nothing."""
    nothing = bytes(_PAGE)
    for at in range(0, _OWN_BYTES, _PAGE):
        page = memory[at : at + _PAGE]
        if page != nothing:
            counts = memoryview(page).cast("H")
            yield from (at // 2 + offset for offset, count in enumerate(counts) if count)
