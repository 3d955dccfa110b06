"""``emulator.accept_tokens`` and ``accept_principal``: who may log in without a password of the server."""

from __future__ import annotations

from collections.abc import Iterator

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import control_procedure, refusal, required
from sqlserver_emulator.events import Event
from sqlserver_emulator.external_logins import ExternalLogins
from sqlserver_emulator.types import NVARCHAR_4000, SYSNAME


def login_procedures(logins: ExternalLogins) -> tuple[SystemProcedure, ...]:
    """Return the procedures that name a key or a name, and the login that it becomes."""

    def accept_tokens(call: ProcedureCall) -> Iterator[Event]:
        key, subject, login = (str(required(call, name)) for name in ("@key", "@subject", "@login"))
        try:
            logins.accept_tokens(key, subject, _existing_login(call, login))
        except ValueError:
            raise refusal("@key must be the public RSA key of a token service, as PEM.") from None
        yield from ()

    def accept_principal(call: ProcedureCall) -> Iterator[Event]:
        principal, login = (str(required(call, name)) for name in ("@principal", "@login"))
        logins.accept_principal(principal, _existing_login(call, login))
        yield from ()

    return (
        control_procedure(
            "accept_principal",
            (Parameter("@principal", NVARCHAR_4000), Parameter("@login", SYSNAME)),
            accept_principal,
            "Let the principal `name@REALM` of Kerberos log in as `@login`, until the emulator stops.",
        ),
        control_procedure(
            "accept_tokens",
            (Parameter("@key", NVARCHAR_4000), Parameter("@subject", NVARCHAR_4000), Parameter("@login", SYSNAME)),
            accept_tokens,
            "Let tokens of Microsoft Entra ID log in that this public key (PEM) has signed: those of the application or"
            " object `@subject` become `@login`. Until the emulator stops.",
        ),
    )


def _existing_login(call: ProcedureCall, name: str) -> str:
    rows = call.engine.fetch_all("SELECT name::text FROM emulator.logins WHERE lower(name) = lower($1)", (name,))
    if not rows:
        raise refusal(f"There is no login '{name}'.")
    return str(rows[0][0])
