"""Who was on a site before it had a room: the site's own sessions, seen while nobody had to wait.

Only for hosts whose session cookie the operator has named. Kept in the store as keyed digests, so
that every gateway knows them and the store never holds a session (WR-64, “keep who is inside now”).
"""

from __future__ import annotations

import base64
import hmac

from proxy.gateway.exchange import Exchange
from proxy.gateway.plan import Site
from queueing.config import InsideNow, RoomConfig, VisitorId
from queueing.connection import Connection
from queueing.store import StoreError

_MOST = 200_000  # sessions kept of a host; the oldest go first
_MOST_UNWRITTEN = 20_000


class SessionsSeen:
    """Notes sessions in batches; answers whether one was seen lately."""

    def __init__(self, connection: Connection, secret: bytes) -> None:
        self._connection = connection
        self._secret = secret
        self._unwritten: dict[int, dict[str, int]] = {}

    def note(self, exchange: Exchange, site: Site, now_ms: int) -> None:
        """Remember that a request of this session came; costs nothing where no cookie is named."""
        digest = self._digest(exchange, site)
        if digest is None:
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
        if room.inside_now is not InsideNow.KEEP or not room.opened_ms:
            return None
        if now_ms > room.opened_ms + room.active_ttl_ms:
            return None
        digest = self._digest(exchange, site)
        if digest is None:
            return None
        at = await self._connection.call("ZSCORE", _key(site.host.id), digest, repeatable=True)
        if not isinstance(at, bytes) or float(at) < room.opened_ms - room.active_ttl_ms:
            return None
        return VisitorId(self._keyed(f"{room.id} {digest}".encode())[:16])

    def _digest(self, exchange: Exchange, site: Site) -> str | None:
        name = site.host.session_cookie
        value = next(exchange.cookies(name.encode()), b"") if name else b""
        return self._keyed(value)[:22] if value else None

    def _keyed(self, value: bytes) -> str:
        digest = hmac.digest(self._secret, b"corvus session " + value, "sha256")
        return base64.urlsafe_b64encode(digest).decode()


def _key(host: int) -> str:
    return f"corvus:sessions:{host}"
