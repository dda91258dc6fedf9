"""Where the value of a setting comes from: the console, a flag, the environment or the default.

Pure but for reading `NAME_FILE` secrets; imports no Django, for the supervisor reads settings
before there is one. The settings themselves are declared in `corvus_site.setting_list`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from corvus_site.setting_kinds import READERS, HostPort, Kind, Setting
from corvus_site.setting_list import SETTINGS
from proxy.gateway.conflicts import faults
from queueing.config import OnOutage, Order, RoomConfig, RoomId, Unit, problems

__all__ = [
    "FLAGS_VARIABLE",
    "SETTINGS",
    "BadSetting",
    "Effective",
    "HostPort",
    "Kind",
    "Setting",
    "Source",
    "export_flags",
    "load",
    "unknown_names",
]

FLAGS_VARIABLE = "CORVUS_FLAGS"
"""How the supervisor hands its command-line flags to its children: a JSON object of name → text."""

HANDED_DOWN = frozenset({FLAGS_VARIABLE, "CORVUS_STORE_URL", "CORVUS_MACHINE_DIR"})
"""What only the supervisor sets, for its children: no settings of an operator."""

_MAIN = RoomId("main")


class BadSetting(ValueError):
    """A setting that cannot stand; one line: its name, the value (not of secrets), what may be."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class Source(StrEnum):
    """Where a value comes from, the strongest first."""

    SAVED = "saved in the console"
    FLAG = "command line"
    ENVIRONMENT = "environment"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class _Held:
    text: str
    value: Any
    source: Source


class Effective:
    """Every setting with its value in force and where that comes from. Immutable."""

    def __init__(self, held: Mapping[str, _Held]) -> None:
        self._held = dict(held)

    def value(self, name: str) -> Any:
        """Give the typed value, see `Kind`; durations are float seconds, sizes bytes."""
        return self._held[name].value

    def text(self, name: str) -> str:
        """Give the value as it was written; for secrets only whether there is one."""
        held = self._held[name]
        if SETTINGS[name].secret:
            return "(set)" if held.text else ""
        return held.text

    def source(self, name: str) -> Source:
        """Tell where the value comes from."""
        return self._held[name].source

    def settings(self) -> Iterable[Setting]:
        """Give the declarations, in the order of the list."""
        return SETTINGS.values()

    def problems(self, saved: Mapping[str, str]) -> list[BadSetting]:
        """Name everything that `saved` would make wrong; empty when all can stand together."""
        found: list[BadSetting] = []
        held = dict(self._held)
        for name, text in saved.items():
            setting = SETTINGS.get(name)
            if setting is None:
                found.append(BadSetting(name, "there is no setting of this name."))
            elif not setting.savable:
                why = "it is a secret" if setting.secret else "it takes a restart"
                found.append(
                    BadSetting(name, f"cannot be saved here, for {why}: set the environment.")
                )
            else:
                try:
                    held[name] = _Held(text, read(setting, text), Source.SAVED)
                except BadSetting as bad:
                    found.append(bad)
        return found or contradictions(Effective(held))

    def overlaid(self, saved: Mapping[str, str]) -> Effective:
        """Put the console's saved values above the others.

        Raises:
            BadSetting: the first of `problems(saved)`.
        """
        for bad in self.problems(saved):
            raise bad
        held = dict(self._held)
        for name, text in saved.items():
            held[name] = _Held(text, read(SETTINGS[name], text), Source.SAVED)
        return Effective(held)

    def room_fields(self) -> dict[str, Any]:
        """Give the fields of the main room that settings hold, as `RoomConfig` takes them (ms)."""
        return {
            s.room_field: _room_value(s, self.value(s.name))
            for s in SETTINGS.values()
            if s.room_field
        }

    def gateway_fields(self) -> dict[str, Any]:
        """Give the fields of `GatewaySettings` (durations in seconds)."""
        fields = {s.gateway_field: self.value(s.name) for s in SETTINGS.values() if s.gateway_field}
        fields["retry_after_s"] = int(fields["retry_after_s"])
        return fields


_CHOICES = {"unit": Unit, "on_outage": OnOutage, "order": Order}


def _room_value(setting: Setting, value: Any) -> Any:
    match setting.kind:
        case Kind.DURATION:
            return round(value * 1000)
        case Kind.CHOICE:
            return _CHOICES[setting.room_field](value)
        case _:
            return value


