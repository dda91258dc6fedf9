"""What a room that sells places at the front tells a visitor of the price (docs/skip-the-line.md).

Pure. Prices and offers are `queueing.offers`'; here is who is told, and in which words of the API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queueing.config import RoomConfig, VisitorId
from queueing.offers import Price, is_priced, make_offer, price, sign_offer, with_offer
from queueing.pages import Skip
from queueing.passes import Keyring
from queueing.places import Place, State

_STATES = frozenset({State.WAITING, State.PARKED})


@dataclass(frozen=True, slots=True)
class Sale:
    """What one visitor may be told: that it goes to the front without paying, or what it costs."""

    has_pass: bool
    price: Price | None = None
    url: str = ""  # the payment page, with the signed offer in it

    @property
    def skip(self) -> Skip | None:
        """What stands on the page's card."""
        if self.price is None:
            return None
        return Skip(self.price.cost, self.price.currency, self.url)

    @property
    def fields(self) -> dict[str, Any]:
        """What the status answer gains."""
        if self.price is None:
            return {"has_pass": self.has_pass}
        return {
            "has_pass": self.has_pass,
            "skip_cost": self.price.cost,
            "skip_currency": self.price.currency,
            "rate_per_pos": self.price.per_position,
            "skip_url": self.url,
        }


def sale_to(
    room: RoomConfig, keys: Keyring | None, sid: VisitorId | None, place: Place | None
) -> Sale | None:
    """Give what a visitor at this place is told; None where nothing is sold to it."""
    if keys is None or sid is None or place is None or place.state not in _STATES:
        return None
    if not is_priced(room):
        return None
    if place.vip_until_ms > place.now_ms:
        return Sale(has_pass=True)
    found = price(room, ahead=place.ahead, front=place.front, waiting=place.counts.waiting)
    if found is None:
        return Sale(has_pass=False)
    offer = make_offer(found, room.id, sid, now_ms=place.now_ms)
    return Sale(False, found, with_offer(room.skip_url, sign_offer(offer, keys)))
