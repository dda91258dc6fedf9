"""The page “People” of a room: who is inside, who waits, and what an operator can do to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from queueing import services
from queueing.calls import Advance
from queueing.config import RANKS, RoomId, Unit
from queueing.models import Room
from queueing.places import Counts, Person
from queueing.queries import room_store

PAGE = 50
TITLES = {"inside": "Inside", "waiting": "Waiting"}


@dataclass(frozen=True, slots=True)
class Row:
    """One visitor as the page shows it."""

    person: Person

    @property
    def rank(self) -> str:
        """Name the rank; nothing for guests."""
        return RANKS[self.person.rank] if self.person.rank else ""

    @property
    def since(self) -> datetime:
        """When the visitor first came."""
        return datetime.fromtimestamp(self.person.joined_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Table:
    """One page of people."""

    key: str  # `inside` or `waiting`; also the name of its page number in the address
    title: str
    rows: list[Row]
    first: int  # number of the first row, from 1
    previous: str  # links; "" = there is none
    next: str


def _revoke(room_id: str, visitor: str, author: str) -> str:
    if services.revoke(room_id=room_id, visitor=visitor, author=author):
        return f"Visitor {visitor} is no longer inside; the slot is free."
    return f"Visitor {visitor} held no slot any more."


def _remove(room_id: str, visitor: str, author: str) -> str:
    if services.remove(room_id=room_id, visitor=visitor, author=author):
        return f"Visitor {visitor} was removed."
    return f"Visitor {visitor} was not there any more."


_OUTCOMES = {
    Advance.MOVED: "Visitor {} stands in front now, behind those who stood there already.",
    Advance.ALREADY: "Visitor {} stands in front already.",
    Advance.GRANTED: "Visitor {} has been called already: it is the visitor's turn.",
    Advance.INSIDE: "Visitor {} is inside already.",
    Advance.UNKNOWN: "Visitor {} is not in the line any more.",
}


def _front(room_id: str, visitor: str, author: str) -> str:
    outcome = services.move_to_front(room_id=room_id, visitor=visitor, author=author)
    return _OUTCOMES[outcome].format(visitor)


ACTS: dict[str, tuple[str, Callable[[str, str, str], str]]] = {
    "revoke": ("Revoked", _revoke),
    "remove": ("Removed", _remove),
    "front": ("Moved to the front", _front),
}


class ShowsPeople(admin.ModelAdmin):  # type: ignore[type-arg]
    """Adds the page to the admin of rooms."""

    def get_urls(self) -> list[URLPattern]:
        """Add the page's address."""
        view = self.admin_site.admin_view(self.people_view)
        return [
            path("<str:room_id>/people/", view, name="queueing_room_people"),
            *super().get_urls(),
        ]

    def people_view(self, request: HttpRequest, room_id: str) -> HttpResponse:
        """Show the tables, or do what was asked and show them again."""
        room = Room.objects.filter(pk=room_id).first()
        if room is None:
            raise Http404(f"There is no room {room_id}.")
        if not self.has_view_permission(request, room):
            raise PermissionDenied
        if request.method == "POST":
            if not self.has_change_permission(request, room):
                raise PermissionDenied
            self._act(request, room)
            return HttpResponseRedirect(request.get_full_path())
        context = {
            **self.admin_site.each_context(request),
            "title": f"People of {room}",
            "opts": self.model._meta,
            "room": room,
            "can_change": self.has_change_permission(request, room),
            **_seen(request, room),
        }
        return TemplateResponse(request, "admin/queueing/room/people.html", context)

    def _act(self, request: HttpRequest, room: Room) -> None:
        author = request.user.get_username()
        visitor = request.POST.get("visitor", "")
        try:
            if request.POST.get("act") == "capacity":
                label, said = self._set_capacity(request, room, author)
            else:
                label, run = ACTS[request.POST.get("act", "")]
                said = run(room.pk, visitor, author)
                label = f"{label}: {visitor}"
        except KeyError:
            messages.error(request, "Nothing was done: that is nothing one can do here.")
        except ValidationError as refusal:
            messages.error(request, f"Nothing was done: {' '.join(refusal.messages)}")
        except redis.RedisError as error:
            messages.error(request, f"The store did not do it ({error}).")
        else:
            self.log_change(request, room, label)
            messages.success(request, said)

    def _set_capacity(self, request: HttpRequest, room: Room, author: str) -> tuple[str, str]:
        text = request.POST.get("capacity", "").strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise ValidationError(f"“{text[:40]}” is not allowed: write a whole number.")
        services.set_capacity(room_id=room.pk, capacity=int(text), author=author)
        return f"Capacity {text}", f"The capacity is {text} now."


def _seen(request: HttpRequest, room: Room) -> dict[str, Any]:
    try:
        counts = room_store().stats(RoomId(room.pk)).counts
        tables = [_table(request, room, counts, key) for key in TITLES]
    except redis.RedisError:
        return {"tables": None}
    return {"counts": counts, "tables": tables, "of_requests": room.unit == Unit.REQUESTS}


def _table(request: HttpRequest, room: Room, counts: Counts, key: str) -> Table:
    page = _page(request.GET.get(key, "1"))
    first = (page - 1) * PAGE
    is_inside = key == "inside"
    found = room_store().people(RoomId(room.pk), inside=is_inside, first=first, count=PAGE + 1)

    # Among those inside are slots that are nobody's, which the store leaves out.
    is_more = counts.active > first + PAGE if is_inside else len(found) > PAGE

    def link(to: int) -> str:
        query = request.GET.copy()
        query[key] = str(to)
        return f"?{query.urlencode()}#{key}"

    return Table(
        key=key,
        title=TITLES[key],
        rows=[Row(person) for person in found[:PAGE]],
        first=first + 1,
        previous=link(page - 1) if page > 1 else "",
        next=link(page + 1) if is_more else "",
    )


def _page(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 8
    return max(1, int(text)) if is_number else 1
