"""`manage.py prepare`: what must hold before anything serves. `up` runs it at each start."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Brings the database up to date, publishes the configuration, prints the setup token."""

    help = (
        "Bring the database up to date, make the catch-all host, publish the configuration,"
        " and print the setup token while there is no administrator."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it; safe to repeat."""
        call_command("migrate", interactive=False, verbosity=0)
        call_command("publish")
        from portal.services import ensure_setup_token

        if token := ensure_setup_token():
            self.stdout.write(f"setup_token={token}")
