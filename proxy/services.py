"""Every change of hosts, settings and keys, each in one transaction that also publishes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from proxy import queries
from proxy.effective import Effective
from proxy.gateway.cookies import queued_life_ms
from proxy.models import HostName, KeyGeneration, ProxyHost, RoomBinding, SavedSetting
from proxy.names import EVERY_NAME
from proxy.publishing import publish
from queueing import services as room_services
from queueing.config import InsideNow
from queueing.durations import format_duration
from queueing.queries import room_configs

MAIN_ROOM = "main"
SYSTEM = "corvus"

_log = structlog.get_logger("corvus.configuration")


class SettingsRefused(ValidationError):
    """Settings that cannot stand; `message_dict` has the sentences by setting name."""


class TooSoon(ValueError):
    """A second rotation before every pass of the key it would drop has run out."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A path rule of a host and the room that governs it."""

    path: str
    room_id: str


@transaction.atomic
def save_host(
    *, host: ProxyHost, names: Sequence[str], rules: Iterable[Rule], author: str
) -> ProxyHost:
    """Save a host with its names and rooms, and publish.

    Raises:
        ValidationError: a value that cannot stand, or a name that another host has.
    """
    host.full_clean()
    taken = HostName.objects.filter(name__in=names).exclude(host_id=host.pk).select_related("host")
    if other := taken.first():
        raise ValidationError(
            {"names": f"{other.name} belongs to the host “{other.host}” already."}
        )
    host.save()
    _replace_names(host, names)
    _replace_rules(host, rules)
    publish(author=author, note=f"Host {host} saved")
    _log.info("host saved", host=str(host), author=author)
    return host


def _replace_names(host: ProxyHost, names: Sequence[str]) -> None:
    host.names.exclude(name__in=names).delete()
    present = set(host.names.values_list("name", flat=True))
    HostName.objects.bulk_create(HostName(host=host, name=n) for n in names if n not in present)


def _replace_rules(host: ProxyHost, rules: Iterable[Rule]) -> None:
    wanted: dict[str, str] = {}
    for rule in rules:
        binding = RoomBinding(host=host, path=rule.path, room_id=rule.room_id)
        binding.clean()
        if binding.path in wanted:
            raise ValidationError(f"The path {binding.path} has two rooms; a path has one.")
        wanted[binding.path] = rule.room_id
    governing = set(RoomBinding.objects.values_list("room_id", flat=True))
    host.bindings.exclude(path__in=wanted).delete()
    for path, room_id in wanted.items():
        RoomBinding.objects.update_or_create(host=host, path=path, defaults={"room_id": room_id})
    room_services.begin_to_govern(room_ids=set(wanted.values()) - governing)


@transaction.atomic
def remove_host(*, host: ProxyHost, author: str) -> None:
    """Delete a host and publish; the catch-all stays.

    Raises:
        ValidationError: it is the catch-all.
    """
    if host.catch_all:
        raise ValidationError("The catch-all host cannot be deleted.")
    label = str(host)
    host.delete()
    publish(author=author, note=f"Host {label} removed")
    _log.info("host removed", host=label, author=author)


