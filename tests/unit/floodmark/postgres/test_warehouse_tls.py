"""A warehouse whose certificate cannot be verified: one message that says what to set."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from floodmark.core.errors import WarehouseAdminError
from floodmark.postgres.session import WarehouseConnection, open_transaction

REQUEST_BYTES = 8
NO_TLS, TLS = b"N", b"S"


def write_certificate(folder: Path, name: str) -> Path:
    """Write a certificate, signed by itself, and its key to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@contextmanager
def served(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Yield the port of a server that answers each connection on a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.recv(REQUEST_BYTES)
                        answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def refuse_tls(connection: socket.socket) -> None:
    connection.sendall(NO_TLS)


def offer_tls(certificate: Path) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def answer(connection: socket.socket) -> None:
        connection.sendall(TLS)
        with context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(REQUEST_BYTES)

    return answer


@pytest.mark.parametrize(
    ("server", "trusted", "words"),
    [
        (None, "own.example", "does not support SSL"),
        ("own.example", "missing", "root certificate file"),
        ("own.example", "other.example", "certificate verify failed"),
        ("own.example", "own.example", "does not match host name"),
    ],
)
def test_warehouse_that_cannot_be_verified_says_what_to_set(
    tmp_path: Path, server: str | None, trusted: str, words: str
) -> None:
    root = tmp_path / "missing.pem" if trusted == "missing" else write_certificate(tmp_path, trusted)
    own = root if server == trusted else write_certificate(tmp_path, server or "unused")
    with served(offer_tls(own) if server else refuse_tls) as port:
        at = WarehouseConnection("127.0.0.1", port, "w", "u", "s3cret", "verify-full", str(root))
        with pytest.raises(WarehouseAdminError, match=words) as caught, open_transaction(at):
            pytest.fail("the server was not verified")
    assert "sslrootcert" in caught.value.hint
    assert "sslmode" in caught.value.hint
    assert not caught.value.retryable
    assert "s3cret" not in str(caught.value)
