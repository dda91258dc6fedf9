"""What may stand in a host's lists of paths: no rule twice, and no path in two lists. Pure.

Asked on saving, for settings and for hosts alike, and again when a gateway reads a snapshot.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.gateway.paths import PathRule, is_reserved
from queueing.config import Problem

LABELS = {
    "bypass": "paths that never wait",
    "assets": "assets",
    "public_assets": "public assets",
    "streams": "streams",
    "ban_paths": "ban paths",
    "return_paths": "return paths",
}
"""Every list of paths by the name of a host's field, as operators read it. All but `return_paths`
are tiers; a return path is a page, so it may not be in another list either."""

_HIDDEN = re.compile(r"//|[\x00-\x1f\x7f\\;]|/\.{1,2}(?:/|$)")
"""What another reading of the same path does not have; see `proxy.gateway.paths.readings`."""


@dataclass(frozen=True, slots=True)
class _Entry:
    field: str
    pattern: str
    rule: PathRule

    def __str__(self) -> str:
        return f"“{self.pattern}” ({LABELS[self.field]})"


def faults(lists: Mapping[str, Sequence[str]], *, insensitive: bool = False) -> list[Problem]:
    """Name every rule that cannot stand, and every two that some path falls under.

    `lists` holds patterns by field name as in `LABELS`. Rules are compared decoded, and in the case
    rule of the host. What concerns two fields is said once at each of them.
    """
    found: list[Problem] = []
    entries: list[_Entry] = []
    for name in LABELS:
        for pattern in lists.get(name, ()):
            try:
                entry = _Entry(name, pattern, PathRule.compile(pattern, insensitive=insensitive))
            except ValueError as error:
                found.append(Problem(name, f"{error}."))
                continue
            if message := _alone(entry):
                found.append(Problem(name, message))
            else:
                entries.append(entry)
    for one, other, message in _together(entries):
        found += [Problem(name, message) for name in dict.fromkeys((one.field, other.field))]
    return found


def _alone(entry: _Entry) -> str:
    """Say why a rule cannot stand by itself; "" when it can."""
    base = entry.rule.base
    if not base and entry.rule.below:
        return f"{entry} is not allowed: it covers the whole site."
    if is_reserved((base,)):
        return f"{entry} is not allowed: Corvus itself answers everything under /__corvus."
    if _HIDDEN.search(base + "/" * entry.rule.below):
        return (
            f"{entry} is not allowed: leave out //, /./, /../, backslashes and ;parameters, which"
            " Corvus sees through by itself."
        )
    return ""


def _together(entries: Sequence[_Entry]) -> Iterator[tuple[_Entry, _Entry, str]]:
    """Give every pair of rules that cannot stand together, and why; the later rule comes first.

    Two rules share a path only where one's base is, or lies above, the other's: so each rule looks
    at its own ancestors, and thousands of rules are judged in milliseconds.
    """
    by_base: defaultdict[str, list[_Entry]] = defaultdict(list)
    for entry in entries:
        for other in by_base[entry.rule.base]:
            if entry.rule == other.rule:
                yield entry, other, f"{other} and {entry} are the same rule: write it once."
            elif entry.field != other.field:
                yield entry, other, _overlap(other, entry)
        by_base[entry.rule.base].append(entry)
    for entry in entries:
        for ancestor in _above(entry.rule.base):
            for other in by_base.get(ancestor, ()):
                if other.rule.below and entry.field != other.field:
                    yield entry, other, _overlap(other, entry)


def _above(base: str) -> Iterator[str]:
    end = base.rfind("/")
    while end > 0:
        yield base[:end]
        end = base.rfind("/", 0, end)


def _overlap(one: _Entry, other: _Entry) -> str:
    return f"{one} and {other} cover the same path: a path belongs to one list."
