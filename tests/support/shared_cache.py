"""A small shared cache that honours headers as RFC 9111 asks, and keeps all that it allows.

Whoever does not forbid it gets stored: where no freshness is given, a heuristic one is assumed
(RFC 9111 4.2.2), and a Set-Cookie header alone keeps nothing from being stored (RFC 9111 7.3).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

HEURISTIC = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})  # RFC 9110 15.1
HEURISTIC_S = 60.0
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade"})


@dataclass
class Stored:
    """One answer with what it was chosen by."""

    answer: httpx.Response
    vary: dict[str, str]
    fresh_until: float


@dataclass
class SharedCache:
    """A running cache: where it listens, and which requests it answered by itself."""

    origin: str
    hits: list[str] = field(default_factory=list)
    _store: dict[str, list[Stored]] = field(default_factory=dict)
    url: str = ""

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Any:
        """Answer from the store, else from the origin."""
        for stored in self._store.get(target, []) if method == "GET" else []:
            same = all(headers.get(n, "") == v for n, v in stored.vary.items())
            if same and time.monotonic() < stored.fresh_until:
                self.hits.append(target)
                return stored.answer
        with httpx.Client(base_url=self.origin, timeout=20, trust_env=False) as client:
            client.headers.clear()
            answer = client.request(method, target, headers=headers, content=body)
        if method == "GET" and (life_s := freshness_s(answer, headers)) > 0:
            names = [n.strip().lower() for n in answer.headers.get("vary", "").split(",") if n]
            vary = {name: headers.get(name, "") for name in names}
            if "*" not in vary:
                stored = Stored(answer, vary, time.monotonic() + life_s)
                self._store.setdefault(target, []).append(stored)
        return answer


def freshness_s(answer: httpx.Response, asked: dict[str, str]) -> float:
    """Tell how long a shared cache may reuse an answer; 0 = never (RFC 9111 3 and 4.2.1)."""
    rules = [r.strip().lower() for r in answer.headers.get("cache-control", "").split(",")]
    values = dict(rule.partition("=")[::2] for rule in rules)
    if {"no-store", "private", "no-cache"} & values.keys() or "authorization" in asked:
        return 0
    for name in ("s-maxage", "max-age"):
        if name in values:
            return float(values[name])
    return HEURISTIC_S if answer.status_code in HEURISTIC else 0


@contextlib.contextmanager
def shared_cache(origin: str) -> Iterator[SharedCache]:
    """Run a cache before an origin."""
    cache = SharedCache(origin)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            headers = {n.lower(): v for n, v in self.headers.items() if n.lower() not in _HOP}
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer = cache.answer(self.command, self.path, headers, body)
            self.send_response(answer.status_code)
            for name, value in answer.headers.multi_items():
                if name not in _HOP | {"content-length", "content-encoding"}:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cache.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield cache
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
