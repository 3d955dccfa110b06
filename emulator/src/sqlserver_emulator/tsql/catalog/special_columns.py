"""sp_special_columns_100: the columns that identify a row best, and those that change with every update of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Event
from sqlserver_emulator.tsql.catalog.odbc_types import describe_column
from sqlserver_emulator.tsql.catalog.queries import (
    Row,
    check_qualifier,
    ints,
    names,
    pattern,
    query,
    result_set,
    smallints,
)
from sqlserver_emulator.types import INT, SYSNAME, TsqlType

_COLUMNS: Final = [
    *smallints("SCOPE"),
    *names("COLUMN_NAME"),
    *smallints("DATA_TYPE"),
    *names("TYPE_NAME"),
    *ints("PRECISION LENGTH"),
    *smallints("SCALE PSEUDO_COLUMN"),
]
# The primary key before other unique keys. A key with nullable columns only where the caller allows it ('U').
_BEST_KEY: Final = """
SELECT c.name, b.name, t.name, c.max_length, c.precision, c.scale, c.is_identity
FROM sys.objects o
JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.indexes i ON i.object_id = o.object_id
JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN sys.columns c ON c.object_id = o.object_id AND c.column_id = ic.column_id
JOIN sys.types t ON t.user_type_id = c.user_type_id
JOIN sys.types b ON b.user_type_id = c.system_type_id
WHERE o.type = 'U' AND o.name LIKE @name AND s.name LIKE @owner AND ic.key_ordinal > 0 AND i.index_id = (
    SELECT TOP 1 k.index_id FROM sys.indexes k
    WHERE k.object_id = o.object_id AND k.is_unique = 1 AND (@nullable = 1 OR NOT EXISTS (
        SELECT 1 FROM sys.index_columns kc
        JOIN sys.columns n ON n.object_id = k.object_id AND n.column_id = kc.column_id
        WHERE kc.object_id = k.object_id AND kc.index_id = k.index_id AND kc.key_ordinal > 0 AND n.is_nullable = 1))
    ORDER BY k.is_primary_key DESC, k.index_id)
ORDER BY ic.key_ordinal
"""
# sys.types calls rowversion timestamp, the only type that changes with every update.
_VERSION: Final = """
SELECT c.name, b.name, t.name, c.max_length, c.precision, c.scale, c.is_identity
FROM sys.objects o
JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.columns c ON c.object_id = o.object_id
JOIN sys.types t ON t.user_type_id = c.user_type_id
JOIN sys.types b ON b.user_type_id = c.system_type_id
WHERE o.type = 'U' AND o.name LIKE @name AND s.name LIKE @owner AND b.name = 'timestamp'
"""
_NOT_PSEUDO: Final = 1
_SCOPES: Final = {"C": 0, "T": 1}
"""The row keeps its identity as long as the cursor is on it (0), or for the transaction (1)."""


def _special_columns(call: ProcedureCall) -> Iterator[Event]:
    arguments = call.arguments
    check_qualifier(call, arguments["@table_qualifier"])
    name = pattern(arguments["@table_name"], use_pattern=False)
    owner = pattern(arguments["@table_owner"], use_pattern=False)
    scope: int | None = None
    if str(arguments["@col_type"]).upper() == "V":
        found = query(call, _VERSION, name=name, owner=owner)
    else:
        # Anything but C asks for the transaction's scope, the default.
        scope = _SCOPES.get(str(arguments["@scope"]).upper(), 1)
        nullable = (INT, int(str(arguments["@nullable"]).upper() == "U"))
        found = query(call, _BEST_KEY, name=name, owner=owner, nullable=nullable)
    version = arguments["@odbcver"]
    is_odbc_3 = isinstance(version, int) and version >= 3
    yield from result_set(_COLUMNS, [_row(scope, row, is_odbc_3) for row in found])


def _row(scope: int | None, found: Row, is_odbc_3: bool) -> Row:
    column, base, shown, max_length, precision, scale, identity = found
    odbc = describe_column(str(base), int(str(max_length)), int(str(precision)), int(str(scale)))
    code = odbc.code if is_odbc_3 or odbc.code_before_3 is None else odbc.code_before_3
    name = f"{shown}{'()' if base in ('decimal', 'numeric') else ''} identity" if identity else shown
    return (scope, column, code, name, odbc.precision, odbc.length, odbc.scale, _NOT_PSEUDO)


_LETTER: Final = TsqlType("char", 1)
SP_SPECIAL_COLUMNS_100: Final = SystemProcedure(
    "sp_special_columns_100",
    (
        Parameter("@table_name", SYSNAME),
        Parameter("@table_owner", SYSNAME, None),
        Parameter("@table_qualifier", SYSNAME, None),
        Parameter("@col_type", _LETTER, "R"),
        Parameter("@scope", _LETTER, "T"),
        Parameter("@nullable", _LETTER, "U"),
        Parameter("@ODBCVer", INT, 2),
    ),
    _special_columns,
)
