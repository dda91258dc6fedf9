"""The facts of one request, read once from the ASGI scope. Pure.

What the stages of `decide` look at, and nothing that has to be awaited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from abuse.addresses import Client, ClientFinder
from proxy.gateway.paths import BadHost, normal_host

Headers = list[tuple[bytes, bytes]]
SAFE_METHODS = frozenset({"GET", "HEAD"})
_PAGE_DESTINATIONS = (b"document", b"iframe", b"frame")  # not `object`, `embed`, …

_WANTED = frozenset(
    {
        b"host",
        b"cookie",
        b"accept",
        b"accept-language",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
        b"sec-fetch-site",
        b"origin",
        b"access-control-request-method",
        b"authorization",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-forwarded-host",
        b"referer",
    }
)


@dataclass(slots=True, eq=False)
class Exchange:
    """One request: what was asked, of whom, by whom."""

    method: str
    path: bytes  # as sent, without the query
    query: bytes  # as sent, without `?`
    target: bytes  # as sent
    scheme: str  # http | https: how the visitor came, by a trusted proxy's word too
    peer_scheme: str  # http | https: how the connection came to us
    host: str  # Host in its normal form; "" when it is none
    client: Client
    found: dict[bytes, bytes]  # the headers that stages look at; repeated ones joined
    is_websocket: bool
    request_id: str
    family: str = "h1"  # "h1" | "h2": the client's protocol; "h2" is HTTP/2 and later

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
        mode, dest = self.found.get(b"sec-fetch-mode"), self.found.get(b"sec-fetch-dest")
        if mode is None and dest is None:
            return b"text/html" in self.found.get(b"accept", b"").lower()
        return mode in (None, b"navigate") and dest in (None, *_PAGE_DESTINATIONS)

    @property
    def authority(self) -> bytes:
        """The host, perhaps with a port, in the visitor's address bar: as `Host` says, unless a
        trusted proxy wrote its own name there and tells the visitor's beside it."""
        said = self.found.get(b"x-forwarded-host") if self.client.peer_trusted else None
        if said is not None:
            said = said.rpartition(b",")[2].strip()
            if _host(said) not in ("", self.host):
                return said
        return self.found.get(b"host", b"")

    @property
    def visited_host(self) -> str:
        """The normal form of `authority`; "" when it is none."""
        return _host(self.authority)

    @property
    def base_url(self) -> str:
        """Scheme and authority, for absolute redirects to the same host; "" where there is none."""
        return f"{self.scheme}://{self.authority.decode('latin-1')}" if self.visited_host else ""

    def cookies(self, name: bytes) -> Iterator[bytes]:
        """Give every value sent under a name: an old path or domain may leave a stale twin."""
        jar = self.found.get(b"cookie")
        if jar is None or name not in jar:
            return
        mark = name + b"="
        start = jar.find(mark)
        while start >= 0:
            if start == 0 or jar[start - 1] in b"; ":
                begin = start + len(mark)
                end = jar.find(b";", begin)
                yield jar[begin : end if end >= 0 else len(jar)].strip()
            start = jar.find(mark, start + 1)


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


def read_exchange(
    scope: dict[str, Any], clients: ClientFinder, request_id: str, *, proto_header: bytes = b""
) -> Exchange:
    """Read the facts of an HTTP or WebSocket scope.

    `proto_header` names, in lower case, the header in which a trusted proxy tells the client's
    protocol; empty = the connection's own counts.
    """
    found = wanted_headers(scope["headers"])
    peer = scope.get("client")
    chain = found.get(b"x-forwarded-for")
    client = clients.find(peer[0] if peer else None, (chain,) if chain else ())
    peer_scheme = "https" if scope.get("scheme") in ("https", "wss") else "http"
    target = raw_target(scope)
    path, _, query = target.partition(b"?")
    return Exchange(
        method=scope.get("method", "GET"),
        path=path,
        query=query,
        target=target,
        scheme=_visitor_scheme(client, found, peer_scheme),
        peer_scheme=peer_scheme,
        host=_host(found.get(b"host", b"")),
        client=client,
        found=found,
        is_websocket=scope["type"] == "websocket",
        request_id=request_id,
        family=_family(scope, client, proto_header),
    )


def _family(scope: dict[str, Any], client: Client, proto_header: bytes) -> str:
    """Tell the client's protocol; anybody else than a trusted proxy could claim HTTP/2 to get the
    larger asset pool, so the header is read from trusted peers only."""
    if proto_header and client.peer_trusted:
        said = [value for name, value in scope["headers"] if name == proto_header]
        # The last line, and in it the last word, was written by the proxy that we trust.
        version = said[-1].rpartition(b",")[2].strip().upper() if said else b""
        if version.startswith((b"HTTP/2", b"HTTP/3")):
            return "h2"
        if version.startswith(b"HTTP/1"):
            return "h1"
    return "h1" if scope.get("http_version", "1.1").startswith("1") else "h2"


def _host(authority: bytes) -> str:
    try:
        return normal_host(authority)
    except BadHost:
        return ""


def _visitor_scheme(client: Client, found: dict[bytes, bytes], peer_scheme: str) -> str:
    said = found.get(b"x-forwarded-proto") if client.peer_trusted else None
    if said is None:
        return peer_scheme
    # A chain of proxies may list several; the last was written by the one that we trust.
    return "https" if said.rpartition(b",")[2].strip().lower() in (b"https", b"wss") else "http"
