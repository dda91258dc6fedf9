"""Passes as tests need them: read from a visitor's jar, made older, forged."""

from __future__ import annotations

from dataclasses import replace

from queueing.config import RANKS, RoomConfig
from queueing.passes import Credential, Keyring
from queueing.ranks import RankGrant, read_rank, sign_rank
from tests.support.crowd import Visitor, until
from tests.support.gateways import SECRET, Gateways

KEYS = Keyring(SECRET.encode(), 1)


async def admitted(world: Gateways, room: RoomConfig, gateway: int = 0) -> Visitor:
    """Give a visitor whose pass is new."""
    visitor = Visitor(world.gateways[gateway].port)

    async def is_in() -> bool:
        return (await visitor.get("/")).status == 200

    await until(is_in, what="to be let in")
    assert held(visitor, room).kind == "a"
    return visitor


def held(visitor: Visitor, room: RoomConfig) -> Credential:
    """Read the visitor's cookie."""
    value = visitor.cookies[f"corvus_{room.id}"].encode()
    credential = KEYS.read(value, room.id).credential
    assert credential is not None
    return credential


def age(visitor: Visitor, room: RoomConfig, by_ms: int) -> Credential:
    """Make the visitor's pass as old as if it had been written earlier; the slot stays as it is."""
    was = held(visitor, room)
    older = replace(was, iat_ms=was.iat_ms - by_ms, exp_ms=was.exp_ms - by_ms)
    visitor.cookies[f"corvus_{room.id}"] = KEYS.sign(older)
    return older


def twin(visitor: Visitor, world: Gateways, gateway: int = 0) -> Visitor:
    """Somebody who carries a copy of the same cookies on an own connection."""
    return Visitor(
        world.gateways[gateway].port, cookies=dict(visitor.cookies), headers=dict(visitor.headers)
    )


def rank(visitor: Visitor, room: RoomConfig, name: str, *, life_ms: int = 3_600_000) -> None:
    """Grant the visitor a rank, as its application would have done."""
    mine = held(visitor, room)
    grant = RankGrant(
        room=room.id,
        sid=mine.sid,
        rank=RANKS.index(name),
        iat_ms=mine.iat_ms,
        exp_ms=mine.iat_ms + life_ms,
    )
    visitor.cookies[f"corvus_rank_{room.id}"] = sign_rank(KEYS, grant)


def rank_of(visitor: Visitor, room: RoomConfig) -> str:
    """Read the visitor's rank cookie; "" where there is none."""
    value = visitor.cookies.get(f"corvus_rank_{room.id}", "").encode()
    grant = read_rank(KEYS, value, room.id, held(visitor, room).sid).grant
    return RANKS[grant.rank] if grant else ""
