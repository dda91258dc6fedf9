"""`manage.py up`: start Corvus. `corvus_site.command` calls the supervisor before Django loads."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Stands in the list of commands, and serves `call_command`."""

    help = "Start Corvus: store, gateways, console, worker, and a demo site if there is no other."
    requires_system_checks = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Take the flags as they are: they are Corvus's settings, not Django's options."""
        from corvus_site.supervisor import __main__ as supervisor

        raise SystemExit(supervisor.main(argv[2:]))

    def handle(self, *args: Any, **options: Any) -> None:
        """Start it with the settings of the environment."""
        self.run_from_argv(["manage.py", "up"])
