"""Which slot of the shared memory counts the places of which pool: open addressing, fixed size.

Owns the two arrays (keys, totals) and the walk through them; pure, without locks or files. Whoever
changes them holds the machine's lock (`pool_memory.py`). A walk without the lock may read a moment
too early or too late, and never breaks.
"""

from __future__ import annotations

SLOTS = 1 << 17  # pools in use at once; room is found for about 90 % of that
PROBES = 128  # how far from its home a pool may lie
TABLE_BYTES = SLOTS * 12
_MASK = SLOTS - 1
_TOTALS_AT = SLOTS * 8


class PoolTable:
    """Pools by number (1 … 2^64 - 1). A slot's key is 0 where no walk has to go on.

    A slot with a key and a total of 0 is free, but a walk to a pool behind it leads over it.
    """

    def __init__(self, memory: memoryview) -> None:
        self.keys = memory[:_TOTALS_AT].cast("Q")
        self.totals = memory[_TOTALS_AT:TABLE_BYTES].cast("I")

    def close(self) -> None:
        """Let go of the memory, so that it can be unmapped."""
        self.keys.release()
        self.totals.release()

    def total(self, number: int) -> int:
        """How many places of a pool are in use."""
        keys, slot = self.keys, number & _MASK
        for _ in range(PROBES):
            key = keys[slot]
            if key == number:
                return self.totals[slot]
            if not key:
                return 0
            slot = (slot + 1) & _MASK
        return 0

    def place(self, number: int) -> int:
        """Give a pool's slot, a new one (with a total of 0) where it has none; -1 = no room."""
        keys, slot, free = self.keys, number & _MASK, -1
        for _ in range(PROBES):
            key = keys[slot]
            if key == number:
                return slot
            if free < 0 and not self.totals[slot]:
                free = slot
            if not key:
                break
            slot = (slot + 1) & _MASK
        if free >= 0:
            keys[free] = number
        return free

    def vacate(self, slot: int) -> None:
        """Clear a slot whose total fell to 0, and those before it that only led on to it."""
        keys, totals = self.keys, self.totals
        if keys[(slot + 1) & _MASK]:
            return  # a walk may lead on from here
        while keys[slot] and not totals[slot]:
            keys[slot] = 0
            slot = (slot - 1) & _MASK
