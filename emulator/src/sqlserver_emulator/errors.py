"""Errors as SQL Server numbers them. Everything a client may see ends up as one of these."""

from __future__ import annotations


class SqlServerError(Exception):
    """An error token: number, severity (class), state, message, and where it happened.

    severity <= 10 is information, 11..16 a statement error, 17..19 resources, >= 20 ends the connection.
    ``line`` counts from 1 within the batch or procedure; 0 means not known yet (the interpreter fills it in).
    """

    def __init__(
        self, number: int, message: str, *, severity: int = 16, state: int = 1, procedure: str = "", line: int = 0
    ) -> None:
        super().__init__(number, message)
        self.number = number
        self.message = message
        self.severity = severity
        self.state = state
        self.procedure = procedure
        self.line = line

    def __str__(self) -> str:
        return f"Msg {self.number}, Level {self.severity}, State {self.state}: {self.message}"


def read_only_database(database: str) -> SqlServerError:
    """Return the error of a statement that writes where nothing may be written."""
    return SqlServerError(3906, f'Failed to update database "{database}" because the database is read-only.')


def not_tracked(table: str) -> SqlServerError:
    """Return the error of CHANGETABLE for a table without Change Tracking, named as the statement does."""
    return SqlServerError(22105, f"Change tracking is not enabled on table '{table}'.")


class ReasonedError(SqlServerError):
    """An error that a server sends behind another one, its ``reason``. A CATCH sees this one only."""

    def __init__(self, reason: SqlServerError, number: int, message: str, *, state: int = 1) -> None:
        super().__init__(number, message, state=state)
        self.reason = reason


class ConstraintError(ReasonedError):
    """A constraint could not be made: what a server adds to the error that says why."""

    def __init__(self, reason: SqlServerError) -> None:
        super().__init__(reason, 1750, "Could not create constraint or index. See previous errors.", state=0)


class TableDataError(ReasonedError):
    """The rows of a table-valued parameter are none that its type can have."""

    def __init__(self, parameter: str, ordinal: int, reason: SqlServerError) -> None:
        named = f'table-valued parameter "{parameter}"' if parameter else f"the table-valued parameter {ordinal}"
        number, state = _SHOWN_REASONS.get(reason.number, (reason.number, reason.state))
        message = (
            f"The data for {named} doesn't conform to the table type of the parameter. "
            f"SQL Server error is: {number}, state: {state}"
        )
        super().__init__(reason, 8061 if parameter else 8062, message)


_SHOWN_REASONS = {206: (200, 7)}
"""A clash of types is reported with another number than its own message has."""


class ClientFaultError(Exception):
    """The client, not a statement, is why a request ends: it broke the protocol or broke its message off."""


class ConnectionCutError(ConnectionAbortedError):
    """The connection ends here, as if the network had failed; what was sent so far has arrived."""


class NotSupportedByEmulatorError(SqlServerError):
    """The real server could do this, the emulator cannot. Number 40000 + severity 16: no real server sends it.

    ``what`` names the statement or clause, so that nobody takes the refusal for a fault of their own.
    """

    NUMBER = 49999

    def __init__(self, what: str) -> None:
        super().__init__(self.NUMBER, f"sqlserver_emulator does not support {what}. See docs/emulator.md.")
        self.what = what
