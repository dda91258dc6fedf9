"""What a gateway process holds: store, configuration in force, rooms, origin connections.

Made lazily by the first request, on the running loop (Daphne knows no lifespan). Takes the
configuration from the store and keeps a copy in the data folder, so that it starts and serves with
the store and the database down (design §2).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from proxy.gateway.breaker import Breaker
from proxy.gateway.endpoints import Operations
from proxy.gateway.figures import machine_figures, process_figures, room_figures
from proxy.gateway.leases import Leases
from proxy.gateway.live import LiveRoom, StoreClock
from proxy.gateway.machines import Machines
from proxy.gateway.plan import Plan, compile_plan
from proxy.gateway.pools import Pools
from proxy.gateway.rooms import Rooms
from proxy.gateway.running import Running
from proxy.gateway.sessions import SessionsSeen
from proxy.gateway.snapshot import (
    SNAPSHOT_KEY,
    VERSION_KEY,
    Snapshot,
    SnapshotError,
    load,
    page_digests,
    pages_key,
)
from proxy.gateway.ticker import Ticker
from proxy.gateway.upstream import UpstreamClient
from queueing.config import RoomId
from queueing.connection import Connection
from queueing.pages import BundleError, PageBundle
from queueing.passes import Keyring
from queueing.store import RoomStore, StoreError

log = structlog.get_logger("corvus.gateway")

LOOK_S = 0.25
LOOKS_A_SECOND = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayEnvironment:
    """What a gateway process is told when it starts; everything else comes with the snapshot."""

    store_url: str
    secret: bytes
    data_dir: Path | None  # None: nothing is written
    machine_dir: Path
    admin_token: str = ""
    promote_secret: str = ""  # authenticates a payment flow that lets visitors skip the line
    stripe_secret: str = ""  # of Stripe's webhook


@dataclass(frozen=True, slots=True, eq=False)
class InForce:
    """One configuration with everything made from it; swapped whole."""

    plan: Plan
    rooms: Rooms


@dataclass(slots=True, eq=False)
class Resources:
    """The state of one gateway process."""

    environment: GatewayEnvironment
    connection: Connection
    store: RoomStore
    breaker: Breaker
    clock: StoreClock
    running: Running
    leases: Leases
    upstream: UpstreamClient
    sessions: SessionsSeen
    pools: Pools
    machines: Machines
    live: dict[RoomId, LiveRoom] = field(default_factory=dict)
    in_force: InForce | None = None
    counters: Counter[str] = field(default_factory=Counter)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    is_published: bool = False  # the store held a configuration at the last look
    problem: str = "no configuration has been published yet"

    def operations(self) -> Operations:
        """Give what the gateway's own endpoints can tell."""
        return Operations(
            admin_token=self.environment.admin_token,
            readiness=self.readiness,
            stats=self.stats,
            promote_secret=self.environment.promote_secret,
            stripe_secret=self.environment.stripe_secret,
        )

    def readiness(self) -> dict[str, str]:
        """Name each part that is not ready, with what is wrong."""
        wrong = {}
        if self.in_force is None:
            wrong["configuration"] = self.problem
        if self.breaker.is_open:
            wrong["store"] = "the store cannot be reached; valid passes are served meanwhile"
        if any(room.counters["cookies_broken"] for room in self.live.values()):
            wrong["cookies"] = (
                "visitors' browsers cannot keep the cookie: CORVUS_SECURE_COOKIE is set and they"
                " come by plain HTTP, or CORVUS_COOKIE_DOMAIN or CORVUS_COOKIE_PATH is not theirs"
            )
        return wrong

    def stats(self) -> dict[str, Any]:
        """Count what this process did, what its machine has in use, and what each room holds."""
        figures: dict[str, Any] = {
            "version": self.in_force.plan.snapshot.version if self.in_force else None,
            "requests": dict(self.counters),
            "running": len(self.running),
            "outages": self.breaker.outages,
            "process": process_figures(self.counters, self.live.values()),
            "rooms": {room.id: room_figures(room) for room in self.live.values()},
        }
        if self.in_force is not None:
            settings = self.in_force.plan.snapshot.settings
            figures["machine"] = machine_figures(settings, self.pools, self.machines.count)
        return figures

    async def close(self) -> None:
        """Stop the tasks and close every connection."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.running.finish()
        self.pools.close()
        await self.upstream.close()
        await self.connection.close()


async def open_resources(environment: GatewayEnvironment) -> Resources:
    """Make a process's resources on the running loop and start its tasks."""
    connection = Connection(environment.store_url)
    store = RoomStore(connection)
    breaker = Breaker(environment.machine_dir)
    clock = StoreClock()
    running = Running()
    leases = Leases(store, running)
    resources = Resources(
        environment=environment,
        connection=connection,
        store=store,
        breaker=breaker,
        clock=clock,
        running=running,
        leases=leases,
        upstream=UpstreamClient(),
        sessions=SessionsSeen(connection, environment.secret),
        pools=Pools(environment.machine_dir),
        machines=Machines(connection, environment.machine_dir),
    )
    await _first_configuration(resources)
    ticker = Ticker(store, breaker, clock, running, leases, lambda: resources.is_published)
    resources.tasks = [
        asyncio.create_task(ticker.run(resources.live), name="ticker"),
        asyncio.create_task(leases.watch(resources.live), name="leases"),
        asyncio.create_task(_follow(resources), name="configuration"),
    ]
    return resources


