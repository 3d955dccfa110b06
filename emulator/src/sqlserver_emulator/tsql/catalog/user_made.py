"""Types that users made, as catalog procedures describe parameters of them: alias types, and table types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.contract import ProcedureCall
from sqlserver_emulator.syntax.parsing.data_types import is_user_made, unknown_type
from sqlserver_emulator.tsql.catalog.queries import query
from sqlserver_emulator.types import SYSNAME, TsqlType

TABLE_TYPE_ID: Final = 243
"""system_type_id of table types, and their token on the wire."""
ODBC_TABLE: Final = -153
"""SQL_SS_TABLE."""


@dataclass(frozen=True, slots=True)
class UserMadeType:
    """A type of sys.types. ``base``: the system type of an alias; None for a table type."""

    base: TsqlType | None
    user_type_id: int
    schema: str
    name: str


_FOUND = """
SELECT t.user_type_id, s.name, t.name FROM sys.types t JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE t.name = @name AND s.name = CASE WHEN @schema = N'' THEN SCHEMA_NAME() ELSE @schema END
"""


def user_made(call: ProcedureCall, type: TsqlType) -> UserMadeType | None:
    """Return what a user made under the name that a parameter has as its type; None for a system type. Raises 2715."""
    if not is_user_made(type):
        return None
    schema, _, name = type.name.partition(".")
    declared = call.engine.declared_type(schema, name)
    found = query(call, _FOUND, schema=(SYSNAME, schema), name=(SYSNAME, name))
    if declared is None or not found:
        raise unknown_type(type.name.lstrip("."))
    number, own_schema, own_name = found[0]
    base = None if declared.columns else declared.type
    return UserMadeType(base, int(str(number)), str(own_schema), str(own_name))
