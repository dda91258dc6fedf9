"""A room's configuration as plain data, and the combinations that cannot hold.

Pure: no Django, no store, no clock. The Django model, the snapshot and the store's `config` hash
are all written from and read into this one class. Durations are integer milliseconds.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, NewType

from queueing.prices import CURRENCIES, PAGE_ADDRESS, PRICE, is_page_address, read_price

RoomId = NewType("RoomId", str)
"""A room's slug: 1 to 32 of `a-z 0-9 -`, not beginning with `-`; part of key and cookie names."""

VisitorId = NewType("VisitorId", str)
"""One browser in one room: 16 base64url characters, 96 random bits (called `sid` on the wire)."""

ROOM_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
VISITOR_ID = re.compile(r"[A-Za-z0-9_-]{16}", re.ASCII)
MAX_INT = 2**31 - 1
DAY_MS = 24 * 3600 * 1000
POLL_AT_THE_HEAD_MS = 3_000
SHORTEST_VIP_MS = 60_000


class Unit(StrEnum):
    """What a slot counts."""

    VISITORS = "visitors"
    REQUESTS = "requests"


class Mode(StrEnum):
    """What the operator lets the room do (design §4 rule 13, WR-60)."""

    OPEN = "open"
    PAUSED = "paused"  # nobody is admitted; numbers kept; newcomers may still join the line
    CLOSED = "closed"  # newcomers are told that it is closed; the line is served
    REJECT = "reject"  # nobody new is admitted or queued; places are kept
    OFF = "off"  # no capacity any more: the line is let in under the rate, in order


class OnOutage(StrEnum):
    """What happens to people without a valid pass while the store cannot be reached."""

    CLOSED = "closed"
    OPEN = "open"


class InsideNow(StrEnum):
    """What a new room does with the people who were on the site before it existed (WR-64)."""

    KEEP = "keep"
    QUEUE = "queue"


class Order(StrEnum):
    """Who of the line is next (WR-15)."""

    ARRIVAL = "arrival"  # the lowest ticket
    RANK = "rank"  # the highest rank, within `max_overtake`; inside a rank the lowest ticket


RANKS = ("guest", "member", "prospect", "customer", "subscriber", "checkout", "staff")
"""The names of the ranks 0 to 6, as an application grants them."""

NO_RANK = len(RANKS)
"""A lane rank that nobody has: ranks do not use the lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomConfig:
    """Everything that the script and the gateway need to know of a room."""

    id: RoomId
    name: str = ""
    version: int = 1
    mode: Mode = Mode.OPEN
    unit: Unit = Unit.VISITORS
    capacity: int = 434
    rate: int = 0  # admissions in any sliding second; 0 = unlimited
    active_ttl_ms: int = 300_000
    absolute_ttl_ms: int = 0  # 0 = off
    essential_limit: bool = False
    refresh_ms: int = 15_000
    grant_ttl_ms: int = 60_000
    queue_ttl_ms: int = 135_000
    return_window_ms: int = 600_000
    admit_ttl_ms: int = 600_000
    max_queue: int = 100_000  # waiting; waiting + parked twice that; 0 = unlimited
    entries_per_minute: int = 60  # new places per client; 0 = unlimited
    polls_per_second: int = 3
    on_outage: OnOutage = OnOutage.CLOSED
    open_rate: int = 10  # outage entries per second and machine
    bind_network: bool = False
    inside_now: InsideNow = InsideNow.QUEUE
    opened_ms: int = 0  # when the room began to govern; 0 = before anybody looked
    reject_status: int = 429
    message: str = ""
    page: str = ""  # digest of the operator's own waiting page; "" = the built-in one
    lease_ttl_ms: int = 30_000  # unit `requests`, and forms: a lease that is not renewed runs out
    priority_cap: int = 0  # slots of the lane, on top of the capacity; 0 = a quarter of it
    lane_rank: int = 3  # the lowest rank that uses the lane; 7 = none does
    priority_wait_ms: int = 5_000  # longest wait for a slot of the lane
    priority_forms: bool = True  # forms of people with a pass use the lane, at every rank
    order: Order = Order.ARRIVAL
    max_overtake: int = 50  # order `rank`: percent of admissions that may pass the lowest ticket
    share_guard: bool = False  # a pass used from two networks at a time: the second queues (WR-35)
    shares: tuple[RoomId, ...] = ()  # rooms whose pass opens this one too (WR-71)
    embed: bool = False  # visitors come in another site's frame (WR-55)
    skip_rate: str = "0"  # price of one position, decimal; see `price` in `queueing.offers`
    skip_surge: str = "0"  # added to it for each person waiting
    skip_currency: str = "EUR"  # ISO 4217
    skip_url: str = ""  # payment page; "" = none
    vip_ttl_ms: int = 0  # how long who has paid goes to the front again; 0 = once

    def to_document(self) -> dict[str, Any]:
        """Give the JSON form that the snapshot carries."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> RoomConfig:
        """Read `to_document()`'s form; unknown keys, from a newer version, are ignored."""
        known = {f.name for f in fields(cls)}
        values = {k: v for k, v in document.items() if k in known}
        values["mode"] = Mode(values.get("mode", Mode.OPEN))
        values["unit"] = Unit(values.get("unit", Unit.VISITORS))
        values["on_outage"] = OnOutage(values.get("on_outage", OnOutage.CLOSED))
        values["inside_now"] = InsideNow(values.get("inside_now", InsideNow.QUEUE))
        values["order"] = Order(values.get("order", Order.ARRIVAL))
        values["shares"] = tuple(RoomId(room) for room in values.get("shares", ()))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Problem:
    """One value that cannot stand: the field, and a sentence with the value and what is allowed."""

    field: str
    message: str


