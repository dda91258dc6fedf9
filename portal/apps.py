"""The console's own pages as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """First run, health, and later the live pages."""

    name = "portal"
    verbose_name = "Console"
