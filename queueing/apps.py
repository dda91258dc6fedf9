"""Rooms as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class QueueingConfig(AppConfig):
    """Waiting rooms."""

    name = "queueing"
    verbose_name = "Waiting rooms"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks of rooms."""
        from queueing import checks

        del checks
