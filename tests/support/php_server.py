"""PHP's own server with four workers, as small shops run it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from corvus_site.supervisor.leash import tied_to
from tests.support.running import eventually

SITE = Path(__file__).resolve().parents[1] / "e2e" / "php_site"


@contextlib.contextmanager
def running_php(folder: Path, **environ: str) -> Iterator[str]:
    """Serve `php_site`; gives the address. Sessions and the log lie in `folder`."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["php", "-d", f"session.save_path={folder}", "-S", f"127.0.0.1:{port}", "-t", SITE],
            env={**os.environ, "PHP_CLI_SERVER_WORKERS": "4", **environ},
            preexec_fn=tied_to(os.getpid()),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(lambda: _listens(port), what=(folder / "log").read_text)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