def read(setting: Setting, text: str) -> Any:
    """Turn the text of a setting into its value.

    Raises:
        BadSetting: the text does not fit the kind or the bounds.
    """
    try:
        return READERS[setting.kind](text.strip(), setting.bounds)
    except ValueError:
        shown = "the value" if setting.secret else f"“{_one_line(text)}”"
        message = f"{shown} is not allowed: it must be {setting.allowed}."
        raise BadSetting(setting.name, message) from None


def _one_line(text: str) -> str:
    clean = "".join(c if c.isprintable() else "�" for c in text)
    return clean if len(clean) <= 100 else f"{clean[:100]}…"


def contradictions(effective: Effective) -> list[BadSetting]:
    """Name the values that are right alone and wrong together (design §4 rules 3 and 6, WR-65)."""
    fields = {s.room_field: s.name for s in SETTINGS.values() if s.room_field}
    room = RoomConfig(id=_MAIN, **effective.room_fields())
    found = [BadSetting(fields[p.field], p.message) for p in problems(room) if p.field in fields]
    lists = {s.host_field: s.name for s in SETTINGS.values() if s.host_field}
    values = {field: effective.value(name) for field, name in lists.items()}
    found += [BadSetting(lists[fault.field], fault.message) for fault in faults(values)]
    pair = ("CORVUS_TLS_CERT", "CORVUS_TLS_KEY")
    for this, other in (pair, pair[::-1]):
        if effective.value(this) and not effective.value(other):
            found.append(BadSetting(other, f"it must be set too, because {this} is set."))
    return found


def load(environ: Mapping[str, str], flags: Mapping[str, str] | None = None) -> Effective:
    """Read every setting from flags and environment (blank counts as unset).

    Without `flags` those that the supervisor handed down in `CORVUS_FLAGS` count.

    Raises:
        BadSetting: the first value, or combination of values, that cannot stand.
    """
    given = _handed_down(environ) if flags is None else flags
    for name in given:
        if name not in SETTINGS:
            raise BadSetting(name, "there is no setting of this name.")
        if SETTINGS[name].secret:
            raise BadSetting(name, "a secret cannot be a flag: process lists show flags.")
    effective = Effective({s.name: _hold(s, environ, given) for s in SETTINGS.values()})
    for bad in contradictions(effective):
        raise bad
    return effective


def _hold(setting: Setting, environ: Mapping[str, str], flags: Mapping[str, str]) -> _Held:
    if setting.name in flags:
        text, source = flags[setting.name].strip(), Source.FLAG
    elif found := _from_environment(setting, environ):
        text, source = found, Source.ENVIRONMENT
    else:
        text, source = setting.default, Source.DEFAULT
    return _Held(text, read(setting, text), source)


def _from_environment(setting: Setting, environ: Mapping[str, str]) -> str:
    text = environ.get(setting.name, "").strip()
    file = environ.get(f"{setting.name}_FILE", "").strip() if setting.secret else ""
    if text and file:
        raise BadSetting(
            setting.name, f"set either {setting.name} or {setting.name}_FILE, not both."
        )
    if not file:
        return text
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadSetting(f"{setting.name}_FILE", f"“{file}” cannot be read: {why}.") from None


def export_flags(flags: Mapping[str, str]) -> dict[str, str]:
    """Give the environment entry that hands `flags` to a child, which then knows their source."""
    return {FLAGS_VARIABLE: json.dumps(dict(flags), sort_keys=True)}


def _handed_down(environ: Mapping[str, str]) -> dict[str, str]:
    text = environ.get(FLAGS_VARIABLE, "").strip()
    if not text:
        return {}
    try:
        flags = json.loads(text)
        return {str(name): str(value) for name, value in flags.items()}
    except (ValueError, AttributeError):
        raise BadSetting(FLAGS_VARIABLE, "it must be a JSON object of name and text.") from None


def unknown_names(environ: Mapping[str, str]) -> list[str]:
    """Name the `CORVUS_` variables that no setting reads: most likely misspelt."""
    files = {f"{s.name}_FILE" for s in SETTINGS.values() if s.secret}
    known = SETTINGS.keys() | files | HANDED_DOWN
    return sorted(n for n in environ if n.startswith("CORVUS_") and n not in known)
