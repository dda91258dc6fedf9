"""What a room hands to its visitors: identities, sealed places, passes, and what answers need.

Owns what is written into the visitor's cookies; no store, only its clock. Whether somebody is let
in is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.gateway.cookies import forget_cookie, pass_cookie, queued_life_ms
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.gate import read_cookie
from proxy.gateway.live import StoreClock
from proxy.gateway.room_answers import Desk
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig, RoomId, Unit, VisitorId
from queueing.pages import PageBundle
from queueing.passes import Credential, Keyring, Kind, new_sid
from queueing.places import Place, State


@dataclass(slots=True, eq=False, kw_only=True)
class Papers:
    """What visitors' papers are written with; one for each configuration in force."""

    settings: GatewaySettings
    keys: Keyring
    pages: PageBundle
    own_pages: dict[RoomId, PageBundle]  # of rooms that show an operator's own waiting page
    clock: StoreClock

    def desk(self, exchange: Exchange, room: RoomConfig, since_ms: int = 0) -> Desk:
        """Lay out what an answer needs."""
        return Desk(
            exchange=exchange,
            room=room,
            settings=self.settings,
            pages=self.own_pages.get(room.id, self.pages),
            now_ms=self.clock.now_ms(),
            since_ms=since_ms,
            keys=self.keys,
        )

    def desk_at(
        self, exchange: Exchange, room: RoomConfig, credential: Credential, place: Place
    ) -> Desk:
        """Lay out what an answer about a place needs: a missed one expired a return window after
        the visitor's cookie was last written."""
        since_ms = min(place.now_ms, credential.iat_ms + room.return_window_ms)
        return replace(self.desk(exchange, room, since_ms), sid=credential.sid)

    def new_cookie(self, exchange: Exchange, room: RoomConfig, after_ms: int = 0) -> Headers:
        """Hand out an identity without a place, issued later than `after_ms` (a reset).

        Who has shown a rightly signed cookie stays the same visitor: a rank is bound to it, and
        outlives the place. A forged or stale cookie gives nobody anything.
        """
        held = read_cookie(exchange, room, self.keys).credential
        sid = held.sid if held is not None else new_sid()
        return self._identity(exchange, room, sid, after_ms)

    def another_cookie(self, exchange: Exchange, room: RoomConfig) -> Headers:
        """Make somebody else of who carries a pass that is in use elsewhere (WR-35)."""
        return self._identity(exchange, room, new_sid(), 0)

    def _identity(
        self, exchange: Exchange, room: RoomConfig, sid: VisitorId, after_ms: int
    ) -> Headers:
        now = max(self.clock.now_ms(), after_ms + 1)
        credential = Credential(
            kind=Kind.QUEUED,
            room=room.id,
            sid=sid,
            iat_ms=now,
            exp_ms=now + queued_life_ms(room),
        )
        return self.cookie(exchange, room, credential)

    def place_cookie(
        self, exchange: Exchange, room: RoomConfig, credential: Credential, place: Place
    ) -> Headers:
        """Seal the visitor's place, or its slot, in its cookie.

        Unit `requests`: a living pass stays beside the place, as it is, since it opens the assets
        and sends the forms of the page that the visitor still has before it.
        """
        if place.state is State.ACTIVE:
            renewed = self.admitted(exchange, room, credential.sid, place)
        elif self._has_pass_beside(room, credential, place.now_ms):
            renewed = replace(credential, ticket=place.ticket)
        else:
            renewed = Credential(
                kind=Kind.QUEUED,
                room=room.id,
                sid=credential.sid,
                iat_ms=place.now_ms,
                exp_ms=place.now_ms + queued_life_ms(room),
                ticket=place.ticket,
            )
        return self.cookie(exchange, room, renewed)

    def _has_pass_beside(self, room: RoomConfig, credential: Credential, now_ms: int) -> bool:
        return (
            room.unit is Unit.REQUESTS
            and credential.kind is not Kind.QUEUED
            and now_ms < credential.exp_ms
        )

    def admitted(
        self, exchange: Exchange, room: RoomConfig, sid: VisitorId, place: Place
    ) -> Credential:
        """Make the pass of somebody to whom the script has given a slot."""
        # Unit `visitors`: a pass never outlives its slot (WR-03). Unit `requests`: it holds none.
        by_slot = room.unit is Unit.VISITORS
        end_ms = place.expires_ms if by_slot else place.now_ms + room.admit_ttl_ms
        return self.pass_until(exchange, room, sid, place.now_ms, end_ms)

    def pass_until(
        self, exchange: Exchange, room: RoomConfig, sid: VisitorId, iat_ms: int, exp_ms: int
    ) -> Credential:
        """Make a pass for these times (store ms), bound to a network where the room wants that."""
        return Credential(
            kind=Kind.ADMITTED,
            room=room.id,
            sid=sid,
            iat_ms=iat_ms,
            exp_ms=exp_ms,
            network=self.network(exchange, room),
        )

    def cookie(self, exchange: Exchange, room: RoomConfig, credential: Credential) -> Headers:
        """Sign a credential into the room's cookie."""
        return pass_cookie(exchange, self.settings, self.keys, room, credential)

    def network(self, exchange: Exchange, room: RoomConfig) -> str:
        """Give the tag of the visitor's network; "" where passes are bound to none.

        A room that guards against shared passes binds them too, so that a pass that turns up in
        another network comes to the script before it opens anything (WR-35).
        """
        if room.bind_network or room.share_guard:
            return self.keys.tag(exchange.client.network_key)
        return ""

    def forget(self, exchange: Exchange, room: RoomConfig) -> Headers:
        """Take the visitor's cookie back."""
        return forget_cookie(exchange, self.settings, room)
