"""The project as an app: its checks and its commands."""

from __future__ import annotations

from django.apps import AppConfig, apps


class CorvusSiteConfig(AppConfig):
    """Wiring only; there are no models here."""

    name = "corvus_site"
    label = "corvus_site"
    verbose_name = "Corvus"

    def ready(self) -> None:
        """Register the checks and the Celery application; give accounts a plain name."""
        from corvus_site import celery, checks

        del celery, checks
        apps.get_app_config("auth").verbose_name = "Accounts"
