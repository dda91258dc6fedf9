"""The tiers of a site's paths and their order (design §3). Pure."""

from __future__ import annotations

from enum import IntEnum


class Tier(IntEnum):
    """What a path is to the gateway; of several readings of one path the strictest counts."""

    BYPASS = 0  # goes to the origin without a pass, a room or a pool
    PUBLIC_ASSET = 1  # the global asset pool
    ASSET = 2  # a pass, the pass's own pool, the global pool
    STREAM = 3  # a pass, a place among the streams
    PAGE = 4  # the room
    BAN = 5  # never reaches an origin; wins in any reading
