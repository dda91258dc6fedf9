"""What a room does with its visitors while the store cannot be asked (design §4 rule 11, WR-61).

Decisions and their cookies; that the store is away, and since when, is the breaker's knowledge.
"""

from __future__ import annotations

from proxy.gateway.admission import Entry, Refusal, refusal
from proxy.gateway.answers import STATE_HEADER
from proxy.gateway.breaker import Breaker
from proxy.gateway.exchange import Exchange
from proxy.gateway.gate import VALID_IN_OUTAGE, was_valid
from proxy.gateway.live import LiveRoom, StoreClock
from proxy.gateway.papers import Papers
from proxy.gateway.room_answers import state_answer
from queueing.config import OnOutage, Unit
from queueing.pages import PageState
from queueing.passes import Credential, Kind

OUTAGE_MARK = (STATE_HEADER, b"bypass-outage")


def outage_since_ms(breaker: Breaker, clock: StoreClock) -> int | None:
    """Since when (store time) the store has been away; None when it is not."""
    seconds = breaker.open_for_s
    return None if seconds is None else clock.now_ms() - int(seconds * 1000)


def without_store(
    papers: Papers, breaker: Breaker, exchange: Exchange, live: LiveRoom, credential: Credential
) -> Entry | Refusal:
    """Follow the room's policy for a page.

    Unit `visitors`: who has a pass that was valid when the outage began is served, also if this
    very request noticed it. Unit `requests`: a pass holds no slot, and the origin may not get more
    pages than the capacity because the store died; so a pass opens no page (decision 0012).
    """
    room = live.config
    since_ms = outage_since_ms(breaker, papers.clock) or papers.clock.now_ms()
    network = papers.network(exchange, room)
    has_pass = was_valid(credential, since_ms, network=network, revoked=live.revocations)
    if has_pass and room.unit is Unit.VISITORS:
        return Entry(reason=VALID_IN_OUTAGE, credential=credential)
    if room.on_outage is OnOutage.OPEN and breaker.take_outage_entry(room.open_rate):
        live.counters["outage_entries"] += 1
        if has_pass:
            return Entry(reason="store down: let in", credential=credential, headers=[OUTAGE_MARK])
        return _entrant(papers, exchange, live, credential)
    answer = state_answer(papers.desk(exchange, room), PageState.STORE_DOWN, [])
    return refusal("store down", PageState.STORE_DOWN, answer)


def _entrant(papers: Papers, exchange: Exchange, live: LiveRoom, credential: Credential) -> Entry:
    """Let somebody in; where visitors hold slots, the script will be told of it afterwards."""
    room, now = live.config, papers.clock.now_ms()
    by_slot = room.unit is Unit.VISITORS
    entrant = Credential(
        kind=Kind.OUTAGE,
        room=room.id,
        sid=credential.sid,
        iat_ms=now,
        exp_ms=now + (room.active_ttl_ms if by_slot else room.admit_ttl_ms),
        network=papers.network(exchange, room),
    )
    if by_slot:
        live.note_outage_entry(credential.sid)
    headers = [*papers.cookie(exchange, room, entrant), OUTAGE_MARK]
    return Entry(reason="store down: let in", credential=entrant, headers=headers)
