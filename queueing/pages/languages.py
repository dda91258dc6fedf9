"""Which language a visitor gets: remembered choice, `Accept-Language`, default. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_RANGE = re.compile(
    r"\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)\s*(?:;\s*q\s*=\s*([0-9.]{1,8})\s*)?"
)
MAX_HEADER = 1_000
"""Characters of `Accept-Language` that are read; browsers send fewer than 200."""


def choose_language(
    accept_language: str, cookie: str, available: Sequence[str], default: str
) -> str:
    """Give one of `available`, or `default` when nothing fits.

    A range falls back to its shorter forms (`pt-AO`, then `pt`; RFC 4647 3.4), the highest q-value
    wins, then the order sent (RFC 9110 12.5.4). q=0 and what cannot be read are left out.
    """
    known = {code.lower(): code for code in available}
    chosen = _fit(cookie, known) if cookie else None
    if chosen:
        return chosen
    best, best_q = default, 0.0
    for part in accept_language[:MAX_HEADER].split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            continue
        q = _quality(match[2])
        if q <= best_q:
            continue
        found = default if match[1] == "*" else _fit(match[1], known)
        if found:
            best, best_q = found, q
    return best


def _fit(tag: str, known: dict[str, str]) -> str | None:
    tag = tag.strip().lower().replace("_", "-")
    while tag:
        if tag in known:
            return known[tag]
        tag = tag.rpartition("-")[0]
    return None


def _quality(text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        q = float(text)
    except ValueError:
        return 0.0
    return q if 0.0 <= q <= 1.0 else 0.0
