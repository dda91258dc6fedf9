"""Which header lines pass between visitor and origin, and what is written into them on the way.

Pure. One pass in each direction over raw lines; order, duplicates and bytes of what passes stay as
they were (RFC 9110 7.6.1 and design §3 “Forwarding”). Framing that a server let through is refused
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from proxy.gateway.forwarded import Sender, about_visitor
from proxy.gateway.upstream_messages import BadHead, Header, Headers, RequestHead

__all__ = ["BadHead", "CorvusHeaders", "Sender", "cut_cookies", "origin_head", "visitor_headers"]

OWN_COOKIES = b"corvus_"
"""Every cookie of the gateway begins so; none reaches an origin (design §3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorvusHeaders:
    """What an origin told the gateway; taken out of its answer (never seen by a visitor)."""

    revoke: bool = False  # `Corvus-Session: revoke`
    priority: str | None = None  # `Corvus-Priority`, the first line, as sent


NOTHING_SAID = CorvusHeaders()


class _Kind(IntEnum):
    PASS = 0
    DROP = 1
    CONNECTION = 2
    TE = 3
    HOST = 4
    LENGTH = 5
    CODING = 6
    COOKIE = 7
    FORWARDED_FOR = 8
    FORWARDED = 9
    CLAIM = 10  # what only a trusted proxy may say of the visitor
    PROTO = 11
    FORWARDED_HOST = 12


_REQUEST_KINDS: dict[bytes, _Kind] = {
    b"connection": _Kind.CONNECTION,
    b"keep-alive": _Kind.DROP,
    b"proxy-connection": _Kind.DROP,
    b"proxy-authenticate": _Kind.DROP,
    b"proxy-authorization": _Kind.DROP,
    b"te": _Kind.TE,
    b"trailer": _Kind.DROP,  # no ASGI server hands over the trailers of a request
    b"transfer-encoding": _Kind.CODING,
    b"upgrade": _Kind.DROP,
    b"http2-settings": _Kind.DROP,
    b"expect": _Kind.DROP,  # the server has answered it (RFC 9110 10.1.1)
    b"host": _Kind.HOST,
    b"content-length": _Kind.LENGTH,
    b"cookie": _Kind.COOKIE,
    b"x-real-ip": _Kind.DROP,  # always written anew
    b"x-forwarded-for": _Kind.FORWARDED_FOR,
    b"forwarded": _Kind.FORWARDED,
    b"x-forwarded-proto": _Kind.PROTO,
    b"x-forwarded-host": _Kind.FORWARDED_HOST,
    b"daphne-root-path": _Kind.DROP,
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
    _Kind.CLAIM,
)
_MAX_KNOWN = 4_096
_request_kinds = dict(_REQUEST_KINDS)

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_NEVER_NOMINATED = frozenset({b"host", b"content-length"})


def _request_kind(name: bytes) -> _Kind:
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
            kind = _Kind.DROP
        elif lowered.startswith(b"x-forwarded-") and lowered not in _REQUEST_KINDS:
            kind = _Kind.CLAIM
        else:
            kind = _REQUEST_KINDS.get(lowered, _Kind.PASS)
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

    `host` replaces the visitor's `Host` (None: kept). `undeclared_body` says that a body comes for
    which no length was declared (HTTP/2); it then travels in chunks.

    Raises:
        BadHead: repeated or odd lengths, both kinds of length, other codings than `chunked`,
            repeated `Host`, a name, method or target that is none (RFC 9112 6.3, 3.2). Line breaks
            in values are found by `RequestHead.encode()`.
    """
    kept: Headers = []
    kinds = _request_kinds
    nominated: list[bytes] = []
    chains: list[bytes] = []
    forwarded: list[bytes] = []
    proto: bytes | None = None
    forwarded_host: bytes | None = None
    own_host: bytes | None = None
    length: int | None = None
    chunked = trailers = False
    trusted = sender.trusted

    for name, value in headers:
        kind = kinds.get(name)
        if kind is None:
            kind = _request_kind(name)
        if kind == 0:
            kept.append((name, value))
        elif kind == 1:
            continue
        elif kind == 7:
            rest = cut_cookies(value)
            if rest is not None:
                kept.append((name, rest))
        elif kind == 4:
            if own_host is not None:
                raise BadHead("Host is repeated")
            own_host = value
            kept.append((name, value if host is None else host))
        elif kind == 2:
            nominated.append(value)
        elif kind == 5:
            if length is not None:
                raise BadHead("Content-Length is repeated")
            if not (value.isdigit() and len(value) < 19):
                raise BadHead("Content-Length is not a number")
            length = int(value)
            kept.append((name, value))
        elif kind == 6:
            if chunked or value.lower() != b"chunked":
                raise BadHead("Transfer-Encoding is not “chunked”")
            chunked = True
        elif kind == 3:
            trailers = trailers or b"trailers" in value.lower()
        elif trusted:
            if kind == 8:
                chains.append(value)
            elif kind == 9:
                forwarded.append(value)
            elif kind == 11:
                proto = value
            elif kind == 12:
                forwarded_host = value
            else:
                kept.append((name, value))

    if chunked and length is not None:
        raise BadHead("Content-Length and Transfer-Encoding exclude each other")
    if nominated:
        kept = _without_nominated(kept, nominated)
    if own_host is None and host is not None:
        kept.insert(0, (b"host", host))
    kept += about_visitor(
        sender,
        b", ".join(chains),
        b", ".join(forwarded),
        proto,
        own_host or b"" if forwarded_host is None else forwarded_host,
    )
    if trailers:
        kept += _TRAILERS_WELCOME
    if chunked:
        kept.append((b"transfer-encoding", b"chunked"))
    if not _TARGET.fullmatch(target) or not method.isascii() or not method.isalpha():
        _check_method(method, target)
    undeclared = undeclared_body and not chunked and length is None
    return RequestHead(method, target, kept, length, chunked, undeclared)


_TRAILERS_WELCOME: Headers = [(b"te", b"trailers"), (b"connection", b"te")]


def _check_method(method: bytes, target: bytes) -> None:
    if not _TARGET.fullmatch(target):
        raise BadHead("the request target holds a character that is not allowed")
    if not _TOKEN.fullmatch(method.lower()):
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


class _Answer(IntEnum):
    PASS = 0
    DROP = 1
    CONNECTION = 2
    SESSION = 3
    PRIORITY = 4


_ANSWER_KINDS: dict[bytes, tuple[bytes, _Answer]] = {}
_ANSWER_DROPPED = frozenset(
    {
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)


def _answer_kind(name: bytes) -> tuple[bytes, _Answer]:
    lowered = name.lower()
    kind = _Answer.PASS
    if lowered in _ANSWER_DROPPED:
        kind = _Answer.DROP
    elif lowered == b"connection":
        kind = _Answer.CONNECTION
    elif lowered == b"corvus-session":
        kind = _Answer.SESSION
    elif lowered == b"corvus-priority":
        kind = _Answer.PRIORITY
    elif lowered.startswith(b"corvus-"):
        kind = _Answer.DROP
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
        if kind == 0:
            kept.append((lowered, value))
        elif kind == 2:
            nominated.append(value)
        elif kind == 3:
            revoke = revoke or value.strip().lower() == b"revoke"
        elif kind == 4 and priority is None:
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
