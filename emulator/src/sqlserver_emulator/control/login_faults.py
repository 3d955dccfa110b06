"""Logins that are refused on demand, as a server refuses them while it fails over, restores or is set up wrongly."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.faults import FaultBoard

_TEXTS: Final = {
    976: "The target database, '{database}', is participating in an availability group and is currently not accessible "
    "for queries.",
    978: "The target database ('{database}') is in an availability group and is currently accessible for connections "
    "when the application intent is set to read only.",
    983: "Unable to access availability database '{database}' because the database replica is not in the PRIMARY or "
    "SECONDARY role.",
    4060: 'Cannot open database "{database}" requested by the login. The login failed.',
    18456: "Login failed for user '{login}'.",
    40613: "Database '{database}' on server 'emulator' is not currently available. Please retry the connection later.",
}
REFUSALS: Final = tuple(_TEXTS)
"""The numbers that a login can be refused with."""
_SEVERITIES: Final = {4060: 11}


def refuse_login(faults: FaultBoard, login: str, database: str) -> None:
    """Raise the error of a fault that meets this login; otherwise do nothing."""
    fault = faults.refused_login(login, database)
    if fault is not None:
        text = _TEXTS[fault.number].format(database=database, login=login)
        raise SqlServerError(fault.number, text, severity=_SEVERITIES.get(fault.number, 14), state=fault.state)
