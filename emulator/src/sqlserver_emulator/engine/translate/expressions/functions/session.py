"""Functions about the session: who is connected, the last error, the last identity value.

What the interpreter knows comes as a variable of that name (`@@error_number` for ERROR_NUMBER()).
"""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.emission import quote_text
from sqlserver_emulator.engine.translate.expressions.functions.registry import Function, argument, constant
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.value import TypeOrThunk, Value
from sqlserver_emulator.types import INT, SYSNAME, TsqlType


def _from_variable(name: str) -> Function:
    return Function(lambda self, _nodes: self.emission.variable(name), 0, 0)


def _session(function: str, kinds: str, result: TypeOrThunk) -> Function:
    """``function(arguments…, current database)`` on this very connection."""
    letters = kinds.replace("?", "")
    fewest = len(kinds.partition("?")[0])

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        self.emission.read_only = False
        arguments = [argument(self, node, letters[i]) for i, node in enumerate(nodes)]
        arguments += ["NULL"] * (len(letters) - len(nodes))
        arguments.append(quote_text(self.emission.database))
        return Value(f"{function}({', '.join(arguments)})", result)

    return Function(handle, fewest, len(letters))


_LOGIN = _session("tsql.login_name", "", SYSNAME)
_LOGIN_OF = _session("tsql.suser_sname", "?x", SYSNAME)
_USER = _session("tsql.user_name", "?i", SYSNAME)

FUNCTIONS: dict[str, Function] = {
    "app_name": _session("tsql.app_name", "", TsqlType("nvarchar", 128)),
    "context_info": constant("tsql.context_info()", TsqlType("varbinary", 128)),
    "current_user": _USER,
    "error_line": _from_variable("@@error_line"),
    "error_message": _from_variable("@@error_message"),
    "error_number": _from_variable("@@error_number"),
    "error_procedure": _from_variable("@@error_procedure"),
    "error_severity": _from_variable("@@error_severity"),
    "error_state": _from_variable("@@error_state"),
    "has_dbaccess": _session("tsql.has_dbaccess", "t", INT),
    "has_perms_by_name": _session("tsql.has_perms_by_name", "ttt?tt", INT),
    "host_id": _session("tsql.host_id", "", TsqlType("char", 8)),
    "host_name": _session("tsql.host_name", "", TsqlType("nvarchar", 128)),
    "is_member": _session("tsql.is_member", "t", INT),
    "is_rolemember": _session("tsql.is_rolemember", "t?t", INT),
    "is_srvrolemember": _session("tsql.is_srvrolemember", "t?t", INT),
    "original_login": _LOGIN,
    "rowcount_big": _from_variable("@@rowcount_big"),
    "scope_identity": _from_variable("@@scope_identity"),
    "session_user": _USER,
    "suser_id": _session("tsql.suser_id", "?t", INT),
    "suser_name": _LOGIN_OF,
    "suser_sname": _LOGIN_OF,
    "system_user": _LOGIN,
    "user": _USER,
    "user_id": _session("tsql.user_id", "?t", INT),
    "user_name": _USER,
    "xact_state": _from_variable("@@xact_state"),
}
