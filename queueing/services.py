"""Every change of a room: keyword-only, in one transaction, announced to whoever publishes it.

Rooms know nobody: `room_changed` is sent inside the transaction, and `proxy` publishes in answer. A
receiver that raises undoes the change. What concerns the line itself goes through the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from django.core.exceptions import ValidationError
from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone

from queueing.calls import Advance
from queueing.config import VISITOR_ID, Mode, RoomId
from queueing.models import Room
from queueing.places import Reason
from queueing.queries import room_store

room_changed = Signal()
"""Sent inside the transaction with `room`, `changed` (frozenset of field names) and `author`."""

room_removed = Signal()
"""Sent inside the transaction with `room_id` and `author`."""

_log = structlog.get_logger("corvus.rooms")
_OWN = frozenset({"id", "version", "changed_at"})


def _differences(room: Room, stored: Room | None) -> frozenset[str]:
    names = {f.attname for f in Room._meta.concrete_fields} - _OWN
    if stored is None:
        return frozenset(names)
    return frozenset(n for n in names if getattr(room, n) != getattr(stored, n))


@transaction.atomic
def save_room(*, room: Room, author: str) -> frozenset[str]:
    """Save a new or changed room and announce it; nothing happens when nothing differs.

    Returns:
        The names of the fields that changed.

    Raises:
        ValidationError: a value or combination that cannot hold (WR-03, WR-65).
    """
    changed = _write(room)
    if changed:
        room_changed.send(sender=Room, room=room, changed=changed, author=author)
        _log.info("room saved", room=room.id, fields=sorted(changed), author=author)
    return changed


def _write(room: Room) -> frozenset[str]:
    stored = Room.objects.select_for_update().filter(pk=room.pk).first()
    changed = _differences(room, stored)
    if changed:
        room.full_clean(validate_unique=False, validate_constraints=False)
        _refuse_unknown(room)
        room.version = stored.version + 1 if stored else 1
        room.save(force_insert=stored is None)
    return changed


def _refuse_unknown(room: Room) -> None:
    known = set(Room.objects.filter(pk__in=room.shares).values_list("pk", flat=True))
    if unknown := [name for name in room.shares if name not in known]:
        text = f"“{', '.join(unknown)}” is not allowed: there is no such room."
        raise ValidationError({"shares": [text]})


@transaction.atomic
def mirror_room(*, room_id: str, fields: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Make a room say what the settings say; `first` fills the rest when it is new.

    Silent: whoever calls this publishes. Returns whether anything changed.
    """
    room = Room.objects.select_for_update().filter(pk=room_id).first()
    if room is None:
        room = Room(id=room_id, **first)
    for name, value in fields.items():
        setattr(room, name, value)
    return bool(_write(room))


@transaction.atomic
def begin_to_govern(*, room_ids: Iterable[str]) -> None:
    """Note that rooms have got their first host now: from here “who is inside now” counts (WR-64).

    Silent: whoever calls this publishes.
    """
    now_ms = int(timezone.now().timestamp() * 1000)
    for room in Room.objects.select_for_update().filter(pk__in=room_ids):
        room.opened_ms = now_ms
        _write(room)


def raise_version(*, room_id: str, above: int) -> int:
    """Number a room's configuration above what the store knows; gives the number.

    Silent: only the number changes, so that the store takes what the database says.
    """
    Room.objects.filter(pk=room_id, version__lte=above).update(version=above + 1)
    return above + 1


def _change(room_id: str, author: str, **values: Any) -> Room:
    with transaction.atomic():
        room = Room.objects.select_for_update().get(pk=room_id)
        for name, value in values.items():
            setattr(room, name, value)
        save_room(room=room, author=author)
    return room


def set_mode(*, room_id: str, mode: Mode, author: str) -> Room:
    """Pause, resume, close, reject or switch off (WR-60)."""
    return _change(room_id, author, mode=mode.value)


def set_capacity(*, room_id: str, capacity: int, author: str) -> Room:
    """Change how many may be inside; 0 holds, fewer than are inside sends nobody away (WR-16)."""
    return _change(room_id, author, capacity=capacity)


@transaction.atomic
def remove_room(*, room: Room, author: str) -> None:
    """Delete a room that no host uses.

    Raises:
        ProtectedError: a proxy host still sends visitors here.
    """
    room_id = room.pk
    room.delete()
    for other in Room.objects.select_for_update():
        if room_id in other.shares:
            other.shares = [name for name in other.shares if name != room_id]
            save_room(room=other, author=author)
    room_removed.send(sender=Room, room_id=room_id, author=author)
    _log.info("room removed", room=room_id, author=author)


def reset(*, room_id: str, author: str) -> int:
    """Empty the room and begin a new epoch (WR-25).

    Returns:
        The number of the new epoch.

    Raises:
        redis.RedisError: the store did not do it.
    """
    room = Room.objects.get(pk=room_id)
    epoch = room_store().reset(room.to_config().id)
    _log.warning("room reset", room=room_id, epoch=epoch, author=author)
    return epoch


def release_all(*, room_id: str, author: str) -> int:
    """Take the slot from everyone inside and revoke their passes: the emergency release (rule 13).

    Returns:
        How many were inside.

    Raises:
        redis.RedisError: the store did not do it.
    """
    room = Room.objects.get(pk=room_id)
    count = room_store().release_all(room.to_config().id)
    _log.warning("everyone inside was released", room=room_id, count=count, author=author)
    return count


def revoke(*, room_id: str, visitor: str, author: str) -> bool:
    """End one visitor's stay: the slot is free at once and the passes are old everywhere.

    Returns:
        Whether there was a slot to take. In unit `requests` passes are old in either case.

    Raises:
        ValidationError: no such room, or not the form of a visitor's id.
        redis.RedisError: the store did not do it.
    """
    room, sid = _whom(room_id, visitor)
    freed = room_store().release(room, sid, revoke=True)
    _log.warning("visitor revoked", room=room, sid=sid, was_inside=freed, author=author)
    return freed


def remove(*, room_id: str, visitor: str, author: str) -> bool:
    """Take one visitor out of the room, from the line or from inside; False when not there.

    Raises:
        ValidationError, redis.RedisError: see `revoke`.
    """
    room, sid = _whom(room_id, visitor)
    removed = room_store().remove(room, [sid]) > 0
    _log.warning("visitor removed", room=room, sid=sid, was_there=removed, author=author)
    return removed


def move_to_front(*, room_id: str, visitor: str, author: str) -> Advance:
    """Put one waiting visitor in front of the line, behind those who stand in front already.

    Raises:
        ValidationError, redis.RedisError: see `revoke`.
    """
    room, sid = _whom(room_id, visitor)
    outcome = room_store().advance(room, sid, reason=Reason.OPERATOR)
    _log.info("visitor moved to the front", room=room, sid=sid, outcome=outcome, author=author)
    return outcome


def _whom(room_id: str, visitor: str) -> tuple[RoomId, str]:
    if not Room.objects.filter(pk=room_id).exists():
        raise ValidationError({"room": f"“{room_id[:40]}” is not allowed: there is no such room."})
    if not VISITOR_ID.fullmatch(visitor):
        text = f"“{visitor[:40]}” is not allowed: 16 of A-Z, a-z, 0-9, - and _, as the page shows."
        raise ValidationError({"visitor": text})
    return RoomId(room_id), visitor
