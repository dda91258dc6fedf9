"""The data folder: made, checked for writing, and held by one supervisor at a time. No Django."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from corvus_site.env import BadSetting

LONGEST_PATH = 88  # bytes: a Unix socket's address is 107 at most, and `/run/….sock` comes after


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folder with what must last, and the run folder with what this run's processes share."""

    path: Path
    run: Path
    lasting: bool  # False: memory only, everything goes at the end
    lock: int  # file descriptor; the lock lasts as long as it is open

    def close(self) -> None:
        """Give up the lock, and remove what was for this run alone."""
        os.close(self.lock)
        if not self.lasting:
            shutil.rmtree(self.path, ignore_errors=True)


def open_data_folder(setting: str, wanted: Path | None) -> DataFolder:
    """Make the folder (0700) where it is missing, check that it can be written, and lock it.

    None keeps nothing: a temporary folder stands in and is removed by `close()`.

    Raises:
        BadSetting: it cannot be made or written, is too long, or another Corvus uses it.
    """
    os.umask(0o077)  # every file that we or our children make is for this user alone
    path = wanted or Path(tempfile.mkdtemp(prefix="corvus-"))
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise BadSetting(
            setting, f"“{path}” is too long: {LONGEST_PATH} bytes at most, for sockets lie in it."
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadSetting(setting, f"“{path}” cannot be written: {error.strerror}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        run = _run_folder(path)
    except BlockingIOError:
        os.close(lock)
        raise BadSetting(setting, f"“{path}” is in use by another Corvus.") from None
    except OSError as error:
        os.close(lock)
        raise BadSetting(setting, f"“{path}” cannot be written: {error.strerror}.") from None
    return DataFolder(path, run, wanted is not None, lock)


def _run_folder(path: Path) -> Path:
    run = path / "run"
    shutil.rmtree(run, ignore_errors=True)  # what a killed run left behind
    run.mkdir(mode=0o700)
    return run
