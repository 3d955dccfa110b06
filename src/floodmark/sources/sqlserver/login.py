"""Logins without a password of the server: tokens of Microsoft Entra ID, by azure-identity, and Kerberos.

What a connection carries describes the credential. Each process makes the credential from it, which keeps its token in
memory and renews it for new connections; a connection that is open outlives its token. A ticket of Kerberos is the
process's own.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from floodmark.core.errors import ConfigError, FloodmarkError, SourceLoginError, SourceUnavailableError

if TYPE_CHECKING:
    from floodmark.core.doctor import Finding
    from floodmark.sources.sqlserver.driver import SqlServerConnection
    from floodmark.sources.sqlserver.kerberos import NoTicketError

Authentication = Literal[
    "SqlPassword",
    "ActiveDirectoryServicePrincipal",
    "ActiveDirectoryManagedIdentity",
    "ActiveDirectoryWorkloadIdentity",
    "ActiveDirectoryDefault",
    "Kerberos",
]
"""How a connection logs in, in the words of Microsoft's drivers."""
PASSWORD: Authentication = "SqlPassword"  # noqa: S105  (a word of the drivers)
KERBEROS: Authentication = "Kerberos"
EXTRAS = ("tenant", "certificate", "server_spn")
RUST_PROVIDER = "mssql-odbc"
_OF_KERBEROS = ("SSPI Provider", "Security error")
"""How each provider of the driver begins its message on Kerberos, in English; it has only a general SQLSTATE for it."""
KEYTAB_VARIABLE = "KRB5_CLIENT_KTNAME"
_SPN = re.compile(r"[^/@\s]+/[^/@\s]+")
_CHOICES: Mapping[str, Authentication] = {
    **{choice.lower(): choice for choice in get_args(Authentication)},
    "activedirectorymsi": "ActiveDirectoryManagedIdentity",
}
_PRINCIPAL, _WORKLOAD = "ActiveDirectoryServicePrincipal", "ActiveDirectoryWorkloadIdentity"
_TAKEN: Mapping[str, tuple[str, ...]] = {
    PASSWORD: ("login", "password"),
    KERBEROS: ("server_spn",),
    _PRINCIPAL: ("login", "password", "tenant", "certificate"),
    _WORKLOAD: ("login", "tenant"),
}
"""Fields and extras that say how to log in; for every other way, the login alone."""

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


_TICKET_HINT = (
    "Name a keytab in KRB5_CLIENT_KTNAME (FILE:/path) in the environment of the process that connects, or keep a "
    "ticket in its cache (KRB5CCNAME). Check the realm and its KDC in krb5.conf; klist shows the ticket."
)
_CLOCK_HINT = "Synchronise the clocks of this machine, of the domain and of the server by NTP."
_SERVICE_HINT = (
    "Check that the service name that the message has is registered (setspn -L ACCOUNT at the domain), or name the one "
    "that is as server_spn, such as MSSQLSvc/host:port."
)
_WINDOWS_HINT = (
    "Create the login (CREATE LOGIN [DOMAIN\\name] FROM WINDOWS) and its user in the database. Where the message "
    "speaks of an untrusted domain, the service name belongs to another account than the server runs as, or the clocks "
    "of server and domain are more than five minutes apart."
)


def read_login(found: Any, extras: Mapping[str, Any], conn_id: str) -> dict[str, Any]:
    """Return the fields of a ``SqlServerConnection`` that say how it logs in. found: an Airflow connection.

    Login and password are the client id and the secret of an application. Raises ConfigError for what is missing, and
    for what would have no effect.
    """
    from floodmark.airflow_connections import named_twice, read_flag, required_field  # noqa: PLC0415  (no executor's)

    subject = f"connection {conn_id}"
    is_trusted = read_flag(extras.get("trusted_connection", False), conn_id, "trusted_connection")
    if is_trusted and "authentication" in extras:
        raise named_twice(conn_id, "authentication")
    written = str(extras.get("authentication", KERBEROS if is_trusted else PASSWORD))
    authentication = _CHOICES.get(written.lower())
    if authentication is None:
        choices = ", ".join(get_args(Authentication))
        raise ConfigError(subject, f"authentication is {written!r}, expected one of {choices}.", "Correct its extra.")
    given = {"login": found.login, "password": found.password, **{name: extras.get(name) for name in EXTRAS}}
    taken = _TAKEN.get(authentication, ("login",))
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
    spn = str(given["server_spn"] or "")
    if spn and not _SPN.fullmatch(spn):
        raise ConfigError(
            subject, f"server_spn is {spn!r}, which is no service name.", "Write MSSQLSvc/host:port, without realm."
        )
    return {
        "user": found.login or "",
        "password": found.password or "",
        "authentication": authentication,
        "tenant": str(given["tenant"] or ""),
        "certificate_file": str(given["certificate"] or ""),
        "server_spn": spn,
    }


@dataclass(frozen=True, slots=True)
class FetchedToken:
    """A token in the form in which the driver takes it: as what gives one when asked."""

    token: Any = field(repr=False)

    def get_token(self, *_scopes: str) -> Any:
        """Return azure-identity's token."""
        return self.token


def fetch_token(at: SqlServerConnection) -> FetchedToken | None:
    """Return a token for a new connection, from memory while it lasts; None for a login without one.

    Raises ConfigError, SourceLoginError, SourceUnavailableError.
    """
    if not at.uses_token:
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


