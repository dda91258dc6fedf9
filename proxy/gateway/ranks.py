"""The visitor's rank at the gateway: read from its cookie, granted by its application (WR-14).

What the header and the cookie say is `queueing.ranks`'; what a rank is worth is the room script's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from proxy.gateway.cookies import forget_rank, rank_cookie
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, VisitorId
from queueing.passes import Keyring, Verdict
from queueing.ranks import GUEST, RankGrant, rank_cookie_name, read_priority, read_rank

log = structlog.get_logger("corvus.gateway")

MOST_LOGGED = 50
_not_understood: set[str] = set()
"""What applications have said and this process has logged: each value once."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a visitor's rank cookie is worth now."""

    rank: int = GUEST
    forged: bool = False
    headers: Headers = field(default_factory=list)  # it was signed by the previous key


NO_RANK = Held()


def held_rank(
    exchange: Exchange,
    settings: GatewaySettings,
    keys: Keyring,
    room: RoomConfig,
    sid: VisitorId,
    now_ms: int,
) -> Held:
    """Judge the visitor's rank cookie: the first valid one of those sent."""
    name = rank_cookie_name(room.id).encode()
    jar = exchange.found.get(b"cookie")
    if jar is None or name not in jar:
        return NO_RANK
    forged = False
    for value in exchange.cookies(name):
        reading = read_rank(keys, value, room.id, sid)
        forged = forged or reading.verdict is Verdict.FORGED
        grant = reading.grant
        if grant is not None and now_ms < grant.exp_ms:
            if reading.current_key:
                return Held(grant.rank, forged)
            return Held(
                grant.rank, forged, rank_cookie(exchange, settings, keys, room, grant, now_ms)
            )
    return Held(forged=forged)


def obey(
    said: str,
    *,
    exchange: Exchange,
    settings: GatewaySettings,
    keys: Keyring,
    room: RoomConfig,
    sid: VisitorId,
    now_ms: int,
) -> Headers:
    """Do what a page's `Corvus-Priority` says of its visitor; the latest header wins.

    `guest` takes the rank back; where there is none it changes nothing, so that guests' pages stay
    cacheable.
    """
    wish = read_priority(said)
    if wish is None:
        _note(said, room)
        return []
    if wish.rank == GUEST:
        has_one = next(exchange.cookies(rank_cookie_name(room.id).encode()), None) is not None
        return forget_rank(exchange, settings, room) if has_one else []
    grant = RankGrant(
        room=room.id, sid=sid, rank=wish.rank, iat_ms=now_ms, exp_ms=now_ms + wish.ttl_ms
    )
    return rank_cookie(exchange, settings, keys, room, grant, now_ms)


def _note(said: str, room: RoomConfig) -> None:
    value = said[:100]
    if value not in _not_understood and len(_not_understood) < MOST_LOGGED:
        _not_understood.add(value)
        log.warning("Corvus-Priority not understood: ignored", room=room.id, value=value)
