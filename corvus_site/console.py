"""The console's frame around Django's admin: its name, and the order of what it offers."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.apps import AdminConfig
from django.contrib.admin.sites import AdminSite
from django.http import HttpRequest

_DAILY_FIRST = ("queueing", "proxy", "auth")


class Console(AdminSite):
    """Django's admin site as operators of Corvus see it."""

    site_header = "Corvus"
    site_title = "Corvus"
    index_title = "Console"
    site_url = None
    enable_nav_sidebar = False

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Put what is used daily first."""
        apps: list[Any] = super().get_app_list(request, app_label)
        place = {label: position for position, label in enumerate(_DAILY_FIRST)}
        return sorted(apps, key=lambda app: place.get(app["app_label"], len(place)))


class ConsoleConfig(AdminConfig):
    """Django's admin with the site above."""

    default = False
    verbose_name = "History"
    default_site = "corvus_site.console.Console"
