"""What the room's script answers, as plain data.

Pure. `queueing.store` fills these from the script's flat reply; the gateway reads nothing else.
Times are store-time milliseconds since the epoch, whatever room time did meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a visitor stands with a room (design §4)."""

    NONE = "none"  # no place, and none was asked for (a poll without a place)
    WAITING = "waiting"
    PARKED = "parked"
    PREQUEUE = "prequeue"
    GRANTED = "granted"
    ACTIVE = "active"
    PAUSED = "paused"  # waiting in a room where nobody is admitted at the moment
    FULL = "full"
    CLOSED = "closed"
    REJECTED = "rejected"
    MISSED = "missed"
    RESET = "reset"
    BANNED = "banned"
    LIMITED = "limited"  # too many new places for this client, or too many status checks
    LANE = "lane"  # waits for a slot of the lane: ask again by `RoomStore.lane`
    UNSENT = "unsent"  # a form for which no slot was free: neither sent on nor queued
    SHARED = "shared"  # the pass is in use on another network at this moment
    HOLD = "hold"  # the store has lost the room's data: restoring the line


class Reason(StrEnum):
    """Why a shown position rose (design §4 rule 5)."""

    NONE = ""
    RETURNED = "returned"  # people who had fallen silent came back to their older number
    RANK = "rank"  # somebody of a higher rank came
    OPERATOR = "operator"  # an operator moved somebody to the front
    PAID = "paid"  # somebody paid to go to the front


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The room's people, each counted once (WR-12): their sum is everybody known to the room."""

    waiting: int  # living people in the line
    parked: int  # silent people, swept into the parked set or not yet
    granted: int
    active: int
    latest_ticket: int
    lane: int = 0  # slots of the lane in use, beside `active`
    lane_waiting: int = 0  # requests that wait for one


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The answer to `enter` and `poll`: all that a page, a status answer or a cookie needs."""

    state: State
    counts: Counts
    now_ms: int  # store time
    ticket: int = 0  # 0 = none
    ahead: int = 0  # living people who would be served before
    expires_ms: int = 0  # granted: claim deadline; active: end of the slot
    joined_ms: int = 0
    reason: Reason = Reason.NONE
    reset_ms: int = 0  # passes and tickets issued at or before this are of an earlier epoch
    epoch: int = 1
    released: int = 0  # admissions in the last `released_ms`, for the estimate
    released_ms: int = 0
    retry_ms: int = 0  # LIMITED: when it is worth asking again
    rank: int = 0
    paid: bool = False  # stands in front because it was paid for, or an operator said so
    front: int = 0  # of `ahead`: those who stand in front like that
    vip_until_ms: int = 0  # until then it goes to the front whenever it waits again
    extensions: int = 0  # how often the claim time was lengthened
    new: bool = False  # this very call made the place
    by_lease: bool = False  # active: the caller's lease holds the slot, not its session

    @property
    def position(self) -> int:
        """One more than the people ahead."""
        return self.ahead + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """How long somebody inside may stay (WR-26). Times are store-time milliseconds."""

    now_ms: int
    expires_ms: int = 0  # end of the slot; 0 = not inside
    limit_ms: int = 0  # end of the longest stay; 0 = the room has none
    extensions: int = 0  # how often the longest stay was lengthened


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody inside or in line, as operators see it. Times are store-time milliseconds."""

    sid: str
    ticket: int
    rank: int
    client: str  # the address or network that the place was taken from
    joined_ms: int
    front: int = 0  # order among those in front of the line; 0 = by arrival or rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The answer to `tick`: what a gateway must know of a room five times a second."""

    now_ms: int
    counts: Counts
    epoch: int
    reset_ms: int
    config_version: int
    journal: int  # number of the newest journal entry; see `RoomStore.journal`
    more_work: bool  # call again at once
    hold: bool = False
