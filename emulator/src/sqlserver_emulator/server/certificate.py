"""The server's certificate: an own CA and a server certificate signed by it, kept in the data folder.

Clients verify against ``CertificateFiles.ca_file``. Private keys have mode 600.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_NAME = "sqlserver-emulator CA"
_SERVER_NAME = "sqlserver-emulator"
_KEY_BITS = 2048
# Clients of some systems refuse certificates that last longer than 825 days.
_LIFETIME = timedelta(days=825)
_RENEW_BEFORE = timedelta(days=30)
# A client whose clock is behind must not find the certificate to be of the future.
_CLOCK_SKEW = timedelta(days=1)
_TDS_8_PROTOCOL = "tds/8.0"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a CA and of the server's certificate and key."""

    ca_file: Path
    certificate_file: Path
    key_file: Path


def provide_certificate(directory: Path, host: str) -> CertificateFiles:
    """Use the certificate in ``directory``, or make a new CA and certificate when there is none that fits or lasts."""
    directory.mkdir(parents=True, exist_ok=True)
    files = CertificateFiles(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    names = _subject_names(host)
    if not _is_usable(files, names):
        _create(files, names)
    return files


def tunnel_context(files: CertificateFiles) -> ssl.SSLContext:
    """For TLS inside PRELOGIN packets. TLS 1.2 at most: with 1.3 msodbcsql18 and mssql-jdbc hang, FreeTDS fails."""
    context = _context(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def strict_context(files: CertificateFiles) -> ssl.SSLContext:
    """For TDS 8, where TLS comes before everything else."""
    context = _context(files)
    # TDS 8 demands this protocol name in ALPN.
    context.set_alpn_protocols([_TDS_8_PROTOCOL])
    return context


def _context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate_file, files.key_file)
    return context


def _subject_names(host: str) -> list[x509.GeneralName]:
    """Addresses stand there twice: msodbcsql18 compares the address it was given with the DNS names only."""
    hosts = dict.fromkeys(["localhost", "127.0.0.1", "::1", host])
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in hosts]
    for name in hosts:
        with contextlib.suppress(ValueError):
            names.append(x509.IPAddress(ipaddress.ip_address(name)))
    return names


def _is_usable(files: CertificateFiles, names: list[x509.GeneralName]) -> bool:
    if not (files.ca_file.exists() and files.certificate_file.exists() and files.key_file.exists()):
        return False
    # Files that exist may still not belong together: they are written one after the other.
    certificate = x509.load_pem_x509_certificate(files.certificate_file.read_bytes())
    ca = x509.load_pem_x509_certificate(files.ca_file.read_bytes())
    key = serialization.load_pem_private_key(files.key_file.read_bytes(), password=None)
    if certificate.public_key() != key.public_key() or certificate.issuer != ca.subject:
        return False
    try:
        certificate.verify_directly_issued_by(ca)
    except InvalidSignature:
        return False  # left by a process that was killed while it wrote them
    covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    # Renewed early, so that a running emulator does not outlast it.
    lasts = certificate.not_valid_after_utc > datetime.now(UTC) + _RENEW_BEFORE
    return lasts and set(names) <= set(covered)


def _create(files: CertificateFiles, names: list[x509.GeneralName]) -> None:
    # The CA's key is dropped after it has signed once: no one can sign with it later.
    ca_key, key = (rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS) for _ in range(2))
    ca = _builder(_CA_NAME, _CA_NAME, ca_key.public_key(), ca_key.public_key(), is_ca=True).sign(
        ca_key, hashes.SHA256()
    )
    certificate = (
        _builder(_SERVER_NAME, _CA_NAME, key.public_key(), ca_key.public_key(), is_ca=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private_file(files.key_file, private)
    files.certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: str, issuer: str, public_key: rsa.RSAPublicKey, issuer_key: rsa.RSAPublicKey, *, is_ca: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not is_ca,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    # A file that exists keeps its own mode, so it is removed first.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
