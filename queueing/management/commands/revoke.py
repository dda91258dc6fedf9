"""`manage.py revoke ROOM VISITOR`: end one visitor's stay in a room."""

from __future__ import annotations

import getpass
from typing import Any

import redis
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from queueing import services


class Command(BaseCommand):
    """Revoke a visitor."""

    help = (
        "Take the slot from one visitor and make the visitor's passes old, on every gateway within"
        " a second."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take room and visitor."""
        parser.add_argument("room", help="short name of the room, such as main")
        parser.add_argument(
            "visitor", help="the visitor's id, as the room's page “People” shows it"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        """Revoke, and say what became of it.

        Raises:
            CommandError: no such room, no visitor's id, or the store did not do it.
        """
        room, visitor = options["room"], options["visitor"]
        try:
            freed = services.revoke(room_id=room, visitor=visitor, author=f"shell:{_who()}")
        except ValidationError as refusal:
            said = (f"{name}: {text}" for name, (text, *_) in refusal.message_dict.items())
            raise CommandError("; ".join(said)) from None
        except redis.RedisError as error:
            raise CommandError(f"the store did not do it: {error}") from None
        if freed:
            return f"{visitor} is no longer inside {room}; the slot is free."
        return f"{visitor} held no slot of {room} at this moment."


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return "unknown"
