"""Compiles the committed message catalogues when their binary form is missing or older.

The binary files are not committed, and no `msgfmt` program is needed: Babel writes them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

LOCALE = Path(__file__).resolve().parent.parent / "locale"


def ensure_catalogues(directory: Path = LOCALE) -> list[Path]:
    """Compile each `django.po` that has no up-to-date `.mo`; give the files written.

    Atomic: several processes may do it at once. A file that was compiled after this process first
    translated something is not read again by Django, so call it before.

    Raises:
        OSError: the folder cannot be written.
    """
    written = []
    for source in sorted(directory.glob("*/LC_MESSAGES/django.po")):
        target = source.with_suffix(".mo")
        if target.exists() and target.stat().st_mtime_ns >= source.stat().st_mtime_ns:
            continue
        with source.open("rb") as stream:
            catalogue = read_po(stream, locale=source.parent.parent.name, abort_invalid=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".tmp", delete=False) as out:
            write_mo(out, catalogue)
        Path(out.name).chmod(0o644)
        os.replace(out.name, target)  # noqa: PTH105
        written.append(target)
    return written


if __name__ == "__main__":  # at installation, by whoever may write here; needs no Django
    ensure_catalogues()
