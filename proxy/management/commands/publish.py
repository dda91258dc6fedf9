"""`manage.py publish`: bring the configuration of now into force; run at every start."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from proxy import publishing, queries, services


class Command(BaseCommand):
    """Publish what settings and database say."""

    help = "Publish the configuration as settings and database have it now."

    def handle(self, *args: Any, **options: Any) -> str:
        """Mirror the settings, publish, and say what is in force."""
        try:
            services.ensure_catch_all()
            version = publishing.publish(author=services.SYSTEM, note="Start")
        except services.SettingsRefused as refusal:
            name, texts = next(iter(refusal.message_dict.items()))
            raise CommandError(f"{name}: {texts[0]}") from None
        except ValidationError as refusal:
            raise CommandError(" ".join(refusal.messages)) from None
        if queries.is_behind():
            return f"version {version.number} is saved; the store cannot be reached yet"
        return f"version {version.number} is in force"
