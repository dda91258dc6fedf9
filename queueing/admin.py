"""Rooms in the console: the form, the list with live counts, and what can be done to a room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from queueing import queries, services
from queueing.admin_people import ShowsPeople
from queueing.choices import SHORT_MODES
from queueing.config import Mode
from queueing.forms import RoomForm
from queueing.models import Room
from queueing.refusals import ShowsRefusals


@dataclass(frozen=True, slots=True)
class Act:
    """Something an operator does to rooms: what it is called, what it means, and what does it."""

    name: str
    label: str
    warning: str
    run: Callable[[Room, str], str]


def _mode(mode: Mode, said: str) -> Callable[[Room, str], str]:
    def run(room: Room, author: str) -> str:
        services.set_mode(room_id=room.pk, mode=mode, author=author)
        return f"{room}: {said}."

    return run


def _reset(room: Room, author: str) -> str:
    epoch = services.reset(room_id=room.pk, author=author)
    return f"{room}: reset; this is epoch {epoch}."


def _release(room: Room, author: str) -> str:
    count = services.release_all(room_id=room.pk, author=author)
    return f"{room}: {count} inside lost their slot; the line is served."


ACTS = {
    act.name: act
    for act in (
        Act(
            "pause",
            "Pause",
            "Nobody is let in. Numbers are kept, newcomers join the line, people inside stay"
            " inside.",
            _mode(Mode.PAUSED, "paused"),
        ),
        Act(
            "resume",
            "Resume (open)",
            "People are let in again, in the same order.",
            _mode(Mode.OPEN, "open"),
        ),
        Act(
            "close",
            "Close to newcomers",
            "Newcomers are told that it is closed. The line is served to its end.",
            _mode(Mode.CLOSED, "closed to newcomers"),
        ),
        Act(
            "release",
            "Emergency release",
            "Everyone inside loses the slot at once, whatever they are doing, and joins the line"
            " like a newcomer. The line is then served.",
            _release,
        ),
        Act(
            "reset",
            "Reset",
            "Every number, slot and pass of the room is void. Everybody is told so and starts again"
            " as a newcomer. This cannot be undone.",
            _reset,
        ),
    )
}


LEAD = (
    "To pause, resume, close, release or reset rooms, tick them, choose the action and press Go."
    " Everything else is on the room's own page and is in force within a second."
)


def _confirmed(
    act: Act,
) -> Callable[[RoomAdmin, HttpRequest, QuerySet[Room]], HttpResponse | None]:
    def action(
        modeladmin: RoomAdmin, request: HttpRequest, queryset: QuerySet[Room]
    ) -> HttpResponse | None:
        return modeladmin.confirm_or_do(request, queryset, act)

    action.__name__ = act.name
    return admin.action(description=act.label, permissions=["change"])(action)


@admin.register(Room)
class RoomAdmin(ShowsPeople, ShowsRefusals):
    """Waiting rooms."""

    form = RoomForm
    search_fields = ["id", "name"]
    show_full_result_count = False
    radio_fields = {
        "unit": admin.VERTICAL,
        "on_outage": admin.VERTICAL,
        "inside_now": admin.VERTICAL,
        "order": admin.VERTICAL,
    }
    actions = [_confirmed(act) for act in ACTS.values()]
    fieldsets = [
        (None, {"fields": ["id", "name", "mode", "message"]}),
        ("How many", {"fields": ["unit", "capacity", "rate", "inside_now"]}),
        (
            "Inside",
            {
                "description": "Times are written as 15s, 5m or 1h.",
                "fields": [
                    "active_ttl_ms",
                    "refresh_ms",
                    "absolute_ttl_ms",
                    "essential_limit",
                    "admit_ttl_ms",
                    "lease_ttl_ms",
                    "bind_network",
                    "share_guard",
                    "shares",
                    "embed",
                ],
            },
        ),
        (
            "In line",
            {
                "fields": [
                    "queue_ttl_ms",
                    "return_window_ms",
                    "grant_ttl_ms",
                    "max_queue",
                    "entries_per_minute",
                    "polls_per_second",
                    "reject_status",
                ]
            },
        ),
        (
            "Ranks and forms",
            {
                "description": "Your site may grant a visitor a rank with the header"
                " Corvus-Priority; docs/priority.md shows how. Bans count above every rank.",
                "fields": [
                    "lane_rank",
                    "priority_cap",
                    "priority_wait_ms",
                    "priority_forms",
                    "order",
                    "max_overtake",
                ],
            },
        ),
        (
            "Skip the line",
            {
                "description": "Visitors may pay to go to the front of the line. The price is"
                " (price of one position + surcharge for each person waiting) for each position"
                " skipped. Without a price nothing of it is shown.",
                "classes": ["collapse"],
                "fields": [
                    "skip_rate",
                    "skip_surge",
                    "skip_currency",
                    "skip_url",
                    "vip_ttl_ms",
                ],
            },
        ),
        ("When the store is down", {"fields": ["on_outage", "open_rate"]}),
        ("Waiting page", {"fields": ["page_in_use", "page_upload", "page_remove"]}),
    ]

    def get_readonly_fields(self, request: HttpRequest, obj: Room | None = None) -> list[str]:
        """Keep the short name: cookies and tickets carry it."""
        return ["id", "page_in_use"] if obj else ["page_in_use"]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list with live counts; they are blank while the store is down."""
        stats = queries.live_stats(Room.objects.values_list("id", flat=True))
        request.room_stats = stats  # type: ignore[attr-defined]
        return super().changelist_view(request, {**(extra_context or {}), "lead": LEAD})

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Bind the live columns to this request's counts."""
        stats = getattr(request, "room_stats", {})

        def column(label: str, read: Callable[[Any], str]) -> Callable[[Room], str]:
            @admin.display(description=label, empty_value="–")
            def show(room: Room) -> str:
                found = stats.get(room.pk)
                return read(found.counts) if found else "–"

            return show

        return [
            "name",
            "id",
            "state",
            "capacity",
            column("inside", lambda c: f"{c.active + c.granted}"),
            column("waiting", lambda c: f"{c.waiting}"),
            column("silent", lambda c: f"{c.parked}"),
        ]

    @admin.display(description="mode", ordering="mode")
    def state(self, room: Room) -> str:
        """Show the mode in a word."""
        return SHORT_MODES[Mode(room.mode)]

    @admin.display(description="in use")
    def page_in_use(self, room: Room) -> str:
        """Tell which page people in line see."""
        if not room.page_html:
            return "The built-in page"
        return f"An own page of {len(room.page_html.encode()):,} bytes"

    def save_model(self, request: HttpRequest, obj: Room, form: Any, change: bool) -> None:
        """Write through the service."""
        services.save_room(room=obj, author=request.user.get_username())

    def delete_model(self, request: HttpRequest, obj: Room) -> None:
        """Delete through the service."""
        services.remove_room(room=obj, author=request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Room]) -> None:
        """Delete through the service, one by one."""
        for room in queryset:
            self.delete_model(request, room)

    def confirm_or_do(
        self, request: HttpRequest, queryset: QuerySet[Room], act: Act
    ) -> HttpResponse | None:
        """Ask first, with what it means; do it once the operator has said yes."""
        if request.POST.get("confirmed") != "yes":
            context = {
                **self.admin_site.each_context(request),
                "title": act.label,
                "act": act,
                "rooms": queryset,
                "opts": self.model._meta,
                "action_checkbox_name": ACTION_CHECKBOX_NAME,
            }
            return TemplateResponse(request, "admin/queueing/room/confirm.html", context)
        author = request.user.get_username()
        for room in queryset:
            try:
                said = act.run(room, author)
            except redis.RedisError as error:
                text = f"{room}: the store did not do it ({error})."
                self.message_user(request, text, messages.ERROR)
            else:
                self.log_change(request, room, act.label)
                self.message_user(request, said, messages.SUCCESS)
        return None
