"""The pooled client over TLS: whose certificate counts, and the same streams."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_errors import OriginTimeout, OriginTruncated, OriginUnreachable
from proxy.gateway.upstream_messages import RequestHead
from tests.support.raw_origin import OriginConnection, RawOrigin, answering

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = RequestHead(b"GET", b"/", [(b"host", b"shop.example")])


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Give a server's TLS settings with a certificate that nobody has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "origin")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path: Path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    client = UpstreamClient()
    yield client
    await client.close()


async def test_an_unsigned_certificate_is_refused_unless_the_host_says_otherwise(
    client: UpstreamClient, server_tls: ssl.SSLContext
) -> None:
    async with RawOrigin(answering(OK, OK), tls=server_tls) as raw:
        with pytest.raises(OriginUnreachable, match=r"(?i)certificate"):
            await client.request(raw.origin(), GET)
        assert not raw.connections
        for _ in range(2):
            response = await client.request(raw.origin(verify=False), GET)
            assert await response.read() == b"ok"
        assert len(raw.connections) == 1


async def test_bodies_stream_both_ways_over_tls(
    client: UpstreamClient, server_tls: ssl.SSLContext
) -> None:
    size = 3_000_000
    body = bytes(range(250)) * (size // 250)

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, size, 50_000):
            yield body[start : start + 50_000]

    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        got = await connection.exactly(size)
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + got)

    async with RawOrigin(handle, tls=server_tls) as raw:
        head = RequestHead(b"PUT", b"/", [(b"content-length", b"%d" % size)], size)
        response = await client.request(raw.origin(verify=False), head, parts())
        assert b"".join([part async for part in response.chunks()]) == body


async def test_two_exchanges_at_once_do_not_mix_over_tls(
    client: UpstreamClient, server_tls: ssl.SSLContext
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        fill = b"%d" % connection.number
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + fill * 400_000)

    async def fetch() -> set[int]:
        response = await client.request(raw.origin(verify=False), GET)
        return set(b"".join([part async for part in response.chunks()]))

    async with RawOrigin(handle, tls=server_tls) as raw:
        got = await asyncio.gather(*(fetch() for _ in range(4)))
    assert sorted(map(sorted, got)) == [[ord("1")], [ord("2")], [ord("3")], [ord("4")]]


async def test_a_truncated_answer_over_tls_is_an_error(
    client: UpstreamClient, server_tls: ssl.SSLContext
) -> None:
    async def handle(connection: OriginConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with RawOrigin(handle, tls=server_tls) as raw:
        response = await client.request(raw.origin(verify=False), GET)
        assert await response.read() == b"half"
        with pytest.raises(OriginTruncated):
            await response.read()


async def test_a_port_that_speaks_no_tls_is_unreachable_or_out_of_time(
    client: UpstreamClient,
) -> None:
    async def talks(connection: OriginConnection) -> None:
        await connection.reader.read(10)
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await connection.reader.read()

    async def listens(connection: OriginConnection) -> None:
        await connection.reader.read()

    for handle, expected in ((talks, OriginUnreachable), (listens, OriginTimeout)):
        async with RawOrigin(handle) as raw:
            origin = replace(raw.origin(connect_timeout_s=0.3), scheme="https", verify=False)
            with pytest.raises(expected):
                await client.request(origin, GET)
