"""An ASGI application that shows what a server does, and a process that serves it on our server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
LOG: list[str] = []
GATES: dict[str, asyncio.Event] = {}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer by the path's first part; every exchange notes in LOG how it began and ended."""
    name = scope["path"].split("/")[1].replace("-", "_")
    note = scope["path"]
    known = globals()
    kind = scope["type"]
    act = (
        known.get(f"_{kind}_{name}")
        or known["_http_hello" if kind == "http" else "_websocket_forbid"]
    )
    if name in ("log", "open"):
        await act(scope, receive, send)
        return
    LOG.append(f"begin {note}")
    try:
        await act(scope, receive, send)
    except asyncio.CancelledError:
        LOG.append(f"cancelled {note}")
        raise
    except OSError:
        LOG.append(f"oserror {note}")
        raise
    LOG.append(f"end {note}")


async def _answer(send: Any, body: bytes, status: int = 200, headers: Any = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


def _gate(scope: Any) -> asyncio.Event:
    return GATES.setdefault(scope["path"].split("/")[2], asyncio.Event())


async def _http_hello(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, b"hello", headers=[(b"content-type", b"text/plain")])


async def _http_log(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, json.dumps(LOG).encode())


async def _http_open(scope: Any, receive: Any, send: Any) -> None:
    _gate(scope).set()
    await _answer(send, b"")


async def _http_scope(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, repr(scope).encode())


async def _http_echo(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    more = True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})


async def _http_whole(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            LOG.append(f"disconnect {scope['path']}")
            return
        body += message["body"]
        if not message["more_body"]:
            break
    await _answer(send, body)


async def _http_wait(scope: Any, receive: Any, send: Any) -> None:
    """Answer when /open/<name> is asked for; read nothing before."""
    await _gate(scope).wait()
    await _http_size(scope, receive, send)


async def _http_size(scope: Any, receive: Any, send: Any) -> None:
    size = 0
    more = True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await _answer(send, b"%d" % size)


async def _http_hang(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.Event().wait()


async def _http_silent(scope: Any, receive: Any, send: Any) -> None:
    return


async def _http_half(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def _http_boom(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("boom")


async def _http_split(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, b"", headers=[(b"x", b"1\r\nset-cookie: evil=1")])


async def _http_headers(scope: Any, receive: Any, send: Any) -> None:
    headers = [
        (b"X-One", b"1"),
        (b"set-cookie", b"a=1"),
        (b"x-ONE", b"2"),
        (b"Set-Cookie", b"b=\xe9"),
        (b"Server", b"origin/1"),
    ]
    await _answer(send, b"x", headers=headers)


async def _http_status(scope: Any, receive: Any, send: Any) -> None:
    status = int(scope["path"].split("/")[2])
    headers = [(b"content-length", b"5")] if scope["query_string"] == b"length" else []
    await _answer(send, b"hello", status=status, headers=headers)


async def _http_stream(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"two", "more_body": False})


async def _http_head_first(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-head", b"1")]})
    await _gate(scope).wait()
    await send({"type": "http.response.body", "body": b"late"})


async def _http_inform(scope: Any, receive: Any, send: Any) -> None:
    link = [(b"link", b"</style.css>; rel=preload")]
    await send({"type": "http.response.informational", "status": 103, "headers": link})
    await _answer(send, b"done")


async def _http_trailers(scope: Any, receive: Any, send: Any) -> None:
    start = {"type": "http.response.start", "status": 200, "headers": [], "trailers": True}
    await send(start)
    await send({"type": "http.response.body", "body": b"body"})
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"42")]})


async def _http_download(scope: Any, receive: Any, send: Any) -> None:
    size = int(scope["path"].split("/")[2])
    part = b"d" * 65536
    headers = [(b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    left = size
    while left:
        data = part[: min(left, len(part))]
        left -= len(data)
        await send({"type": "http.response.body", "body": data, "more_body": left > 0})
    LOG.append(f"delivered {scope['path']}")


async def _http_after(scope: Any, receive: Any, send: Any) -> None:
    """Go on working after the answer is complete."""
    await _answer(send, b"answered")
    await _gate(scope).wait()


async def _websocket_echo(scope: Any, receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    names = scope["subprotocols"]
    await send({"type": "websocket.accept", "subprotocol": names[-1] if names else None})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            LOG.append(f"disconnect {message['code']} {message['reason']}")
            return
        LOG.append(f"piece {bool(message.get('more'))}")
        await send({**message, "type": "websocket.send"})


async def _websocket_wait(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await _gate(scope).wait()
    size = 0
    while True:
        message = await receive()
        size += len(message.get("bytes") or message.get("text"))
        if not message.get("more"):
            break
    await send({"type": "websocket.send", "text": str(size)})


async def _websocket_forbid(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.close"})


async def _websocket_deny(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    headers = [(b"X-Why", b"full"), (b"retry-after", b"5")]
    await send({"type": "websocket.http.response.start", "status": 429, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b"later"})


async def _websocket_close(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": 4001, "reason": "bye"})


async def _websocket_boom(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    raise RuntimeError("boom")


class ServerProcess:
    """Our server in a process of its own, on an inherited socket."""

    def __init__(
        self, process: subprocess.Popen[bytes], port: int, tls_port: int, errors: IO[bytes]
    ) -> None:
        self.process = process
        self.port = port
        self.tls_port = tls_port
        self._errors = errors

    def errors(self) -> str:
        """Give what the process has logged."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def rss_bytes(self) -> int:
        """Give the resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(x for x in status.splitlines() if x.startswith("VmRSS")).split()[1]) * 1024

    def stop(self) -> int:
        """Send SIGTERM and give the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextlib.contextmanager
def serving(certificate: Path | None = None, **limits: object) -> Iterator[ServerProcess]:
    """Serve the application with limits given as `MAX_BODY=10`; stopped at the end."""
    plain, tls = _listening(), _listening()
    command = [sys.executable, "-m", "corvus_site.server", "--fd", str(plain.fileno())]
    command += ["--app", "tests.support.server_probe:application"]
    if certificate is not None:
        command += ["--tls-fd", str(tls.fileno()), "--tls-cert", str(certificate)]
        command += ["--tls-key", str(certificate)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("CORVUS_")}
    env |= {f"CORVUS_{name}": str(value) for name, value in {"DRAIN": 5, **limits}.items()}
    errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed below
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, pass_fds=(plain.fileno(), tls.fileno()), stderr=errors
    )
    port, tls_port = plain.getsockname()[1], tls.getsockname()[1]
    plain.close()
    tls.close()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as first:  # it runs now
            first.sendall(b"GET /log HTTP/1.0\r\n\r\n")
            assert first.recv(15) == b"HTTP/1.1 200 OK"
        yield ServerProcess(process, port, tls_port, errors)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        errors.close()


def _listening() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0), backlog=512)
    sock.set_inheritable(True)
    return sock


def eventually(condition: Callable[[], Any], within_s: float = 8.0) -> Any:
    """Ask again until the condition holds and give its value."""
    end = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