def explain_refusal(at: SqlServerConnection, message: str, *, is_refused: bool) -> FloodmarkError | None:
    """Return the error for a connect that failed at its login; None for a password, and where something else failed.

    is_refused: whether the server refused the login.
    """
    if at.uses_token and is_refused:
        text = f"the server refused the token of {_describe(at)}: {message}."
        return SourceLoginError(str(at), text, _GRANT_HINT)
    if at.authentication != KERBEROS:
        return None
    if is_refused:
        return SourceLoginError(str(at), f"the server refused the login by Kerberos: {message}.", _WINDOWS_HINT)
    if not message.startswith(_OF_KERBEROS):
        return None
    from floodmark.sources.sqlserver.kerberos import NoTicketError, read_ticket  # noqa: PLC0415  (few need it)

    try:
        ticket = read_ticket()
    except NoTicketError as error:
        kind = SourceUnavailableError if error.is_unreachable else SourceLoginError
        return kind(str(at), f"this process has no ticket of Kerberos: {error}.", _hint(error))
    text = f"{ticket.principal} got no ticket for the server's service name: {message}."
    return SourceLoginError(str(at), text, _SERVICE_HINT)


def login_parts(at: SqlServerConnection, provider: str) -> dict[str, str]:
    """Return the keywords of a connection string that say how to log in. provider: of the driver."""
    if at.authentication == PASSWORD:
        return {"UID": at.user, "PWD": at.password}
    if at.authentication != KERBEROS:
        return {}
    # The Rust provider takes the name as GSSAPI has it: MSSQLSvc@host.
    spn = at.server_spn.replace("/", "@") if provider == RUST_PROVIDER else at.server_spn
    return {"Trusted_Connection": "yes", "ServerSPN": spn}


def executor_variables(at: SqlServerConnection) -> tuple[str, ...]:
    """Return the variables that each executor of a cluster needs: a keytab is no part of a task."""
    return (KEYTAB_VARIABLE,) if at.authentication == KERBEROS else ()


def _describe(at: SqlServerConnection) -> str:
    client = f"client {at.user}" if at.user else f"the identity of {at.authentication}"
    return client + (f" of tenant {at.tenant}" if at.tenant else "")


def examine_login(at: SqlServerConnection, log_in: Callable[[], None]) -> Iterator[Finding]:
    """Yield the findings of doctor on a login without a password: its token or its ticket, then what the server says.

    log_in: connects once; it is not called after a problem. Raises as a connect does for other reasons than the login,
    such as a server or a token service that is out of reach.
    """
    from floodmark.core.doctor import Finding, Grade  # noqa: PLC0415  (doctor's alone)

    if at.authentication == PASSWORD:
        return
    try:
        fetched = fetch_token(at)
        found = _examine_ticket(at) if fetched is None else _examine_token(at, fetched.token)
        yield found
        if found.grade is not Grade.PROBLEM:
            log_in()
    except SourceLoginError as error:
        yield Finding(Grade.PROBLEM, "login", at.host, error.message, error.hint)


def _examine_token(at: SqlServerConnection, token: Any) -> Finding:
    from floodmark.core.doctor import Finding, Grade  # noqa: PLC0415

    claims = _claims(token.token)
    audience, skew = str(claims.get("aud", "")), float(claims.get("iat", time.time())) - time.time()
    minutes = (token.expires_on - time.time()) / 60
    text = f"a token of {_describe(at)} for {audience}, which lasts {minutes:.0f} minutes; it is renewed."
    if audience.rstrip("/") != _AUDIENCE:
        return Finding(Grade.PROBLEM, "login", at.host, text, f"The server takes tokens for {_AUDIENCE}/ only.")
    if skew > _SKEW_SECONDS:
        text = f"the token was issued {skew:.0f} s in the future: the clock of this machine is behind."
        return Finding(Grade.RISK, "login", at.host, text, "Synchronise the clock by NTP.")
    return Finding(Grade.GOOD, "login", at.host, text)


def _examine_ticket(at: SqlServerConnection) -> Finding:
    from floodmark.core.doctor import Finding, Grade  # noqa: PLC0415
    from floodmark.sources.sqlserver.kerberos import NoTicketError, read_ticket  # noqa: PLC0415

    try:
        ticket = read_ticket()
    except NoTicketError as error:
        return Finding(Grade.PROBLEM, "login", at.host, f"there is no ticket of Kerberos: {error}.", _hint(error))
    text = f"a ticket of {ticket.principal}, which lasts {ticket.seconds / 60:.0f} minutes"
    if KEYTAB_VARIABLE in os.environ:
        return Finding(Grade.GOOD, "login", at.host, f"{text}; the keytab renews it.")
    return Finding(
        Grade.NOTE,
        "login",
        at.host,
        f"{text}: no keytab is named that would renew it.",
        f"Name a keytab in {KEYTAB_VARIABLE}, or let a service of the machine renew the ticket.",
    )


def _hint(error: NoTicketError) -> str:
    return _CLOCK_HINT if error.is_skewed else _TICKET_HINT


def _claims(token: str) -> dict[str, Any]:
    """Return what a token says of itself, unchecked: the server checks it. Empty for one that is no JWT."""
    import base64  # noqa: PLC0415

    parts = token.split(".")
    if len(parts) != 3:
        return {}
    return dict(json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))))
