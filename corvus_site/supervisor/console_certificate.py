"""The console's certificate when it listens beyond loopback: self-signed, and replaceable by files.

`console-cert.pem` and `console-key.pem` in the data folder; whoever puts others there replaces it.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 825  # the longest that browsers accept
RENEW_BEFORE_DAYS = 30
ISSUER = "Corvus console"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where certificate and key lie."""

    certificate: Path
    key: Path


def ensure_certificate(folder: Path, host: str) -> CertificateFiles:
    """Give the console's certificate; make one where there is none, or ours has run out.

    Raises:
        OSError: the folder cannot be written.
        ValueError: the certificate that is there cannot be read.
    """
    files = CertificateFiles(folder / "console-cert.pem", folder / "console-key.pem")
    if files.certificate.exists() and files.key.exists() and not _ours_runs_out(files.certificate):
        return files
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(key, host, datetime.datetime.now(datetime.UTC))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    files.key.chmod(0o600)
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files


def _ours_runs_out(path: Path) -> bool:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or names[0].value != ISSUER:
        return False  # the operator's own: theirs to renew
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left < datetime.timedelta(days=RENEW_BEFORE_DAYS)


def _certificate(
    key: ec.EllipticCurvePrivateKey, host: str, now: datetime.datetime
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ISSUER)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _names(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ]
    for other in {host, socket.gethostname()} - {"", "localhost", "127.0.0.1", "::1"}:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(other)))
        except ValueError:
            if other.isascii():
                names.append(x509.DNSName(other))
    return names
