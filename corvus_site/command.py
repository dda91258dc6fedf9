"""The command `corvus` (= `manage.py`): Django's commands, and one clear line for a bad setting."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version

from corvus_site.env import BadSetting


def product_version() -> str:
    """Give the installed version; a clone that is not installed says so."""
    try:
        return version("corvus")
    except PackageNotFoundError:
        return "0.1.0 (clone)"


def main(argv: list[str] | None = None) -> None:
    """Run a command. A setting that cannot stand ends it with one line and exit status 2."""
    arguments = sys.argv if argv is None else argv
    if arguments[1:] in (["--version"], ["version"]):
        sys.stdout.write(f"corvus {product_version()}\n")
        return
    if arguments[1:2] == ["up"]:
        # Without Django: it must check flags and folder before Django's settings read them.
        from corvus_site.supervisor import __main__ as supervisor

        raise SystemExit(supervisor.main(arguments[2:]))
    os.umask(0o077)  # what Corvus writes is for its own user alone
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "corvus_site.settings")
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(arguments)
    except BadSetting as bad:
        sys.stderr.write(f"error: {bad}\n")
        raise SystemExit(2) from None
