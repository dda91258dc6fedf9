"""What the benchmarks stand on: an nginx origin, wrk, pinned processes and their CPU time."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from queueing.config import RoomConfig
from tests.support.gateways import Gateway, Gateways, Origin, running_gateways
from tests.support.running import eventually
from tests.support.valkey import running_valkey

ROOT = Path(__file__).resolve().parents[1]
SERVER_CORE, LOAD_CORE = "0", str((os.cpu_count() or 1) - 1)
CONNECTIONS = 64
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    """One run of wrk."""

    per_second: float
    p99_ms: float
    cpu_us: float  # of the server process, per request
    bad: int  # answers other than 2xx and 3xx


def cpu_seconds(pid: int) -> float:
    """Give a process's CPU time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def pin(pid: int, core: str) -> None:
    """Bind a process, and what it starts from now on, to one core."""
    subprocess.run(["taskset", "-acp", core, str(pid)], check=True, capture_output=True)


def wrk(url: str, pid: int, seconds: int, headers: dict[str, str] | None = None) -> Figure:
    """Load one URL from the load core; `pid` is the process whose CPU is counted."""
    options = [f"-H{name}: {value}" for name, value in (headers or {}).items()]
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{CONNECTIONS}", "--latency"]
    before = cpu_seconds(pid)
    output = subprocess.run(
        [*command, f"-d{seconds}s", *options, url], check=True, capture_output=True, text=True
    ).stdout
    used = cpu_seconds(pid) - before
    requests = int(re.search(r"(\d+) requests in", output)[1])
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    p99, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", output).groups()
    return Figure(
        per_second=float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1]),
        p99_ms=float(p99) * {"us": 0.001, "ms": 1, "s": 1000}[unit],
        cpu_us=used * 1e6 / max(1, requests),
        bad=int(bad[1]) if bad else 0,
    )


class NginxOrigin(Origin):
    """An origin that is never the bottleneck: nginx answering 200 bytes from memory."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="corvus-bench-"))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        (self.folder / "nginx.conf").write_text(
            f"""daemon off; pid {self.folder}/pid; error_log /dev/null; worker_processes 1;
            events {{ worker_connections 4096; }}
            http {{ access_log off; keepalive_requests 1000000; server {{
              listen 127.0.0.1:{self.port} backlog=4096;
              location / {{ default_type text/plain; return 200 "{"x" * 200}"; }} }} }}"""
        )
        self.process = subprocess.Popen(
            ["taskset", "-c", LOAD_CORE, "nginx", "-c", self.folder / "nginx.conf"],
            stderr=subprocess.DEVNULL,
        )
        eventually(self._listens, what="nginx to listen")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def worker(self) -> int:
        """The process that answers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])

    def close(self) -> None:
        """Stop."""
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def gateway_before(origin: Origin) -> Iterator[Gateways]:
    """One pinned gateway process before an origin, on an own store."""
    with running_valkey() as valkey:
        pin(valkey.process.pid, LOAD_CORE)
        with running_gateways(valkey.url, _pages(), 1, origin=origin) as world:
            pin(world.one.process.pid, SERVER_CORE)
            yield world


def _pages() -> bytes:
    """Build the visitors' pages in a process of its own: this one stays without Django."""
    code = (
        "import django, sys; django.setup(); from queueing.page_builder import build_bundle;"
        "sys.stdout.buffer.write(build_bundle())"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True
    ).stdout


@contextlib.contextmanager
def server_of(command: list[str]) -> Iterator[tuple[str, int]]:
    """Run an ASGI server on an inherited socket, pinned; gives its URL and process id."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    words = [word.replace("{fd}", str(listener.fileno())) for word in command]
    process = subprocess.Popen(
        ["taskset", "-c", SERVER_CORE, sys.executable, "-m", *words],
        cwd=ROOT,
        pass_fds=[listener.fileno()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    listener.close()
    try:
        time.sleep(2)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def admitted_cookie(gateway: Gateway, room: RoomConfig) -> dict[str, str]:
    """Visit, and give the header of a fresh pass."""
    with gateway.api() as visitor:
        visitor.get("/")
        assert visitor.get("/").status_code == 200
        name = f"corvus_{room.id}"
        return {"Cookie": f"{name}={visitor.cookies[name]}"}
