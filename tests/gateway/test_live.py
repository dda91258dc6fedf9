"""The store's clock as a process carries it on, and what it remembers of a room."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gateway import live
from proxy.gateway.live import LiveRoom, StoreClock
from queueing.config import RoomConfig, RoomId, VisitorId
from queueing.places import Counts, Tick


class Clocks:
    """Two clocks, the process's own under the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.here)


@given(st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 900)), min_size=1))
def test_late_replies_never_make_it_late(replies: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clocks, clock = Clocks(patch), StoreClock()
        clock.learn(1_000_000)  # a prompt reply: the store says 1,000 s here at 1,000 s
        for passed, late in replies:
            clocks.here += passed / 1000
            clock.learn(int(clocks.here * 1000) - late)
            behind = clocks.here * 1000 - clock.now_ms()
            assert 0 <= behind <= min(900, 1 + 0.0005 * (clocks.here - 1000) * 1000) + 1


def test_a_store_whose_clock_was_set_back_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    Clocks(monkeypatch)
    clock = StoreClock()
    clock.learn(1_000_000)
    clock.learn(990_000)
    assert clock.now_ms() == 990_000


def test_revocations_are_forgotten_when_no_pass_of_before_can_live() -> None:
    room = LiveRoom(RoomConfig(id=RoomId("r"), active_ttl_ms=10_000, admit_ttl_ms=30_000))
    room.revoked = {VisitorId("old"): 1_000, VisitorId("new"): 70_001}
    room.forget_old_revocations(100_000)
    assert set(room.revoked) == {"new"}


def test_a_process_knows_every_revocation_up_to_the_last_tick_whose_journal_it_has_read() -> None:
    room = LiveRoom(RoomConfig(id=RoomId("r")))
    assert room.known_until_ms == 0, "nothing was told yet"
    room.tick = tick(journal=4, now_ms=5_000)
    assert room.known_until_ms == 0, "told of four, read none"
    room.journal = 3
    assert room.known_until_ms == 0
    room.journal = 4
    assert room.known_until_ms == 5_000
    room.tick = tick(journal=5, now_ms=6_000)
    assert room.known_until_ms == 0, "the fifth may be anybody's"


def tick(*, journal: int, now_ms: int) -> Tick:
    counts = Counts(waiting=0, parked=0, granted=0, active=0, latest_ticket=0)
    return Tick(
        now_ms=now_ms,
        counts=counts,
        epoch=1,
        reset_ms=0,
        config_version=1,
        journal=journal,
        more_work=False,
    )


def test_a_long_outage_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_MOST_OUTAGE_ENTRIES", 3)
    room = LiveRoom(RoomConfig(id=RoomId("r")))
    for name in ("a", "b", "a", "c", "d", "d"):
        room.note_outage_entry(VisitorId(name))
    assert "d" in room.outage_entries, "who came last is the likeliest to be inside still"
    assert len(room.outage_entries) <= 3
