"""The waiting-room stage of a page: pass? slot? line? Asks the script where the gate cannot tell.

Owns the store calls of visitors' requests for pages and what follows from their failure (rule 11).
What is answered is `room_answers`'; what the gate decides alone is `gate`'s; what goes into cookies
is `papers`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from proxy.gateway.admission import Entry, Refusal, refusal
from proxy.gateway.answers import redirect
from proxy.gateway.breaker import Breaker
from proxy.gateway.cookie_lines import CookieLines
from proxy.gateway.cookies import cannot_be_set
from proxy.gateway.errands import Errand, enter
from proxy.gateway.exchange import Exchange
from proxy.gateway.forgery import is_foreign_form
from proxy.gateway.forms import is_form
from proxy.gateway.gate import (
    MARK,
    STALE,
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
from proxy.gateway.lane import Free
from proxy.gateway.live import LiveRoom
from proxy.gateway.outages import outage_since_ms, without_store
from proxy.gateway.papers import Papers
from proxy.gateway.pass_check import PassCheck
from proxy.gateway.plan import Site
from proxy.gateway.ranks import held_rank
from proxy.gateway.room_answers import place_answer, state_answer
from proxy.gateway.sessions import SessionsSeen
from queueing.config import RANKS, InsideNow, RoomConfig, RoomId, Unit
from queueing.pages import PageState
from queueing.passes import Credential, Kind, Verdict, new_sid
from queueing.places import Place, State
from queueing.store import RoomStore, StoreError, StoreUnreachable

log = structlog.get_logger("corvus.gateway")


@dataclass(frozen=True, slots=True)
class Known:
    """What the gate made of one cookie line: lets its visitor's next requests through at once."""

    entry: Entry
    credential: Credential
    live: LiveRoom  # whose pass it is
    until_ms: int  # store time: then the store is asked again


_UNREAD = Revocations(reset_ms=2**62)
"""Before the journal has been read, any pass may be a revoked one: the store is asked."""

_SEALED = (State.WAITING, State.PAUSED, State.PREQUEUE, State.PARKED, State.GRANTED)
"""Where a place is held whose ticket goes into the cookie."""


