"""Logins without a password of the server: tokens of Microsoft Entra ID, by the package azure-identity.

What a connection carries describes the credential. Each process makes the credential from it, which keeps its token in
memory and renews it for new connections; a connection that is open outlives its token.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from floodmark.airflow_connections import required_field
from floodmark.core.doctor import Finding, Grade
from floodmark.core.errors import ConfigError, FloodmarkError, SourceLoginError, SourceUnavailableError

if TYPE_CHECKING:
    from floodmark.sources.sqlserver.driver import SqlServerConnection

Authentication = Literal[
    "SqlPassword",
    "ActiveDirectoryServicePrincipal",
    "ActiveDirectoryManagedIdentity",
    "ActiveDirectoryWorkloadIdentity",
    "ActiveDirectoryDefault",
]
"""How a connection logs in, in the words of Microsoft's drivers."""
PASSWORD: Authentication = "SqlPassword"  # noqa: S105  (a word of the drivers)
EXTRAS = ("authentication", "tenant", "certificate")
_CHOICES: Mapping[str, Authentication] = {
    **{choice.lower(): choice for choice in get_args(Authentication)},
    "activedirectorymsi": "ActiveDirectoryManagedIdentity",
}
_PRINCIPAL, _WORKLOAD = "ActiveDirectoryServicePrincipal", "ActiveDirectoryWorkloadIdentity"

AUTHORITY_VARIABLE = "AZURE_AUTHORITY_HOST"
_PUBLIC_AUTHORITY = "login.microsoftonline.com"
_OTHER_CLOUDS = ("login.microsoftonline.us", "login.chinacloudapi.cn", "login.partner.microsoftonline.cn")
_SCOPE = "https://database.windows.net/.default"
_AUDIENCE = "https://database.windows.net"
_TIMEOUT_SECONDS = 15
_LONGEST = 500
_SKEW_SECONDS = 60
_GRANT_HINT = (
    "Check the client id and the tenant, and create its user in the database: CREATE USER [name of the application] "
    "FROM EXTERNAL PROVIDER. The server must be of the same tenant and accept Microsoft Entra ID."
)


def read_login(found: Any, extras: Mapping[str, Any], conn_id: str) -> dict[str, Any]:
    """Return the fields of a ``SqlServerConnection`` that say how it logs in. found: an Airflow connection.

    Login and password are the client id and the secret of an application. Raises ConfigError for what is missing, and
    for what would have no effect.
    """
    written = str(extras.get("authentication", PASSWORD))
    authentication = _CHOICES.get(written.lower())
    subject = f"connection {conn_id}"
    if authentication is None:
        choices = ", ".join(get_args(Authentication))
        raise ConfigError(subject, f"authentication is {written!r}, expected one of {choices}.", "Correct its extra.")
    given = {"password": found.password, **{name: extras.get(name) for name in EXTRAS[1:]}}
    taken = {PASSWORD: ("password",), _PRINCIPAL: tuple(given), _WORKLOAD: ("tenant",)}.get(authentication, ())
    for name, value in given.items():
        if value and name not in taken:
            raise ConfigError(subject, f"its {name} has no effect with authentication {authentication}.", "Remove it.")
    if authentication in (PASSWORD, _PRINCIPAL):
        what = "login" if authentication == PASSWORD else "login (the client id of the application)"
        required_field(found.login, conn_id, what)
    if authentication == _PRINCIPAL:
        required_field(given["tenant"], conn_id, "tenant in its extra")
        secret = given["password"] or given["certificate"]
        required_field(secret, conn_id, "password (the secret of the application), and no certificate in its extra")
    return {
        "user": found.login or "",
        "password": found.password or "",
        "authentication": authentication,
        "tenant": str(given["tenant"] or ""),
        "certificate_file": str(given["certificate"] or ""),
    }


@dataclass(frozen=True, slots=True)
class FetchedToken:
    """A token in the form in which the driver takes it: as what gives one when asked."""

    token: Any = field(repr=False)

    def get_token(self, *_scopes: str) -> Any:
        """Return azure-identity's token."""
        return self.token


def fetch_token(at: SqlServerConnection) -> FetchedToken | None:
    """Return a token for a new connection, from memory while it lasts; None for a login with a password.

    Raises ConfigError, SourceLoginError, SourceUnavailableError.
    """
    if at.authentication == PASSWORD:
        return None
    authority = _authority()
    if authority in _OTHER_CLOUDS:
        raise ConfigError(
            str(at),
            f"{AUTHORITY_VARIABLE} names {authority}: tokens of the public cloud are supported only.",
            f"Use a login with a password, or unset {AUTHORITY_VARIABLE}.",
        )
    try:
        certificate = at.with_certificate().certificate_pem
    except ValueError as error:
        raise ConfigError(str(at), f"{error}.", "Correct the path in the connection's extra.") from None
    try:
        credential = _credential(
            authentication=at.authentication,
            client=at.user,
            secret=at.password,
            tenant=at.tenant,
            certificate=certificate,
            authority=authority,
            process_id=os.getpid(),
        )
        return FetchedToken(credential.get_token(_SCOPE))
    except ImportError as error:
        raise ConfigError(
            str(at), f"{at.authentication} needs a package that is missing: {error}.", "Install floodmark[entra]."
        ) from None
    except Exception as error:  # noqa: BLE001  (azure-identity, MSAL and cryptography have no common class)
        raise _explain(at, error) from None


