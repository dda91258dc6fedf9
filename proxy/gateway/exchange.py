"""The facts of one request, read once from the ASGI scope. Pure.

What the stages of `decide` look at, and nothing that has to be awaited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Headers = list[tuple[bytes, bytes]]
SAFE_METHODS = frozenset({"GET", "HEAD"})

_WANTED = frozenset(
    {
        b"host",
        b"cookie",
        b"accept",
        b"accept-language",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
        b"origin",
        b"access-control-request-method",
        b"authorization",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
    }
)


@dataclass(slots=True, eq=False)
class Exchange:
    """One request: what was asked, of whom, by whom."""

    method: str
    path: bytes  # as sent, without the query
    query: bytes  # as sent, without `?`
    target: bytes  # as sent
    scheme: str  # http | https: how the visitor came, a trusted proxy's word included
    host: str  # normal form; "" when the request names none
    authority: bytes  # Host as sent
    client: str  # the visitor's address
    client_key: str  # IPv4 address or IPv6 /64: what limits count
    network: str  # /24 or /48: what a pass may be bound to
    peer_trusted: bool
    found: dict[bytes, bytes]  # the headers that stages look at; repeated ones joined by ", "
    is_websocket: bool = False
    request_id: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether the method may be redirected and repeated (GET, HEAD)."""
        return self.method in SAFE_METHODS

    @property
    def is_preflight(self) -> bool:
        """Whether this is a CORS preflight (Fetch standard, CORS-preflight request)."""
        return (
            self.method == "OPTIONS"
            and b"origin" in self.found
            and b"access-control-request-method" in self.found
        )

    @property
    def is_navigation(self) -> bool:
        """Whether a person will see the answer as a page (design §3 "Page or JSON")."""
        mode = self.found.get(b"sec-fetch-mode")
        if mode is not None:
            return mode == b"navigate"
        return b"text/html" in self.found.get(b"accept", b"").lower()

    @property
    def base_url(self) -> str:
        """Scheme and authority, for absolute redirects to the same host."""
        return f"{self.scheme}://{self.authority.decode('latin-1')}"

    def cookies(self, name: bytes) -> Iterator[bytes]:
        """Give every value sent under a name: an old path or domain may leave a stale twin."""
        jar = self.found.get(b"cookie")
        if jar is None:
            return
        start = jar.find(name + b"=")
        while start >= 0:
            if start == 0 or jar[start - 1] in b"; ":
                begin = start + len(name) + 1
                end = jar.find(b";", begin)
                yield jar[begin : end if end >= 0 else len(jar)].strip()
            start = jar.find(name + b"=", start + 1)


def wanted_headers(headers: Headers) -> dict[bytes, bytes]:
    """Pick the headers that stages look at; repeated ones are joined as RFC 9110 5.3 allows
    (cookies by "; ", RFC 9113 8.2.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _WANTED:
            if name in found:
                value = found[name] + (b"; " if name == b"cookie" else b", ") + value
            found[name] = value
    return found


def raw_target(scope: dict[str, Any]) -> bytes:
    """Give the request target as it was sent, as well as the server lets us know it."""
    extension = scope.get("extensions", {}).get("corvus.server")
    if extension is not None:
        target: bytes = extension["target"]
        return target
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string", b"")
    return path + b"?" + query if query else path
