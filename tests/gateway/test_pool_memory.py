"""The shared counts against a model: any order of takes, gifts back, joins and deaths, also deaths
between two writes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.gateway import pool_memory
from proxy.gateway.pool_memory import PoolMemory
from proxy.gateway.pool_table import SLOTS

# Few homes, one at the end of the table, so that walks cross and wrap around.
HOMES = st.sampled_from([5, 6, 7, SLOTS - 1])
NUMBERS = st.builds(lambda home, n: n * SLOTS + home, HOMES, st.integers(1, 4))
CHOICES = st.integers(0, 11)
MOSTS = st.integers(0, 4)


class _Died(BaseException):
    """The process ends here."""


class _Mortal:
    """A view of the shared memory through which only so many writes can be made."""

    def __init__(self, view: memoryview, life: list[int]) -> None:
        self._view = view
        self._life = life

    def __getitem__(self, at: int | slice) -> int | memoryview:
        return self._view[at]

    def __setitem__(self, at: int, value: int) -> None:
        if self._life[0] == 0:
            raise _Died
        self._life[0] -= 1
        self._view[at] = value

    def release(self) -> None:
        self._view.release()


def _let_die_after(memory: PoolMemory, writes: int) -> None:
    life = [writes]
    table = memory._table
    for owner, name in (
        (memory, "_head"),
        (memory, "_own"),
        (table, "keys"),
        (table, "totals"),
    ):
        setattr(owner, name, _Mortal(getattr(owner, name), life))


def _bury(memory: PoolMemory) -> None:
    """What the kernel does for a dead process: its files are closed, and with them its locks."""
    memory._close_files()
    for view in (memory._head, memory._own):
        view.release()
    memory._table.close()
    for view in memory._views:
        view.release()
    for part in memory._maps:
        part.close()


class Processes(RuleBasedStateMachine):
    """Several processes' views of one table; each holds what the model says, and all know it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="corvus-pools-"))
        self.looks_ns, pool_memory._LOOK_NS = pool_memory._LOOK_NS, 0  # at every chance
        self.held: dict[PoolMemory, Counter[int]] = {}

    def teardown(self) -> None:
        for memory in list(self.held):
            memory.leave()
        pool_memory._LOOK_NS = self.looks_ns
        shutil.rmtree(self.folder)

    def in_use(self, number: int) -> int:
        return sum(held[number] for held in self.held.values())

    def one(self, choice: int) -> PoolMemory:
        return list(self.held)[choice % len(self.held)]

    @rule()
    def joins(self) -> None:
        self.held[PoolMemory(self.folder)] = Counter()

    @precondition(lambda self: self.held)
    @rule(choice=CHOICES, number=NUMBERS, most=MOSTS)
    def takes(self, choice: int, number: int, most: int) -> None:
        member, expected = self.one(choice), self.in_use(number) < most
        assert member.take(number, most) is expected
        self.held[member][number] += expected

    @precondition(lambda self: self.held)
    @rule(choice=CHOICES, which=CHOICES)
    def gives_back(self, choice: int, which: int) -> None:
        member = self.one(choice)
        if held := sorted(self.held[member].elements()):
            number = held[which % len(held)]
            member.give(number)
            self.held[member][number] -= 1

    @precondition(lambda self: self.held)
    @rule(choice=CHOICES)
    def leaves(self, choice: int) -> None:
        member = self.one(choice)
        del self.held[member]
        member.leave()

    @precondition(lambda self: self.held)
    @rule(choice=CHOICES)
    def is_killed(self, choice: int) -> None:
        member = self.one(choice)
        del self.held[member]
        _bury(member)

    @precondition(lambda self: self.held)
    @rule(
        choice=CHOICES,
        act=st.sampled_from(["take", "give", "leave"]),
        number=NUMBERS,
        which=CHOICES,
        writes=st.integers(0, 8),
    )
    def is_killed_at_work(
        self, choice: int, act: str, number: int, which: int, writes: int
    ) -> None:
        member = self.one(choice)
        held = sorted(self.held.pop(member).elements())
        _let_die_after(member, writes)
        with contextlib.suppress(_Died):
            if act == "take":
                member.take(number, 4)
            elif act == "give" and held:
                member.give(held[which % len(held)])
            else:
                member._clear(member._index, member._life)
        _bury(member)

    @precondition(lambda self: len(self.held) > 1)
    @rule(choice=CHOICES, writes=st.integers(0, 12))
    def is_killed_while_it_clears_another_away(self, choice: int, writes: int) -> None:
        dead = self.one(choice)
        del self.held[dead]
        _bury(dead)
        heir = self.one(choice)
        del self.held[heir]
        _let_die_after(heir, writes)
        with contextlib.suppress(_Died):
            heir.look()
        _bury(heir)

    @invariant()
    def every_process_knows_what_is_in_use(self) -> None:
        if not self.held:
            return
        memory = self.one(0)  # all see the same memory
        memory.look()
        numbers = {number for held in self.held.values() for number in held}
        in_use = {number: self.in_use(number) for number in numbers}
        assert {number: memory.total(number) for number in numbers} == in_use
        totals = memory._table.totals
        assert sum(totals[:64]) + sum(totals[-64:]) == sum(in_use.values())
        assert memory.figures()["processes"] == len(self.held)


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
