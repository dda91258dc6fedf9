"""Payments that move a visitor to the front: who may tell of one, and what comes of it.

Two doors: the operator's own payment flow, signed with the promote secret, and Stripe's webhook,
whose signature Stripe's library checks. The store takes each payment once; so every delivery may
be repeated. See docs/skip-the-line.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib
import json
import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

import structlog

from proxy.gateway.answers import Answer, json_answer
from proxy.gateway.live import LiveRoom
from proxy.gateway.request_body import BodyRefused, RequestBody
from proxy.gateway.rooms import Rooms
from queueing.calls import Advance
from queueing.config import RoomId
from queueing.offers import Offer, looks_like_offer, read_offer, room_named_in
from queueing.passes import Keyring
from queueing.places import Reason
from queueing.store import StoreError, StoreUnreachable

log = structlog.get_logger("corvus.gateway")

LONGEST_ORDER = 4 * 1024
LONGEST_EVENT = 256 * 1024
TOLERANCE_S = 300
"""How far a delivery's time may lie from ours: an older one may be a replay."""

_PAYMENT = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_SIGNATURE = re.compile(rb"v1=([0-9a-f]{64})")
_RETRY_S = 2


@dataclass(frozen=True, slots=True)
class Paid:
    """One payment for one offer."""

    offer: Offer
    payment: str


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Why nothing comes of a delivery."""

    status: int
    error: str
    field: str = ""

    def answer(self) -> Answer:
        """Tell the sender."""
        document = {"error": self.error} | ({"field": self.field} if self.field else {})
        return json_answer(self.status, document, retry_after_s=_RETRY_S)


@dataclass(frozen=True, slots=True)
class NotOurs:
    """An event that is right and of no concern here; its sender need not repeat it."""

    why: str


_UNSIGNED = NotTaken(401, "the signature is missing or wrong, or its time is not now")
_EXPIRED = NotTaken(410, "the offer had expired when it was paid for", "offer")


async def take_order(body: RequestBody, rooms: Rooms, live: LiveRoom, secret: str) -> Answer:
    """Answer the operator's payment flow (`promote`)."""
    try:
        raw = await body.read(LONGEST_ORDER)
    except BodyRefused as refused:
        return NotTaken(refused.status, str(refused)).answer()
    now_s = rooms.clock.now_ms() // 1000
    sent_at, signature = body.header(b"corvus-timestamp"), body.header(b"corvus-signature")
    if not is_signed(secret, sent_at, signature, raw, now_s):
        live.counters["payments_forged"] += 1
        return _UNSIGNED.answer()
    return await _settle(read_order(raw, live.id, rooms.keys, now_s), rooms, live)


async def take_stripe_event(body: RequestBody, rooms: Rooms, live: LiveRoom, secret: str) -> Answer:
    """Answer Stripe's webhook (`stripe`)."""
    try:
        raw = await body.read(LONGEST_EVENT)
    except BodyRefused as refused:
        return NotTaken(refused.status, str(refused)).answer()
    # A third of a second of imports: once, for those who use it, and not on the event loop.
    stripe = await asyncio.to_thread(importlib.import_module, "stripe")
    try:
        signature = body.header(b"stripe-signature").decode("ascii")
        stripe.WebhookSignature.verify_header(raw, signature, secret, TOLERANCE_S)
    except (stripe.SignatureVerificationError, UnicodeError):
        live.counters["payments_forged"] += 1
        return _UNSIGNED.answer()
    return await _settle(read_stripe_event(raw, live.id, rooms.keys), rooms, live)


def is_signed(secret: str, sent_at: bytes, signature: bytes, body: bytes, now_s: int) -> bool:
    """Whether `v1=<hex hmac-sha256(secret, sent_at + "." + body)>` is right and of now."""
    if not (sent_at.isdigit() and len(sent_at) <= 12):
        return False
    if abs(int(sent_at) - now_s) > TOLERANCE_S:
        return False
    match = _SIGNATURE.fullmatch(signature)
    expected = hmac.digest(secret.encode(), sent_at + b"." + body, hashlib.sha256).hex()
    return match is not None and hmac.compare_digest(match[1], expected.encode())


