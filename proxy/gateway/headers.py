"""Which header lines pass between visitor and origin, and what is written into them on the way.

Pure. One pass in each direction over raw lines; order, duplicates and bytes of what passes stay as
they were (RFC 9110 7.6.1 and design §3 “Forwarding”). Framing that a server let through is refused
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.gateway.forwarded import Sender, about_visitor
from proxy.gateway.upstream_messages import BadHead, Header, Headers, RequestHead

__all__ = ["BadHead", "CorvusHeaders", "Sender", "cut_cookies", "origin_head", "visitor_headers"]

OWN_COOKIES = b"corvus_"
"""Every cookie of the gateway begins so; none reaches an origin or comes from one (design §3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorvusHeaders:
    """What an origin told the gateway; taken out of its answer (never seen by a visitor)."""

    revoke: bool = False  # `Corvus-Session: revoke`
    priority: str | None = None  # `Corvus-Priority`, the last line, as sent


NOTHING_SAID = CorvusHeaders()


# Plain numbers: an enumeration's comparisons cost twice as much, on every line of every request.
(
    _PASS,
    _DROP,
    _CONNECTION,
    _TE,
    _HOST,
    _LENGTH,
    _CODING,
    _COOKIE,
    _FORWARDED_FOR,
    _FORWARDED,
    _PROTO,
    _FORWARDED_HOST,
    _CLAIM,  # what only a trusted proxy may say of the visitor
) = range(13)

_REQUEST_KINDS: dict[bytes, int] = {
    b"connection": _CONNECTION,
    b"keep-alive": _DROP,
    b"proxy-connection": _DROP,
    b"proxy-authenticate": _DROP,
    b"proxy-authorization": _DROP,
    b"te": _TE,
    b"trailer": _DROP,  # no ASGI server hands over the trailers of a request
    b"transfer-encoding": _CODING,
    b"upgrade": _DROP,
    b"http2-settings": _DROP,
    b"expect": _DROP,  # the server has answered it (RFC 9110 10.1.1)
    b"host": _HOST,
    b"content-length": _LENGTH,
    b"cookie": _COOKIE,
    b"x-real-ip": _DROP,  # always written anew
    b"x-forwarded-for": _FORWARDED_FOR,
    b"forwarded": _FORWARDED,
    b"x-forwarded-proto": _PROTO,
    b"x-forwarded-host": _FORWARDED_HOST,
    b"daphne-root-path": _DROP,
} | dict.fromkeys(
    (
        b"true-client-ip",
        b"cf-connecting-ip",
        b"cf-connecting-ipv6",
        b"cf-pseudo-ipv4",
        b"cf-ipcountry",
        b"cf-visitor",
        b"fastly-client-ip",
        b"x-azure-clientip",
        b"x-appengine-user-ip",
        b"x-client-ip",
        b"client-ip",
        b"x-cluster-client-ip",
        b"x-original-forwarded-for",
        b"x-originating-ip",
        b"x-remote-ip",
        b"x-remote-addr",
        b"x-real-port",
        b"x-scheme",
        b"x-url-scheme",
        b"x-original-proto",
        b"x-original-host",
        b"x-original-url",  # some origins take the path from these: past every rule of ours
        b"x-original-uri",
        b"x-rewrite-url",
        b"front-end-https",
        b"remote-user",
        b"x-remote-user",
        b"x-ssl-client-cert",
        b"x-ssl-client-dn",
        b"x-ssl-client-verify",
    ),
    _CLAIM,
)
_MAX_KNOWN = 4_096
_request_kinds = dict(_REQUEST_KINDS)

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_NEVER_NOMINATED = frozenset({b"host", b"content-length"})


def _request_kind(name: bytes) -> int:
    """Judge a name that was not seen before, and remember it.

    Raises:
        BadHead: the name is no token, so that two readers could split the line differently.
    """
    kind = _REQUEST_KINDS.get(name)
    if kind is None:
        lowered = name.lower()
        if not _TOKEN.fullmatch(lowered):
            raise BadHead("a header name holds a character that is not allowed")
        # An underscore twin would shadow the real header in CGI-style variables (GW-13).
        if b"_" in lowered or lowered.startswith(b"corvus-"):
            kind = _DROP
        elif lowered.startswith(b"x-forwarded-") and lowered not in _REQUEST_KINDS:
            kind = _CLAIM
        else:
            kind = _REQUEST_KINDS.get(lowered, _PASS)
    if len(_request_kinds) < _MAX_KNOWN:
        _request_kinds[name] = kind
    return kind


def origin_head(
    *,
    method: bytes,
    target: bytes,
    headers: Iterable[Sequence[bytes]],
    sender: Sender,
    host: bytes | None = None,
    undeclared_body: bool = False,
) -> RequestHead:
    """Build the head for the origin from the lines of an ASGI scope.

    `host` replaces the visitor's `Host` (None: kept). `undeclared_body` says that a body may come
    for which no length was declared (HTTP/2), see `RequestHead.declare()`.

    Raises:
        BadHead: repeated or odd lengths, both kinds of length, other codings than `chunked`,
            repeated `Host`, a name, method or target that is none (RFC 9112 6.3, 3.2). Line breaks
            in values are found by `RequestHead.encode()`.
    """
    lines = _Lines(sender.trusted, host)
    kept = lines.kept
    kinds = _request_kinds
    for name, value in headers:
        kind = kinds.get(name)
        if kind is None:
            kind = _request_kind(name)
        if kind == _PASS:
            kept.append((name, value))
        elif kind != _DROP:
            lines.take(kind, name, value)
    _check_request_line(method, target)
    undeclared = undeclared_body and not lines.chunked and lines.length is None
    return RequestHead(
        method, target, lines.finish(sender), lines.length, lines.chunked, undeclared
    )


class _Lines:
    """The lines of one request that are not simply passed on, as they are met."""

    __slots__ = (
        "_chains",
        "_forwarded",
        "_forwarded_host",
        "_host",
        "_nominated",
        "_own_host",
        "_proto",
        "_trailers",
        "_trusted",
        "chunked",
        "kept",
        "length",
    )

    def __init__(self, trusted: bool, host: bytes | None) -> None:
        self.kept: Headers = []
        self.length: int | None = None
        self.chunked = False
        self._trusted = trusted
        self._host = host
        self._own_host: bytes | None = None
        self._nominated: list[bytes] = []
        self._chains: list[bytes] = []
        self._forwarded: list[bytes] = []
        self._proto: bytes | None = None
        self._forwarded_host: bytes | None = None
        self._trailers = False

    def take(self, kind: int, name: bytes, value: bytes) -> None:
        """Take one line that has a meaning on the way."""
        if kind == _HOST:
            if self._own_host is not None:
                raise BadHead("Host is repeated")
            self._own_host = value
            self.kept.append((name, value if self._host is None else self._host))
        elif kind == _COOKIE:
            rest = cut_cookies(value)
            if rest is not None:
                self.kept.append((name, rest))
        elif kind == _CONNECTION:
            self._nominated.append(value)
        elif kind in (_LENGTH, _CODING):
            self._take_framing(kind, name, value)
        elif kind == _TE:
            self._trailers = self._trailers or b"trailers" in value.lower()
        elif self._trusted:
            self._take_word(kind, name, value)

    def _take_framing(self, kind: int, name: bytes, value: bytes) -> None:
        if self.chunked or self.length is not None:
            raise BadHead("the body's length is given twice")
        if kind == _CODING:
            if value.lower() != b"chunked":
                raise BadHead("Transfer-Encoding is not “chunked”")
            self.chunked = True
        else:
            if not (value.isdigit() and len(value) < 19):
                raise BadHead("Content-Length is not a number")
            self.length = int(value)
            self.kept.append((name, value))

    def _take_word(self, kind: int, name: bytes, value: bytes) -> None:
        """Take what a trusted proxy says of the visitor."""
        if kind == _FORWARDED_FOR:
            self._chains.append(value)
        elif kind == _FORWARDED:
            self._forwarded.append(value)
        elif kind == _PROTO:
            self._proto = value
        elif kind == _FORWARDED_HOST:
            self._forwarded_host = value
        else:
            self.kept.append((name, value))

    def finish(self, sender: Sender) -> Headers:
        """Give all lines for the origin."""
        kept = self.kept
        if self._nominated:
            kept = _without_nominated(kept, self._nominated)
        if self._own_host is None and self._host is not None:
            kept.insert(0, (b"host", self._host))
        host = self._own_host or b"" if self._forwarded_host is None else self._forwarded_host
        kept += about_visitor(
            sender, b", ".join(self._chains), b", ".join(self._forwarded), self._proto, host
        )
        if self._trailers:
            kept += _TRAILERS_WELCOME
        if self.chunked:
            kept.append((b"transfer-encoding", b"chunked"))
        return kept


_TRAILERS_WELCOME: Headers = [(b"te", b"trailers"), (b"connection", b"te")]


def _check_request_line(method: bytes, target: bytes) -> None:
    if not _TARGET.fullmatch(target):
        raise BadHead("the request target holds a character that is not allowed")
    if not (method.isalpha() and method.isascii()) and not _TOKEN.fullmatch(method.lower()):
        raise BadHead("the method holds a character that is not allowed")


def _names_in(values: Iterable[bytes]) -> set[bytes]:
    return {name.strip().lower() for value in values for name in value.split(b",")}


def _without_nominated(headers: Headers, connection: list[bytes]) -> Headers:
    """Take out what `Connection` names, but never what frames or routes the message."""
    names = _names_in(connection) - _NEVER_NOMINATED
    if names <= {b"close", b"keep-alive", b"upgrade", b"te", b""}:
        return headers
    return [line for line in headers if line[0].lower() not in names]


def cut_cookies(value: bytes, own: bytes = OWN_COOKIES) -> bytes | None:
    """Take the gateway's cookies out of one `Cookie` line; every other byte stays as it was.

    None: nothing is left, so the line goes too.
    """
    if own not in value:
        return value
    kept = []
    first_cut = False
    for number, pair in enumerate(value.split(b";")):
        if pair.lstrip(b" \t").startswith(own):
            first_cut = first_cut or number == 0
        else:
            kept.append(pair)
    rest = b";".join(kept)
    if first_cut:  # the space that stood after the separator goes with the separator
        rest = rest.lstrip(b" \t")
    return rest if rest.strip(b" \t;") else None


_SESSION, _PRIORITY = range(20, 22)  # of answers

_ANSWER_KINDS: dict[bytes, tuple[bytes, int]] = {}
_ANSWER_DROPPED = frozenset(
    b"keep-alive proxy-connection proxy-authenticate proxy-authorization te transfer-encoding"
    b" upgrade".split()
)


def _answer_kind(name: bytes) -> tuple[bytes, int]:
    lowered = name.lower()
    kind = _PASS
    if lowered in _ANSWER_DROPPED:
        kind = _DROP
    elif lowered == b"connection":
        kind = _CONNECTION
    elif lowered == b"set-cookie":
        kind = _COOKIE
    elif lowered == b"corvus-session":
        kind = _SESSION
    elif lowered == b"corvus-priority":
        kind = _PRIORITY
    elif lowered.startswith(b"corvus-"):
        kind = _DROP
    if len(_ANSWER_KINDS) < _MAX_KNOWN:
        _ANSWER_KINDS[name] = (lowered, kind)
    return lowered, kind


def visitor_headers(headers: Iterable[Header]) -> tuple[Headers, CorvusHeaders]:
    """Give the lines of an origin's answer that a visitor gets, and what was meant for the gateway.

    Names come out in lower case, as ASGI wants them; order, duplicates and values stay. `Trailer`
    passes: whether trailers can be delivered is known to `forward` alone.
    """
    kept: Headers = []
    kinds = _ANSWER_KINDS
    nominated: list[bytes] = []
    revoke = False
    priority: str | None = None
    for name, value in headers:
        found = kinds.get(name)
        lowered, kind = found if found is not None else _answer_kind(name)
        if kind == _PASS:
            kept.append((lowered, value))
        elif kind == _COOKIE:
            if not value.startswith(OWN_COOKIES):  # a place that only we give and take
                kept.append((lowered, value))
        elif kind == _CONNECTION:
            nominated.append(value)
        elif kind == _SESSION:
            revoke = revoke or value.strip().lower() == b"revoke"
        elif kind == _PRIORITY:
            priority = value.decode("latin-1").strip()
    if nominated:
        kept = _without_nominated(kept, nominated)
    if revoke or priority is not None:
        return kept, CorvusHeaders(revoke=revoke, priority=priority)
    return kept, NOTHING_SAID


_CACHE_RULES = frozenset(
    {
        b"cache-control",
        b"expires",
        b"etag",
        b"cdn-cache-control",
        b"cloudflare-cdn-cache-control",
        b"surrogate-control",
        b"x-accel-expires",
    }
)


def uncacheable(headers: Headers) -> Headers:
    """Replace an answer's caching rules, because a cookie of ours rides on it (WR-41).

    What lets a cache between us and the visitor decide otherwise goes too.
    """
    kept = [line for line in headers if line[0] not in _CACHE_RULES]
    varies = _names_in(value for name, value in kept if name == b"vary")
    kept.append((b"cache-control", b"no-store, private"))
    missing = [name for name in (b"Cookie", b"Accept") if name.lower() not in varies]
    if missing and b"*" not in varies:
        kept.append((b"vary", b", ".join(missing)))
    return kept
