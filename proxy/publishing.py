"""Publishing: one whole, validated configuration into database and store.

The version's row is written in the transaction of the change that it is about; once that is
committed it goes to the store. A store that is down leaves the row undelivered, and
`keep_published` tries again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import Any

import redis
import structlog
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from proxy import queries, store
from proxy.compile import compile_snapshot, fingerprint
from proxy.gateway.snapshot import Snapshot, SnapshotError, load, page_digests, parse
from proxy.models import ConfigVersion, PageBundle
from queueing.page_builder import build_bundle
from queueing.page_check import compile_template
from queueing.queries import own_pages, room_configs, room_store, store_client
from queueing.services import raise_version
from queueing.store import StoreError

_log = structlog.get_logger("corvus.publish")

STORE_ERRORS = (redis.RedisError, StoreError, OSError)


def publish(*, author: str, note: str = "") -> ConfigVersion:
    """Compile, validate and publish what the database says now; gives the version in force.

    The same configuration as the newest version makes no new one (WR-65).

    Raises:
        ValidationError: it cannot be used; the old one stays in force.
    """
    with transaction.atomic():
        _lock_versions()
        newest = queries.newest_version()
        snapshot = _validated(_compile())
        digest = fingerprint(snapshot)
        if newest is not None and newest.digest == digest:
            version = newest
        else:
            version = _record(snapshot, (newest.number if newest else 0) + 1, author, note)
        transaction.on_commit(lambda: _deliver_softly(version))
    return version


def _lock_versions() -> None:
    """Let one transaction at a time number a version; who waited then sees the newest."""
    ConfigVersion.objects.select_for_update().order_by("-number").first()


def _compile() -> Snapshot:
    return compile_snapshot(
        effective=queries.effective(),
        key_generation=queries.key_generation(),
        pages=_keep_bundle(),
        own_pages=_keep_own_pages(),
    )


def _validated(snapshot: Snapshot) -> Snapshot:
    try:
        return load(snapshot.dump())
    except SnapshotError as error:
        raise ValidationError(f"The configuration cannot be published: {error}.") from None


@cache
def _built() -> bytes:
    """Build the pages once a process: their sources are part of the release."""
    return build_bundle()


def _keep_bundle() -> str:
    """Keep this release's page bundle; give its digest, which changes only when a page does."""
    content = _built()
    digest = hashlib.sha256(content).hexdigest()[:16]
    PageBundle.objects.get_or_create(digest=digest, defaults={"content": content})
    return digest


def _keep_own_pages() -> frozenset[str]:
    """Keep the operators' own pages in their compiled form; give the digests of those of use."""
    usable: set[str] = set()
    for digest, html in own_pages().items():
        try:
            compiled = json.dumps(compile_template(html), ensure_ascii=False).encode()
        except ValueError as error:  # checked on upload; an older release checked less
            _log.error("own waiting page is not used", page=digest, error=str(error))
            continue
        PageBundle.objects.update_or_create(digest=digest, defaults={"content": compiled})
        usable.add(digest)
    return frozenset(usable)


def _record(snapshot: Snapshot, number: int, author: str, note: str) -> ConfigVersion:
    now = timezone.now()
    numbered = replace(snapshot, version=number, published_ms=int(now.timestamp() * 1000))
    return ConfigVersion.objects.create(
        number=number,
        document=numbered.dump().decode(),
        digest=fingerprint(snapshot),
        pages=snapshot.pages,
        author=author,
        note=note[:300],
        created_at=now,
    )


def _deliver_softly(version: ConfigVersion) -> None:
    try:
        deliver(version)
    except STORE_ERRORS as error:
        _log.warning("not delivered yet", version=version.number, error=str(error))


def deliver(version: ConfigVersion) -> bool:
    """Bring a version into the store, with every room's own configuration.

    Returns:
        False when the store holds a higher number (another console, or a restored database).

    Raises:
        redis.RedisError, StoreError, OSError: the store cannot be reached or did not do it.
    """
    client = store_client()
    _configure_rooms(lost=version.delivered_at is not None and store.held(client) is None)
    document = version.document.encode()
    wanted = page_digests(load(document))
    bundles = PageBundle.objects.filter(digest__in=wanted)
    done = store.deliver(
        client,
        number=version.number,
        document=document,
        pages={b.digest: bytes(b.content) for b in bundles},
    )
    if done and version.delivered_at is None:
        version.delivered_at = timezone.now()
        ConfigVersion.objects.filter(pk=version.pk).update(delivered_at=version.delivered_at)
        _log.info("published", version=version.number, author=version.author, note=version.note)
    return done


def _configure_rooms(*, lost: bool) -> None:
    """Give every room's own configuration to the script, which answers by it at once."""
    rooms = room_store()
    for config in room_configs():
        # A store that has lost what was delivered has lost the line too (WR-63).
        if rooms.recover(config) if lost else rooms.configure(config):
            continue
        stored = rooms.stats(config.id).config_version
        if stored > config.version:  # the database was restored from a copy
            raised = raise_version(room_id=config.id, above=stored)
            rooms.configure(replace(config, version=raised))


def keep_published() -> str:
    """Make the store hold the newest version; say what was done. Safe to repeat.

    Raises:
        redis.RedisError, StoreError, OSError: the store cannot be reached.
    """
    held = store.held(store_client())  # asked first: rows are committed before they are delivered
    newest = queries.newest_version()
    if newest is None:
        return "nothing to publish yet"
    if held == (newest.number, newest.document.encode()):
        if newest.delivered_at is None:
            ConfigVersion.objects.filter(pk=newest.pk).update(delivered_at=timezone.now())
        return f"version {newest.number} is in the store"
    if held is not None and held[0] >= newest.number:
        newest = _above(held[0], newest)
    deliver(newest)
    return f"version {newest.number} delivered"


def _above(number: int, newest: ConfigVersion) -> ConfigVersion:
    """Renumber: the database was restored from a copy, and the store knows a later number."""
    _configure_rooms(lost=False)  # raises the rooms' versions above the store's
    note = f"version {newest.number} again, above the store's {number}"
    with transaction.atomic():
        return _record(_validated(_compile()), number + 1, "corvus", note)


def prune_versions(*, keep: int = 100) -> int:
    """Delete all but the newest versions and the bundles that none of them names."""
    kept: Any = ConfigVersion.objects.order_by("-number")[:keep]
    oldest = min((v.number for v in kept), default=0)
    deleted, _ = ConfigVersion.objects.filter(number__lt=oldest).delete()
    named: set[str] = set()
    for document in ConfigVersion.objects.values_list("document", flat=True):
        named |= page_digests(parse(document.encode()))
    PageBundle.objects.exclude(digest__in=named).delete()
    return deleted
