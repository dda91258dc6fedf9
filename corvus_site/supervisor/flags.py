"""The command line of `manage.py up`: one flag for each setting that is no secret. No Django."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from corvus_site.env import SETTINGS, BadSetting, Kind


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadSetting("command line", f"{message}; `--help` lists the flags.")


def parse(arguments: Sequence[str]) -> dict[str, str]:
    """Give the settings that were set by flags, as name → text.

    Raises:
        BadSetting: an unknown flag, or one without its value.
    """
    parser = _Parser(
        prog="manage.py up",
        description="Start Corvus: store, gateways, console, worker, and a demo site if no other.",
        epilog="Each flag is a setting; docs/settings.md tells what it does. Secrets have no flag.",
        allow_abbrev=False,
    )
    for setting in SETTINGS.values():
        if not setting.flag:
            continue
        text = setting.help.replace("%", "%%")
        shape = {"nargs": "?", "const": "true"} if setting.kind is Kind.BOOLEAN else {}
        parser.add_argument(
            setting.flag,
            dest=setting.name,
            metavar=setting.kind.value.upper(),
            help=f"{text} (default: {setting.default or 'empty'})",
            **shape,  # type: ignore[arg-type]
        )
    given = vars(parser.parse_args(list(arguments)))
    return {name: text for name, text in given.items() if text is not None}
