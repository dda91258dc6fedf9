"""How the text of a setting becomes a value, one small function per kind.

Pure. Each reader takes the text and the setting's bounds and gives the value, or raises
`ValueError`
whose message is what is allowed, as the end of the sentence “it must be …”.
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

from queueing.durations import format_duration, parse_duration


class Kind(StrEnum):
    """What a setting holds; in brackets the Python type of its value."""

    INTEGER = "integer"  # int
    BOOLEAN = "boolean"  # bool
    DURATION = "duration"  # float, seconds
    SIZE = "size"  # int, bytes
    TEXT = "text"  # str
    ORIGIN = "origin"  # str, `http://host:port` without a path; "" = none
    URL = "url"  # str; "" = none
    PATH = "path"  # Path, or None
    PATHS = "paths"  # tuple[str, ...] of URL path rules
    NETWORKS = "networks"  # tuple[str, ...] of networks in canonical form
    ADDRESS = "address"  # HostPort, or None
    CHOICE = "choice"  # str
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
    """The least and greatest value: numbers as they are, durations in seconds, secrets and texts
    in characters.
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
    gateway_field: str = ""  # the field of proxy.gateway.snapshot.GatewaySettings that it fills

    @property
    def secret(self) -> bool:
        """Tell whether the value is never printed and never stored, and may come from
        `NAME_FILE`.
        """
        return self.kind is Kind.SECRET or self.name in _WITH_PASSWORDS

    @property
    def savable(self) -> bool:
        """Tell whether the console can save it: it takes effect without a restart and is no
        secret.
        """
        return not self.restart and not self.secret

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
_PATH_RULE = re.compile(r"/[\x21-\x7e]*")


def _between(what: str, bounds: Bounds, show: Callable[[float], str]) -> str:
    match bounds.low, bounds.high:
        case None, None:
            return what
        case low, None:
            return f"{what}, at least {show(low)}" if low is not None else what
        case None, high:
            return f"{what}, at most {show(high)}" if high is not None else what
        case low, high:
            return f"{what} between {show(low)} and {show(high)}"
    return what


def _fits(value: float, bounds: Bounds) -> bool:
    above = bounds.low is None or value >= bounds.low
    return above and (bounds.high is None or value <= bounds.high)


def _integer(text: str, bounds: Bounds) -> int:
    if not re.fullmatch(r"-?[0-9]{1,15}", text, re.ASCII) or not _fits(int(text), bounds):
        raise ValueError(_between("a whole number", bounds, lambda n: f"{int(n)}"))
    return int(text)


def _boolean(text: str, bounds: Bounds) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("true or false")


def _span(seconds: float) -> str:
    return format_duration(round(seconds * 1000))


def _duration(text: str, bounds: Bounds) -> float:
    allowed = _between("a span of time such as 15, 15s, 5m, 1h or 250ms", bounds, _span)
    try:
        seconds = parse_duration(text) / 1000
    except ValueError:
        raise ValueError(allowed) from None
    if not _fits(seconds, bounds):
        raise ValueError(allowed)
    return seconds


def _size(text: str, bounds: Bounds) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _SIZES[(match[2] or "").lower()] if match else -1
    if not match or not _fits(size, bounds):
        raise ValueError(
            _between(
                "a size in bytes such as 65536, 32KB, 10MB or 1GB", bounds, lambda n: f"{int(n)}"
            )
        )
    return size


def _text(text: str, bounds: Bounds) -> str:
    if not text.isprintable() or not _fits(len(text), bounds):
        raise ValueError(_between("printable text, its length", bounds, lambda n: f"{int(n)}"))
    return text


def _origin(text: str, bounds: Bounds) -> str:
    allowed = "http://host:port or https://host:port, without a path"
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(allowed) from None
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or port == 0:
        raise ValueError(allowed)
    if parts.path not in ("", "/") or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError(allowed)
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _url(text: str, bounds: Bounds) -> str:
    allowed = "a URL that begins with " + " or ".join(f"{c}://" for c in bounds.choices)
    if text and urlsplit(text).scheme not in bounds.choices:
        raise ValueError(allowed)
    return text


def _path(text: str, bounds: Bounds) -> Path | None:
    return Path(text).expanduser().absolute() if text else None


def _list(text: str) -> list[str]:
    return [part for part in re.split(r"[,\s]+", text) if part]


def _paths(text: str, bounds: Bounds) -> tuple[str, ...]:
    rules = _list(text)
    for rule in rules:
        if not _PATH_RULE.fullmatch(rule) or "*" in rule.removesuffix("/*"):
            raise ValueError(
                "paths that begin with /, separated by commas; /* at the end covers all below"
            )
    return tuple(dict.fromkeys(rules))


def _networks(text: str, bounds: Bounds) -> tuple[str, ...]:
    found: list[str] = []
    for part in _list(text):
        try:
            found.append(str(ipaddress.ip_network(part)))
        except ValueError:
            raise ValueError(
                "addresses or networks such as 192.0.2.1 or 2001:db8::/32, separated by commas,"
                " with no bits set beyond the prefix"
            ) from None
    if len(set(found)) != len(found):
        raise ValueError("networks that each appear once")
    return tuple(found)


def _address(text: str, bounds: Bounds) -> HostPort | None:
    if not text:
        return None
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\s\[\]/]*)):([0-9]{1,5})", text)
    if not match or int(match[3]) > 65535:
        raise ValueError("host:port or :port, such as 127.0.0.1:8081, [::1]:8081 or :8080")
    return HostPort(match[1] or match[2] or "", int(match[3]))


def _choice(text: str, bounds: Bounds) -> str:
    if text not in bounds.choices:
        raise ValueError(" or ".join(bounds.choices))
    return text


def _secret(text: str, bounds: Bounds) -> str:
    if text and not _fits(len(text), bounds):
        raise ValueError(f"at least {int(bounds.low or 0)} characters long")
    return text


READERS: dict[Kind, Reader] = {
    Kind.INTEGER: _integer,
    Kind.BOOLEAN: _boolean,
    Kind.DURATION: _duration,
    Kind.SIZE: _size,
    Kind.TEXT: _text,
    Kind.ORIGIN: _origin,
    Kind.URL: _url,
    Kind.PATH: _path,
    Kind.PATHS: _paths,
    Kind.NETWORKS: _networks,
    Kind.ADDRESS: _address,
    Kind.CHOICE: _choice,
    Kind.SECRET: _secret,
}
