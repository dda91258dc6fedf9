"""How an origin might read a path or a host name, and which rule governs it.

Pure. The gateway cannot know how an origin reads `/x/..%2Ftickets;v=1`, so it matches every reading
and forwards the bytes as they came (design §3 “Paths”, WR-43). Rules are compiled once a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar
from urllib.parse import quote

import idna

T = TypeVar("T")

RESERVED = "/__corvus"
Readings = tuple[str, ...]


class BadPath(ValueError):
    """No request for this path can be judged (400): encoded NUL, broken UTF-8, no path at all."""


class AmbiguousPath(ValueError):
    """The path falls under two rooms, depending on who reads it (400)."""


class BadHost(ValueError):
    """The host name is none (400)."""


_PLAIN = re.compile(rb"/[A-Za-z0-9._~@:!$&'()*+,=/-]*")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PARAMETERS = re.compile(r";[^/]*")
_SLASHES = re.compile(r"//+")
_SLASH_CODES = re.compile(r"%(?:2f|5c)", re.IGNORECASE)
_ODDITIES = re.compile(rb"/\.|//|;|\\|%(?:2f|5c|2e|3b)", re.IGNORECASE)
_AS_SENT, _DECODED, _SLASHES_DECODED = range(3)

MAX_READINGS = 96
"""A path with more was made to be misread; ordinary ones have one, odd ones up to twenty."""

MAX_ODDITIES = 200
"""Dot segments, empty segments, parameters and encoded slashes in one path: bounds the work."""


def readings(path: bytes, *, insensitive: bool = False) -> Readings:
    """Give every way in which an origin may read this raw path, without its query.

    `insensitive`: the host's origin ignores case; the readings are then case-folded, as are the
    rules (`PathRule.compile` with the same argument).

    Raises:
        BadPath: it holds NUL, encoded or not, or bytes that are no UTF-8 once decoded; or it does
        not
            begin with `/`.
    """
    if _PLAIN.fullmatch(path) and b"//" not in path and b"/." not in path:
        plain = path.decode("ascii")
        return (plain.casefold() if insensitive else plain,)
    return _all_readings(path, insensitive)


def _all_readings(path: bytes, insensitive: bool) -> Readings:
    """Apply what origins do to a path in every order, until nothing new comes of it."""
    if not path.startswith(b"/"):
        raise BadPath("the path does not begin with /")
    try:
        text = path.decode()
        whole = _ESCAPE.sub(_unescaped, path)
        whole.decode()
    except UnicodeDecodeError:
        raise BadPath("the path is no UTF-8") from None
    if b"\0" in whole:
        raise BadPath("the path holds NUL")
    if len(_ODDITIES.findall(path)) > MAX_ODDITIES:
        raise BadPath("the path can be read in too many ways")
    found: dict[tuple[str, int], None] = {(text, _AS_SENT): None}
    for step in (pending := [(text, _AS_SENT)]):
        for following in _steps(*step):
            if following not in found:
                found[following] = None
                pending.append(following)
        if len(found) > MAX_READINGS:
            raise BadPath("the path can be read in too many ways")
    readings = (text.casefold() if insensitive else text for text, _ in found)
    return tuple(dict.fromkeys(readings))


def _steps(text: str, stage: int) -> list[tuple[str, int]]:
    """Give what one more operation makes of a path; each decoding happens once at most."""
    following = [
        (_PARAMETERS.sub("", text), stage),
        (_SLASHES.sub("/", text), stage),
        (_without_dots(text), stage),
        (text.replace("\\", "/"), stage),
    ]
    if stage == _AS_SENT:
        following.append((_ESCAPE.sub(_unescaped_but_slashes, text.encode()).decode(), _DECODED))
    elif stage == _DECODED:
        following.append((_SLASH_CODES.sub(_slash, text), _SLASHES_DECODED))
    return following


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return bytes.fromhex(escape[1].decode())


def _slash(escape: re.Match[str]) -> str:
    return "/" if escape[0].lower() == "%2f" else "\\"


def _unescaped_but_slashes(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1].lower() in (b"2f", b"5c") else _unescaped(escape)


def _without_dots(path: str) -> str:
    """Resolve `.` and `..` (RFC 3986 5.2.4); above the root nothing is lost but the `..`."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def is_reserved(readings: Readings) -> bool:
    """Say whether any reading lies under `/__corvus/`, which no origin ever sees."""
    return any(r == RESERVED or r.startswith(RESERVED + "/") for r in readings)


@dataclass(frozen=True, slots=True)
class PathRule:
    """`/x/*`, which also matches `/x`, or one exact path; compiled from what an operator wrote."""

    base: str  # without `/*`; "" for the whole site
    below: bool

    @classmethod
    def compile(cls, pattern: str, *, insensitive: bool = False) -> PathRule:
        """Read a rule.

        Raises:
            ValueError: it does not begin with `/`, or holds `*` elsewhere than in a final `/*`.
        """
        base = pattern.removesuffix("/*")
        if not pattern.startswith("/") or "*" in base:
            raise ValueError(
                f"path “{pattern}” is not allowed: use an exact path such as /a or /a/b,"
                " or /a/* for everything below"
            )
        try:
            base = _ESCAPE.sub(_unescaped, base.encode()).decode()
        except UnicodeDecodeError:
            raise ValueError(f"path “{pattern}” is not allowed: it is no UTF-8") from None
        return cls(base.casefold() if insensitive else base, pattern.endswith("/*"))

    @property
    def weight(self) -> tuple[bool, int]:
        """Order by how specific a rule is: exact before everything below, then the longer one."""
        return (not self.below, len(self.base))

    def match(self, reading: str) -> bool:
        """Say whether this one reading falls under the rule."""
        base = self.base
        if reading == base:
            return True
        return self.below and reading.startswith(base) and reading[len(base) : len(base) + 1] == "/"


