"""Who did what in the console: Django's log of actions, to be read and never changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest


@admin.register(LogEntry)
class ActionLog(admin.ModelAdmin):  # type: ignore[type-arg]
    """Every change that somebody made here."""

    list_display = ["action_time", "user", "kind", "subject", "act"]
    list_display_links = None
    list_select_related = ["user", "content_type"]
    search_fields = ["user__username", "object_repr", "change_message"]
    date_hierarchy = "action_time"
    show_full_result_count = False

    @admin.display(description="of what kind")
    def kind(self, entry: LogEntry) -> str:
        """Name the kind of thing that was changed."""
        return entry.content_type.name if entry.content_type else ""

    @admin.display(description="on what", ordering="object_repr")
    def subject(self, entry: LogEntry) -> str:
        """Name what was changed, as it was called then."""
        return entry.object_repr

    @admin.display(description="what was done")
    def act(self, entry: LogEntry) -> str:
        """Say what was done."""
        return str(entry.get_change_message()) or entry.get_action_flag_display()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: it is written by what is done."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False
