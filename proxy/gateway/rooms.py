"""The waiting-room stage: pass? slot? line? Asks the script where the gate alone cannot tell.

Owns the store calls of visitors' requests and what follows from their failure (rule 11). What is
answered is `room_answers`'; what the gate decides alone is `gate`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from proxy.gateway.answers import Answer, redirect
from proxy.gateway.breaker import Breaker
from proxy.gateway.cookies import cannot_be_set, forget_cookie, pass_cookie, queued_life_ms
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.forgery import is_foreign_form
from proxy.gateway.gate import (
    MARK,
    STALE,
    VALID_IN_OUTAGE,
    AskStore,
    CleanUrl,
    FirstVisit,
    PassThrough,
    Revocations,
    gate,
    marked_url,
    read_cookie,
    was_valid,
)
from proxy.gateway.live import LiveRoom, StoreClock
from proxy.gateway.plan import Site
from proxy.gateway.room_answers import Desk, place_answer, state_answer
from proxy.gateway.sessions import SessionsSeen
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import InsideNow, OnOutage, RoomConfig, RoomId, Unit, VisitorId
from queueing.pages import PageBundle, PageState
from queueing.passes import Credential, Keyring, Kind, Verdict, new_sid
from queueing.places import Place, State
from queueing.store import RoomStore, StoreError, StoreUnreachable

log = structlog.get_logger("corvus.gateway")

OUTAGE_MARK = (b"x-waiting-room", b"bypass-outage")
_SEALED = (State.WAITING, State.PAUSED, State.PREQUEUE, State.PARKED, State.GRANTED)
"""Where a place is held whose ticket goes into the cookie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Go on to the origin."""

    reason: str
    credential: Credential | None = None
    headers: Headers | None = None  # for the visitor: a new pass, the mark of an outage entry
    lease: str = ""  # unit `requests`: to be released when the exchange has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Answered by the gateway."""

    reason: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Known:
    """What the gate made of one cookie line: lets its visitor's next requests through at once."""

    entry: Entry
    credential: Credential
    until_ms: int  # store time: then the store is asked again


_MOST_KNOWN = 8192
_LONGEST_KNOWN = 2048
_UNREAD = Revocations(reset_ms=2**62)
"""Before the journal has been read, any pass may be a revoked one: the store is asked."""


