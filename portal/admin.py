"""Who did what in the console: Django's log of actions, to be read and never changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest


@admin.register(LogEntry)
class ActionLog(admin.ModelAdmin):  # type: ignore[type-arg]
    """Every change that somebody made here."""

    list_display = ["action_time", "user", "content_type", "object_repr", "get_change_message"]
    list_display_links = None
    list_select_related = ["user", "content_type"]
    search_fields = ["user__username", "object_repr", "change_message"]
    date_hierarchy = "action_time"
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: it is written by what is done."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False
