"""What a host makes of its paths, in words: its rules in their order, and one URL tried. Pure.

Judged by the very functions that the gateway asks, so what the console shows is what happens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from proxy.gateway.conflicts import LABELS
from proxy.gateway.decide import BadRequest, BanPath, Reserved, Route, ToOrigin, place
from proxy.gateway.paths import RESERVED, BadPath, PathRule, is_reserved, readings
from proxy.gateway.plan import Site
from proxy.gateway.tiers import LISTS, Tier
from queueing.config import RoomId

_BAN, _OWN, _PAGES = "ban_paths", "reserved", "pages"
_ORDER = (_BAN, _OWN, "bypass", "assets", "public_assets", "streams", _PAGES)
_NAMES = {**LABELS, _OWN: "Corvus's own addresses", _PAGES: "pages"}
_EFFECTS = {
    _BAN: "Never reach the site.",
    _OWN: "Answered by Corvus itself.",
    "bypass": "Go to the site without a pass, a line or a limit.",
    "assets": "Need a pass of the room, then a place among those of the pass and among all assets;"
    " never wait in line.",
    "public_assets": "Need a place among all assets, and no pass.",
    "streams": "Need a pass of the room and a place among the streams.",
    _PAGES: "Let in by the room, or wait in its line.",
}
_FIELDS = {tier: field for field, tier in LISTS.items()} | {Tier.PAGE: _PAGES}


@dataclass(frozen=True, slots=True)
class Stage:
    """One kind of path of a host, at its place in the order; pages, the last, have no rules."""

    name: str
    effect: str
    rules: tuple[str, ...]


def stages(site: Site) -> list[Stage]:
    """Give a host's rules in the order in which they are applied."""
    rules = {field: getattr(site.host, field) for field in LISTS}
    rules |= {_OWN: (f"{RESERVED}/*",), _PAGES: ()}
    return [Stage(_NAMES[name], _EFFECTS[name], rules[name]) for name in _ORDER]


def rooms(site: Site) -> list[tuple[str, RoomId]]:
    """Give a host's rooms by path, the rule that counts first before the others."""
    rules = [(PathRule.compile(r.path).weight, r) for r in site.host.rooms]
    rules.sort(key=lambda pair: pair[0], reverse=True)
    return [(rule.path, rule.room) for _, rule in rules]


@dataclass(frozen=True, slots=True)
class Address:
    """What somebody typed to be tried: a host name, "" where it was a path alone, and a path."""

    host: str
    path: bytes


_URL = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)


def read_address(text: str) -> Address:
    """Read a URL or a path, without bringing it into another form.

    What no client sends as it is (spaces, other scripts) is escaped as browsers do.

    Raises:
        ValueError: it is neither.
    """
    text = text.strip()
    host, path = "", text
    if match := _URL.fullmatch(text):
        host, path = match[1], match[2]
        path = path if path.startswith("/") else "/" + path
    if not path.startswith("/"):
        raise ValueError(
            f"“{text}” is not allowed: write a path that begins with /, or a whole URL such as"
            " https://www.example.org/a/b."
        )
    path = re.split(r"[?#]", path, maxsplit=1)[0]
    return Address(host, re.sub(r"[^\x21-\x7e]", lambda c: quote(c[0]), path).encode())


@dataclass(frozen=True, slots=True)
class Line:
    """One reading of the path, and what the site's rules make of it alone."""

    reading: str
    tier: str
    rule: str  # "" = none: a page
    room: RoomId | None


@dataclass(frozen=True, slots=True)
class Trial:
    """What happens to a request for a path, of any method."""

    path: str
    verdict: str
    lines: tuple[Line, ...]
    rule: str = ""  # the rule that decided; "" = none
    room: RoomId | None = None
    refused: bool = False


def try_path(path: bytes, site: Site) -> Trial:
    """Try a path, as it is sent and without its query, on a site."""
    shown = path.decode("ascii", "backslashreplace")
    try:
        seen = readings(path, insensitive=site.insensitive)
    except BadPath as error:
        return Trial(shown, f"Refused with 400: {error}.", (), refused=True)
    lines = tuple(_line(reading, site) for reading in seen)
    route = place(seen, site)
    name, verdict = _verdict(route)
    rule = next((line.rule for line in lines if line.tier == name), "")
    room = route.room if isinstance(route, ToOrigin) else None
    return Trial(shown, verdict, lines, rule, room, refused=isinstance(route, BadRequest))


def _line(reading: str, site: Site) -> Line:
    found = site.tiers.rule(reading)
    room = site.rooms.of(reading)
    if found is not None:
        return Line(reading, _NAMES[_FIELDS[found.tier]], found.pattern, room)
    if is_reserved((reading,)):
        return Line(reading, _NAMES[_OWN], f"{RESERVED}/*", None)
    return Line(reading, _NAMES[_PAGES], "", room)


def _verdict(route: Route) -> tuple[str, str]:
    """Give the name of what decided, and the sentence."""
    match route:
        case BanPath():
            return _NAMES[_BAN], "A ban path: never reaches the site."
        case Reserved():
            return _NAMES[_OWN], "One of Corvus's own addresses: answered here."
        case ToOrigin(_, room, _, tier):
            name = _NAMES[_FIELDS[tier]]
            where = f"governed by the room {room}" if room else "no room governs it"
            return name, f"Belongs to the {name}; {where}."
        case refused:
            return "", f"Refused with 400: {refused.reason}."
