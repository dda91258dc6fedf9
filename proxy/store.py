"""The configuration's keys in the store: written here, read by every gateway. One act, newest wins.

Keys: `corvus:config:snapshot` the document, `corvus:config:version` its number,
`corvus:config:pages:<digest>` a page bundle; a message with the number goes to the channel
`corvus:config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import redis

from proxy.gateway.snapshot import (
    SNAPSHOT_KEY,
    VERSION_KEY,
    SnapshotError,
    load,
    page_digests,
    pages_key,
)

CHANNEL = "corvus:config"

PAGES_KEPT_S = 7 * 24 * 3600
"""How long an older bundle stays for gateways that are still on an older version."""


def held(client: Any) -> tuple[int, bytes] | None:
    """Give number and document of the configuration in the store, read at one moment; None: none.

    Raises:
        redis.RedisError: the store cannot be asked.
    """
    number, document = client.mget(VERSION_KEY, SNAPSHOT_KEY)
    return None if number is None or document is None else (int(number), document)


def deliver(client: Any, *, number: int, document: bytes, pages: Mapping[str, bytes]) -> bool:
    """Put one configuration into the store, whole, unless a newer one is there.

    `pages` are the page bundle and the operators' own pages, by the document's digests.

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
                old = _pages_of(pipe.get(SNAPSHOT_KEY)) - pages.keys()
                pipe.multi()
                for digest in old:
                    pipe.expire(pages_key(digest), PAGES_KEPT_S)
                for digest, content in pages.items():
                    pipe.set(pages_key(digest), content)
                pipe.set(SNAPSHOT_KEY, document)
                pipe.set(VERSION_KEY, number)
                pipe.publish(CHANNEL, number)
                pipe.execute()
            except redis.WatchError:
                continue  # another console was quicker: look again
            return True


def _pages_of(document: bytes | None) -> set[str]:
    if document is None:
        return set()
    try:
        return page_digests(load(document))
    except SnapshotError:
        return set()
