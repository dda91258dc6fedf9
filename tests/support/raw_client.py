"""A client that sends exactly the given bytes and reads exactly what comes, for HTTP/1.1 tests."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `head` are its bytes up to the empty line, `body` is unframed."""

    status: int
    head: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        """Give all values of a header, in order."""
        return [value for header, value in self.headers if header.lower() == name.lower()]


class RawClient:
    """One connection."""

    def __init__(
        self, port: int, *, timeout: float = 10.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._held = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def get(self, path: str, *headers: str) -> Answer:
        """Send a GET with a Host and read its answer."""
        lines = "".join(f"{header}\r\n" for header in headers)
        self.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode("latin-1"))
        return self.answer()

    def read_until(self, mark: bytes) -> bytes:
        """Read up to and with a mark. Raises EOFError when the server closes first."""
        while mark not in self._held:
            self._more()
        at = self._held.index(mark) + len(mark)
        data, self._held = self._held[:at], self._held[at:]
        return data

    def read_exactly(self, size: int) -> bytes:
        """Read so many bytes. Raises EOFError when the server closes first."""
        while len(self._held) < size:
            self._more()
        data, self._held = self._held[:size], self._held[size:]
        return data

    def read_to_end(self) -> bytes:
        """Read until the server closes (or resets) the connection."""
        try:
            while True:
                self._more()
        except (EOFError, ConnectionResetError):
            data, self._held = self._held, b""
            return data

    def held(self) -> bytes:
        """Take what has been received behind what was read."""
        data, self._held = self._held, b""
        return data

    def closed(self) -> bool:
        """Whether the server closes the connection without another byte."""
        return self.read_to_end() == b""

    def answer(self, *, head_request: bool = False) -> Answer:
        """Read one answer."""
        head = self.read_until(b"\r\n\r\n")
        line, *fields = head[:-4].split(b"\r\n")
        status = int(line.split(b" ")[1])
        headers = [(name, value) for name, _, value in (f.partition(b": ") for f in fields)]
        lower = {name.lower(): value for name, value in headers}
        if head_request or status < 200 or status in (204, 304):
            body = b""
        elif b"transfer-encoding" in lower:
            body = self._chunks()
        elif b"content-length" in lower:
            body = self.read_exactly(int(lower[b"content-length"]))
        else:
            body = self.read_to_end()
        return Answer(status, head, headers, body)

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.read_until(b"\r\n"), 16):
            parts.append(self.read_exactly(size))
            assert self.read_exactly(2) == b"\r\n"
        self.trailers = b""
        while (line := self.read_until(b"\r\n")) != b"\r\n":
            self.trailers += line
        return b"".join(parts)

    def _more(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise EOFError(self._held)
        self._held += data
