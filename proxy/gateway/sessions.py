"""Who was on a site before it had a room: the site's own sessions, seen while nobody had to wait.

Only for hosts whose session cookie the operator has named. Kept in the store as keyed digests, so
that every gateway knows them and the store never holds a session (WR-64, “keep who is inside now”).
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

from proxy.gateway.exchange import Exchange
from proxy.gateway.plan import Site
from queueing.config import InsideNow, RoomConfig, RoomId, VisitorId
from queueing.connection import Connection
from queueing.store import StoreError

GRACE_MS = 2_000
"""So long after it was saved a room may not be known to every gateway."""

_MOST = 200_000  # sessions kept of a host; the oldest go first
_MOST_UNWRITTEN = 20_000


class SessionsSeen:
    """Notes sessions in batches; answers whether one was seen lately."""

    def __init__(self, connection: Connection, secret: bytes) -> None:
        self._connection = connection
        self._secret = secret
        self._unwritten: dict[int, dict[str, int]] = {}

    def note(
        self, exchange: Exchange, site: Site, rooms: Mapping[RoomId, RoomConfig], now_ms: int
    ) -> None:
        """Remember that a request of this session came; costs nothing where no cookie is named.

        Not while a room of this host adopts: who asks for a page that bypasses it, with a session
        of its own invention, would be taken for one who had been inside.
        """
        digest = self._digest(exchange, site)
        if digest is None or any(_adopts(rooms[r.room], now_ms) for r in site.host.rooms):
            return
        seen = self._unwritten.setdefault(site.host.id, {})
        if digest in seen or len(seen) < _MOST_UNWRITTEN:
            seen[digest] = now_ms

    async def write(self) -> None:
        """Hand what was noted to the store; called about once a second."""
        unwritten, self._unwritten = self._unwritten, {}
        for host, seen in unwritten.items():
            words: list[str | int] = []
            for digest, at in seen.items():
                words += [at, digest]
            try:
                await self._connection.call("ZADD", _key(host), "GT", *words, repeatable=True)
                await self._connection.call(
                    "ZREMRANGEBYRANK", _key(host), 0, -_MOST - 1, repeatable=True
                )
            except StoreError:
                return  # an outage: what was seen in it cannot be adopted afterwards

    async def kept(
        self, exchange: Exchange, site: Site, room: RoomConfig, now_ms: int
    ) -> VisitorId | None:
        """Give the id under which a visitor who was inside before the room began is adopted.

        The same session always gives the same id, so that all its requests are one visitor.
        """
        if now_ms > _adopts_until_ms(room):
            return None
        digest = self._digest(exchange, site)
        if digest is None:
            return None
        at = await self._connection.call("ZSCORE", _key(site.host.id), digest, repeatable=True)
        since_ms = room.opened_ms - room.active_ttl_ms
        if not isinstance(at, bytes) or not since_ms <= float(at) <= room.opened_ms + GRACE_MS:
            return None
        return VisitorId(self._keyed(f"{room.id} {digest}".encode())[:16])

    def _digest(self, exchange: Exchange, site: Site) -> str | None:
        name = site.host.session_cookie
        value = next(exchange.cookies(name.encode()), b"") if name else b""
        return self._keyed(value)[:22] if value else None

    def _keyed(self, value: bytes) -> str:
        digest = hmac.digest(self._secret, b"corvus session " + value, "sha256")
        return base64.urlsafe_b64encode(digest).decode()


def _adopts_until_ms(room: RoomConfig) -> int:
    keeps = room.inside_now is InsideNow.KEEP and room.opened_ms
    return room.opened_ms + room.active_ttl_ms if keeps else 0


def _adopts(room: RoomConfig, now_ms: int) -> bool:
    return room.opened_ms + GRACE_MS < now_ms <= _adopts_until_ms(room)


def _key(host: int) -> str:
    return f"corvus:sessions:{host}"