@dataclass(slots=True, eq=False, kw_only=True)
class Rooms:
    """What the stage works with; one for each configuration in force."""

    settings: GatewaySettings
    keys: Keyring
    pages: PageBundle
    own_pages: dict[RoomId, PageBundle]  # of rooms that show an operator's own waiting page
    store: RoomStore
    breaker: Breaker
    clock: StoreClock
    sessions: SessionsSeen
    known: dict[bytes, Known] = field(default_factory=dict)  # by cookie line

    async def admit(self, exchange: Exchange, site: Site, live: LiveRoom) -> Entry | Refusal:
        """Decide whether a request governed by a room goes on."""
        known = self.known.get(exchange.found.get(b"cookie", b""))
        if known is not None and self._opens(known, exchange, live):
            live.counters["fast"] += 1
            return known.entry
        room = live.config
        if STALE in exchange.query:
            self._note_stale_page(live)
        if exchange.is_preflight:
            return self._preflight(exchange, live)
        reading = read_cookie(exchange, room, self.keys)
        if reading.verdict is Verdict.FORGED:
            live.counters["forged"] += 1
        outage_since_ms = self._outage_since_ms()
        was_read = live.journal >= 0 or outage_since_ms is not None
        step = gate(
            exchange,
            room,
            reading,
            now_ms=self.clock.now_ms(),
            network=self._network(exchange, room),
            revoked=live.revocations if was_read else _UNREAD,
            outage_since_ms=outage_since_ms,
        )
        if isinstance(step, PassThrough):
            live.counters["fast"] += 1
            entry = Entry(reason=step.reason, credential=step.credential)
            if outage_since_ms is None:
                self._remember(exchange, room, entry, step.credential)
            return entry
        if isinstance(step, CleanUrl):
            return Refusal(reason="cookie works", answer=redirect(step.location))
        if isinstance(step, FirstVisit):
            kept = await self._kept(exchange, site, room)
            if kept is None:
                return self._first_visit(exchange, live, step)
            step = AskStore(kept)
        return await self._ask(exchange, live, step)

    def _note_stale_page(self, live: LiveRoom) -> None:
        if live.is_news("stale_pages"):
            log.error(
                "a cache in front keeps waiting pages, although they say no-store", room=live.id
            )

    def _opens(self, known: Known, exchange: Exchange, live: LiveRoom) -> bool:
        """Whether what was decided for this cookie line still holds, and for this request."""
        return (
            known.credential.room == live.id
            and self.clock.now_ms() < known.until_ms
            and not live.revocations.covers(known.credential)
            and MARK not in exchange.query
            and exchange.method != "OPTIONS"
            and not self.breaker.is_open
        )

    def _remember(
        self, exchange: Exchange, room: RoomConfig, entry: Entry, credential: Credential
    ) -> None:
        """Spare a visitor's next requests the reading of its cookies."""
        line = exchange.found[b"cookie"]
        if room.bind_network or len(line) > _LONGEST_KNOWN:
            return  # the network is judged anew each time; memory is bounded
        if len(self.known) >= _MOST_KNOWN:
            self.known.clear()
        until_ms = min(credential.iat_ms + room.refresh_ms, credential.exp_ms)
        self.known[line] = Known(entry, credential, until_ms)

    async def _kept(self, exchange: Exchange, site: Site, room: RoomConfig) -> Credential | None:
        """Give an identity, as of an outage entry, to who was inside before the room (WR-64)."""
        if room.inside_now is not InsideNow.KEEP or self.breaker.is_open:
            return None
        try:
            sid = await self.sessions.kept(exchange, site, room, self.clock.now_ms())
        except StoreError:
            return None
        if sid is None:
            return None
        return Credential(
            kind=Kind.OUTAGE,
            room=room.id,
            sid=sid,
            iat_ms=room.opened_ms,  # so that whoever was sent away since is not adopted again
            exp_ms=room.opened_ms + room.active_ttl_ms,
            network=self._network(exchange, room),
        )

    def desk(self, exchange: Exchange, room: RoomConfig, since_ms: int = 0) -> Desk:
        """Lay out what an answer needs."""
        return Desk(
            exchange=exchange,
            room=room,
            settings=self.settings,
            pages=self.own_pages.get(room.id, self.pages),
            now_ms=self.clock.now_ms(),
            since_ms=since_ms,
        )

    def desk_at(
        self, exchange: Exchange, room: RoomConfig, credential: Credential, place: Place
    ) -> Desk:
        """Lay out what an answer about a place needs: a missed one expired a return window after
        the visitor's cookie was last written."""
        since_ms = min(place.now_ms, credential.iat_ms + room.return_window_ms)
        return self.desk(exchange, room, since_ms)

    def new_cookie(self, exchange: Exchange, room: RoomConfig, after_ms: int = 0) -> Headers:
        """Hand out an identity without a place, issued later than `after_ms` (a reset)."""
        now = max(self.clock.now_ms(), after_ms + 1)
        credential = Credential(
            kind=Kind.QUEUED,
            room=room.id,
            sid=new_sid(),
            iat_ms=now,
            exp_ms=now + queued_life_ms(room),
        )
        return pass_cookie(exchange, self.settings, self.keys, credential)

    def place_cookie(
        self, exchange: Exchange, room: RoomConfig, credential: Credential, place: Place
    ) -> Headers:
        """Seal the visitor's place, or its slot, in its cookie."""
        if place.state is State.ACTIVE:
            renewed = self._pass(exchange, room, credential, place)
        else:
            renewed = Credential(
                kind=Kind.QUEUED,
                room=room.id,
                sid=credential.sid,
                iat_ms=place.now_ms,
                exp_ms=place.now_ms + queued_life_ms(room),
                ticket=place.ticket,
            )
        return pass_cookie(exchange, self.settings, self.keys, renewed)

    def _serves_on(self, exchange: Exchange, live: LiveRoom, step: AskStore, place: Place) -> bool:
        """Whether a pass need not be written anew: unit `requests`, in its first half (rule 6)."""
        held, room = step.credential, live.config
        return (
            room.unit is Unit.REQUESTS
            and held.kind is Kind.ADMITTED
            and not step.resign
            and held.exp_ms - place.now_ms > room.admit_ttl_ms // 2
            and held.network == self._network(exchange, room)
            and not live.revocations.covers(held)
        )

    def _pass(
        self, exchange: Exchange, room: RoomConfig, credential: Credential, place: Place
    ) -> Credential:
        # Unit `visitors`: a pass never outlives its slot (WR-03). Unit `requests`: it holds none.
        by_slot = room.unit is Unit.VISITORS
        return Credential(
            kind=Kind.ADMITTED,
            room=room.id,
            sid=credential.sid,
            iat_ms=place.now_ms,
            exp_ms=place.expires_ms if by_slot else place.now_ms + room.admit_ttl_ms,
            network=self._network(exchange, room),
        )

    def _network(self, exchange: Exchange, room: RoomConfig) -> str:
        return self.keys.tag(exchange.client.network_key) if room.bind_network else ""

    def _outage_since_ms(self) -> int | None:
        seconds = self.breaker.open_for_s
        return None if seconds is None else self.clock.now_ms() - int(seconds * 1000)

    def _preflight(self, exchange: Exchange, live: LiveRoom) -> Entry | Refusal:
        if live.take_preflight(self.settings.preflight_per_second):
            return Entry(reason="CORS preflight")
        answer = state_answer(self.desk(exchange, live.config), State.NONE, [])
        return Refusal(reason="too many CORS preflights", answer=answer)

    def _first_visit(self, exchange: Exchange, live: LiveRoom, visit: FirstVisit) -> Refusal:
        desk = self.desk(exchange, live.config)
        if visit is FirstVisit.COOKIES_NEEDED:
            broken = cannot_be_set(exchange, self.settings)
            state = PageState.COOKIES_BROKEN if broken else PageState.COOKIES
            if live.is_news(state) and broken:
                log.error("visitors cannot keep the cookie as it is set", room=live.id)
            return Refusal(reason="no cookie came back", answer=state_answer(desk, state, []))
        if is_foreign_form(exchange):
            live.counters["foreign"] += 1
            return Refusal(reason="another site's form", answer=state_answer(desk, State.NONE, []))
        cookies = self.new_cookie(exchange, live.config, live.reset_ms)
        if visit is FirstVisit.REDIRECT:
            answer = redirect(marked_url(exchange), cookies)
            return Refusal(reason="first visit: cookie check", answer=answer)
        live.counters["churn"] += 1
        return Refusal(reason="no cookie", answer=state_answer(desk, State.NONE, cookies))

    async def _ask(self, exchange: Exchange, live: LiveRoom, step: AskStore) -> Entry | Refusal:
        if self.breaker.is_open:
            return self._outage(exchange, live, step.credential)
        room, credential = live.config, step.credential
        lease = new_sid() if room.unit is Unit.REQUESTS else ""
        try:
            if self._let_in_during_outage(live, credential):
                await self.store.adopt(room.id, [credential.sid])
            place = await self.store.enter(
                room.id,
                credential.sid,
                client=exchange.client.client_key,
                iat_ms=credential.iat_ms,
                ticket=credential.ticket,
                lease=lease,
                exempt=exchange.client.is_proxy,
            )
        except StoreUnreachable as error:
            self.breaker.trip()
            log.warning("store unreachable", room=room.id, error=str(error))
            return self._outage(exchange, live, credential)
        except StoreError as error:  # whatever it is that the store cannot do: never "open"
            log.warning("store busy", room=room.id, error=str(error))
            answer = state_answer(self.desk(exchange, room), PageState.BUSY, [])
            return Refusal(reason="store busy", answer=answer)
        self.clock.learn(place.now_ms)
        return self._settle(exchange, live, step, place, lease)

    def _let_in_during_outage(self, live: LiveRoom, credential: Credential) -> bool:
        """Whether this visitor is inside already, only unknown to the script as yet."""
        return (
            credential.kind is Kind.OUTAGE
            and credential.exp_ms > self.clock.now_ms()
            and not live.revocations.covers(credential)
        )

    def _settle(
        self,
        exchange: Exchange,
        live: LiveRoom,
        step: AskStore,
        place: Place,
        lease: str,
    ) -> Entry | Refusal:
        room, credential = live.config, step.credential
        if place.state is State.ACTIVE:
            if self._serves_on(exchange, live, step, place):
                return Entry(reason="slot", credential=credential, lease=lease)
            renewed = self._pass(exchange, room, credential, place)
            cookies = pass_cookie(exchange, self.settings, self.keys, renewed)
            return Entry(reason="slot", credential=renewed, headers=cookies, lease=lease)
        cookies = []
        if place.state in _SEALED:
            cookies = self.place_cookie(exchange, room, credential, place)
        elif place.state is State.RESET:
            cookies = self.new_cookie(exchange, room, place.reset_ms)
        desk = self.desk_at(exchange, room, credential, place)
        return Refusal(reason=place.state, answer=place_answer(desk, place, cookies))

    def _outage(
        self, exchange: Exchange, live: LiveRoom, credential: Credential
    ) -> Entry | Refusal:
        """Follow the room's policy while the store cannot be asked (rule 11, WR-61).

        Who has a pass that was valid when it began is served also if this very request noticed it.
        """
        room = live.config
        since_ms = self._outage_since_ms() or self.clock.now_ms()
        network = self._network(exchange, room)
        if was_valid(credential, since_ms, network=network, revoked=live.revocations):
            return Entry(reason=VALID_IN_OUTAGE, credential=credential)
        if room.on_outage is OnOutage.OPEN and self.breaker.take_outage_entry(room.open_rate):
            return self._outage_entry(exchange, live, credential.sid)
        answer = state_answer(self.desk(exchange, room), PageState.STORE_DOWN, [])
        return Refusal(reason="store down", answer=answer)

    def _outage_entry(self, exchange: Exchange, live: LiveRoom, sid: VisitorId) -> Entry:
        """Let somebody in whom the script will be told of afterwards."""
        room, now = live.config, self.clock.now_ms()
        entrant = Credential(
            kind=Kind.OUTAGE,
            room=room.id,
            sid=sid,
            iat_ms=now,
            exp_ms=now + room.active_ttl_ms,
            network=self._network(exchange, room),
        )
        live.note_outage_entry(sid)
        live.counters["outage_entries"] += 1
        cookies = pass_cookie(exchange, self.settings, self.keys, entrant)
        headers = [*cookies, OUTAGE_MARK]
        return Entry(reason="store down: let in", credential=entrant, headers=headers)

    def forget(self, exchange: Exchange, room: RoomConfig) -> Headers:
        """Take the visitor's cookie back."""
        return forget_cookie(exchange, self.settings, room.id)
