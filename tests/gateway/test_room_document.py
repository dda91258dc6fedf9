"""What a place becomes in JSON, without a gateway around it."""

from __future__ import annotations

from proxy.gateway.room_answers import eta_of
from queueing.config import RoomConfig, RoomId
from queueing.places import Counts, Place, State

NOBODY = Counts(waiting=0, parked=0, granted=0, active=0, latest_ticket=0)


def test_no_wait_is_promised_that_the_admission_rate_forbids() -> None:
    place = Place(
        state=State.WAITING,
        counts=NOBODY,
        now_ms=1,
        ticket=1_000,
        ahead=999,
        released=600,
        released_ms=6_000,
    )
    free = eta_of(place, RoomConfig(id=RoomId("r")))
    limited = eta_of(place, RoomConfig(id=RoomId("r"), rate=10))
    assert free is not None
    assert limited is not None
    assert free.p50 < 20
    assert limited.p10 == 100, "a thousand people at ten a second"
