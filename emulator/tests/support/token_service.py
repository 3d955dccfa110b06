"""A token service on loopback, as Microsoft Entra ID answers: applications by secret or assertion, managed identities.

Its certificate is of an authority that clients find in ``REQUESTS_CA_BUNDLE``.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sqlserver_emulator.external_logins import AUDIENCE
from sqlserver_emulator.server.certificate import provide_certificate

TENANT = "11111111-2222-3333-4444-555555555555"
CLIENT, SECRET = "66666666-7777-8888-9999-000000000000", "s3cret~of.the-application"
IDENTITY, IDENTITY_HEADER = "aaaaaaaa-7777-8888-9999-000000000000", "header-of-the-identity"
_NO_TENANT = "AADSTS90002: Tenant '%s' not found. Check to make sure you have the correct tenant ID."
_NO_SECRET = "AADSTS7000215: Invalid client secret provided."


class TokenService:
    """Signs tokens, and issues them to who asks by HTTPS. ``asked``: the paths, in their order."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.asked: list[str] = []
        self.assertion_key = ""
        """The public key (PEM) of what the application may prove itself with instead of the secret."""
        self.lifetime_seconds = 3600
        self.claims: dict[str, object] = {}
        """Claims that the tokens have in place of the usual ones."""
        self.url = ""
        self.ca_file = Path()

    @property
    def public_key(self) -> str:
        """The key that the tokens are checked with, as PEM."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    def sign(self, **claims: object) -> str:
        """Return a token for the database of the application, unless the claims say otherwise."""
        now = int(time.time())
        usual = {"aud": AUDIENCE, "appid": CLIENT, "tid": TENANT, "iat": now, "nbf": now}
        usual["exp"] = now + self.lifetime_seconds
        return jwt.encode(usual | claims, self._key, algorithm="RS256")

    def answer(self, path: str, form: dict[str, str], header: str | None) -> tuple[int, dict[str, object]]:
        """Return status and document for a request. form: of its body. header: of a managed identity."""
        parts = urlsplit(path)
        self.asked.append(parts.path)
        if parts.path == "/identity":
            if header != IDENTITY_HEADER:
                return 401, {"error": "invalid_client"}
            token = self.sign(appid=IDENTITY, **self.claims)
            return 200, {"access_token": token, "expires_on": int(time.time()) + 3600, "token_type": "Bearer"}
        tenant = parts.path.split("/")[1]
        if tenant != TENANT:
            return 400, {"error": "invalid_tenant", "error_description": _NO_TENANT % tenant}
        if parts.path.endswith("/openid-configuration"):
            base = f"{self.url}/{TENANT}"
            ends = {"token_endpoint": "oauth2/v2.0/token", "authorization_endpoint": "authorize", "issuer": "v2.0"}
            return 200, {name: f"{base}/{end}" for name, end in ends.items()}
        if form.get("client_id") != CLIENT or not self._is_proved(form):
            return 401, {"error": "invalid_client", "error_description": _NO_SECRET}
        token = self.sign(**self.claims)
        return 200, {"token_type": "Bearer", "expires_in": self.lifetime_seconds, "access_token": token}

    def _is_proved(self, form: dict[str, str]) -> bool:
        if "client_assertion" not in form:
            return form.get("client_secret") == SECRET
        key, assertion = self.assertion_key, form["client_assertion"]
        try:
            jwt.decode(assertion, key, algorithms=["RS256", "PS256"], options={"verify_aud": False})
        except jwt.PyJWTError:
            return False
        return True


@contextmanager
def token_service(folder: Path) -> Iterator[TokenService]:
    """Run a token service. folder: for its certificate."""
    service = TokenService()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._reply({name: values[0] for name, values in parse_qs(body).items()})

        def _reply(self, form: dict[str, str]) -> None:
            status, document = service.answer(self.path, form, self.headers.get("X-IDENTITY-HEADER"))
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            pass

    files = provide_certificate(folder, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate_file, files.key_file)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        service.url, service.ca_file = f"https://localhost:{server.server_port}", files.ca_file
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
