"""A relay before a gateway that holds one address's answers back, as a slow network does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class LateAnswers:
    """A running relay."""

    listener: socket.socket
    target: int  # port on loopback
    address: bytes
    held: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self.listener.getsockname()[1]
        return port

    def serve(self) -> None:
        """Accept until the listener is closed."""
        with suppress(OSError):
            while True:
                visitor, _ = self.listener.accept()
                gateway = socket.create_connection(("127.0.0.1", self.target))
                asked = threading.Event()
                for ends in ((visitor, gateway, asked, True), (gateway, visitor, asked, False)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, asked: threading.Event, asks: bool
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if asks and self.address in data:
                    asked.set()
                elif not asks and asked.is_set():
                    self.held.set()
                    self.go_on.wait(20)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextmanager
def late_answers(target: int, address: bytes) -> Iterator[LateAnswers]:
    """Relay to a port; answers on a connection that asked for `address` wait for `go_on`."""
    relay = LateAnswers(socket.create_server(("127.0.0.1", 0)), target, address)
    thread = threading.Thread(target=relay.serve, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.go_on.set()
        with suppress(OSError):
            relay.listener.shutdown(socket.SHUT_RDWR)
        relay.listener.close()
        thread.join(5)
