"""TLS and HTTP/2 on the gateway's server, over real sockets, with h2 as the client's side."""

from __future__ import annotations

import contextlib
import datetime
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.errors
import h2.events
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hyperframe.frame import DataFrame, PingFrame, PriorityFrame, SettingsFrame

from tests.support.raw_client import RawClient
from tests.support.server_probe import ROOT, ServerProcess, eventually, serving

MIB = 1024 * 1024


def write_certificate(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def tls(*protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    return context


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


@pytest.fixture(scope="module")
def server(certificate: Path) -> Iterator[ServerProcess]:
    with serving(certificate, MAX_BODY=300_000_000, BODY_TIMEOUT=2, HEADER_TIMEOUT=2) as process:
        yield process


def log(server: ServerProcess) -> list[str]:
    with RawClient(server.port) as raw:
        return json.loads(raw.get("/log").body)


class Http2Client:
    """One HTTP/2 connection."""

    def __init__(self, server: ServerProcess, **config: bool) -> None:
        self.raw = RawClient(server.tls_port, tls=tls("h2", "http/1.1"))
        self.socket = self.raw.socket
        settings = h2.config.H2Configuration(client_side=True, header_encoding=None, **config)
        self.h2 = h2.connection.H2Connection(settings)
        self.h2.initiate_connection()
        self.flush()
        self.bodies: dict[int, bytes] = {}
        self.heads: dict[int, list[list[tuple[bytes, bytes]]]] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goaway: int | None = None

    def __enter__(self) -> Http2Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def request(
        self,
        path: str,
        *more: tuple[bytes, bytes],
        method: bytes = b"GET",
        end: bool = True,
        authority: bytes = b"a",
    ) -> int:
        stream = self.h2.get_next_available_stream_id()
        fields = [
            (b":method", method),
            (b":scheme", b"https"),
            (b":authority", authority),
            (b":path", path.encode("latin-1")),
            *more,
        ]
        self.h2.send_headers(stream, fields, end_stream=end)
        self.flush()
        return stream

    def step(self, *, take: bool = True) -> bool:
        data = self.socket.recv(1 << 17)
        if not data:
            return False
        for event in self.h2.receive_data(data):
            if isinstance(
                event,
                h2.events.ResponseReceived
                | h2.events.InformationalResponseReceived
                | h2.events.TrailersReceived,
            ):
                self.heads.setdefault(event.stream_id, []).append(list(event.headers))
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                if take:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.resets[event.stream_id] = event.error_code
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = event.error_code
        self.flush()
        return True

    def finish(self, stream: int) -> tuple[int, bytes]:
        while stream not in self.ended and stream not in self.resets:
            assert self.step()
        status = int(dict(self.heads[stream][-1])[b":status"])
        return status, self.bodies.get(stream, b"")

    def send_body(self, stream: int, size: int) -> None:
        while size:
            window = min(
                self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, size
            )
            if not window:
                assert self.step()
                continue
            size -= window
            self.h2.send_data(stream, b"u" * window, end_stream=not size)
            self.flush()


def test_http_1_1_over_tls_tells_the_scheme(server):
    with RawClient(server.tls_port, tls=tls("http/1.1")) as raw:
        assert b"'scheme': 'https'" in raw.get("/scope").body
        raw.send(
            b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000
        )
        assert len(raw.answer().body) == 300_000
        raw.send(b"bad\r\n\r\n")
        assert raw.answer().status == 400
        assert raw.closed()


def test_old_tls_is_refused(server):
    context = tls("http/1.1")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with RawClient(server.tls_port, tls=context) as raw:
        assert raw.socket.version() == "TLSv1.3"
    with RawClient(server.tls_port) as plain:
        # a TLS 1.0 ClientHello
        plain.send(
            bytes.fromhex("160301002f0100002b0301")
            + b"r" * 32
            + bytes.fromhex("000004002f00350100")
        )
        plain.send(bytes.fromhex("0000"))
        assert plain.read_to_end()[:1] in (b"\x15", b"")


def test_a_silent_handshake_is_ended(server):
    with RawClient(server.tls_port) as raw:
        assert raw.closed()


def test_streams_are_answered_side_by_side(server):
    with Http2Client(server) as client:
        assert client.socket.selected_alpn_protocol() == "h2"
        hanging = client.request("/hang")
        streams = [client.request("/hello") for _ in range(20)]
        assert [client.finish(stream) for stream in streams] == [(200, b"hello")] * 20
        assert hanging not in client.ended


def test_the_scope_has_host_cookie_and_raw_target(server):
    with Http2Client(server) as client:
        stream = client.request(
            "/scope/%2f?a=b", (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x_y", b"1")
        )
        scope = eval(client.finish(stream)[1])  # noqa: S307 - our own repr
    assert scope["http_version"] == "2"
    assert scope["scheme"] == "https"
    assert (b"host", b"a") in scope["headers"]
    assert (b"cookie", b"a=1; b=2") in scope["headers"]
    assert b"x_y" not in dict(scope["headers"])
    assert scope["extensions"]["corvus.server"] == {"target": b"/scope/%2f?a=b"}


def test_headers_keep_order_and_repetitions(server):
    with Http2Client(server) as client:
        stream = client.request("/headers")
        client.finish(stream)
        names = [name for name, _ in client.heads[stream][0]]
    assert names == [
        b":status",
        b"x-one",
        b"set-cookie",
        b"x-one",
        b"set-cookie",
        b"server",
        b"date",
    ]


def test_a_body_streams_both_ways(server):
    with Http2Client(server) as client:
        stream = client.request("/echo", method=b"POST", end=False)
        client.h2.send_data(stream, b"one")
        client.flush()
        while client.bodies.get(stream) != b"one":
            client.step()
        client.h2.send_data(stream, b"two", end_stream=True)
        client.flush()
        assert client.finish(stream) == (200, b"onetwo")


def test_a_reset_cancels_the_application(server):
    with Http2Client(server) as client:
        stream = client.request("/hang/reset")
        eventually(lambda: "begin /hang/reset" in log(server))
        client.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        client.flush()
        eventually(lambda: "cancelled /hang/reset" in log(server), 0.5)
        assert client.finish(client.request("/hello")) == (200, b"hello")


@pytest.mark.parametrize("path", ["/silent", "/boom", "/split"])
def test_a_failing_application_gives_500(server, path):
    with Http2Client(server) as client:
        assert client.finish(client.request(path))[0] == 500


def test_early_hints_trailers_and_head_are_sent(server):
    with Http2Client(server) as client:
        stream = client.request("/inform")
        assert client.finish(stream) == (200, b"done")
        assert dict(client.heads[stream][0])[b":status"] == b"103"
        stream = client.request("/trailers")
        while stream not in client.ended:
            client.step()
        assert client.heads[stream][1] == [(b"x-sum", b"42")]
        stream = client.request("/status/200?length", method=b"HEAD")
        assert client.finish(stream) == (200, b"")


def test_an_early_answer_ends_the_upload_without_an_error(server):
    with Http2Client(server) as client:
        stream = client.request("/hello", method=b"POST", end=False)
        assert client.finish(stream) == (200, b"hello")
        while stream not in client.resets:
            client.step()
        assert client.resets[stream] == h2.errors.ErrorCodes.NO_ERROR
        assert client.finish(client.request("/hello")) == (200, b"hello")


def test_a_body_that_stops_is_408(server):
    with Http2Client(server) as client:
        stream = client.request("/whole", method=b"POST", end=False)
        assert client.finish(stream)[0] == 408


@pytest.mark.parametrize(
    ("path", "authority", "more", "status"),
    [
        ("/x#y", b"a", (), 400),
        ("/x\xe9", b"a", (), 400),
        ("/x", b"a/b", (), 400),
        ("/" + "x" * 9000, b"a", (), 414),
        ("/x", b"a", tuple((b"x-%d" % n, b"1") for n in range(101)), 431),
        ("/x", b"a", ((b"content-length", b"+3"),), 400),
        ("/x", b"a", ((b"content-length", b"400000000"),), 413),
        ("/x", b"a", ((b"host", b"b"),), 400),
    ],
)  # fmt: skip
def test_a_malformed_request_never_reaches_the_application(server, path, authority, more, status):
    with Http2Client(server, validate_outbound_headers=False) as client:
        before = log(server)
        end = b"content-length" not in dict(more)
        stream = client.request(path, *more, authority=authority, end=end)
        while client.goaway is None and stream not in client.heads:
            client.step()
        if client.goaway is None:  # h2 itself ends the connection for some of them
            assert int(dict(client.heads[stream][0])[b":status"]) == status
        assert log(server) == before


@pytest.mark.parametrize(
    "more",
    [
        ((b"connection", b"close"),),
        ((b"transfer-encoding", b"chunked"),),
        ((b"te", b"gzip"),),
        ((b"X-Upper", b"1"),),
        ((b"x", b"a\r\nb"),),
        ((b":path", b"/twice"),),
    ],
)
def test_a_field_that_http_2_forbids_is_a_protocol_error(server, more):
    config = {"validate_outbound_headers": False, "normalize_outbound_headers": False}
    with Http2Client(server, **config) as client:
        before = log(server)
        stream = client.request("/x", *more)
        while client.goaway is None and stream not in client.resets and stream not in client.heads:
            assert client.step()
        if stream in client.heads:
            assert dict(client.heads[stream][0])[b":status"] == b"400"
        assert log(server) == before


def test_rapid_resets_end_the_connection(server):
    with Http2Client(server) as client:
        for _ in range(250):
            stream = client.request("/hang")
            client.h2.reset_stream(stream)
        try:
            client.flush()
            while client.goaway is None and client.step():
                pass
        except (ConnectionError, ssl.SSLError):
            return
        assert client.goaway == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "frame",
    [
        SettingsFrame(0, settings={4: 65_535}),
        PingFrame(0, opaque_data=b"12345678"),
        PriorityFrame(1, depends_on=0, stream_weight=1),
        DataFrame(1, b""),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_flood_of_frames_that_carry_nothing_ends_the_connection(server, frame):
    with Http2Client(server) as client:
        client.request("/hang", method=b"POST", end=False)
        before, sent = server.rss_bytes(), 0
        flood = frame.serialize() * 5_000
        with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
            while sent < 20 * MIB:  # more than what is on its way in both kernels
                client.socket.sendall(flood)
                sent += len(flood)
        assert sent < 20 * MIB, "cut, or read no further"
        assert server.rss_bytes() - before < 16 * MIB
    with Http2Client(server) as other:
        assert other.finish(other.request("/hello"))[0] == 200


def test_200_mb_both_ways_are_not_held_in_memory(server):
    with Http2Client(server) as client:
        client.socket.settimeout(30)
        before = server.rss_bytes()
        stream = client.request("/download/200000000")
        for _ in range(50):
            client.step(take=False)
            if client.h2.remote_flow_control_window(stream) <= 0:
                break
        assert server.rss_bytes() - before < 32 * MIB
        client.h2.reset_stream(stream)
        client.flush()
        stream = client.request("/wait/h2", method=b"POST", end=False)
        client.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            client.send_body(stream, 50_000_000)
        assert server.rss_bytes() - before < 32 * MIB


def test_a_drained_connection_ends_after_its_streams(certificate):
    with serving(certificate) as server, Http2Client(server) as client:
        stream = client.request("/whole", method=b"POST", end=False)
        eventually(lambda: "begin /whole" in log(server))
        server.process.terminate()
        while client.goaway is None:
            assert client.step()
        assert client.goaway == h2.errors.ErrorCodes.NO_ERROR
        # the h2 client sends nothing after a GOAWAY, though RFC 9113 6.8 lets it end its streams
        client.socket.sendall(DataFrame(stream, b"ok", flags=["END_STREAM"]).serialize())
        assert b"ok" in client.raw.read_to_end()
        assert server.process.wait(8) == 0


def test_a_bad_certificate_is_one_clear_line_and_status_2(tmp_path: Path):
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    command = [sys.executable, "-m", "corvus_site.server"]
    command += ["--app", "tests.support.server_probe:application", "--tls-listen", "127.0.0.1:0"]
    command += ["--tls-cert", str(bad), "--tls-key", str(bad)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert str(bad) in done.stderr
    assert "Traceback" not in done.stderr
