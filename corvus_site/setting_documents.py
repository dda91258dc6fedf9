"""Writes `.env.example` and `docs/settings.md` from the declared settings: `python -m` this module.

Tests hold that both are in step, so nobody edits them by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import wrap

from corvus_site.setting_kinds import Setting
from corvus_site.setting_list import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / ".env.example"
PAGE = ROOT / "docs" / "settings.md"

_PAGE_HEAD = """\
# Settings

Written from `corvus_site/setting_list.py` by `python -m corvus_site.setting_documents`.

A value saved in the console counts above a command-line flag of `manage.py up`, a flag above the
environment, the environment above the default. A blank variable counts as unset. The console's
settings page shows every value with its source. Settings marked *restart* and secrets cannot be
saved there; a secret has no flag, for process lists show flags, and can come from a file that
`NAME_FILE` names. A value that cannot stand stops the start with one line that names the setting,
the value and what is allowed.

Spans of time are written `15`, `15s`, `5m`, `1h30m`, `250ms` (a number alone counts seconds),
sizes `65536`, `32KB`, `10MB`.
"""


def groups() -> Iterator[tuple[str, list[Setting]]]:
    """Give the settings by group, in the order of their declaration."""
    for group, members in groupby(SETTINGS.values(), key=lambda s: s.group):
        yield group, list(members)


def example() -> str:
    """Give `.env.example`: every setting, commented out, with its default."""
    lines = ["# Every setting of Corvus with its default. Copy to .env, change what you need."]
    for group, members in groups():
        lines += ["", f"# --- {group} ---"]
        for setting in members:
            lines += ["", *(f"# {line}" for line in wrap(setting.help, 98))]
            lines += [f"# It must be {setting.allowed}."]
            lines += [f"#{setting.name}={setting.default}"]
    return "\n".join(lines) + "\n"


def page() -> str:
    """Give `docs/settings.md`."""
    parts = [_PAGE_HEAD]
    for group, members in groups():
        parts += [f"## {group}", ""]
        parts += ["| setting | default | allowed | what it does |", "|---|---|---|---|"]
        parts += [*map(_row, members), ""]
    return "\n".join(parts)


def _row(setting: Setting) -> str:
    marks = {"secret": setting.secret, "restart": setting.restart}
    cells = (
        f"`{setting.name}`<br>`{setting.flag or setting.name + '_FILE'}`",
        f"`{setting.default}`" if setting.default else "(empty)",
        setting.allowed,
        " ".join([setting.help, *(f"*{mark}*" for mark, holds in marks.items() if holds)]),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Write both files."""
    EXAMPLE.write_text(example(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
