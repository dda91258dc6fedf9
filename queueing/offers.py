"""What it costs to skip the line, and the signed offer that fixes a price for a few minutes.

Pure: no Django, no store, no clock. A price is counted in `Decimal`; an amount is a whole number of
the currency's smallest unit. The offer goes through the payment page and comes back with the
payment, so what it says is believed only with its signature.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext

from queueing.config import RoomConfig, RoomId, VisitorId
from queueing.passes import Keyring
from queueing.prices import CURRENCIES, format_price, read_price

OFFER_S = 600
"""How long a price holds."""

GREATEST_AMOUNT = 10**12
"""In smallest units; what would cost more costs this."""

LONGEST = 200
"""Characters of an offer: what Stripe's `client_reference_id` takes, which also knows letters,
digits, `-` and `_` only."""

_PREFIX = "skip1-"
_LABEL = b"corvus offer v1 "
_TOKEN = re.compile(rb"skip1-([A-Za-z0-9_-]{1,151})([A-Za-z0-9_-]{43})")
_BODY = re.compile(
    r"([A-Za-z0-9_-]{6})\.([a-z0-9][a-z0-9-]{0,31})\.([A-Za-z0-9_-]{16})"
    r"\.([0-9]{1,10})\.([0-9]{1,13})\.([A-Z]{3})\.([0-9]{1,11})\.([0-9]{1,11})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Price:
    """What it costs one visitor to go to the front now."""

    positions: int  # people who would be passed
    amount: int  # smallest units of the currency
    currency: str  # ISO 4217
    per_position: str  # decimal, in the currency's main unit

    @property
    def cost(self) -> str:
        """The amount as a decimal of the currency's main unit: `12.50`, `1250` for yen."""
        return main_units(self.amount, self.currency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A price that was told to one visitor; times are store time in whole seconds."""

    room: RoomId
    sid: VisitorId
    positions: int
    amount: int
    currency: str
    iat_s: int
    exp_s: int


def is_priced(room: RoomConfig) -> bool:
    """Whether the room sells places at the front at all."""
    return bool(room.skip_url) and bool(_rate(room.skip_rate) or _rate(room.skip_surge))


def price(room: RoomConfig, *, ahead: int, front: int, waiting: int) -> Price | None:
    """Give (rate + surge × waiting) × the people ahead who do not stand in front already.

    None where nothing is sold, nobody would be passed, or it would cost less than half the
    smallest unit. Rounded half up to the smallest unit.
    """
    positions = ahead - front
    digits = CURRENCIES.get(room.skip_currency)
    if positions <= 0 or digits is None or not is_priced(room):
        return None
    with localcontext() as exactly:
        exactly.prec = 60
        each = _rate(room.skip_rate) + _rate(room.skip_surge) * waiting
        exact = (each * positions).scaleb(digits)
        amount = min(int(exact.to_integral_value(ROUND_HALF_UP)), GREATEST_AMOUNT)
        per_position = format_price(each)
    if amount <= 0:
        return None
    return Price(positions, amount, room.skip_currency, per_position)


def main_units(amount: int, currency: str) -> str:
    """Write an amount of smallest units as a decimal of the main unit."""
    digits = CURRENCIES[currency]
    if not digits:
        return str(amount)
    return f"{amount // 10**digits}.{amount % 10**digits:0{digits}}"


def make_offer(price: Price, room: RoomId, sid: VisitorId, *, now_ms: int) -> Offer:
    """Hold a price for ten minutes."""
    now_s = now_ms // 1000
    return Offer(
        room=room,
        sid=sid,
        positions=price.positions,
        amount=price.amount,
        currency=price.currency,
        iat_s=now_s,
        exp_s=now_s + OFFER_S,
    )


def sign_offer(offer: Offer, keys: Keyring) -> str:
    """Write an offer as a token of at most 200 letters, digits, `-` and `_`.

    `skip1-`, then base64url of `kid.room.sid.positions.amount.currency.iat.exp` without padding,
    then the 43 characters of its HMAC-SHA256 in base64url.
    """
    kid, secret = keys.current(_LABEL)
    body = (
        f"{kid}.{offer.room}.{offer.sid}.{offer.positions}.{offer.amount}.{offer.currency}"
        f".{offer.iat_s}.{offer.exp_s}"
    ).encode()
    return _PREFIX + _base64url(body) + _mac(secret, body)


def looks_like_offer(text: str) -> bool:
    """Whether a text was meant as an offer: other reference ids of a payment are not ours."""
    return text.startswith(_PREFIX)


def room_named_in(token: str) -> str:
    """Give the room that an offer claims to be of; "" when it cannot be read. Not verified."""
    match = _TOKEN.fullmatch(token.encode("utf-8", "replace"))
    try:
        fields = _BODY.fullmatch(_from_base64url(match[1]).decode("ascii")) if match else None
    except (UnicodeError, binascii.Error):
        return ""
    return fields[2] if fields else ""


def read_offer(token: str, room: RoomId, keys: Keyring) -> Offer | None:
    """Give what a token says; None unless it was signed here, for this room, by a living key.

    Whether it has expired is the caller's to judge, who has the clock.
    """
    try:
        match = _TOKEN.fullmatch(token.encode("ascii"))
        body = _from_base64url(match[1]) if match else b""
        fields = _BODY.fullmatch(body.decode("ascii"))
    except (UnicodeError, binascii.Error):
        return None
    if match is None or fields is None:
        return None
    kid, named, sid, *numbers, iat, exp = fields.groups()
    secret = keys.derived(_LABEL).get(kid)
    if secret is None or not hmac.compare_digest(_mac(secret, body).encode(), match[2]):
        return None
    positions, amount, currency = numbers
    if named != room or currency not in CURRENCIES:
        return None
    return Offer(
        room=RoomId(named),
        sid=VisitorId(sid),
        positions=int(positions),
        amount=int(amount),
        currency=currency,
        iat_s=int(iat),
        exp_s=int(exp),
    )


def with_offer(address: str, token: str) -> str:
    """Add `offer=<token>` to a payment page's address, before its fragment."""
    rest, mark, fragment = address.partition("#")
    joint = "" if rest.endswith(("?", "&")) else "&"
    return f"{rest}{joint if '?' in rest else '?'}offer={token}{mark}{fragment}"


def _rate(text: str) -> Decimal:
    return read_price(text) or Decimal(0)


def _mac(secret: bytes, body: bytes) -> str:
    return _base64url(hmac.digest(secret, body, hashlib.sha256))


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _from_base64url(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
