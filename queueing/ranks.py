"""Ranks that an application grants to its visitors: the header's words and the signed cookie.

Pure: no store, no clock. The cookie `corvus_rank_<room>` is
`r1.<kid>.<room>.<sid>.<rank>.<iat>.<exp>.<hmac>`, signed by the keys of the passes (`passes.py`);
it is bound to the visitor and not to a pass, so that a grant of eight hours lasts eight hours. What
a rank is worth is decided by the room's script.
"""

from __future__ import annotations

from dataclasses import dataclass

from queueing.config import RANKS, RoomId, VisitorId
from queueing.durations import parse_duration
from queueing.passes import Keyring, Verdict

GUEST = 0
SHORTEST_MS = 60_000
LONGEST_MS = 24 * 3600_000
_LONG_MS, _SHORT_MS = 8 * 3600_000, 30 * 60_000
DEFAULT_TTL_MS = (0, _LONG_MS, _SHORT_MS, _LONG_MS, _LONG_MS, _SHORT_MS, _LONG_MS)
"""How long a rank lasts where the header does not say, by rank."""

_FIELDS = 5  # room, sid, rank, iat, exp
_LONGEST_HEADER = 200


@dataclass(frozen=True, slots=True)
class Wish:
    """What `Corvus-Priority` asks for."""

    rank: int  # 0 = guest: take the rank back
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGrant:
    """A rank as the visitor's cookie tells it. Times are store-time milliseconds."""

    room: RoomId
    sid: VisitorId
    rank: int
    iat_ms: int
    exp_ms: int


@dataclass(frozen=True, slots=True)
class RankReading:
    """A presented value with its verdict; `grant` is there exactly when it is valid."""

    verdict: Verdict
    grant: RankGrant | None = None
    current_key: bool = False  # else it is to be signed anew at the next chance


def rank_cookie_name(room: RoomId) -> str:
    """Name the room's rank cookie; no room's own cookie has this name (`_` is in no room id)."""
    return f"corvus_rank_{room}"


def sign_rank(keys: Keyring, grant: RankGrant) -> str:
    """Write a cookie value."""
    return keys.seal("r1", f"{grant.room}.{grant.sid}.{grant.rank}.{grant.iat_ms}.{grant.exp_ms}")


def read_rank(keys: Keyring, value: bytes, room: RoomId, sid: VisitorId) -> RankReading:
    """Judge a presented value for one visitor of one room; it may have expired.

    Another room's, or another visitor's (a grant moved to another session, WR-14), is stale: worth
    nothing, and nobody's forgery.
    """
    sealed = keys.unseal("r1", value, _FIELDS)
    if isinstance(sealed, Verdict):
        return RankReading(sealed)
    of_room, of_sid, rank, iat, exp = sealed.fields  # we wrote them ourselves
    if of_room != room or of_sid != sid:
        return RankReading(Verdict.STALE)
    grant = RankGrant(room=room, sid=sid, rank=int(rank), iat_ms=int(iat), exp_ms=int(exp))
    return RankReading(Verdict.VALID, grant, sealed.current_key)


def read_priority(said: str) -> Wish | None:
    """Read `rank[; ttl=…]`; None where the header is to be ignored as a whole.

    The rank's name in any case; `ttl` in whole seconds or as a duration (`30m`), clamped to 1 min
    … 24 h except a guest's; other parameters are ignored, and of several `ttl` the last counts.
    """
    if len(said) > _LONGEST_HEADER:
        return None
    name, *parameters = said.split(";")
    name = name.strip().lower()
    if name not in RANKS:
        return None
    rank = RANKS.index(name)
    ttl_ms: int | None = DEFAULT_TTL_MS[rank]
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "ttl":
            ttl_ms = _ttl_ms(value.strip(), rank)
    return None if ttl_ms is None else Wish(rank, ttl_ms)


def _ttl_ms(text: str, rank: int) -> int | None:
    """Read a span of time; without a unit only whole seconds are one."""
    is_plain = text.isascii() and text.isdigit()
    if not is_plain and text[-1:].isdigit():
        return None
    try:
        ttl_ms = LONGEST_MS if is_plain and len(text) > 12 else parse_duration(text)
    except ValueError:
        return None
    return 0 if rank == GUEST else min(max(ttl_ms, SHORTEST_MS), LONGEST_MS)
