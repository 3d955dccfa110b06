"""The effect of an error: it ends its statement, its scope, or everything; and what unwinds the interpreter.

Which error does what is documented only in part; the sets below follow Microsoft's pages on TRY…CATCH and XACT_ABORT,
and Erland Sommarskog's "Error and Transaction Handling in SQL Server", part two.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

CANCELLED: Final = 3617
# Errors from this severity on end the connection of a real server.
FATAL_SEVERITY: Final = 20

_SCOPE_ENDING: Final = frozenset(
    {
        102, 105, 107, 121, 128, 137, 145, 148, 156, 164, 170, 174, 178, 189, 191, 195, 205, 207, 208, 209, 213, 243,
        256, 257, 319, 402, 1003, 1087, 2715, 4104, 4108, 4109, 4121, 4145, 8120, 8155, 8156, 8159, 8163,
    }
)  # fmt: skip
"""Found when the statement is compiled: its batch or procedure ends there, and a TRY around it in the same scope does
not see it (deferred name resolution); a TRY in a caller does."""

_BATCH_ENDING: Final = frozenset(
    {217, 235, 241, 242, 244, 245, 248, 293, 295, 296, 911, 1205, 3960, 8114, 8169, 9002}
)  # fmt: skip
"""Conversions of text, deadlocks and the like: the batch ends and its transaction is rolled back; in a TRY the
transaction is doomed."""


_TERMINATING: Final = frozenset(
    {220, 232, 313, 512, 515, 547, 1222, 2601, 2627, 2628, 7139, 8061, 8062, 8115, 8134, 8152}
)
"""Found while a statement that changes rows was running: message 3621 follows."""

TERMINATED: Final = 3621
TERMINATED_TEXT: Final = "The statement has been terminated."


class CallError(SqlServerError):
    """A call whose arguments do not fit: ends the calling statement only, whatever its number."""


class InternalError(SqlServerError):
    """A fault of the emulator itself: the request ends, and its transaction is rolled back."""

    def __init__(self, error: Exception) -> None:
        message = (
            f"Internal error of sqlserver_emulator ({type(error).__name__}): the statement was not run, its transaction"
            " is rolled back. The server's log has the details."
        )
        super().__init__(NotSupportedByEmulatorError.NUMBER, message, line=1)


def nested_too_deeply() -> SqlServerError:
    """Return error 191."""
    message = (
        "Some part of your SQL statement is nested too deeply. Rewrite the query or break it up into smaller queries."
    )
    return SqlServerError(191, message, severity=15)


class Weight(Enum):
    """The part of a request that an error ends when no CATCH takes it."""

    STATEMENT = "statement"
    SCOPE = "scope"
    BATCH = "batch"
    REFUSAL = "refusal"
    """The emulator cannot go on: never caught, never continued."""


class Origin(Enum):
    """The origin of an error: RAISERROR never ends a batch, THROW always does, COMPILATION errors came before."""

    COMPILATION = "compilation"

    STATEMENT = "statement"
    RAISERROR = "raiserror"
    THROW = "throw"


def weigh(error: SqlServerError, origin: Origin) -> Weight:
    """Return the part of a request that the error ends."""
    if error.number in (NotSupportedByEmulatorError.NUMBER, CANCELLED) or error.severity >= FATAL_SEVERITY:
        return Weight.REFUSAL
    # The origin decides before the number: a number means something else where it was thrown or raised by hand.
    if origin is Origin.COMPILATION:
        return Weight.SCOPE
    if origin is Origin.THROW:
        return Weight.BATCH
    if origin is Origin.RAISERROR or isinstance(error, CallError):
        return Weight.STATEMENT
    if error.number in _SCOPE_ENDING:
        return Weight.SCOPE
    return Weight.BATCH if error.number in _BATCH_ENDING else Weight.STATEMENT


def is_terminating(error: SqlServerError) -> bool:
    """Return whether the error is one of those that end a running INSERT, UPDATE, DELETE or MERGE."""
    return error.number in _TERMINATING


class BatchEnd(Exception):  # noqa: N818 - control flow, not an error: what was to be said has been said
    """Nothing more of the request runs."""


class ScopeEnd(Exception):  # noqa: N818
    """Nothing more of this batch, procedure or dynamic batch runs; the caller goes on."""


class RaisedError(Exception):
    """An error on its way to the CATCH of an enclosing TRY."""

    def __init__(self, error: SqlServerError) -> None:
        super().__init__(error)
        self.error = error


class ScopeError(Exception):
    """An error that only a TRY outside the running scope catches."""

    def __init__(self, error: SqlServerError) -> None:
        super().__init__(error)
        self.error = error
