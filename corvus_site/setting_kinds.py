"""How the text of a setting becomes a value, one small function per kind.

Pure. Each reader takes the text and the setting's bounds and gives the value, or raises
`ValueError`. `Setting.allowed` says what would be allowed, as the end of “It must be …”.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from queueing.config import NO_RANK, RANKS
from queueing.durations import format_duration, parse_duration
from queueing.prices import (
    CURRENCIES,
    PAGE_ADDRESS,
    PRICE,
    format_price,
    is_page_address,
    read_price,
)


class Kind(StrEnum):
    """What a setting holds; in brackets the Python type of its value."""

    INTEGER = "integer"  # int
    BOOLEAN = "boolean"  # bool
    DURATION = "duration"  # float, seconds
    SIZE = "size"  # int, bytes
    COOKIE_PATH = "cookie path"  # str
    DOMAIN = "domain"  # str; "" = none
    ORIGIN = "origin"  # str, `http://host:port` without a path; "" = none
    URL = "url"  # str; "" = none
    PATH = "path"  # Path, or None
    PATHS = "paths"  # tuple[str, ...] of URL path rules
    NETWORKS = "networks"  # tuple[str, ...] of networks in canonical form
    HEADER = "header"  # str, a header's name; "" = none
    HOSTS = "hosts"  # tuple[str, ...] of host names or addresses
    ADDRESS = "address"  # HostPort, or None
    CHOICE = "choice"  # str
    RANK = "rank"  # int, see `queueing.config.RANKS`
    PRICE = "price"  # str, a decimal number in its shortest form
    CURRENCY = "currency"  # str
    PAGE_ADDRESS = "page address"  # str, a URL or a path; "" = none
    SECRET = "secret"  # noqa: S105 - a kind, not a secret: str; "" = none


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where a listener listens; an empty host means every interface. Port 0 takes any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """Write it as it is set: `:8080`, `127.0.0.1:8081`, `[::1]:8081`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and greatest value.

    Numbers as they are, durations in seconds, secrets and texts in characters.
    """

    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


NO_BOUNDS = Bounds()
_WITH_PASSWORDS = frozenset({"CORVUS_REDIS_URL", "CORVUS_BROKER_URL", "DATABASE_URL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `default` is text in the same form as in the environment."""

    name: str
    kind: Kind
    help: str
    group: str = ""
    default: str = ""
    bounds: Bounds = NO_BOUNDS
    restart: bool = False
    room_field: str = ""  # the field of queueing.config.RoomConfig that it fills for the main room
    host_field: str = ""  # the list of proxy.gateway.snapshot.Host that it fills for the catch-all
    gateway_field: str = ""  # the field of proxy.gateway.snapshot.GatewaySettings that it fills

    @property
    def secret(self) -> bool:
        """Tell whether the value is never printed nor stored, and may come from `NAME_FILE`."""
        return self.kind is Kind.SECRET or self.name in _WITH_PASSWORDS

    @property
    def savable(self) -> bool:
        """Tell whether the console can save it: it needs no restart and is no secret."""
        return not self.restart and not self.secret

    @property
    def allowed(self) -> str:
        """Say what the value must be."""
        return _ALLOWED[self.kind](self.bounds)

    @property
    def flag(self) -> str:
        """Name its flag of `manage.py up`; a secret has none, for process lists show flags."""
        if self.secret:
            return ""
        return "--" + self.name.removeprefix("CORVUS_").lower().replace("_", "-")


Reader = Callable[[str, Bounds], Any]

_SIZE = re.compile(r"([0-9]{1,15})\s*(?:([kmg])i?b?|b)?", re.ASCII | re.IGNORECASE)
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_PATH_RULE = re.compile(r"/[\x21\x22\x24-\x3e\x40-\x7e]*")  # neither "#" nor "?"
_HOST = re.compile(r"\.?[a-z0-9.-]+|\[[0-9a-f:]+\]")
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\s\[\]/]*)):([0-9]{1,5})", re.ASCII)


