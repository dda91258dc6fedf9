"""Spans of time as people write them: `15`, `15s`, `5m`, `1h30m`, `250ms`.

Pure. Values are whole milliseconds; a number without a unit counts seconds.
"""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_PLAIN = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", re.ASCII)

ALLOWED = "a span of time such as 15, 15s, 5m, 1h or 250ms (a number alone counts seconds)"


def parse_duration(text: str) -> int:
    """Give the milliseconds that `text` names.

    Raises:
        ValueError: not a span of time; the message says what is allowed.
    """
    compact = text.strip().lower().replace(" ", "")
    if _PLAIN.fullmatch(compact):
        return int(Decimal(compact) * 1000)
    total, end = Decimal(0), 0
    for part in _PART.finditer(compact):
        if part.start() != end:
            break
        total += Decimal(part[1]) * _UNITS_MS[part[2]]
        end = part.end()
    if not compact or end != len(compact):
        raise ValueError(ALLOWED)
    return int(total)


def format_duration(milliseconds: int) -> str:
    """Give the shortest exact form with one unit: 300,000 → `5m`, 90,000 → `90s`, 0 → `0`."""
    if milliseconds == 0:
        return "0"
    for unit in ("d", "h", "m", "s"):
        if milliseconds % _UNITS_MS[unit] == 0:
            return f"{milliseconds // _UNITS_MS[unit]}{unit}"
    return f"{milliseconds}ms"
