"""What a big download, a big upload and slow readers cost the gateway in memory.

Run: `python -m benchmarks.memory [--megabytes 1024]`. Peak resident memory of the gateway process
above what it held before (VmHWM, reset before each row).
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.rig import gateway_before
from proxy.gateway.snapshot import GatewaySettings
from tests.support.gateways import Origin

PIECE = b"x" * 65_536


class BulkOrigin(Origin):
    """An origin that sends as many bytes as the path says, and reads as many as it is sent."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop."""
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as reader:
            line = reader.readline()
            length = 0
            while (header := reader.readline()) not in (b"\r\n", b""):
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            size = int(line.split(b"/")[1].split()[0] or 0)
            while length > 0 and (part := reader.read(min(length, 65_536))):
                length -= len(part)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            for _ in range(size // len(PIECE)):
                connection.sendall(PIECE)


@contextlib.contextmanager
def growth(pid: int, into: list[float]) -> Iterator[None]:
    """Measure how far a process's resident memory rises, in MB."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = _kilobytes(pid, "VmRSS")
    yield
    into.append((_kilobytes(pid, "VmHWM") - before) / 1024)


def _kilobytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def download(port: int, size: int, pause_s: float = 0.0) -> None:
    """Read a body of `size` bytes, waiting after each piece."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /%d HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % size)
        got = 0
        while part := client.recv(65_536):
            got += len(part)
            time.sleep(pause_s)
        assert got > size or pause_s, got


def upload(port: int, size: int) -> None:
    """Send a body of `size` bytes and read the answer."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        head = b"POST /0 HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size
        client.sendall(head)
        for _ in range(size // len(PIECE)):
            client.sendall(PIECE)
        assert b" 200 " in client.recv(4096)


def slow_readers(port: int, readers: int, seconds: float) -> None:
    """Open big downloads and read next to nothing of them for a while."""
    open_ones = []
    for _ in range(readers):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % (1 << 30))
        open_ones.append(client)
    time.sleep(seconds)
    for client in open_ones:
        client.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    size = parser.parse_args().megabytes << 20
    with gateway_before(BulkOrigin()) as world:
        world.publish(settings=GatewaySettings(access_log=False))
        port, pid = world.one.port, world.one.process.pid
        acts: list[tuple[str, Callable[[], None]]] = [
            (f"download of {size >> 20} MB", lambda: download(port, size)),
            (f"upload of {size >> 20} MB", lambda: upload(port, size)),
            ("20 slow readers of 1 GB each", lambda: slow_readers(port, 20, 3)),
        ]
        print("| what | extra memory MB | seconds | MB/s |")
        print("|---|---|---|---|")
        for name, act in acts:
            used: list[float] = []
            started = time.monotonic()
            with growth(pid, used):
                act()
            took = time.monotonic() - started
            speed = f"{(size >> 20) / took:.0f}" if "slow" not in name else ""
            print(f"| {name} | {used[0]:.1f} | {took:.1f} | {speed} |")


if __name__ == "__main__":
    main()
