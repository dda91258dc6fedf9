"""What an origin is told about the visitor: `X-Forwarded-*`, `X-Real-IP` and `Forwarded`.

Pure. Whom to believe was decided before (`abuse.addresses`); the words are written here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.gateway.upstream_messages import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who sent a request, as the gateway judged it (see `abuse.addresses`)."""

    peer: str  # address of the connection
    client: str  # address of the visitor; the peer's own unless that is a trusted proxy
    trusted: bool  # the peer is a trusted proxy: what it says of the visitor is kept
    scheme: str  # "http" or "https": how the peer came to us


@lru_cache(maxsize=4_096)
def about_visitor(
    sender: Sender, chain: bytes, forwarded: bytes, proto: bytes | None, host: bytes
) -> Headers:
    """Write what the origin is told about the visitor (design §3; RFC 7239).

    A trusted proxy's own `Forwarded` is kept and continued; where it sent none, the hops are those
    of its `X-Forwarded-For`, so that both headers tell the same story.
    """
    peer = sender.peer.encode()
    scheme = sender.scheme.encode()
    hops = forwarded
    if not hops and chain:
        given = (hop.strip() for hop in chain.split(b","))
        hops = b", ".join(b"for=" + _node(hop) for hop in given if hop)
    own = b"for=%s;host=%s;proto=%s" % (_node(peer), _quoted(host), scheme)
    if not host:
        own = b"for=%s;proto=%s" % (_node(peer), scheme)
    lines: Headers = [
        (b"x-forwarded-for", chain + b", " + peer if chain else peer),
        (b"x-forwarded-proto", scheme if proto is None else proto),
        (b"x-forwarded-host", host),
        (b"x-real-ip", sender.client.encode()),
        (b"forwarded", hops + b", " + own if hops else own),
    ]
    return [line for line in lines if line[1]]


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


_NODE = re.compile(rb"[0-9.]+")


def _node(hop: bytes) -> bytes:
    """Give RFC 7239's form of an address: IPv6 in brackets; quoted unless plain IPv4."""
    if _NODE.fullmatch(hop):
        return hop
    if hop.count(b":") > 1 and not hop.startswith(b"["):
        hop = b"[" + hop + b"]"
    return _quoted(hop)
