"""Real gateway processes before a real origin, configured as the console does it.

Each gateway listens on its own port, so that a test can address one of several.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import redis

from corvus_site.supervisor.console_certificate import CertificateFiles
from corvus_site.supervisor.leash import tied_to
from proxy.gateway.snapshot import (
    SNAPSHOT_KEY,
    VERSION_KEY,
    GatewaySettings,
    Host,
    RoomRule,
    Snapshot,
    pages_key,
)
from queueing.config import RoomConfig, RoomId
from queueing.store import SyncRoomStore
from tests.support.running import eventually

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a secret that only tests know, 32 bytes"
ADMIN_TOKEN = "an admin token of tests"
BROWSER = {"accept": "text/html,application/xhtml+xml", "sec-fetch-mode": "navigate"}
_numbers = itertools.count(1)


@dataclass
class Seen:
    """One request as the origin saw it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Give a header's first value."""
        return next((v for k, v in self.headers if k.lower() == name), None)


class Origin:
    """A small site that remembers what it was asked and can be told how to answer."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.inside = 0
        self.most_inside = 0
        self.answer_headers: list[tuple[str, str]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.lock = threading.Lock()
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                with origin.lock:
                    origin.inside += 1
                    origin.most_inside = max(origin.most_inside, origin.inside)
                try:
                    length = int(self.headers.get("content-length") or 0)
                    body = self.rfile.read(length)
                    origin.seen.append(
                        Seen(self.command, self.path, list(self.headers.items()), body)
                    )
                    if "slow" in self.path:
                        origin.hold.wait(20)
                finally:
                    with origin.lock:
                        origin.inside -= 1
                content = b"<h1>the shop</h1>"
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.send_header("content-length", str(len(content)))
                for name, value in origin.answer_headers:
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def clear(self) -> None:
        """Forget what was seen, answer plainly again."""
        self.seen.clear()
        self.answer_headers = []
        self.most_inside = 0
        self.hold.set()

    def close(self) -> None:
        """Stop serving."""
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Gateway:
    """One gateway process."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    tls_port: int = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        """Give a client with an own cookie jar; redirects are not followed unless asked for."""
        return httpx.Client(base_url=self.url, timeout=20, trust_env=False, **options)

    def browser(self) -> httpx.Client:
        """Give a client that asks for pages and follows redirects, as a browser does."""
        return self.client(headers=BROWSER, follow_redirects=True)

    def api(self) -> httpx.Client:
        """Give a client that asks for JSON and keeps cookies."""
        return self.client(headers={"accept": "application/json"})


@dataclass
class Gateways:
    """Several gateway processes of one machine, sharing a store."""

    store_url: str
    pages: bytes
    origin: Origin
    folder: Path
    gateways: list[Gateway] = field(default_factory=list)
    version: int = 0
    generation: int = 1

    @property
    def admin(self) -> dict[str, str]:
        """Give the header of the admin token."""
        return {"authorization": f"Bearer {ADMIN_TOKEN}"}

    def operator(self, room: RoomConfig, act: str, *arguments: Any) -> Any:
        """Do what the console would do in the store."""
        with self.redis as client:
            return getattr(SyncRoomStore(client), act)(room.id, *arguments)

    @property
    def one(self) -> Gateway:
        """Give the first."""
        return self.gateways[0]

    @property
    def redis(self) -> redis.Redis:
        """Give a plain client of the store."""
        return redis.Redis.from_url(self.store_url)

    @property
    def environment(self) -> dict[str, str]:
        """Give what a process of the gateway is told, and nothing of the operator's."""
        clean = {n: v for n, v in os.environ.items() if not n.startswith("CORVUS_")}
        return clean | {
            "CORVUS_STORE_URL": self.store_url,
            "CORVUS_SECRET": SECRET,
            "CORVUS_DATA_DIR": str(self.folder),
            "CORVUS_MACHINE_DIR": str(self.folder / "run"),
            "CORVUS_ADMIN_TOKEN": ADMIN_TOKEN,
        }

    def start(
        self, environment: dict[str, str] | None = None, certificate: CertificateFiles | None = None
    ) -> Gateway:
        """Start one more process, with a certificate also for HTTPS; wait until it answers."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        tls_listener = socket.create_server(("127.0.0.1", 0))
        tls: list[str] = []
        if certificate:
            tls = ["--tls-fd", str(tls_listener.fileno())]
            tls += ["--tls-cert", str(certificate.certificate), "--tls-key", str(certificate.key)]
        log = self.folder / f"gateway-{len(self.gateways)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "corvus_site.server"),
                    *("--app", "corvus_site.gateway_asgi:application"),
                    *("--fd", str(listener.fileno())),
                    *tls,
                ],
                cwd=ROOT,
                env=self.environment
                | {"CORVUS_CONNECTIONS_PER_CLIENT": "0"}  # a crowd comes from one address
                | (environment or {}),
                pass_fds=[listener.fileno(), tls_listener.fileno()],
                preexec_fn=tied_to(os.getpid()),  # a test run that is killed leaves nothing behind
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        tls_port = tls_listener.getsockname()[1] if certificate else 0
        gateway = Gateway(process, listener.getsockname()[1], log, tls_port)
        listener.close()
        tls_listener.close()
        self.gateways.append(gateway)
        eventually(lambda: self._answers(gateway), what=lambda: log.read_text())
        return gateway

    def _answers(self, gateway: Gateway) -> bool:
        assert gateway.process.poll() is None, gateway.log.read_text()
        with contextlib.suppress(httpx.TransportError), gateway.client() as client:
            client.get("/__corvus/healthz")
            return True
        return False

    def publish(
        self,
        *rooms: RoomConfig,
        settings: GatewaySettings | None = None,
        key_generation: int = 1,
        **host: Any,
    ) -> None:
        """Publish a catch-all host whose pages the first room governs; wait for all gateways."""
        self.version = max(self.version, int(time.time() * 1000)) + 1
        self.generation = key_generation
        rules = tuple(
            RoomRule(path="/*" if i == 0 else f"/{r.id}/*", room=r.id) for i, r in enumerate(rooms)
        )
        values = {"id": 1, "names": ("*",), "origin": self.origin.url, "rooms": rules} | host
        digest = hashlib.sha256(self.pages).hexdigest()[:16]
        snapshot = Snapshot(
            version=self.version,
            published_ms=0,
            key_generation=key_generation,
            pages=digest,
            settings=settings or GatewaySettings(access_log=False),
            hosts=(Host(**values),),
            rooms={r.id: replace(r, version=self.version) for r in rooms},
        )
        with self.redis as store, store.pipeline() as pipeline:
            pipeline.set(pages_key(digest), self.pages)
            pipeline.set(SNAPSHOT_KEY, snapshot.dump())
            pipeline.set(VERSION_KEY, self.version)
            pipeline.execute()
        for gateway in self.gateways:
            if gateway.process.poll() is None:
                eventually(lambda g=gateway: self._has(g, rooms), what=gateway.log.read_text)

    def _has(self, gateway: Gateway, rooms: tuple[RoomConfig, ...]) -> bool:
        stats = self.stats(gateway)
        return (
            bool(stats)
            and stats["version"] == self.version
            and all(
                (stats["rooms"].get(r.id) or {}).get("configured") == self.version for r in rooms
            )
        )

    def stats(self, gateway: Gateway | None = None) -> dict[str, Any]:
        """Read a gateway's counters."""
        with (gateway or self.one).client() as client:
            answer = client.get("/__corvus/stats", headers=self.admin)
        return answer.json() if answer.status_code == 200 else {}

    def room(self, **values: Any) -> RoomConfig:
        """Make a room of its own name, so that no test sees another's people."""
        return RoomConfig(id=RoomId(f"t{next(_numbers)}"), **values)

    def close(self) -> None:
        """Stop every process."""
        for gateway in self.gateways:
            gateway.process.kill()
            gateway.process.wait()


@contextlib.contextmanager
def running_gateways(
    store_url: str, pages: bytes, count: int, *, origin: Origin | None = None
) -> Iterator[Gateways]:
    """Start an origin (unless one is given) and gateways; stop them."""
    folder = Path(tempfile.mkdtemp(prefix="corvus-gateways-"))
    origin = origin or Origin()
    world = Gateways(store_url, pages, origin, folder)
    try:
        world.publish()
        for _ in range(count):
            world.start()
        yield world
    finally:
        world.close()
        origin.close()
        shutil.rmtree(folder)


def place_of(answer: httpx.Response) -> tuple[str, int | None]:
    """Read state and position of a JSON answer."""
    document = json.loads(answer.text)
    return document["state"], document["position"]
