"""The configuration's keys in the store: written here, read by every gateway. One act, newest wins.

Keys: `corvus:config:snapshot` the document, `corvus:config:version` its number,
`corvus:config:pages:<digest>` a page bundle; a message with the number goes to the channel
`corvus:config`.
"""

from __future__ import annotations

from typing import Any

import redis

SNAPSHOT_KEY = "corvus:config:snapshot"
VERSION_KEY = "corvus:config:version"
PAGES_KEY = "corvus:config:pages:"
CHANNEL = "corvus:config"

PAGES_KEPT_S = 7 * 24 * 3600
"""How long an older bundle stays for gateways that are still on an older version."""


def stored_version(client: Any) -> int | None:
    """Give the number of the configuration in the store; None when there is none.

    Raises:
        redis.RedisError: the store cannot be asked.
    """
    number = client.get(VERSION_KEY)
    return int(number) if number is not None and client.exists(SNAPSHOT_KEY) else None


def stored_document(client: Any) -> bytes | None:
    """Give the document in the store."""
    document: bytes | None = client.get(SNAPSHOT_KEY)
    return document


def deliver(client: Any, *, number: int, document: bytes, pages: str, bundle: bytes) -> bool:
    """Put one configuration into the store, whole, unless a newer one is there.

    Returns:
        False when the store already holds a higher number.

    Raises:
        redis.RedisError: the store did not do it; nothing is half done.
    """
    with client.pipeline(transaction=True) as pipe:
        while True:
            try:
                pipe.watch(VERSION_KEY, SNAPSHOT_KEY)
                held = pipe.get(VERSION_KEY)
                if held is not None and int(held) > number and pipe.exists(SNAPSHOT_KEY):
                    return False
                old_pages = _pages_of(pipe.get(SNAPSHOT_KEY))
                pipe.multi()
                if old_pages and old_pages != pages:
                    pipe.expire(PAGES_KEY + old_pages, PAGES_KEPT_S)
                pipe.set(PAGES_KEY + pages, bundle)
                pipe.set(SNAPSHOT_KEY, document)
                pipe.set(VERSION_KEY, number)
                pipe.publish(CHANNEL, number)
                pipe.execute()
            except redis.WatchError:
                continue  # another console was quicker: look again
            return True


def _pages_of(document: bytes | None) -> str:
    from proxy.gateway.snapshot import SnapshotError, load

    if document is None:
        return ""
    try:
        return load(document).pages
    except SnapshotError:
        return ""
