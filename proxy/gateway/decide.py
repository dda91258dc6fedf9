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
class ToOrigin:
    """Goes to a site's origin, through a room where one governs the path."""

    site: Site
    room: RoomId | None
    reason: str


Route = BadRequest | UnknownHost | Reserved | ToOrigin


def decide(exchange: Exchange, plan: Plan) -> Route:
    """Find where a request belongs."""
    site = plan.site(exchange.host) if exchange.host else None
    try:
        seen = readings(exchange.path, insensitive=site.insensitive if site else False)
    except BadPath as error:
        return BadRequest(str(error))
    if is_reserved(seen):
        return Reserved(site)
    if not exchange.host:
        return BadRequest("the host name is none")
    if site is None:
        return UnknownHost()
    return _tier(seen, site)


def _tier(seen: Readings, site: Site) -> Route:
    if site.bypass.hold(seen):
        return ToOrigin(site, None, "bypass")
    try:
        room = site.rooms.governing(seen)
    except AmbiguousPath as error:
        return BadRequest(str(error))
    return ToOrigin(site, room, "room" if room else "no room")
