"""How long a waiter will probably wait, and when its page should ask again.

Pure arithmetic over what the script told. Rounding for the eye (1, 2, 5, 10 … minutes) is the
page's, jitter on the poll interval is the browser's.
"""

from __future__ import annotations

import math

from queueing.pages.view import Eta

NEAREST_S = 3
FARTHEST_S = 30
"""Seconds between status checks: at the front, and far back."""

FEWEST_RELEASES = 5
_Z90 = 1.2816  # the 90 % point of the normal distribution


def wait_estimate(*, ahead: int, released: int, released_ms: int, rate: int = 0) -> Eta | None:
    """Estimate a waiter's seconds to its turn; None = fewer than five releases seen (WR-68).

    Whether anybody is admitted at the moment is the caller's to know: a paused room has no
    estimate. The turn is the k-th release from now. Both that time and the release rate, known
    from n releases, are uncertain: their quotient follows an F distribution with 2k and 2n
    degrees, taken here as log-normal. `rate` is the room's admission limit (0 = none), which no
    wait can beat.
    """
    if released < FEWEST_RELEASES or released_ms <= 0:
        return None
    needed = ahead + 1
    middle = released_ms / 1000 * (needed - 1 / 3) / (released - 1 / 3)
    spread = math.exp(_Z90 * math.sqrt(_log_variance(needed) + _log_variance(released)))
    soonest = needed / rate if rate else 0.0
    p10, p50, p90 = (
        max(1, math.ceil(max(seconds, soonest)))
        for seconds in (middle / spread, middle, middle * spread)
    )
    return Eta(p10=p10, p50=p50, p90=p90)


def poll_after_s(*, ahead: int, released: int, released_ms: int) -> int:
    """Seconds until the next status check: 3 near the front … 30 far back.

    A tenth of the expected wait, so that a page is seldom late by more than that; while the release
    rate is unknown, a second for every ten people ahead.
    """
    seconds = NEAREST_S + ahead / 10
    if released >= FEWEST_RELEASES and released_ms > 0:
        seconds = ahead * released_ms / released / 10_000
    return round(min(FARTHEST_S, max(NEAREST_S, seconds)))


def _log_variance(shape: int) -> float:
    """Variance of a gamma variable's logarithm: the trigamma function to its second term."""
    return 1 / shape + 1 / (2 * shape * shape)