def matches(rule: PathRule, readings: Readings) -> bool:
    """Say whether the rule reaches the path in any reading: for what keeps people out."""
    return any(rule.match(reading) for reading in readings)


@dataclass(slots=True, eq=False)
class _Step(Generic[T]):
    """One segment of a path in a `PathTree`."""

    exact: T | None = None
    below: T | None = None
    steps: dict[str, _Step[T]] = field(default_factory=dict)

    def reach(self, base: str) -> _Step[T]:
        """Give the step at the end of a rule's base, made where there was none."""
        step = self
        for segment in base.split("/")[1:]:
            step = step.steps.setdefault(segment, _Step())
        return step


class PathTree(Generic[T]):
    """Values by path rule; the most specific rule counts, and of one rule twice the first.

    A look-up walks the reading's segments only as far as rules go, however many rules there are.
    """

    __slots__ = ("_root",)

    def __init__(self, rules: Iterable[tuple[str, T]], *, insensitive: bool = False) -> None:
        """Compile `(pattern, value)` pairs.

        Raises:
            ValueError: a pattern that is none, see `PathRule.compile`.
        """
        self._root: _Step[T] = _Step()
        for pattern, value in rules:
            rule = PathRule.compile(pattern, insensitive=insensitive)
            for base in {rule.base, _as_browsers_send(rule.base, insensitive)}:
                step = self._root.reach(base)
                if rule.below and step.below is None:
                    step.below = value
                if not rule.below and step.exact is None:
                    step.exact = value

    def find(self, reading: str) -> T | None:
        """Give the value for one reading, None where no rule reaches it."""
        step, start = self._root, 1
        found = step.below
        while True:
            end = reading.find("/", start)
            following = step.steps.get(reading[start:] if end < 0 else reading[start:end])
            if following is None:
                return found
            step = following
            if step.below is not None:
                found = step.below
            if end < 0:
                return found if step.exact is None else step.exact
            start = end + 1


def _as_browsers_send(base: str, insensitive: bool) -> str:
    """Give a base with what must be escaped escaped: such a path as it was sent is under the rule
    too, or else no rule with a space or in another script would ever hold in every reading."""
    sent = quote(base, safe="/~!$&'()*+,;=:@")
    return sent.casefold() if insensitive else sent


class PathSet:
    """Rules of one kind, asked together."""

    __slots__ = ("_tree",)

    def __init__(self, patterns: Iterable[str], *, insensitive: bool = False) -> None:
        """Compile patterns.

        Raises:
            ValueError: a pattern that is none, see `PathRule.compile`.
        """
        self._tree = PathTree(((p, True) for p in patterns), insensitive=insensitive)

    def hold(self, readings: Readings) -> bool:
        """Say whether every reading falls under some rule: for what lets people through."""
        return all(self._tree.find(reading) for reading in readings)


class Territory(Generic[T]):
    """Which of several values governs a path: rooms by path rule; the most specific rule wins."""

    __slots__ = ("_tree",)

    def __init__(self, rules: Iterable[tuple[str, T]], *, insensitive: bool = False) -> None:
        """Compile `(pattern, value)` pairs.

        Raises:
            ValueError: a pattern that is none, see `PathRule.compile`.
        """
        self._tree = PathTree(rules, insensitive=insensitive)

    def governing(self, readings: Readings) -> T | None:
        """Give the one value that governs the path, None where no reading falls under a rule.

        Raises:
            AmbiguousPath: two readings fall under different values.
        """
        found: T | None = None
        for reading in readings:
            value = self._tree.find(reading)
            if value is not None and value != found:
                if found is not None:
                    raise AmbiguousPath("the path belongs to two rooms, depending on its reader")
                found = value
        return found

    def of(self, reading: str) -> T | None:
        """Give the value for this one reading."""
        return self._tree.find(reading)


_HOST_ASCII = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_ADDRESS_LITERAL = re.compile(r"\[[0-9a-f:.]+\]")
_PORT = re.compile(r"[0-9]{0,5}")


@lru_cache(maxsize=4_096)
def normal_host(raw: bytes) -> str:
    """Give the one form of a host name: lower-case A-labels, no port, no trailing dot (WR-43,
    GW-21).

    Raises:
        BadHost: empty, a bad port, or characters that no name holds.
    """
    try:
        text = raw.decode().strip(" \t").lower()
    except UnicodeDecodeError:
        raise BadHost("the host name is no UTF-8") from None
    if text.startswith("["):
        name, mark, port = text.partition("]")
        name += mark
        if port.startswith(":"):
            port = port[1:]
        elif port:
            raise BadHost("the host name is none")
    else:
        name, _, port = text.partition(":")
    if not _PORT.fullmatch(port):
        raise BadHost("the port is no number")
    if name.startswith("["):
        if not _ADDRESS_LITERAL.fullmatch(name):
            raise BadHost("the host name is none")
        return name
    if not name.isascii() or "xn--" in name:
        name = _a_labels(name)
    name = name.removesuffix(".")
    if len(name) > 253 or not _HOST_ASCII.fullmatch(name):
        raise BadHost("the host name is none")
    return name


def _a_labels(name: str) -> str:
    try:
        return idna.encode(name, uts46=True, transitional=False).decode("ascii")
    except idna.IDNAError:
        if name.isascii():  # an A-label that newer rules refuse is still what the client asked for
            return name
        raise BadHost("the host name is none") from None