BOUNDS: dict[str, tuple[int, int]] = {
    "capacity": (0, MAX_INT),
    "rate": (0, 1_000_000),
    "active_ttl_ms": (2_000, DAY_MS),
    "absolute_ttl_ms": (0, 30 * DAY_MS),
    "refresh_ms": (1_000, DAY_MS // 2),
    "grant_ttl_ms": (1_000, 3_600_000),
    "queue_ttl_ms": (2_000, DAY_MS),
    "return_window_ms": (2_000, DAY_MS),
    "admit_ttl_ms": (30_000, DAY_MS),
    "max_queue": (0, MAX_INT),
    "entries_per_minute": (0, 1_000_000),
    "polls_per_second": (1, 100),
    "open_rate": (0, 1_000_000),
    "lease_ttl_ms": (2_000, 600_000),
    "priority_cap": (0, MAX_INT),
    "lane_rank": (1, 7),
    "priority_wait_ms": (0, 60_000),
    "max_overtake": (0, 90),
    "vip_ttl_ms": (0, DAY_MS),
}


def problems(config: RoomConfig) -> list[Problem]:
    """Name every value or combination that cannot hold (design §4 rules 3 and 6, WR-03, WR-65)."""
    return [
        *_outside_bounds(config),
        *_contradictions(config),
        *_leases_and_shares(config),
        *_prices(config),
    ]


def _outside_bounds(config: RoomConfig) -> list[Problem]:
    found = [
        Problem(name, f"{value} is not allowed: it must lie between {low} and {high}.")
        for name, (low, high) in BOUNDS.items()
        if not low <= (value := getattr(config, name)) <= high
    ]
    if not ROOM_ID.fullmatch(config.id):
        allowed = "1 to 32 of a-z, 0-9 and -, not beginning with -"
        found.append(Problem("id", f"“{config.id}” is not allowed: use {allowed}."))
    if config.reject_status not in (429, 503):
        text = f"{config.reject_status} is not allowed: 429 or 503."
        found.append(Problem("reject_status", text))
    return found


def _contradictions(config: RoomConfig) -> list[Problem]:
    found: list[Problem] = []
    active, refresh = _seconds(config.active_ttl_ms), _seconds(config.refresh_ms)
    if config.active_ttl_ms < 2 * config.refresh_ms:
        text = (
            f"{active} is not allowed: it must be at least twice the pass renewal ({refresh}),"
            " so that nobody who keeps browsing loses the slot."
        )
        found.append(Problem("active_ttl_ms", text))
    if 0 < config.absolute_ttl_ms < config.active_ttl_ms:
        text = (
            f"{_seconds(config.absolute_ttl_ms)} is not allowed: it must be 0 (off)"
            f" or at least the idle limit ({active})."
        )
        found.append(Problem("absolute_ttl_ms", text))
    if config.return_window_ms < config.queue_ttl_ms:
        text = (
            f"{_seconds(config.return_window_ms)} is not allowed: a place must be kept at least"
            f" as long as a visitor may be silent ({_seconds(config.queue_ttl_ms)})."
        )
        found.append(Problem("return_window_ms", text))
    if config.grant_ttl_ms < 2 * POLL_AT_THE_HEAD_MS:
        text = (
            f"{_seconds(config.grant_ttl_ms)} is not allowed: the time to claim a turn must be at"
            f" least twice the poll interval near the front ({_seconds(POLL_AT_THE_HEAD_MS)})."
        )
        found.append(Problem("grant_ttl_ms", text))
    return found


def _leases_and_shares(config: RoomConfig) -> list[Problem]:
    found: list[Problem] = []
    if config.lease_ttl_ms > config.admit_ttl_ms:
        text = (
            f"{_seconds(config.lease_ttl_ms)} is not allowed: a slot may not be kept for a gateway"
            f" that died longer than a pass lives ({_seconds(config.admit_ttl_ms)})."
        )
        found.append(Problem("lease_ttl_ms", text))
    if 0 < config.vip_ttl_ms < SHORTEST_VIP_MS:
        text = (
            f"{_seconds(config.vip_ttl_ms)} is not allowed: it must be 0 (only once) or at least"
            f" {_seconds(SHORTEST_VIP_MS)}."
        )
        found.append(Problem("vip_ttl_ms", text))
    if config.id in config.shares:
        text = f"“{config.id}” is not allowed: name other rooms; its own pass opens a room anyway."
        found.append(Problem("shares", text))
    if len(set(config.shares)) < len(config.shares):
        text = f"“{', '.join(config.shares)}” is not allowed: name each room once."
        found.append(Problem("shares", text))
    return found


def _prices(config: RoomConfig) -> list[Problem]:
    found: list[Problem] = []
    prices = {"skip_rate": config.skip_rate, "skip_surge": config.skip_surge}
    wrong = {name for name, price in prices.items() if read_price(price) is None}
    for name in sorted(wrong):
        found.append(Problem(name, f"“{prices[name]}” is not allowed: use {PRICE}."))
    if config.skip_currency not in CURRENCIES:
        text = f"“{config.skip_currency}” is not allowed: use the three letters of ISO 4217, such"
        found.append(Problem("skip_currency", f"{text} as EUR."))
    if config.skip_url and not is_page_address(config.skip_url):
        shown = config.skip_url if len(config.skip_url) <= 100 else f"{config.skip_url[:100]}…"
        found.append(Problem("skip_url", f"“{shown}” is not allowed: use {PAGE_ADDRESS}."))
    has_price = not wrong and any(read_price(price) for price in prices.values())
    if has_price and not config.skip_url:
        text = "Nothing is not allowed: a price needs the address of the page where it is paid."
        found.append(Problem("skip_url", text))
    return found


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
