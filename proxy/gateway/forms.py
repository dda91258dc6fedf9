"""Forms of people who have a pass: what counts as one, and what is said of one not sent. Pure.

A form is never queued: by the time of its turn its body would be lost (WR-27, WR-45).
"""

from __future__ import annotations

from dataclasses import replace

from proxy.gateway.answers import Answer, json_answer
from proxy.gateway.cookies import IDENTITY_S
from proxy.gateway.exchange import Exchange
from proxy.gateway.gate import Revocations
from proxy.gateway.room_answers import Desk, blank_view, page_answer
from queueing.pages import PageState
from queueing.passes import Credential, Kind
from queueing.places import Place

_NO_FORMS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # the safe methods, RFC 9110 9.2.1


def is_form(exchange: Exchange, credential: Credential, now_ms: int, revoked: Revocations) -> bool:
    """Whether this is a form of somebody whose pass is right, though it may have expired.

    Not of one who waits, nor of one whose pass was taken away.
    """
    return (
        exchange.method not in _NO_FORMS
        and credential.kind is not Kind.QUEUED
        and now_ms < credential.iat_ms + IDENTITY_S * 1000
        and not revoked.covers(credential)
    )


def unsent_answer(desk: Desk, place: Place) -> Answer:
    """Say that the form was not sent, and that it is safe to send it again."""
    retry_s = max(1, desk.settings.retry_after_s)
    if desk.exchange.is_navigation or not desk.settings.api_json:
        view = replace(
            blank_view(desk),
            state=PageState.UNSENT_FORM,
            unsafe=True,
            waiting=place.counts.waiting,
            retry_after_s=retry_s,
        )
        return page_answer(desk, view, 503, [])
    document = {
        "error": "busy",
        "state": place.state,
        "submitted": False,
        "queued": False,
        "retry_after_seconds": retry_s,
        "room": desk.room.id,
        "hint": "the form was not sent: it is safe to send it again",
    }
    return json_answer(503, document, retry_after_s=retry_s)