def _must(holds: object) -> None:
    if not holds:
        raise ValueError


def _fits(value: float, bounds: Bounds) -> None:
    _must(bounds.low is None or value >= bounds.low)
    _must(bounds.high is None or value <= bounds.high)


def _integer(text: str, bounds: Bounds) -> int:
    _must(re.fullmatch(r"-?[0-9]{1,15}", text, re.ASCII))
    _fits(int(text), bounds)
    return int(text)


def _boolean(text: str, bounds: Bounds) -> bool:
    _must(text.lower() in _TRUE | _FALSE)
    return text.lower() in _TRUE


def _duration(text: str, bounds: Bounds) -> float:
    seconds = parse_duration(text) / 1000
    _fits(seconds, bounds)
    return seconds


def _size(text: str, bounds: Bounds) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError
    size = int(match[1]) * _SIZES[(match[2] or "").lower()]
    _fits(size, bounds)
    return size


def _text(text: str, bounds: Bounds) -> str:
    _must(text.isprintable())
    _fits(len(text), bounds)
    return text


def _cookie_path(text: str, bounds: Bounds) -> str:
    _must(re.fullmatch(r"/[\x21-\x3a\x3c-\x7e]{0,199}", text))  # RFC 6265 path-value: no ";"
    return text


def _domain(text: str, bounds: Bounds) -> str:
    _must(re.fullmatch(r"(?:\.?[a-z0-9-]+(?:\.[a-z0-9-]+)*)?", text.lower()) and len(text) <= 253)
    return text.lower()


