"""The configuration as the gateway sees it: immutable, versioned, swapped whole (design §2).

Pure. `proxy.compile` writes the document, this module reads it. A document that does not fit raises
`SnapshotError`; the gateway then keeps the one that it has.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from proxy.gateway.conflicts import LABELS, faults
from queueing.config import RoomConfig, RoomId, problems

SCHEMA = 1

VERSION_KEY = "corvus:config:version"
SNAPSHOT_KEY = "corvus:config:snapshot"


def pages_key(digest: str) -> str:
    """Name the store key of a page bundle."""
    return f"corvus:config:pages:{digest}"


class SnapshotError(ValueError):
    """The document cannot be used; the message names the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The settings that take effect in a running gateway without restart; durations in seconds."""

    trusted_proxies: tuple[str, ...] = ("127.0.0.1/32", "::1/128")
    cookie_path: str = "/"
    cookie_domain: str = ""
    secure_cookie: bool = False  # True: always Secure; False: Secure when the visitor came by HTTPS
    retry_after_s: int = 5
    api_json: bool = True
    access_log: bool = True
    debug_decisions: bool = False
    upstream_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    preflight_per_second: int = 50  # CORS preflights let through while a room is full, per process
    default_language: str = "en"
    asset_cap: int = 434 * 128  # asset requests at once, all machines together
    asset_wait_s: float = 2.0
    asset_user_cap_h1: int = 8  # requests at once of one pass over HTTP/1.x
    asset_user_cap_h2: int = 128  # the same over HTTP/2 and HTTP/3
    asset_user_wait_s: float = 2.0
    stream_cap: int = 1_000  # streams open at once, all machines together
    client_proto_header: str = ""  # header of a trusted proxy that tells the client's protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomRule:
    """Which paths of a host a room governs: `/x/*` (also `/x`) or an exact path."""

    path: str
    room: RoomId


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One proxy host: names, origin, and what protects it."""

    id: int
    names: tuple[str, ...]  # lower-case A-labels without trailing dot; `*` = every other name
    origin: str  # `http://host:port` or `https://host:port`, without a path
    preserve_host: bool = True
    verify_origin: bool = True
    path_case: str = "sensitive"  # or "insensitive": how the origin reads paths
    bypass: tuple[str, ...] = ("/favicon.ico", "/robots.txt", "/.well-known/acme-challenge/*")
    assets: tuple[str, ...] = ()  # served to who has a pass; never wait in line
    public_assets: tuple[str, ...] = ()  # served to everybody, under the global asset cap
    streams: tuple[str, ...] = ()  # WebSockets and event streams, outside the page slots
    ban_paths: tuple[str, ...] = ()  # nobody who means well asks for these
    return_paths: tuple[str, ...] = ()  # another site posts the visitor back here (WR-47)
    allowed_origins: tuple[str, ...] = ()  # sites whose scripts may read our answers (WR-50)
    rooms: tuple[RoomRule, ...] = ()
    session_cookie: str = ""  # the site's own session cookie; needed for "keep who is inside now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One whole configuration."""

    version: int = 0
    published_ms: int = 0
    key_generation: int = 1
    pages: str = ""  # digest of the page bundle, see `queueing.pages`
    settings: GatewaySettings = field(default_factory=GatewaySettings)
    hosts: tuple[Host, ...] = ()
    rooms: dict[RoomId, RoomConfig] = field(default_factory=dict)

    def dump(self) -> bytes:
        """Give the JSON document that is published."""
        document = asdict(self) | {
            "schema": SCHEMA,
            "rooms": [r.to_document() for r in self.rooms.values()],
        }
        return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def load(raw: bytes) -> Snapshot:
    """Read and check a published document.

    Raises:
        SnapshotError: as `parse`; or what it says cannot stand, such as a room rule without its
        room, or a path in two lists.
    """
    snapshot = parse(raw)
    _check(snapshot)
    return snapshot


def parse(raw: bytes) -> Snapshot:
    """Read a document without judging it: an older release may have allowed more.

    Raises:
        SnapshotError: not JSON, another schema, a missing part.
    """
    try:
        document: dict[str, Any] = json.loads(raw)
        if document.get("schema") != SCHEMA:
            raise SnapshotError(f"schema {document.get('schema')!r} is not {SCHEMA}")
        rooms = {RoomId(r["id"]): RoomConfig.from_document(r) for r in document["rooms"]}
        settings = _known(GatewaySettings, document["settings"])
        settings["trusted_proxies"] = tuple(settings["trusted_proxies"])
        return Snapshot(
            version=int(document["version"]),
            published_ms=int(document["published_ms"]),
            key_generation=int(document["key_generation"]),
            pages=document["pages"],
            settings=GatewaySettings(**settings),
            hosts=tuple(_host(h) for h in document["hosts"]),
            rooms=rooms,
        )
    except SnapshotError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"the document is not a snapshot: {error!r}") from error


def page_digests(snapshot: Snapshot) -> set[str]:
    """Name what must be fetched beside the document: the page bundle and operators' own pages."""
    return {snapshot.pages} | {room.page for room in snapshot.rooms.values() if room.page}


def _known(cls: type[GatewaySettings] | type[Host], values: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(cls)}
    return {k: v for k, v in values.items() if k in names}


_LISTS = frozenset(f.name for f in fields(Host) if f.type == "tuple[str, ...]")


def _host(document: dict[str, Any]) -> Host:
    values = _known(Host, document)
    for name in _LISTS & values.keys():
        values[name] = tuple(values[name])
    values["rooms"] = tuple(
        RoomRule(path=r["path"], room=RoomId(r["room"])) for r in values["rooms"]
    )
    return Host(**values)


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/*]+")


def _check_lists(host: Host) -> None:
    lists = {name: getattr(host, name) for name in LABELS}
    for fault in faults(lists, insensitive=host.path_case == "insensitive"):
        raise SnapshotError(f"host {host.id}: {fault.field}: {fault.message}")
    for origin in host.allowed_origins:
        if not _ORIGIN.fullmatch(origin):
            raise SnapshotError(f"host {host.id}: allowed_origins: “{origin}” is no origin")


def _check(snapshot: Snapshot) -> None:
    for room in snapshot.rooms.values():
        for problem in problems(room):
            raise SnapshotError(f"room {room.id}: {problem.field}: {problem.message}")
    owners: dict[str, int] = {}
    for host in snapshot.hosts:
        for name in host.names:
            if name in owners:
                raise SnapshotError(
                    f"host name {name} belongs to host {owners[name]} and to host {host.id}"
                )
            owners[name] = host.id
        _check_lists(host)
        for rule in host.rooms:
            if rule.room not in snapshot.rooms:
                raise SnapshotError(
                    f"host {host.id}: the rule {rule.path} names the unknown room {rule.room}"
                )
