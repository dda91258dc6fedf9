"""Protection as a Django app; its rules come with a later release, its addresses are pure."""

from __future__ import annotations

from django.apps import AppConfig


class AbuseConfig(AppConfig):
    """Who may not come in."""

    name = "abuse"
    verbose_name = "Protection"