@dataclass(slots=True, eq=False, kw_only=True)
class Rooms(Papers):
    """What the stage works with; one for each configuration in force."""

    store: RoomStore
    free: Free
    breaker: Breaker
    sessions: SessionsSeen
    known: CookieLines[Known] = field(default_factory=CookieLines)
    passes: PassCheck = field(init=False)  # for what lies beside the page slots

    def __post_init__(self) -> None:
        self.passes = PassCheck(self, self.store, self.breaker)

    async def admit(
        self,
        exchange: Exchange,
        site: Site,
        live: LiveRoom,
        others: Mapping[RoomId, LiveRoom],
    ) -> Entry | Refusal:
        """Decide whether a request governed by a room goes on.

        `others` are all rooms: a valid pass of one that the room shares with lets the visitor in
        without a slot here, and that room then governs the exchange (WR-71).
        """
        known = self.known.get(exchange.found.get(b"cookie", b""))
        if known is not None and self._opens(known, exchange, live):
            live.counters["fast"] += 1
            return known.entry
        if STALE in exchange.query:
            self._note_stale_page(live)
        if exchange.is_preflight:
            return self.preflight(exchange, live)
        since_ms = outage_since_ms(self.breaker, self.clock)
        if live.config.shares:
            live = self._sharing(exchange, live, others, since_ms)
        room = live.config
        reading = read_cookie(exchange, room, self.keys)
        if reading.verdict is Verdict.FORGED:
            live.counters["forged"] += 1
        was_read = live.journal >= 0 or since_ms is not None
        step = gate(
            exchange,
            room,
            reading,
            now_ms=self.clock.now_ms(),
            network=self.network(exchange, room),
            revoked=live.revocations if was_read else _UNREAD,
            outage_since_ms=since_ms,
        )
        if isinstance(step, PassThrough):
            live.counters["fast"] += 1
            entry = Entry(reason=step.reason, credential=step.credential)
            if since_ms is None:
                self._remember(exchange, live, entry, step.credential)
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
            (known.live is live or known.credential.room in live.config.shares)
            and self.clock.now_ms() < known.until_ms
            and not known.live.revocations.covers(known.credential)
            and MARK not in exchange.query
            and exchange.method != "OPTIONS"
            and not self.breaker.is_open
        )

    def _remember(
        self, exchange: Exchange, live: LiveRoom, entry: Entry, credential: Credential
    ) -> None:
        """Spare a visitor's next requests the reading of its cookies."""
        until_ms = min(credential.iat_ms + live.config.refresh_ms, credential.exp_ms)
        known = Known(entry, credential, live, until_ms)
        self.known.keep(exchange.found[b"cookie"], known, credential)

    def _sharing(
        self,
        exchange: Exchange,
        live: LiveRoom,
        others: Mapping[RoomId, LiveRoom],
        since_ms: int | None,
    ) -> LiveRoom:
        """Give the room whose pass opens this one, or this one itself."""
        at_ms = self.clock.now_ms() if since_ms is None else since_ms
        sharing = [others[room] for room in live.config.shares if room in others]
        for candidate in (live, *sharing):
            room = candidate.config
            held = read_cookie(exchange, room, self.keys).credential
            if held is not None and was_valid(
                held,
                at_ms,
                network=self.network(exchange, room),
                revoked=candidate.revocations,
            ):
                return candidate
        return live

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
            network=self.network(exchange, room),
        )

    def preflight(self, exchange: Exchange, live: LiveRoom) -> Entry | Refusal:
        """Let a CORS preflight through, which never carries a cookie, in bounded numbers."""
        if live.take_preflight(self.settings.preflight_per_second):
            return Entry(reason="CORS preflight")
        answer = state_answer(self.desk(exchange, live.config), State.NONE, [])
        return refusal("too many CORS preflights", State.NONE, answer)

    def _first_visit(self, exchange: Exchange, live: LiveRoom, visit: FirstVisit) -> Refusal:
        desk = self.desk(exchange, live.config)
        if visit is FirstVisit.COOKIES_NEEDED:
            broken = cannot_be_set(exchange, self.settings)
            state = PageState.COOKIES_BROKEN if broken else PageState.COOKIES
            if live.is_news(state) and broken:
                log.error("visitors cannot keep the cookie as it is set", room=live.id)
            answer = state_answer(desk, state, [])
            return refusal("no cookie came back", State.NONE, answer)
        if is_foreign_form(exchange):
            live.counters["foreign"] += 1
            answer = state_answer(desk, State.NONE, [])
            return refusal("another site's form", State.NONE, answer)
        cookies = self.new_cookie(exchange, live.config, live.reset_ms)
        if visit is FirstVisit.REDIRECT:
            answer = redirect(marked_url(exchange), cookies)
            return refusal("first visit: cookie check", State.NONE, answer)
        live.counters["churn"] += 1
        return refusal("no cookie", State.NONE, state_answer(desk, State.NONE, cookies))

    async def _ask(self, exchange: Exchange, live: LiveRoom, step: AskStore) -> Entry | Refusal:
        room, credential = live.config, step.credential
        if self.breaker.is_open:
            return without_store(self, self.breaker, exchange, live, credential)
        errand = self._errand(exchange, live, credential)
        try:
            if self._let_in_during_outage(live, credential):
                await self.store.adopt(room.id, [credential.sid])
            place = await enter(self.store, self.free, exchange, live, credential, errand)
        except StoreUnreachable as error:
            self.breaker.trip()
            log.warning("store unreachable", room=room.id, error=str(error))
            return without_store(self, self.breaker, exchange, live, credential)
        except StoreError as error:  # whatever it is that the store cannot do: never "open"
            log.warning("store busy", room=room.id, error=str(error))
            answer = state_answer(self.desk(exchange, room), PageState.BUSY, [])
            return refusal("store busy", PageState.BUSY, answer)
        self.clock.learn(place.now_ms)
        if place.state is State.ACTIVE:
            return self._admitted(exchange, live, step, place, errand)
        return self._refused(exchange, live, credential, place, errand)

    def _errand(self, exchange: Exchange, live: LiveRoom, credential: Credential) -> Errand:
        """Say with what this request asks for a slot."""
        room, now_ms = live.config, self.clock.now_ms()
        held = held_rank(exchange, self.settings, self.keys, room, credential.sid, now_ms)
        if held.forged:
            live.counters["forged"] += 1
        live.counters[f"priority_requests_{RANKS[held.rank]}"] += 1
        form = room.priority_forms and is_form(exchange, credential, now_ms, live.revocations)
        live.counters["priority_forms"] += form
        return Errand(
            rank=held.rank,
            form=form,
            lease=new_sid() if form or room.unit is Unit.REQUESTS else "",
            network=self.network(exchange, room) if room.share_guard else "",
            headers=held.headers,
        )

    def _let_in_during_outage(self, live: LiveRoom, credential: Credential) -> bool:
        """Whether this visitor is inside already, only unknown to the script as yet."""
        return (
            credential.kind is Kind.OUTAGE
            and live.config.unit is Unit.VISITORS
            and credential.exp_ms > self.clock.now_ms()
            and not live.revocations.covers(credential)
        )

    def _admitted(
        self, exchange: Exchange, live: LiveRoom, step: AskStore, place: Place, errand: Errand
    ) -> Entry:
        room, credential = live.config, step.credential
        by_session = room.unit is Unit.VISITORS
        if by_session and not place.joined_ms:
            # A form in the lane: the visitor has no slot of its own, so its pass stays as it is.
            return Entry(
                reason="form in the lane",
                credential=credential,
                headers=errand.headers,
                lease=errand.lease,
            )
        lease = "" if by_session else errand.lease
        if self._serves_on(exchange, live, step, place):
            return Entry(reason="slot", credential=credential, headers=errand.headers, lease=lease)
        renewed = self.admitted(exchange, room, credential.sid, place)
        headers = [*self.cookie(exchange, room, renewed), *errand.headers]
        return Entry(reason="slot", credential=renewed, headers=headers, lease=lease)

    def _serves_on(self, exchange: Exchange, live: LiveRoom, step: AskStore, place: Place) -> bool:
        """Whether a pass need not be written anew: unit `requests`, in its first half (rule 6)."""
        held, room = step.credential, live.config
        return (
            room.unit is Unit.REQUESTS
            and held.kind is Kind.ADMITTED
            and not step.resign
            and not held.ticket  # else it would be taken for a missed one at the next page
            and held.exp_ms - place.now_ms > room.admit_ttl_ms // 2
            and held.network == self.network(exchange, room)
            and not live.revocations.covers(held)
        )

    def _refused(
        self,
        exchange: Exchange,
        live: LiveRoom,
        credential: Credential,
        place: Place,
        errand: Errand,
    ) -> Refusal:
        room = live.config
        if place.state is State.UNSENT:
            live.counters["priority_forms_refused"] += 1
        elif place.state is State.SHARED:
            live.counters["shared"] += 1
        cookies = list(errand.headers)
        if place.state in _SEALED:
            cookies += self.place_cookie(exchange, room, credential, place)
        elif place.state is State.RESET:
            cookies += self.new_cookie(exchange, room, place.reset_ms)
        desk = self.desk_at(exchange, room, credential, place)
        return refusal(place.state, place.state, place_answer(desk, place, cookies))
