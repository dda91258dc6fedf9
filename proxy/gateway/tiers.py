"""The tiers of a site's paths and their order (design §3). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from proxy.gateway.paths import PathTree, Readings


class Tier(IntEnum):
    """What a path is to the gateway; of several readings of one path the strictest counts."""

    BYPASS = 0  # goes to the origin without a pass, a room or a pool
    PUBLIC_ASSET = 1  # the global asset pool
    ASSET = 2  # a pass, the pass's own pool, the global pool
    STREAM = 3  # a pass, a place among the streams
    PAGE = 4  # the room
    BAN = 5  # never reaches an origin; wins in any reading


LISTS = {
    "bypass": Tier.BYPASS,
    "assets": Tier.ASSET,
    "public_assets": Tier.PUBLIC_ASSET,
    "streams": Tier.STREAM,
    "ban_paths": Tier.BAN,
}
"""A host's lists by the name of their field, and what they make of a path."""


@dataclass(frozen=True, slots=True)
class TierRule:
    """One rule of one list, as the operator wrote it."""

    tier: Tier
    pattern: str


class Tiers:
    """All lists of a site in one structure: one look-up a reading."""

    __slots__ = ("_tree",)

    def __init__(self, lists: Mapping[str, Sequence[str]], *, insensitive: bool = False) -> None:
        """Compile a host's lists, by field name as in `LISTS`.

        Raises:
            ValueError: a pattern that is none.
        """
        rules = (
            (pattern, TierRule(tier, pattern))
            for name, tier in LISTS.items()
            for pattern in lists.get(name, ())
        )
        self._tree = PathTree(rules, insensitive=insensitive)

    def rule(self, reading: str) -> TierRule | None:
        """Give the rule that this one reading falls under; None: it is a page."""
        return self._tree.find(reading)

    def strictest(self, readings: Readings) -> Tier:
        """Give the tier of a path: the strictest of its readings."""
        tier = Tier.BYPASS
        for reading in readings:
            rule = self._tree.find(reading)
            found = Tier.PAGE if rule is None else rule.tier
            if found > tier:
                tier = found
        return tier
