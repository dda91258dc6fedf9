"""Small private files, written whole or not at all. No Django."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace_private(path: Path, text: str) -> None:
    """Write `text` into a file that only its owner can read, in the place of an older one.

    Raises:
        OSError: the folder cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
