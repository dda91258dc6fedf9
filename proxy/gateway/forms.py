"""Which requests are forms of people who have a pass. Pure.

Such a form is never queued, since by the time of its turn its body would be lost (WR-27, WR-45): it
goes through at once or by the lane, or the visitor is told that it was not sent.
"""

from __future__ import annotations

from proxy.gateway.cookies import IDENTITY_S
from proxy.gateway.exchange import Exchange
from proxy.gateway.gate import Revocations
from queueing.passes import Credential, Kind

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
