"""The @@ variables of a session, as the engine sees them; @@IDENTITY, SCOPE_IDENTITY() and @@DBTS are its own.

Functions without arguments that ask for session state arrive as variables too: the translator turns ERROR_NUMBER() into
``@@error_number``, XACT_STATE() into ``@@xact_state``, ROWCOUNT_BIG() into ``@@rowcount_big``.
"""

from __future__ import annotations

from sqlserver_emulator.contract import Variable
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.release import Release
from sqlserver_emulator.tsql.state import server_facts
from sqlserver_emulator.types import BIGINT, INT, SMALLINT, TsqlType

_TINYINT = TsqlType("tinyint")
_NAME = TsqlType("nvarchar", 128)


class SystemVariables:
    """``all`` is shared by every scope of the session: the Variable objects stay, their values change."""

    def __init__(self, session_id: int, release: Release) -> None:
        self.rowcount = Variable(INT, 0)
        self.rowcount_big = Variable(BIGINT, 0)
        self.error = Variable(INT, 0)
        self.trancount = Variable(INT, 0)
        self.xact_state = Variable(SMALLINT, 0)
        self.nestlevel = Variable(INT, 0)
        self.procid = Variable(INT, 0)
        # -1 waits without a limit, the server's default.
        self.lock_timeout = Variable(INT, -1)
        self.datefirst = Variable(_TINYINT, 7)
        self.textsize = Variable(INT, 2147483647)
        self.options = Variable(INT, 0)
        self.fetch_status = Variable(INT, 0)
        self.cursor_rows = Variable(INT, 0)
        self.error_number = Variable(INT)
        self.error_message = Variable(TsqlType("nvarchar", 4000))
        self.error_severity = Variable(INT)
        self.error_state = Variable(INT)
        self.error_line = Variable(INT)
        self.error_procedure = Variable(_NAME)
        self.all: dict[str, Variable] = {
            f"@@{name}": variable for name, variable in vars(self).items() if isinstance(variable, Variable)
        } | _constants(session_id, release)

    def set_row_count(self, count: int) -> None:
        """Set @@ROWCOUNT and ROWCOUNT_BIG()."""
        # @@ROWCOUNT is an int; ROWCOUNT_BIG() has the whole count.
        self.rowcount.value = min(count, 2147483647)
        self.rowcount_big.value = count

    def show_error(self, error: SqlServerError | None) -> None:
        """Set the values of ERROR_NUMBER() and its like; None outside a CATCH block."""
        self.error_number.value = error and error.number
        self.error_message.value = error and error.message
        self.error_severity.value = error and error.severity
        self.error_state.value = error and error.state
        self.error_line.value = error and error.line
        self.error_procedure.value = (error and error.procedure) or None


def _constants(session_id: int, release: Release) -> dict[str, Variable]:
    return {
        "@@spid": Variable(SMALLINT, session_id),
        "@@version": Variable(TsqlType("nvarchar", 300), release.text),
        "@@servername": Variable(_NAME, server_facts.SERVER_NAME),
        "@@servicename": Variable(_NAME, server_facts.SERVICE_NAME),
        "@@microsoftversion": Variable(INT, release.microsoft_version),
        "@@language": Variable(_NAME, server_facts.LANGUAGE),
        # us_english, the only language here.
        "@@langid": Variable(SMALLINT, 0),
        "@@max_precision": Variable(_TINYINT, 38),
        "@@max_connections": Variable(INT, 32767),
    }