def read_order(raw: bytes, room: RoomId, keys: Keyring, now_s: int) -> Paid | NotTaken:
    """Read a payment flow's `{"offer": …, "payment": …, "paid_at": …}`."""
    order = _object(raw)
    if order is None:
        return NotTaken(400, "the body is no JSON object")
    token, payment, paid_at = order.get("offer"), order.get("payment"), order.get("paid_at")
    if not isinstance(payment, str) or not _PAYMENT.fullmatch(payment):
        return NotTaken(400, "1 to 128 of A-Z a-z 0-9 _ . : - are allowed", "payment")
    if paid_at is not None and not _is_time(paid_at, now_s):
        return NotTaken(400, "seconds since 1970, not in the future, are allowed", "paid_at")
    offer = read_offer(token, room, keys) if isinstance(token, str) else None
    if offer is None:
        return NotTaken(400, "no offer of this room", "offer")
    if (now_s if paid_at is None else min(now_s, int(paid_at))) > offer.exp_s:
        return _EXPIRED
    return Paid(offer, payment)


def read_stripe_event(raw: bytes, room: RoomId, keys: Keyring) -> Paid | NotTaken | NotOurs:
    """Read an event whose signature is right."""
    event = _object(raw)
    if event is None:
        return NotTaken(400, "the body is no JSON object")
    data = event.get("data")
    session = data.get("object") if isinstance(data, dict) else None
    if event.get("type") != "checkout.session.completed" or not isinstance(session, dict):
        return NotOurs("another kind of event")
    token = session.get("client_reference_id")
    if not isinstance(token, str) or not looks_like_offer(token):
        return NotOurs("the payment is for something else")
    if room_named_in(token) not in ("", room):
        return NotOurs("the offer is another room's")
    if session.get("payment_status") != "paid":
        return NotOurs("not paid yet")
    offer = read_offer(token, room, keys)
    if offer is None:
        return NotTaken(400, "no offer of this room", "client_reference_id")
    payment, amount, created = (session.get(k) for k in ("id", "amount_total", "created"))
    if not isinstance(payment, str) or not _PAYMENT.fullmatch(payment):
        return NotTaken(400, "no id of a checkout session", "id")
    if str(session.get("currency")).upper() != offer.currency:
        return NotTaken(409, f"the offer is in {offer.currency}", "currency")
    if not isinstance(amount, int) or amount < stripe_amount(offer):
        return NotTaken(409, f"the offer costs {stripe_amount(offer)}", "amount_total")
    if not isinstance(created, int) or created > offer.exp_s:
        return _EXPIRED
    return Paid(offer, payment)


_STRIPE_DIGITS = {"ISK": (0, 2), "UGX": (0, 2), "MGA": (2, 0)}
"""Where Stripe counts in another unit than ISO 4217's smallest: our digits, Stripe's."""


def stripe_amount(offer: Offer) -> int:
    """Give the offer's amount as Stripe counts it, rounded up."""
    ours, stripes = _STRIPE_DIGITS.get(offer.currency, (0, 0))
    exact = Decimal(offer.amount).scaleb(stripes - ours)
    return int(exact.to_integral_value(ROUND_CEILING))


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _is_time(value: object, now_s: int) -> bool:
    """Whether this is a time of the past, as far as two clocks agree."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= now_s + 300


async def _settle(said: Paid | NotTaken | NotOurs, rooms: Rooms, live: LiveRoom) -> Answer:
    """Move the visitor to the front and say what came of it."""
    if isinstance(said, NotOurs):
        return json_answer(200, {"result": "ignored", "why": said.why})
    if isinstance(said, NotTaken):
        live.counters["payments_refused"] += 1
        log.error("a payment moved nobody", room=live.id, error=said.error, field=said.field)
        return said.answer()
    if rooms.breaker.is_open:
        return NotTaken(503, "the waiting room is not available: send it again").answer()
    try:
        result = await rooms.store.advance(
            live.id,
            said.offer.sid,
            reason=Reason.PAID,
            payment=said.payment,
            vip_ms=live.config.vip_ttl_ms,
        )
    except StoreError as error:
        if isinstance(error, StoreUnreachable):
            rooms.breaker.trip()
        log.warning("payment not taken yet", room=live.id, error=str(error))
        return NotTaken(503, "the waiting room is not available: send it again").answer()
    if result is Advance.UNKNOWN:
        live.counters["payments_refused"] += 1
        log.error("a payment came for a place that has gone", room=live.id, payment=said.payment)
        return json_answer(409, {"result": result, "error": "the visitor has no place any more"})
    live.counters["payments"] += 1
    log.info("paid to go to the front", room=live.id, payment=said.payment, result=result)
    return json_answer(200, {"result": result})
