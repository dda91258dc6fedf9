"""What a room's stage decides of a request: it goes on, or it is answered here. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.gateway.answers import STATE_HEADER, Answer
from proxy.gateway.exchange import Headers
from proxy.gateway.tiers import Tier
from queueing.passes import Credential


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Go on to the origin."""

    reason: str
    credential: Credential | None = None
    headers: Headers | None = None  # for the visitor: a new pass, the mark of an outage entry
    lease: str = ""  # given back when the exchange has ended (unit `requests`; forms in the lane)
    tier: Tier = Tier.PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Answered by the gateway."""

    reason: str
    answer: Answer


def refusal(reason: str, state: str, answer: Answer) -> Refusal:
    """Answer with the room's state in the head, where it is not there yet."""
    if any(name == STATE_HEADER for name, _ in answer.headers):
        return Refusal(reason=reason, answer=answer)
    headers = [*answer.headers, (STATE_HEADER, state.encode())]
    return Refusal(reason=reason, answer=Answer(answer.status, headers, answer.body))