def _origin(text: str, bounds: Bounds) -> str:
    if not text:
        return ""
    parts = urlsplit(text)
    _must(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    _must(not (parts.username or parts.password or parts.query or parts.fragment))
    _must(parts.path in ("", "/") and re.fullmatch(r"[\x21-\x7e]+", text))
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _url(text: str, bounds: Bounds) -> str:
    _must(not text or urlsplit(text).scheme in bounds.choices)
    return text


def _path(text: str, bounds: Bounds) -> Path | None:
    try:
        return Path(text).expanduser().absolute() if text else None
    except RuntimeError as error:  # `~name` of nobody here
        raise ValueError(text) from error


def _list(text: str) -> list[str]:
    return [part for part in re.split(r"[,\s]+", text) if part]


def _paths(text: str, bounds: Bounds) -> tuple[str, ...]:
    rules = _list(text)
    for rule in rules:
        _must(_PATH_RULE.fullmatch(rule) and "*" not in rule.removesuffix("/*"))
    return tuple(rules)  # one written twice is refused by name, see `env.contradictions`


def _header(text: str, bounds: Bounds) -> str:
    _must(re.fullmatch(r"[A-Za-z0-9-]{0,64}", text))
    return text


def _hosts(text: str, bounds: Bounds) -> tuple[str, ...]:
    names = _list(text.lower())
    _must(all(_HOST.fullmatch(name) for name in names))
    return tuple(dict.fromkeys(names))


def _networks(text: str, bounds: Bounds) -> tuple[str, ...]:
    found = [str(ipaddress.ip_network(part)) for part in _list(text)]
    _must(len(set(found)) == len(found))
    return tuple(found)


def _address(text: str, bounds: Bounds) -> HostPort | None:
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ValueError
    return HostPort(match[1] or match[2] or "", int(match[3]))


def _choice(text: str, bounds: Bounds) -> str:
    _must(text in bounds.choices)
    return text


def _rank(text: str, bounds: Bounds) -> int:
    names = {**{name: rank for rank, name in enumerate(RANKS)}, "nobody": NO_RANK}
    rank = names.get(text.lower())
    if rank is None:
        return _integer(text, bounds)
    _fits(rank, bounds)
    return rank


def _price(text: str, bounds: Bounds) -> str:
    price = read_price(text)
    if price is None:
        raise ValueError
    return format_price(price)


def _currency(text: str, bounds: Bounds) -> str:
    _must(text.upper() in CURRENCIES)
    return text.upper()


def _page_address(text: str, bounds: Bounds) -> str:
    _must(not text or is_page_address(text))
    return text


def _secret(text: str, bounds: Bounds) -> str:
    if text:
        _fits(len(text), bounds)
    return text


READERS: dict[Kind, Reader] = {
    Kind.INTEGER: _integer,
    Kind.BOOLEAN: _boolean,
    Kind.DURATION: _duration,
    Kind.SIZE: _size,
    Kind.COOKIE_PATH: _cookie_path,
    Kind.DOMAIN: _domain,
    Kind.ORIGIN: _origin,
    Kind.URL: _url,
    Kind.PATH: _path,
    Kind.PATHS: _paths,
    Kind.NETWORKS: _networks,
    Kind.HEADER: _header,
    Kind.HOSTS: _hosts,
    Kind.ADDRESS: _address,
    Kind.CHOICE: _choice,
    Kind.RANK: _rank,
    Kind.PRICE: _price,
    Kind.CURRENCY: _currency,
    Kind.PAGE_ADDRESS: _page_address,
    Kind.SECRET: _secret,
}


def _between(what: str, bounds: Bounds, show: Callable[[float], str]) -> str:
    if bounds.low is not None and bounds.high is not None:
        return f"{what} between {show(bounds.low)} and {show(bounds.high)}"
    return what if bounds.low is None else f"{what}, at least {show(bounds.low)}"


def _whole(number: float) -> str:
    return str(int(number))


def _span(seconds: float) -> str:
    return format_duration(round(seconds * 1000))


_ALLOWED: dict[Kind, Callable[[Bounds], str]] = {
    Kind.INTEGER: lambda b: _between("a whole number", b, _whole),
    Kind.BOOLEAN: lambda b: "true or false",
    Kind.DURATION: lambda b: _between("a span of time such as 15, 15s, 5m, 1h or 250ms", b, _span),
    Kind.SIZE: lambda b: _between("bytes such as 65536, 32KB, 10MB or 1GB", b, _whole),
    Kind.COOKIE_PATH: lambda b: "a path that begins with /, without spaces and semicolons",
    Kind.DOMAIN: lambda b: "a domain such as example.org, or empty",
    Kind.ORIGIN: lambda b: "http://host:port or https://host:port, without a path",
    Kind.URL: lambda b: "a URL that begins with " + " or ".join(f"{c}://" for c in b.choices),
    Kind.PATH: lambda b: "a path of this machine",
    Kind.PATHS: lambda b: (
        "paths that begin with /, separated by commas; /* at the end covers all below"
    ),
    Kind.NETWORKS: lambda b: (
        "addresses or networks such as 192.0.2.1 or 2001:db8::/32, separated by commas, each once,"
        " with no bits set beyond the prefix"
    ),
    Kind.HEADER: lambda b: "the name of a header, of letters, digits and -, or empty",
    Kind.HOSTS: lambda b: "host names or addresses, separated by commas",
    Kind.ADDRESS: lambda b: "host:port or :port, such as 127.0.0.1:8081, [::1]:8081 or :8080",
    Kind.CHOICE: lambda b: " or ".join(b.choices),
    Kind.RANK: lambda b: (
        f"a rank from 1 to {NO_RANK}, or its name: {', '.join(RANKS[1:])} or nobody"
    ),
    Kind.PRICE: lambda b: PRICE,
    Kind.CURRENCY: lambda b: "the three letters of ISO 4217, such as EUR",
    Kind.PAGE_ADDRESS: lambda b: PAGE_ADDRESS,
    Kind.SECRET: lambda b: f"at least {int(b.low or 0)} characters long",
}
