"""Read an HTTP/2 request's header fields as strictly as an HTTP/1.1 head (RFC 9113 8.3).

Pure. `h2` has already refused what breaks the protocol itself: order and repetition of
pseudo-headers, upper-case names, connection-specific fields, a Host that is not `:authority`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from corvus_site.server.head import Headers, Refused, RequestHead, check_host
from corvus_site.server.limits import ServerLimits

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}")
_PATH = re.compile(rb"[/*][\x21\x22\x24-\x7e]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")


def parse_fields(fields: Iterable[tuple[bytes, bytes]], limits: ServerLimits) -> RequestHead:
    """Read decoded header fields, cookies already joined. Raises Refused."""
    pseudo: dict[bytes, bytes] = {}
    headers: Headers = []
    hosts: list[bytes] = []
    lengths: list[bytes] = []
    expects = False
    size = 0
    for raw_name, raw_value in fields:
        name, value = bytes(raw_name), bytes(raw_value)
        if name.startswith(b":"):
            pseudo[name] = value
            continue
        size += len(name) + len(value) + 4  # as if with `: ` and CRLF
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Refused(400, "a malformed header")
        value = value.strip(b" \t")
        if name == b"host":
            hosts.append(value)
            continue
        if name == b"content-length":
            lengths.append(value)
        elif name == b"expect":
            expects = _expects_continue(value)
        elif b"_" in name:
            continue
        headers.append((name, value))
    if size > limits.max_header_bytes:
        raise Refused(431, "the header is too large")
    if len(headers) > limits.max_header_count:
        raise Refused(431, "too many headers")
    host = _host(pseudo.get(b":authority"), hosts)
    method, target = _method_and_target(pseudo, limits)
    return RequestHead(
        method.decode("ascii"),
        target,
        True,
        [(b"host", host), *headers],
        _length(lengths, limits),
        True,
        expects,
        False,
    )


def _method_and_target(pseudo: dict[bytes, bytes], limits: ServerLimits) -> tuple[bytes, bytes]:
    method = pseudo.get(b":method", b"")
    target = pseudo.get(b":path", b"")
    if method == b"CONNECT":
        raise Refused(405, "this is not a forward proxy")
    if not _METHOD.fullmatch(method):
        raise Refused(400, "a malformed method")
    if pseudo.get(b":scheme") not in (b"https", b"http"):
        raise Refused(400, "an unknown scheme")
    if len(target) > limits.max_url_bytes:
        raise Refused(414, "the URL is too long")
    asterisk = target == b"*" and method == b"OPTIONS"
    if not _PATH.fullmatch(target) or (target[:1] == b"*" and not asterisk):
        raise Refused(400, "a malformed request target")
    return method, target


def _host(authority: bytes | None, hosts: list[bytes]) -> bytes:
    names = ([] if authority is None else [authority]) + hosts
    if not names:
        raise Refused(400, "no Host")
    if len(hosts) > 1 or len(set(names)) > 1:
        raise Refused(400, "more than one Host")
    check_host(names[0])
    return names[0]


def _length(lengths: list[bytes], limits: ServerLimits) -> int:
    if not lengths:
        return 0
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise Refused(400, "an invalid Content-Length")
    if 0 < limits.max_body_bytes < int(lengths[0]):
        raise Refused(413, "the body is too large")
    return int(lengths[0])


def _expects_continue(value: bytes) -> bool:
    if value.lower() != b"100-continue":
        raise Refused(417, "an expectation that is not known")
    return True
