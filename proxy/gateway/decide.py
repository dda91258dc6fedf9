"""Where a request belongs, stage by stage, in the order of design §3. Pure.

Each stage is one small function; the route that comes out carries its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.gateway.exchange import Exchange
from proxy.gateway.paths import (
    AmbiguousPath,
    BadPath,
    Readings,
    is_reserved,
    readings,
)
from proxy.gateway.plan import Plan, Site
from proxy.gateway.tiers import Tier
from queueing.config import RoomId


@dataclass(frozen=True, slots=True)
class BadRequest:
    """400, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnknownHost:
    """No proxy host has this name."""

    reason: str = "unknown host"


@dataclass(frozen=True, slots=True)
class Reserved:
    """Under `/__corvus/`: answered here, never by an origin."""

    site: Site | None
    reason: str = "reserved path"


@dataclass(frozen=True, slots=True)
class BanPath:
    """A path that nobody who means well asks for: never reaches an origin."""

    site: Site
    reason: str = "ban path"


@dataclass(frozen=True, slots=True)
class ToOrigin:
    """Goes to a site's origin, as the path's tier says.

    `room` governs the path, whatever its tier; None where no room does.
    """

    site: Site
    room: RoomId | None
    reason: str
    tier: Tier = Tier.PAGE


Route = BadRequest | UnknownHost | Reserved | BanPath | ToOrigin

_REASONS = {
    Tier.BYPASS: "bypass",
    Tier.PUBLIC_ASSET: "public asset",
    Tier.ASSET: "asset",
    Tier.STREAM: "stream",
}


def decide(exchange: Exchange, plan: Plan) -> Route:
    """Find where a request belongs."""
    site = plan.site(exchange.host) if exchange.host else None
    try:
        seen = readings(exchange.path, insensitive=site.insensitive if site else False)
    except BadPath as error:
        return BadRequest(str(error))
    if site is not None:
        return place(seen, site)
    if is_reserved(seen):
        return Reserved(None)
    return UnknownHost() if exchange.host else BadRequest("the host name is none")


def place(seen: Readings, site: Site) -> Route:
    """Find where a path with these readings belongs within a site."""
    tier = site.tiers.strictest(seen)
    if tier is Tier.BAN:
        return BanPath(site)
    if is_reserved(seen):
        return Reserved(site)
    try:
        room = site.rooms.governing(seen)
    except AmbiguousPath as error:
        return BadRequest(str(error))
    if tier is Tier.PAGE:
        return ToOrigin(site, room, "room" if room else "no room", tier)
    return ToOrigin(site, room, _REASONS[tier], tier)
