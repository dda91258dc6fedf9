"""Who the client is: the address behind trusted proxies, and the keys under which it is counted.

Pure. Nothing from outside the trusted networks is believed (GW-12, GW-13, GW-15, WR-38).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

MAX_HOPS = 64
"""Hops read of a chain; a longer one ends there as a malformed hop would."""

UNKNOWN = "unknown"
"""The address where the server gave none (a Unix socket): one client, never trusted."""


@dataclass(frozen=True, slots=True)
class Client:
    """The visitor of one request, as far as the trusted proxies know."""

    address: str  # normal form; IPv4-mapped IPv6 as IPv4
    client_key: str  # the IPv4 address or the IPv6 /64: what limits and bans count
    network_key: str  # /24 or /48: what a pass may be bound to
    peer: str  # of the connection, in normal form
    peer_trusted: bool  # what the peer says of the visitor may be kept
    is_proxy: bool
    """The visitor is a trusted proxy itself, by an unbroken chain; only then may that exempt it."""


class TrustedNetworks:
    """Networks whose word on the visitor's address counts; parsed once."""

    __slots__ = ("_v4", "_v6")

    def __init__(self, networks: Iterable[str]) -> None:
        """Read addresses and CIDR networks; a bare address is a network of one.

        Raises:
            ValueError: an entry that is neither; the message names it.
        """
        found: dict[int, dict[int, set[int]]] = {4: {}, 6: {}}
        for text in networks:
            try:
                network = ip_network(text.strip(), strict=False)
            except ValueError:
                raise ValueError(
                    f"“{text}” is not allowed: use an address or a network such as 10.0.0.0/8"
                ) from None
            first, prefix, version = (
                int(network.network_address),
                network.prefixlen,
                network.version,
            )
            mapped = _MAPPED_FIRST <= first <= _MAPPED_LAST and version == 6 and prefix >= 96
            if mapped:
                first, prefix, version = first - _MAPPED_FIRST, prefix - 96, 4
            shift = (32 if version == 4 else 128) - prefix
            found[version].setdefault(shift, set()).add(first >> shift)
        self._v4 = tuple((shift, frozenset(firsts)) for shift, firsts in found[4].items())
        self._v6 = tuple((shift, frozenset(firsts)) for shift, firsts in found[6].items())

    def __contains__(self, address: IPv4Address | IPv6Address) -> bool:
        """Say whether an unmapped address lies in one of the networks."""
        number = int(address)
        networks = self._v4 if address.version == 4 else self._v6
        return any(number >> shift in firsts for shift, firsts in networks)


_MAPPED_FIRST = 0xFFFF_0000_0000
_MAPPED_LAST = 0xFFFF_FFFF_FFFF
_KEPT = 65_536


class ClientFinder:
    """Finds the client of a request; remembers the answers for addresses seen before."""

    __slots__ = ("_seen", "_trusted")

    def __init__(self, trusted: TrustedNetworks) -> None:
        self._trusted = trusted
        self._seen: dict[str, Client] = {}

    def find(self, peer: str | None, forwarded_for: Sequence[bytes] = ()) -> Client:
        """Give the client of a connection from `peer` with these `X-Forwarded-For` lines.

        From right to left, the first hop that is not trusted is the client. A malformed hop ends
        the search at the last good one, which is then nobody's exemption.
        """
        known = self._seen.get(peer or UNKNOWN)
        if known is not None and (not known.peer_trusted or not forwarded_for):
            return known
        address = parse_hop(peer or "")
        trusted = address is not None and address in self._trusted
        if address is None or not trusted or not forwarded_for:
            client = _client(address, address, trusted=trusted, is_proxy=trusted)
            if len(self._seen) >= _KEPT:
                self._seen.clear()
            self._seen[peer or UNKNOWN] = client
            return client
        found, is_proxy = self._walk(address, forwarded_for)
        return _client(found, address, trusted=True, is_proxy=is_proxy)

    def _walk(
        self, peer: IPv4Address | IPv6Address, lines: Sequence[bytes]
    ) -> tuple[IPv4Address | IPv6Address, bool]:
        found = peer
        left = MAX_HOPS
        for line in reversed(lines):
            for raw in reversed(line.split(b",")):
                text = raw.decode("latin-1").strip(" \t")
                if not text:
                    continue  # an empty element says nothing (RFC 9110 5.6.1.2)
                hop = parse_hop(text)
                left -= 1
                if hop is None or left < 0:
                    return found, False
                found = hop
                if hop not in self._trusted:
                    return found, False
        return found, True


@lru_cache(maxsize=65_536)
def parse_hop(text: str) -> IPv4Address | IPv6Address | None:
    """Read one hop: an address, also with port, brackets, quotes or zone; else None."""
    if len(text) > 64:
        return None
    text = text.strip('" \t')
    port = ""
    if text.startswith("["):
        text, mark, port = text[1:].partition("]")
        if not mark or (port and not port.startswith(":")) or ":" not in text:
            return None
        port = port[1:]
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not port:
            return None
    if port and not (port.isascii() and port.isdigit() and int(port) < 65_536):
        return None
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def client_key(address: IPv4Address | IPv6Address) -> str:
    """Give the key under which a client is counted: the IPv4 address or the IPv6 /64."""
    return str(address) if address.version == 4 else _network(address, 64)


def network_key(address: IPv4Address | IPv6Address) -> str:
    """Give the network to which a pass may be bound: IPv4 /24, IPv6 /48."""
    return _network(address, 24 if address.version == 4 else 48)


def _network(address: IPv4Address | IPv6Address, prefix: int) -> str:
    return str(ip_network((address, prefix), strict=False))


@lru_cache(maxsize=16_384)
def _client(
    address: IPv4Address | IPv6Address | None,
    peer: IPv4Address | IPv6Address | None,
    *,
    trusted: bool,
    is_proxy: bool,
) -> Client:
    if address is None or peer is None:
        return Client(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, peer_trusted=False, is_proxy=False)
    return Client(
        address=str(address),
        client_key=client_key(address),
        network_key=network_key(address),
        peer=str(peer),
        peer_trusted=trusted,
        is_proxy=is_proxy,
    )
