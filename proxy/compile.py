"""From models and effective settings to the gateway's snapshot.

Reads only; `proxy.publishing` writes what this gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import replace

from proxy.effective import Effective
from proxy.gateway.snapshot import GatewaySettings, Host, RoomRule, Snapshot
from proxy.models import ProxyHost
from queueing import queries as rooms
from queueing.config import MAX_INT, RoomConfig, RoomId


def compile_snapshot(
    *,
    effective: Effective,
    key_generation: int,
    pages: str,
    own_pages: Collection[str] = (),
) -> Snapshot:
    """Give the whole configuration, not numbered yet.

    `pages` is the digest of the page bundle; a room whose own page is not among `own_pages` shows
    the built-in one.
    """
    hosts = ProxyHost.objects.prefetch_related("names", "bindings").order_by("id")
    configs = [c if c.page in own_pages else replace(c, page="") for c in rooms.room_configs()]
    return Snapshot(
        key_generation=key_generation,
        pages=pages,
        settings=_settings(effective, configs),
        hosts=tuple(host_document(host) for host in hosts),
        rooms={config.id: config for config in configs},
    )


def _settings(effective: Effective, rooms: Iterable[RoomConfig]) -> GatewaySettings:
    settings = GatewaySettings(**effective.gateway_fields())
    if settings.asset_cap:
        return settings
    # Everybody inside may load a page's assets at once; a gateway on hold still serves one person.
    people = max(1, sum(room.capacity for room in rooms))
    return replace(settings, asset_cap=min(MAX_INT, people * settings.asset_user_cap_h2))


def host_document(host: ProxyHost) -> Host:
    """Give a saved host as the gateway knows it."""
    return Host(
        id=host.pk,
        names=tuple(sorted(n.name for n in host.names.all())),
        origin=host.origin,
        preserve_host=host.preserve_host,
        verify_origin=host.verify_origin,
        path_case=host.path_case,
        bypass=tuple(host.bypass.split()),
        assets=tuple(host.assets.split()),
        public_assets=tuple(host.public_assets.split()),
        streams=tuple(host.streams.split()),
        ban_paths=tuple(host.ban_paths.split()),
        return_paths=tuple(host.return_paths.split()),
        allowed_origins=tuple(host.allowed_origins.split()),
        rooms=tuple(
            RoomRule(path=b.path, room=RoomId(b.room_id))
            for b in sorted(host.bindings.all(), key=lambda b: b.path)
        ),
        session_cookie=host.session_cookie,
    )


def fingerprint(snapshot: Snapshot) -> str:
    """Name a configuration by what it says, whatever its number and time (WR-65)."""
    plain = replace(snapshot, version=0, published_ms=0)
    return hashlib.sha256(plain.dump()).hexdigest()
