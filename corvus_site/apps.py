"""The project as an app: its checks and its commands."""

from __future__ import annotations

from django.apps import AppConfig


class CorvusSiteConfig(AppConfig):
    """Wiring only; there are no models here."""

    name = "corvus_site"
    label = "corvus_site"
    verbose_name = "Corvus"

    def ready(self) -> None:
        """Register the checks of the operator's configuration, and the Celery application."""
        from corvus_site import celery, checks

        del celery, checks
