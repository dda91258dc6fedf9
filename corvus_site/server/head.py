"""Read a request's head, strictly: one meaning or a refusal (RFC 9112, RFC 9110).

Pure: bytes in, `RequestHead` out or `Refused` raised. Whatever two parsers could read differently
(request smuggling) is refused here, before any application hears of it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from corvus_site.server.limits import ServerLimits

Headers = list[tuple[bytes, bytes]]

CHUNKED: Final = -1
"""`RequestHead.length` of a body that says itself where it ends."""

_TOKEN = rb"!#$%&'*+\-.^_`|~0-9A-Za-z"
_REQUEST_LINE = re.compile(rb"([" + _TOKEN + rb"]{1,32}) ([\x21-\x7e]+) HTTP/1\.([01])\r\n")
_VERSION = re.compile(rb"[" + _TOKEN + rb"]+ [^ ]+ HTTP/(?!1\.[01])[0-9]\.[0-9]\r\n")
# RFC 9112 5: no blank before the colon, no folding (5.2), no control character but TAB (RFC 9110
# 5.5). `^` matches only after a line feed and a value holds none, so as many matches as line feeds
# means that every line is one whole field.
FIELD_LINE = re.compile(rb"^([" + _TOKEN + rb"]+):([^\x00-\x08\x0a-\x1f\x7f]*)\r\n", re.MULTILINE)
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._~-]{1,255})(?::[0-9]{1,5})?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_ABSOLUTE = re.compile(rb"(https?)://([^/?#]+)([^#]*)", re.IGNORECASE)
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_BARE_RETURN = re.compile(rb"\r(?!\n|\Z)")
_LONGEST_METHOD_AND_VERSION: Final = 32 + len(b"  HTTP/1.1\r\n")

_LOOKED_AT: Final = frozenset(
    (b"content-length", b"transfer-encoding", b"host", b"connection", b"upgrade", b"expect")
)


class Refused(Exception):
    """The request cannot be accepted: the status to answer with, and why in a few words."""

    def __init__(self, status: int, reason: str, lines: bytes = b"") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.lines = lines  # header lines that this refusal needs, each with its CRLF


class RequestHead(NamedTuple):
    """A request without its body, with exactly one reading."""

    method: str
    target: bytes  # origin-form (or `*`), otherwise as sent
    http11: bool
    headers: Headers  # names in lower case, in order; names with `_` left out
    length: int  # of the body in bytes; CHUNKED
    keep_alive: bool
    expects_continue: bool
    websocket: bool  # asks for an upgrade to WebSocket


def check_unfinished(data: bytes, limits: ServerLimits) -> None:
    """Refuse what has come of a head already, when no continuation could make it good."""
    if _BARE_LINE_FEED.search(data):
        raise Refused(400, "a line ends without a carriage return")
    if _BARE_RETURN.search(data):
        raise Refused(400, "a carriage return inside a line")
    line_end = data.find(b"\r\n")
    if line_end < 0:
        if len(data) > limits.max_url_bytes + _LONGEST_METHOD_AND_VERSION:
            raise Refused(414, "the URL is too long")
    elif len(data) - line_end > limits.max_header_bytes + 4:
        raise Refused(431, "the header is too large")


def parse_head(head: bytes, limits: ServerLimits) -> RequestHead:
    """Read the request line and header lines, each with its CRLF, without the empty line.

    Raises Refused.
    """
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise _bad_request_line(head, limits)
    method, target, minor = line.groups()
    start = line.end()
    if len(target) > limits.max_url_bytes:
        raise Refused(414, "the URL is too long")
    if len(head) - start > limits.max_header_bytes:
        raise Refused(431, "the header is too large")
    fields = FIELD_LINE.findall(head, start)
    if len(fields) != head.count(b"\n", start):
        raise Refused(400, "a malformed header line")
    if len(fields) > limits.max_header_count:
        raise Refused(431, "too many headers")
    http11 = minor == b"1"
    headers: Headers = []
    seen: dict[bytes, list[bytes]] = {}
    for raw_name, raw_value in fields:
        name = raw_name.lower()
        value = raw_value.strip(b" \t")
        if name in _LOOKED_AT:
            seen.setdefault(name, []).append(value)
        elif b"_" in name:
            continue  # `X_Real_IP` and `X-Real-IP` are one name to many applications
        headers.append((name, value))
    host = _host(seen.get(b"host"), http11)
    options = _tokens(seen.get(b"connection"))
    upgrade = seen.get(b"upgrade")
    return RequestHead(
        method.decode("ascii"),
        target if target[0] == 0x2F and b"#" not in target else _target(method, target, host),
        http11,
        headers,
        _length(seen.get(b"content-length"), seen.get(b"transfer-encoding"), http11),
        b"close" not in options and (http11 or b"keep-alive" in options),
        b"expect" in seen and _expects_continue(seen[b"expect"], http11),
        upgrade is not None
        and http11
        and b"upgrade" in options
        and [value.lower() for value in upgrade] == [b"websocket"],
    )


def check_host(value: bytes) -> None:
    """Refuse a host (with port) that is empty or holds what no name or address holds."""
    if not _HOST.fullmatch(value):
        raise Refused(400, "an invalid Host")


def _bad_request_line(head: bytes, limits: ServerLimits) -> Refused:
    end = head.find(b"\r\n")
    if _VERSION.match(head):
        return Refused(505, "this HTTP version is not spoken here")
    if end > limits.max_url_bytes + _LONGEST_METHOD_AND_VERSION:
        return Refused(414, "the URL is too long")
    return Refused(400, "a malformed request line")


def _host(values: list[bytes] | None, http11: bool) -> bytes:
    # RFC 9112 3.2: exactly one on HTTP/1.1
    if values is None:
        if http11:
            raise Refused(400, "no Host")
        return b""
    if len(values) != 1:
        raise Refused(400, "more than one Host")
    check_host(values[0])
    return values[0]


def _length(lengths: list[bytes] | None, codings: list[bytes] | None, http11: bool) -> int:
    # RFC 9112 6.1 and 6.3, without their leniencies
    if codings is not None:
        if lengths is not None:
            raise Refused(400, "both Content-Length and Transfer-Encoding")
        if not http11:
            raise Refused(400, "Transfer-Encoding on HTTP/1.0")
        if len(codings) != 1 or codings[0].lower() != b"chunked":
            raise Refused(400, "a Transfer-Encoding other than chunked")
        return CHUNKED
    if lengths is None:
        return 0
    if len(lengths) != 1:
        raise Refused(400, "more than one Content-Length")
    if not _LENGTH.fullmatch(lengths[0]):
        raise Refused(400, "an invalid Content-Length")
    return int(lengths[0])


def _tokens(values: list[bytes] | None) -> frozenset[bytes]:
    if values is None:
        return frozenset()
    return frozenset(token.strip(b" \t").lower() for value in values for token in value.split(b","))


def _expects_continue(values: list[bytes], http11: bool) -> bool:
    # RFC 9110 10.1.1: 417 for what is not understood; HTTP/1.0 cannot expect
    if len(values) != 1 or values[0].lower() != b"100-continue":
        raise Refused(417, "an expectation that is not known")
    return http11


def _target(method: bytes, target: bytes, host: bytes) -> bytes:
    """Give the origin-form of any other target that has exactly one reading (RFC 9112 3.2)."""
    if method == b"CONNECT":
        raise Refused(405, "this is not a forward proxy")
    if target == b"*" and method == b"OPTIONS":
        return target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise Refused(400, "a malformed request target")
    scheme, authority, rest = absolute.groups()
    if not host or _named(authority, scheme) != _named(host, scheme):
        raise Refused(400, "the request target names another host than Host")
    return bytes(rest) if rest.startswith(b"/") else b"/" + bytes(rest)


def _named(authority: bytes, scheme: bytes) -> bytes:
    port = b":443" if scheme.lower() == b"https" else b":80"
    return authority.lower().removesuffix(port)
