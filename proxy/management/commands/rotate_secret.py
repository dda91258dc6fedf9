"""`manage.py rotate_secret`: begin a new generation of signing keys."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from proxy import services


class Command(BaseCommand):
    """Rotate the signing keys; current and previous verify."""

    help = "Begin a new generation of signing keys. Passes of the last two generations are good."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take `--force`."""
        parser.add_argument(
            "--force",
            action="store_true",
            help="rotate although living passes of the key before become worthless",
        )

    def handle(self, *args: Any, force: bool, **options: Any) -> str:
        """Rotate, or say when it can be done."""
        try:
            number = services.rotate_secret(author="command line", force=force)
        except services.TooSoon as refusal:
            raise CommandError(str(refusal)) from None
        return f"generation {number} signs now"
