"""A real HTTP server that serves visitors' pages and scripted status answers to a browser.

It stands where the gateway would stand: same addresses, same headers, and it writes down every
request, so that a test can say what a page asked for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from queueing.pages import Eta, PageBundle, PageState, PageView

ROOM = "/__corvus/wr/main"
NOW_MS = 1_900_000_000_000


def waiting_view(**changes: Any) -> PageView:
    """Give a view with everything in it, as the gateway would fill it."""
    view = PageView(
        state=PageState.WAITING,
        site="Concert Box Office",
        message="Doors open at 10:00.\nThere are enough tickets for everyone in line.",
        position=1_234,
        ahead=1_233,
        waiting=20_481,
        ticket=15_372,
        eta=Eta(240, 420, 760),
        poll_after=10,
        claim_s=60,
        now_ms=NOW_MS,
        status_url=f"{ROOM}/status",
        leave_url=f"{ROOM}/leave",
        beacon_url=f"{ROOM}/beacon",
        extend_url=f"{ROOM}/extend",
        rejoin_url=f"{ROOM}/rejoin",
        continue_url="/shop?item=1",
        language_url=f"{ROOM}/lang?next=%2Fshop&to=",
        refresh_url=f"{ROOM}/refresh?next=%2Fshop&every=",
        incident="c0rv-1234",
        retry_after_s=30,
    )
    return replace(view, **changes)


def status(state: str = "waiting", **changes: Any) -> dict[str, Any]:
    """Give a status answer as design §5 words it."""
    answer: dict[str, Any] = {
        "state": state,
        "position": 1_234,
        "ahead": 1_233,
        "waiting": 20_481,
        "eta": {"p10": 240, "p50": 420, "p90": 760},
        "poll_after": 10,
        "claim_s": 60 if state == "granted" else 0,
        "reason": "",
        "server_time": NOW_MS,
        "rejoin_url": f"{ROOM}/rejoin",
    }
    return answer | changes


@dataclass
class PageServer:
    """What the server answers and what it was asked."""

    bundle: PageBundle
    address: str = ""
    view: PageView = field(default_factory=waiting_view)
    language: str = "en"
    answer: tuple[int, dict[str, Any]] = field(default_factory=lambda: (200, status()))
    posted: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    retry_after: int = 0

    def paths(self, word: str) -> list[str]:
        """Give the requests whose path contains a word, in order."""
        return [path for _, path in self.requests if word in path]


def _handler(server: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.requests.append(("GET", self.path))
            if self.path.startswith(f"{ROOM}/status"):
                code, body = server.answer
                self._json(code, body)
            elif self.path.startswith("/inside"):
                self._send(200, b"<!doctype html><title>Inside</title><h1>Inside</h1>", [])
            else:
                page = server.bundle.render(server.view, server.language)
                headers = [(n.decode(), v.decode()) for n, v in page.headers]
                self._send(200, page.body, headers)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            server.requests.append(("POST", self.path))
            name = self.path.partition("?")[0].rpartition("/")[2]
            if name in server.posted:
                self._json(200, server.posted[name])
            else:
                self._send(200, b"<!doctype html><title>Done</title><h1>Done</h1>", [])

        def _json(self, code: int, body: dict[str, Any]) -> None:
            headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store, private")]
            if server.retry_after:
                headers.append(("Retry-After", str(server.retry_after)))
            self._send(code, json.dumps(body).encode(), headers)

        def _send(self, code: int, body: bytes, headers: list[tuple[str, str]]) -> None:
            self.send_response(code)
            for name, value in headers or [("Content-Type", "text/html; charset=utf-8")]:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the test reads `requests`."""

    return Handler


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes a connection early is not a fault."""


@contextmanager
def page_server(bundle: PageBundle) -> Iterator[PageServer]:
    """Run the server on a free loopback port."""
    state = PageServer(bundle=bundle)
    http = _Quiet(("127.0.0.1", 0), _handler(state))
    state.address = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
