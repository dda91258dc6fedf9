"""A snapshot compiled for look-ups: host tables, path rules, origins, trusted networks. Pure.

Built once when a snapshot arrives; immutable from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

from abuse.addresses import ClientFinder, TrustedNetworks
from proxy.gateway.paths import PathSet, Territory
from proxy.gateway.snapshot import GatewaySettings, Host, Snapshot
from proxy.gateway.tiers import LISTS, Tiers
from proxy.gateway.upstream_messages import Origin, parse_origin
from queueing.config import RoomId


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One proxy host, ready to be asked."""

    host: Host
    origin: Origin
    tiers: Tiers
    rooms: Territory[RoomId]
    return_paths: PathSet  # where another site sends the visitor back by a form (WR-47)
    allowed_origins: frozenset[bytes]  # as `Origin` says it: scheme://host[:port] (WR-50)
    insensitive: bool

    @property
    def origin_host(self) -> bytes | None:
        """What replaces the visitor's Host; None = it is kept."""
        return None if self.host.preserve_host else self.origin.authority


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A whole configuration, ready to be asked."""

    snapshot: Snapshot
    clients: ClientFinder
    exact: dict[str, Site]
    catch_all: Site | None
    proto_header: bytes = b""  # lower case; see `exchange.read_exchange`

    def site(self, name: str) -> Site | None:
        """Find the proxy host for a host name in normal form; exact beats wildcard (GW-21)."""
        found = self.exact.get(name)
        if found is not None:
            return found
        rest = name.partition(".")[2]
        return self.exact.get(f"*.{rest}", self.catch_all) if rest else self.catch_all


def compile_plan(snapshot: Snapshot) -> Plan:
    """Compile a snapshot.

    Raises:
        ValueError: an origin, path rule or network in it is none.
    """
    exact: dict[str, Site] = {}
    for host in snapshot.hosts:
        site = compile_site(host, snapshot.settings)
        exact.update(dict.fromkeys(host.names, site))
    return Plan(
        snapshot=snapshot,
        clients=ClientFinder(TrustedNetworks(snapshot.settings.trusted_proxies)),
        exact=exact,
        catch_all=exact.pop("*", None),
        proto_header=snapshot.settings.client_proto_header.lower().encode(),
    )


def compile_site(host: Host, settings: GatewaySettings) -> Site:
    """Compile one host.

    Raises:
        ValueError: its origin or a path rule is none.
    """
    insensitive = host.path_case == "insensitive"
    return Site(
        host=host,
        origin=parse_origin(
            host.origin,
            verify=host.verify_origin,
            connect_timeout_s=settings.connect_timeout_s,
            response_timeout_s=settings.upstream_timeout_s,
        ),
        tiers=Tiers({name: getattr(host, name) for name in LISTS}, insensitive=insensitive),
        rooms=Territory(((r.path, r.room) for r in host.rooms), insensitive=insensitive),
        return_paths=PathSet(host.return_paths, insensitive=insensitive),
        allowed_origins=frozenset(origin.encode() for origin in host.allowed_origins),
        insensitive=insensitive,
    )