@lru_cache(maxsize=32)
def _credential(
    *,
    authentication: Authentication,
    client: str,
    secret: str,
    tenant: str,
    certificate: str,
    authority: str,
    process_id: int,
) -> Any:
    """Return a credential, made once for each ``process_id``: a fork would share its sockets.

    secret: the pass phrase of the certificate, where there is one.
    """
    from azure import identity  # noqa: PLC0415  (a quarter of a second)

    log = logging.getLogger("azure")
    if log.level == logging.NOTSET:
        log.setLevel(logging.ERROR)  # what fails is said once, by the error
    timeouts: dict[str, Any] = {"connection_timeout": _TIMEOUT_SECONDS, "read_timeout": _TIMEOUT_SECONDS}
    # An authority that the environment names is not asked about at the public one, which may be out of reach.
    trusted = timeouts | {"disable_instance_discovery": authority != _PUBLIC_AUTHORITY, "retry_total": 1}
    if authentication == _PRINCIPAL and certificate:
        pem = certificate.encode()
        return identity.CertificateCredential(tenant, client, certificate_data=pem, password=secret or None, **trusted)
    if authentication == _PRINCIPAL:
        return identity.ClientSecretCredential(tenant, client, secret, **trusted)
    if authentication == _WORKLOAD:
        return identity.WorkloadIdentityCredential(tenant_id=tenant or None, client_id=client or None, **trusted)
    if authentication == "ActiveDirectoryDefault":
        named = {"managed_identity_client_id": client} if client else {}
        return identity.DefaultAzureCredential(**named, **trusted)
    return identity.ManagedIdentityCredential(client_id=client or None, **timeouts)


def _authority() -> str:
    return os.environ.get(AUTHORITY_VARIABLE, _PUBLIC_AUTHORITY).removeprefix("https://").rstrip("/")


def _explain(at: SqlServerConnection, error: Exception) -> FloodmarkError:
    """Return the error for a token that was not given: the service is out of reach, or it refuses."""
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError  # noqa: PLC0415

    message = " ".join(str(error).split()).removeprefix("Authentication failed: ")
    if at.password:
        message = message.replace(at.password, "***")
    message = message[:_LONGEST].rstrip(".")
    source: BaseException | None = error
    while source is not None:
        if isinstance(source, ServiceRequestError | ServiceResponseError):
            return SourceUnavailableError(
                str(at),
                f"the token service {_authority()} cannot be reached: {message}.",
                "Check that this machine may connect to it: name, proxy (HTTPS_PROXY), firewall, authorities "
                "(REQUESTS_CA_BUNDLE).",
            )
        source = source.__cause__ or source.__context__
    return SourceLoginError(
        str(at),
        f"Microsoft Entra ID gave no token to {_describe(at)}: {message}.",
        "Check the tenant, the client id, and that its secret or certificate is valid; or, with an identity of the "
        "machine, that the machine that connects has one.",
    )


def token_refused(at: SqlServerConnection, message: str) -> SourceLoginError:
    """Return the error for a server that does not take the token, which the token service gave."""
    return SourceLoginError(str(at), f"the server refused the token of {_describe(at)}: {message}.", _GRANT_HINT)


def _describe(at: SqlServerConnection) -> str:
    client = f"client {at.user}" if at.user else f"the identity of {at.authentication}"
    return client + (f" of tenant {at.tenant}" if at.tenant else "")


def examine_login(at: SqlServerConnection) -> Iterator[Finding]:
    """Yield the finding of doctor on the token of a connection. Nothing where it logs in with a password.

    Raises as a connect does where there is no token.
    """
    fetched = fetch_token(at)
    if fetched is None:
        return
    token = fetched.token
    claims = _claims(token.token)
    audience, skew = str(claims.get("aud", "")), float(claims.get("iat", time.time())) - time.time()
    minutes = (token.expires_on - time.time()) / 60
    text = f"a token of {_describe(at)} for {audience}, which lasts {minutes:.0f} minutes; it is renewed."
    if audience.rstrip("/") != _AUDIENCE:
        yield Finding(Grade.PROBLEM, "login", at.host, text, f"The server takes tokens for {_AUDIENCE}/ only.")
    elif skew > _SKEW_SECONDS:
        text = f"the token was issued {skew:.0f} s in the future: the clock of this machine is behind."
        yield Finding(Grade.RISK, "login", at.host, text, "Synchronise the clock by NTP.")
    else:
        yield Finding(Grade.GOOD, "login", at.host, text)


def _claims(token: str) -> dict[str, Any]:
    """Return what a token says of itself, unchecked: the server checks it. Empty for one that is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    return dict(json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))))
