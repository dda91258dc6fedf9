"""Pages of other sites for browser tests, served on loopback under names of the test's own."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from corvus_site.supervisor.console_certificate import CertificateFiles, ensure_certificate

RESOLVED = "--host-resolver-rules=MAP *.test 127.0.0.1"
"""A browser's option: every name under `.test` is this machine."""


@contextmanager
def serving(
    pages: Mapping[str, str],
    *,
    headers: Mapping[str, str] | None = None,
    certificate: CertificateFiles | None = None,
) -> Iterator[int]:
    """Serve fixed pages by path, each with the same headers; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            body = (page or "").encode()
            self.send_response(404 if page is None else 200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A browser that closes a connection early is not a fault."""

    server = Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate_in(folder: Path) -> CertificateFiles:
    """Make a certificate that browsers of these tests are told not to look at."""
    folder.mkdir(exist_ok=True)
    return ensure_certificate(folder, "localhost")
