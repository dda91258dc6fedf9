"""What is wrong with the stored rooms: a room that was right when it was saved and no longer is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError

from queueing.config import problems


@register(Tags.database)
def rooms_hold(app_configs: Any, databases: Any = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """queueing.E001: a stored room whose values cannot stand together (only with `--database`)."""
    from queueing.models import Room

    if not databases:
        return []
    try:
        rooms = list(Room.objects.all())
    except DatabaseError:
        return []  # before the first migration there is nothing to look at
    return [
        Error(
            f"Room {room.id}: {problem.field}: {problem.message}",
            hint="Correct it in the console: no new configuration is published until it is right.",
            id="queueing.E001",
        )
        for room in rooms
        for problem in problems(room.to_config())
    ]
