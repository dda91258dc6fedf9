"""The master secret and what is derived from it.

No Django: the supervisor makes the secret before there is one. Files are 0600,
written whole or not at all.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

SECRET_FILE = "secret"  # noqa: S105 - a file's name


def write_private(path: Path, text: str) -> None:
    """Write `text` into a new file that only its owner can read.

    Raises:
        FileExistsError: there is one already; it is left as it is.
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink()


def ensure_secret(data_dir: Path) -> str:
    """Give the master secret of the data folder; make it (48 random bytes) where there is none.

    Two processes that start together get the same one.

    Raises:
        OSError: the folder cannot be written, or the file cannot be read.
    """
    path = data_dir / SECRET_FILE
    with suppress(FileExistsError):
        write_private(path, secrets.token_urlsafe(48))
    return path.read_text(encoding="utf-8").strip()


def derive(secret: str, purpose: str) -> str:
    """Give a key for one purpose, which tells nothing of the master secret or of other keys."""
    return hmac.new(secret.encode(), f"corvus:{purpose}".encode(), hashlib.sha256).hexdigest()