@transaction.atomic
def save_settings(*, values: Mapping[str, str | None], author: str) -> frozenset[str]:
    """Save settings, all or nothing; None gives a setting back to flag, environment or default.

    Returns:
        The names whose saved value changed.

    Raises:
        SettingsRefused: something in it cannot stand; nothing was saved.
    """
    before = queries.saved_settings()
    after = {n: t for n, t in {**before, **values}.items() if t is not None}
    changed = frozenset(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    if not changed:
        return changed
    _write_saved(after, changed, author)
    ensure_catch_all()
    publish(author=author, note=f"Settings saved: {', '.join(sorted(changed))}")
    _log.info("settings saved", names=sorted(changed), author=author)
    return changed


def _write_saved(after: Mapping[str, str], changed: Iterable[str], author: str) -> None:
    if problems := queries.configured().problems(after):
        errors: dict[str, list[str]] = {}
        for problem in problems:
            errors.setdefault(problem.name, []).append(problem.message)
        raise SettingsRefused(errors)
    for name in changed:
        if name in after:
            SavedSetting.objects.update_or_create(
                name=name, defaults={"value": after[name], "author": author}
            )
        else:
            SavedSetting.objects.filter(name=name).delete()


@transaction.atomic
def ensure_catch_all() -> ProxyHost:
    """Make the catch-all host and its room say what the settings say; gives the host.

    `CORVUS_UPSTREAM` alone, or the demo site, makes a working gateway.

    Raises:
        SettingsRefused: lists of paths that cannot stand with what the host says itself.
    """
    effective = queries.effective()
    room_services.mirror_room(
        room_id=MAIN_ROOM,
        fields={n: getattr(v, "value", v) for n, v in effective.room_fields().items()},
        # The gateway is new to this site: nobody is inside through it yet.
        first={"name": "Main room", "inside_now": InsideNow.QUEUE.value},
    )
    host = ProxyHost.objects.filter(catch_all=True).first()
    is_new = host is None
    host = host or ProxyHost(catch_all=True, label="Every other name")
    host.origin = queries.origin()
    host.preserve_host = effective.value("CORVUS_PRESERVE_HOST")
    _mirror_lists(host, effective)
    host.save()
    if is_new:
        _replace_names(host, [EVERY_NAME])
        _replace_rules(host, [Rule("/*", MAIN_ROOM)])
    return host


def _mirror_lists(host: ProxyHost, effective: Effective) -> None:
    fields = {s.host_field: s.name for s in effective.settings() if s.host_field}
    for field, name in fields.items():
        setattr(host, field, "\n".join(effective.value(name)))
    # The settings stand together; the host's return paths and case rule may still be against them.
    errors: dict[str, list[str]] = {}
    for fault in host.faults():
        if fault.field in fields:
            errors.setdefault(fields[fault.field], []).append(fault.message)
    if errors:
        raise SettingsRefused(errors)


def on_room_changed(*, room: Any, changed: frozenset[str], author: str, **_: Any) -> None:
    """Publish a saved room; the main room's values are settings, so they are saved as such."""
    if room.pk == MAIN_ROOM:
        _save_main_room(room, changed, author)
    publish(author=author, note=f"Room {room.pk} saved")


def _save_main_room(room: Any, changed: frozenset[str], author: str) -> None:
    values = queries.saved_settings()
    touched = set()
    for setting in queries.configured().settings():
        if setting.room_field in changed:
            values[setting.name] = _as_text(setting.room_field, getattr(room, setting.room_field))
            touched.add(setting.name)
    if touched:
        _write_saved(values, touched, author)


def _as_text(field: str, value: Any) -> str:
    if field.endswith("_ms"):
        return format_duration(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def on_room_removed(*, room_id: str, author: str, **_: Any) -> None:
    """Publish without the room."""
    publish(author=author, note=f"Room {room_id} removed")


def longest_pass_ms() -> int:
    """Give how long a pass or ticket can live without being signed again, over all rooms."""
    lives = (max(c.active_ttl_ms, c.admit_ttl_ms, queued_life_ms(c)) for c in room_configs())
    return max(lives, default=0)


@transaction.atomic
def rotate_secret(*, author: str, force: bool = False) -> int:
    """Begin a new generation of signing keys and publish it; gives its number (WR-28).

    The generation before still verifies. A second rotation within the longest life of a pass would
    make living passes worthless.

    Raises:
        TooSoon: that is so, and `force` is not given.
    """
    newest = KeyGeneration.objects.select_for_update().order_by("-number").first()
    now = timezone.now()
    if newest is not None and not force:
        passed_ms = int((now - newest.rotated_at).total_seconds() * 1000)
        if (wait_ms := longest_pass_ms() - passed_ms) > 0:
            minutes = -(-wait_ms // 60_000)
            raise TooSoon(
                f"Passes of the key before the last rotation ({newest.rotated_at:%Y-%m-%d %H:%M}"
                f" UTC) can live for another {minutes} min and would be worth nothing. Wait, or"
                " force it."
            )
    number = queries.key_generation() + 1
    KeyGeneration.objects.create(number=number, author=author, rotated_at=now)
    publish(author=author, note=f"Signing keys rotated to generation {number}")
    _log.warning("signing keys rotated", generation=number, author=author, forced=force)
    return number
