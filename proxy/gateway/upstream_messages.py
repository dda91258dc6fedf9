"""The plain data that passes between the gateway and its upstream client.

Pure: no I/O. Names and values of headers are bytes, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

Header = tuple[bytes, bytes]
Headers = list[Header]
OnInformational = Callable[[int, Headers], None]
"""Called with status and headers of each 1xx but 100 and 101, before the final answer."""


class BadHead(ValueError):
    """The request must not be forwarded (400): two readers could read it in two ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a host's requests go, and how long to wait there (seconds)."""

    scheme: str = "http"  # or "https"
    host: str  # name or address, IPv6 without brackets
    port: int
    verify: bool = True  # check the certificate against the system's authorities
    connect_timeout_s: float = 5.0  # name, connection, TLS, and a free place in the pool
    response_timeout_s: float = 30.0  # from the end of the request to the response headers

    @property
    def authority(self) -> bytes:
        """Give the `Host` value of this origin: without the port where the scheme implies it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = {"http": 80, "https": 443}[self.scheme]
        return (host if self.port == default else f"{host}:{self.port}").encode()


def parse_origin(
    url: str,
    *,
    verify: bool = True,
    connect_timeout_s: float = 5.0,
    response_timeout_s: float = 30.0,
) -> Origin:
    """Read `http://host:port` or `https://host:port`, as the snapshot holds it.

    Raises:
        ValueError: another scheme, no host, a port that is none, or a path.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"origin “{url}” is not allowed: use http://host:port or https://host:port"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"origin “{url}” is not allowed: it must end after the port")
    return Origin(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 80),
        verify=verify,
        connect_timeout_s=connect_timeout_s,
        response_timeout_s=response_timeout_s,
    )


_MEANT_TO_HAVE_A_BODY = frozenset({b"POST", b"PUT", b"PATCH"})  # RFC 9110 8.6: say 0 then


@dataclass(slots=True)
class RequestHead:
    """A request as the origin will see it; `headers.origin_head` makes it.

    The framing header is part of `headers`: `content_length` is the number in it (None: none was
    sent), `chunked` says that the body travels in chunks. With neither there is no body, unless
    it is `undeclared` (HTTP/2): then `declare()` settles it once the first part is known.
    """

    method: bytes
    target: bytes
    headers: Headers
    content_length: int | None = None
    chunked: bool = False
    undeclared: bool = False

    @property
    def may_have_body(self) -> bool:
        """Say whether a body follows the head, or may follow."""
        return self.chunked or self.undeclared or bool(self.content_length)

    def declare(self, first: bytes, *, more: bool) -> None:
        """Give an undeclared body the length that it has, or chunks where more is to come."""
        self.undeclared = False
        if more:
            self.chunked = True
            self.headers.append((b"transfer-encoding", b"chunked"))
        elif first or self.method in _MEANT_TO_HAVE_A_BODY:
            self.content_length = len(first)
            self.headers.append((b"content-length", b"%d" % len(first)))

    def encode(self) -> bytes:
        """Give the bytes on the wire.

        Raises:
            BadHead: a CR, LF or NUL inside a value would make other lines of it (RFC 9110 5.5).
        """
        lines = [b"%s %s HTTP/1.1" % (self.method, self.target)]
        lines += [name + b": " + value for name, value in self.headers]
        wire = b"\r\n".join(lines) + b"\r\n\r\n"
        breaks = len(lines) + 1
        if wire.count(b"\n") != breaks or wire.count(b"\r") != breaks or b"\0" in wire:
            raise BadHead("a header value holds a line break or NUL")
        return wire


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamLimits:
    """Bounds of one client, for each origin unless said otherwise."""

    max_connections: int = 2_000  # open at a time, upgraded ones included
    idle_s: float = 90.0  # a kept connection is closed after this
    response_head_bytes: int = 65_536
    informational: int = 32  # 1xx answers before the final one
    buffer_bytes: int = (
        65_536  # of a response body before the socket is paused; of a request likewise
    )
    dns_s: float = 30.0  # a name is asked again after this