async def _first_configuration(resources: Resources) -> None:
    """Take the configuration from the store, else from the copy in the data folder."""
    try:
        await _take_from_store(resources)
    except StoreError as error:
        log.warning("no configuration from the store", error=str(error))
    if resources.in_force is None:
        _take_from_folder(resources)


async def _follow(resources: Resources) -> None:
    """Take each newer configuration within a second of its publication; once a second, look at
    what only changes slowly."""
    for look in itertools.count():
        await asyncio.sleep(LOOK_S)
        if resources.breaker.is_open:
            continue
        try:
            await _take_from_store(resources)
            await resources.sessions.write()
            if look % LOOKS_A_SECOND == 0:
                await _look_around(resources)
        except StoreError:
            continue  # the ticker reports it and trips the breaker
        except Exception:
            log.exception("configuration not looked at")  # the next one may be right


async def _look_around(resources: Resources) -> None:
    """Tell that this machine lives, and learn what all gateways have counted in each room."""

    async def learn(room: LiveRoom) -> None:
        room.totals = (await resources.store.stats(room.id)).totals

    await asyncio.gather(resources.machines.beat(), *map(learn, resources.live.values()))


async def _take_from_store(resources: Resources) -> None:
    call = resources.connection.call
    version = await call("GET", VERSION_KEY, repeatable=True)
    current = resources.in_force.plan.snapshot.version if resources.in_force else -1
    resources.is_published = isinstance(version, bytes)
    if version == b"%d" % current or not isinstance(version, bytes):
        return
    raw = await call("GET", SNAPSHOT_KEY, repeatable=True)
    if not isinstance(raw, bytes):
        return
    try:
        snapshot = load(raw)
        if snapshot.version == current:
            return
        pages = {}
        for digest in page_digests(snapshot):
            content = await call("GET", pages_key(digest), repeatable=True)
            if not isinstance(content, bytes):
                raise SnapshotError(f"the page bundle {digest} is missing")
            pages[digest] = content
        _put_in_force(resources, snapshot, pages)
    except (SnapshotError, BundleError, ValueError) as error:
        _refuse(resources, str(error))
        return
    _keep_copy(resources, raw, pages)


def _take_from_folder(resources: Resources) -> None:
    folder = resources.environment.data_dir
    if folder is None or not (folder / "snapshot.json").exists():
        return
    try:
        snapshot = load((folder / "snapshot.json").read_bytes())
        pages = {
            digest: _pages_file(folder, digest).read_bytes() for digest in page_digests(snapshot)
        }
        _put_in_force(resources, snapshot, pages)
        log.warning("started from the kept configuration", version=snapshot.version)
    except (OSError, SnapshotError, BundleError, ValueError) as error:
        _refuse(resources, str(error))


def _refuse(resources: Resources, reason: str) -> None:
    if resources.problem != reason:
        log.error("configuration refused; the old one stays", reason=reason)
    resources.problem = reason


def _put_in_force(resources: Resources, snapshot: Snapshot, pages: dict[str, bytes]) -> None:
    plan = compile_plan(snapshot)
    bundle = PageBundle.load(pages[snapshot.pages])
    own_pages = {
        room.id: bundle.with_template(json.loads(pages[room.page]))
        for room in snapshot.rooms.values()
        if room.page
    }
    for room in snapshot.rooms.values():
        known = resources.live.get(room.id)
        if known is None:
            resources.live[room.id] = LiveRoom(room)
        else:
            known.take_config(room)
    for gone in resources.live.keys() - snapshot.rooms.keys():
        del resources.live[gone]
    resources.in_force = InForce(
        plan,
        Rooms(
            settings=snapshot.settings,
            keys=Keyring(resources.environment.secret, snapshot.key_generation),
            pages=bundle,
            own_pages=own_pages,
            store=resources.store,
            free=resources.leases.free,
            breaker=resources.breaker,
            clock=resources.clock,
            sessions=resources.sessions,
        ),
    )
    log.info("configuration in force", version=snapshot.version)


def _keep_copy(resources: Resources, raw: bytes, pages: dict[str, bytes]) -> None:
    folder = resources.environment.data_dir
    if folder is None:
        return
    try:
        kept = {_pages_file(folder, digest): content for digest, content in pages.items()}
        for path, content in kept.items():
            _write(path, content)
        _write(folder / "snapshot.json", raw)
        for path in set(folder.glob("pages-*.json")) - kept.keys():
            path.unlink(missing_ok=True)
    except OSError as error:
        log.error("cannot keep a copy of the configuration", error=str(error))


def _pages_file(folder: Path, digest: str) -> Path:
    return folder / f"pages-{digest}.json"


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step; several processes may do so at the same time."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
        file.write(content)
    draft.replace(path)
