"""The waiting room as operators keep it.

What its values mean lies in `queueing.config`; writes lie in `queueing.services`.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from queueing.choices import INSIDE_NOW, LANE_RANKS, MODES, ON_OUTAGE, ORDERS, UNITS
from queueing.config import (
    BOUNDS,
    InsideNow,
    Mode,
    OnOutage,
    Order,
    RoomConfig,
    RoomId,
    Unit,
    problems,
)
from queueing.fields import DurationField, PriceField, RoomListField
from queueing.pages.bundle import FORMAT


def _number(field: str, default: int, verbose: str, help_text: str) -> Any:
    low, high = BOUNDS[field]
    return models.PositiveBigIntegerField(
        verbose,
        default=default,
        validators=[MinValueValidator(low), MaxValueValidator(high)],
        help_text=help_text,
    )


class Room(models.Model):
    """One waiting room. Field names are those of `RoomConfig`; `*_ms` are milliseconds."""

    id = models.SlugField(
        "short name",
        primary_key=True,
        max_length=32,
        help_text="1 to 32 of a-z, 0-9 and -. Part of cookie names and addresses; it cannot be"
        " changed later.",
    )
    name = models.CharField(
        max_length=100,
        help_text="What visitors and operators read, such as “Autumn sale”.",
    )
    mode = models.CharField(
        max_length=8,
        choices=MODES,
        default=Mode.OPEN,
        help_text="What the room does at the moment.",
    )
    unit = models.CharField(
        "capacity counts",
        max_length=8,
        choices=UNITS,
        default=Unit.VISITORS,
        help_text="What one slot is.",
    )
    capacity = _number(
        "capacity",
        434,
        "capacity",
        "How many may be inside at once. 0 holds the line: nobody is let in. Lowering it sends"
        " nobody away.",
    )
    rate = _number(
        "rate",
        0,
        "admissions per second",
        "Most people let in within any one second. 0: no limit.",
    )
    active_ttl_ms = DurationField(
        "idle limit",
        default=300_000,
        help_text="How long someone inside may do nothing before the slot is free for the next,"
        " such as 5m. At least twice the pass renewal: somebody idle for less than the idle limit"
        " minus the pass renewal never loses the slot.",
    )
    absolute_ttl_ms = DurationField(
        "longest stay",
        default=0,
        help_text="How long someone may stay inside at most, busy or not, such as 1h. 0: no limit.",
    )
    essential_limit = models.BooleanField(
        "longest stay cannot be extended",
        default=False,
        help_text="Visitors are told the limit from the start and cannot lengthen it. Otherwise"
        " they can, ten times at least.",
    )
    refresh_ms = DurationField(
        "pass renewal",
        default=15_000,
        help_text="How often a visitor's pass is renewed, such as 15s. Shorter notices absence"
        " sooner, longer costs the store less.",
    )
    grant_ttl_ms = DurationField(
        "claim time",
        default=60_000,
        help_text="How long a slot is kept for someone whose turn has come, such as 60s.",
    )
    queue_ttl_ms = DurationField(
        "silence allowed",
        default=135_000,
        help_text="How long someone waiting may be silent before others are let past, such as"
        " 135s. The number is kept. Hidden tabs check in once a minute.",
    )
    return_window_ms = DurationField(
        "return window",
        default=600_000,
        help_text="How long the place of someone silent is kept, counted from the last sign of"
        " life, such as 10m. At least the silence allowed.",
    )
    admit_ttl_ms = DurationField(
        "pass lifetime",
        default=600_000,
        help_text="How long a pass is good when the capacity counts requests, such as 10m.",
    )
    max_queue = _number(
        "max_queue",
        100_000,
        "longest line",
        "Most people waiting; later ones are told that it is full. 0: no limit.",
    )
    entries_per_minute = _number(
        "entries_per_minute",
        60,
        "new places per address and minute",
        "New places that one address (one /64 for IPv6) may take in a minute. People who have a"
        " place are not touched. 0: no limit.",
    )
    polls_per_second = _number(
        "polls_per_second",
        3,
        "status checks per second",
        "Status checks that one visitor may make in a second.",
    )
    on_outage = models.CharField(
        "when the store is down",
        max_length=8,
        choices=ON_OUTAGE,
        help_text="What newcomers meet while Valkey or Redis cannot be reached. People inside stay"
        " inside either way.",
    )
    open_rate = _number(
        "open_rate",
        10,
        "let in per second while the store is down",
        "Per gateway machine, and only if the choice above is “open”.",
    )
    bind_network = models.BooleanField(
        "check again on a new network",
        default=False,
        help_text="A pass that comes from another network is checked once more. The place is kept.",
    )
    inside_now = models.CharField(
        "who is inside now",
        max_length=8,
        choices=INSIDE_NOW,
        help_text="What happens to people who are on the site when the room begins. “Keep” needs"
        " the session cookie's name on the proxy host.",
    )
    reject_status = models.PositiveSmallIntegerField(
        "answer while rejecting",
        choices={429: "429 Too Many Requests", 503: "503 Service Unavailable"},
        default=429,
        help_text="HTTP status for newcomers while the room is rejecting.",
    )
    message = models.CharField(
        max_length=500,
        blank=True,
        help_text="A sentence to everybody who waits, shown as it is written. Empty: none.",
    )
    lease_ttl_ms = DurationField(
        "slot of a dead gateway",
        default=30_000,
        help_text="How long a page's slot stays taken when the gateway that served it has died,"
        " such as 30s. A living gateway renews it three times as often.",
    )
    priority_cap = _number(
        "priority_cap",
        0,
        "slots of the lane",
        "Slots beside the capacity, kept for ranks and forms: the site sees at most the sum of"
        " both. 0: a quarter of the capacity.",
    )
    lane_rank = models.PositiveSmallIntegerField(
        "lowest rank in the lane",
        choices=LANE_RANKS,
        default=3,
        help_text="Who has this rank or a higher one uses the lane while the room is full. Your"
        " site grants ranks; docs/priority.md says how.",
    )
    priority_wait_ms = DurationField(
        "wait for the lane",
        default=5_000,
        help_text="How long a request waits for a slot of the lane before it joins the line, such"
        " as 5s.",
    )
    priority_forms = models.BooleanField(
        "forms use the lane",
        default=True,
        help_text="What somebody with a pass has filled in is sent through the lane, whatever the"
        " rank. Is the lane full too, the visitor is told that nothing was sent.",
    )
    order = models.CharField(
        "order of the line",
        max_length=8,
        choices=ORDERS,
        default=Order.ARRIVAL,
        help_text="Who of the line is next. Within a rank it is always who came first.",
    )
    max_overtake = _number(
        "max_overtake",
        50,
        "share of overtaking",
        "Percent of admissions that may go to a higher rank before the first in line, 0 to 90."
        " Only with the order by rank.",
    )
    share_guard = models.BooleanField(
        "one network at a time",
        default=False,
        help_text="A pass that is used from two networks at the same moment works on the first"
        " only; the second waits like a newcomer.",
    )
    shares = RoomListField(
        "passes of other rooms",
        help_text="Who is inside one of these rooms is inside here as well. The other way round"
        " must be ticked there.",
    )
    embed = models.BooleanField(
        "in another site's frame",
        default=False,
        help_text="Visitors come in a frame of another site, so cookies are made for that. HTTPS"
        " only.",
    )
    skip_rate = PriceField(
        "price of one position",
        help_text="What it costs to skip one position of the line, such as 0.5. 0 in both prices:"
        " nothing is offered.",
    )
    skip_surge = PriceField(
        "surcharge per person waiting",
        help_text="Added to the price of one position for each person in line, such as 0.01.",
    )
    skip_currency = models.CharField(
        "currency",
        max_length=3,
        default="EUR",
        help_text="Three letters of ISO 4217, such as EUR or USD.",
    )
    skip_url = models.CharField(
        "payment page",
        max_length=2048,
        blank=True,
        default="",
        help_text="Where visitors pay: a path of the site that begins with / or an address with"
        " http or https. The signed offer is added to it. Needed with a price.",
    )
    vip_ttl_ms = DurationField(
        "front again",
        default=0,
        help_text="How long somebody who has paid goes to the front again whenever they wait, from"
        " 1m to 24h. 0: only once.",
    )
    page_html = models.TextField(
        "own waiting page",
        blank=True,
        default="",
        editable=False,
        help_text="The uploaded template. Empty: the built-in page.",
    )
    opened_ms = models.PositiveBigIntegerField(default=0, editable=False)
    version = models.PositiveBigIntegerField(default=1, editable=False)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                name="room_mode_known", condition=Q(mode__in=[m.value for m in Mode])
            ),
            models.CheckConstraint(
                name="room_unit_known", condition=Q(unit__in=[u.value for u in Unit])
            ),
            models.CheckConstraint(
                name="room_outage_choice_made",
                condition=Q(on_outage__in=[o.value for o in OnOutage]),
            ),
            models.CheckConstraint(
                name="room_inside_choice_made",
                condition=Q(inside_now__in=[i.value for i in InsideNow]),
            ),
            models.CheckConstraint(
                name="room_order_known", condition=Q(order__in=[o.value for o in Order])
            ),
            models.CheckConstraint(
                name="room_idle_limit_covers_renewal",
                condition=Q(active_ttl_ms__gte=2 * F("refresh_ms")),
            ),
            models.CheckConstraint(
                name="room_return_window_covers_silence",
                condition=Q(return_window_ms__gte=F("queue_ttl_ms")),
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.id

    @property
    def page_digest(self) -> str:
        """Name the operator's own page by content and compiled form; empty when there is none."""
        if not self.page_html:
            return ""
        return hashlib.sha256(f"{FORMAT}\n{self.page_html}".encode()).hexdigest()[:16]

    def to_config(self) -> RoomConfig:
        """Give the plain data that script and gateway know the room by."""
        return RoomConfig(
            id=RoomId(self.id),
            name=self.name,
            version=self.version,
            mode=Mode(self.mode),
            unit=Unit(self.unit),
            capacity=self.capacity,
            rate=self.rate,
            active_ttl_ms=self.active_ttl_ms,
            absolute_ttl_ms=self.absolute_ttl_ms,
            essential_limit=self.essential_limit,
            refresh_ms=self.refresh_ms,
            grant_ttl_ms=self.grant_ttl_ms,
            queue_ttl_ms=self.queue_ttl_ms,
            return_window_ms=self.return_window_ms,
            admit_ttl_ms=self.admit_ttl_ms,
            max_queue=self.max_queue,
            entries_per_minute=self.entries_per_minute,
            polls_per_second=self.polls_per_second,
            on_outage=OnOutage(self.on_outage),
            open_rate=self.open_rate,
            bind_network=self.bind_network,
            inside_now=InsideNow(self.inside_now),
            opened_ms=self.opened_ms,
            reject_status=self.reject_status,
            message=self.message,
            page=self.page_digest,
            lease_ttl_ms=self.lease_ttl_ms,
            priority_cap=self.priority_cap,
            lane_rank=self.lane_rank,
            priority_wait_ms=self.priority_wait_ms,
            priority_forms=self.priority_forms,
            order=Order(self.order),
            max_overtake=self.max_overtake,
            share_guard=self.share_guard,
            shares=tuple(RoomId(room) for room in self.shares),
            embed=self.embed,
            skip_rate=self.skip_rate,
            skip_surge=self.skip_surge,
            skip_currency=self.skip_currency,
            skip_url=self.skip_url,
            vip_ttl_ms=self.vip_ttl_ms,
        )

    def clean(self) -> None:
        """Refuse values and combinations that cannot hold, each at its field (WR-03, WR-65)."""
        if None in (getattr(self, name) for name in BOUNDS) or not (
            self.on_outage and self.inside_now and self.order
        ):
            return  # a field of its own is wrong already and says so
        errors: dict[str, list[str]] = {}
        for problem in problems(self.to_config()):
            errors.setdefault(problem.field, []).append(problem.message)
        if errors:
            raise ValidationError(errors)
