"""What is promised about waits: WR-68 (in its pure part), and how often a page asks."""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueing.estimates import poll_after_s, wait_estimate


def test_a_steady_room_gives_the_obvious_wait() -> None:
    found = wait_estimate(ahead=599, released=600, released_ms=60_000)
    assert found is not None
    assert found.p50 == pytest.approx(60, abs=1)
    assert found.p10 < found.p50 < found.p90


@pytest.mark.parametrize(("released", "released_ms"), [(4, 60_000), (0, 0), (100, 0)])
def test_wr_68_without_enough_releases_the_wait_is_unknown(released: int, released_ms: int) -> None:
    assert wait_estimate(ahead=10, released=released, released_ms=released_ms) is None


def test_the_admission_rate_is_a_lower_bound_of_the_wait() -> None:
    found = wait_estimate(ahead=999, released=500, released_ms=1_000, rate=10)
    assert found is not None
    assert found.p10 == 100


def test_wr_68_the_real_wait_lies_between_p10_and_p90_about_eight_times_in_ten() -> None:
    """Log-normal visits in a full room of 100; estimated from 60 s, then reality runs."""
    chance, capacity, ahead = random.Random(68), 100, 120
    inside, errors, trials = 0, [], 200
    for _ in range(trials):
        ends = [chance.lognormvariate(4.0, 0.8) * chance.random() for _ in range(capacity)]
        heapq.heapify(ends)
        times: list[float] = []
        while len(times) < 4000 and (not times or times[-1] < 1000):
            times.append(end := heapq.heappop(ends))
            heapq.heappush(ends, end + chance.lognormvariate(4.0, 0.8))
        seen = sum(300 < t <= 360 for t in times)
        truth = [t for t in times if t > 360][ahead] - 360
        found = wait_estimate(ahead=ahead, released=seen, released_ms=60_000)
        assert found is not None
        inside += found.p10 <= truth <= found.p90
        errors.append(abs(found.p50 - truth) / truth)
    assert sorted(errors)[trials // 2] <= 0.10
    assert 0.75 <= inside / trials <= 0.97


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**7))
def test_every_estimate_is_ordered_and_every_interval_is_within_its_bounds(
    ahead: int, released: int, released_ms: int
) -> None:
    found = wait_estimate(ahead=ahead, released=released, released_ms=released_ms)
    assert found is None or 1 <= found.p10 <= found.p50 <= found.p90
    assert 3 <= poll_after_s(ahead=ahead, released=released, released_ms=released_ms) <= 30


def test_the_front_asks_often_and_the_back_seldom() -> None:
    assert poll_after_s(ahead=0, released=100, released_ms=60_000) == 3
    assert poll_after_s(ahead=0, released=0, released_ms=0) == 3
    assert poll_after_s(ahead=10_000, released=100, released_ms=60_000) == 30
    assert poll_after_s(ahead=10_000, released=0, released_ms=0) == 30
