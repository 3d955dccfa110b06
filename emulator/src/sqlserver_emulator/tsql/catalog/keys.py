"""sp_pkeys and sp_fkeys: primary and foreign keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Event
from sqlserver_emulator.tsql.catalog.queries import (
    Row,
    check_qualifier,
    names,
    pattern,
    query,
    result_set,
    smallints,
)
from sqlserver_emulator.types import SYSNAME

_PRIMARY_COLUMNS: Final = [
    *names("TABLE_QUALIFIER TABLE_OWNER TABLE_NAME COLUMN_NAME"),
    *smallints("KEY_SEQ"),
    *names("PK_NAME"),
]
_PRIMARY: Final = """
SELECT s.name, o.name, c.name, ic.key_ordinal, k.name
FROM sys.key_constraints k
JOIN sys.objects o ON o.object_id = k.parent_object_id
JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.index_columns ic ON ic.object_id = o.object_id AND ic.index_id = k.unique_index_id
JOIN sys.columns c ON c.object_id = o.object_id AND c.column_id = ic.column_id
WHERE k.type = 'PK' AND ic.key_ordinal > 0 AND o.name LIKE @name AND s.name LIKE @owner
ORDER BY s.name, o.name, ic.key_ordinal
"""
_FOREIGN_COLUMNS: Final = [
    *names("PKTABLE_QUALIFIER PKTABLE_OWNER PKTABLE_NAME PKCOLUMN_NAME"),
    *names("FKTABLE_QUALIFIER FKTABLE_OWNER FKTABLE_NAME FKCOLUMN_NAME"),
    *smallints("KEY_SEQ UPDATE_RULE DELETE_RULE"),
    *names("FK_NAME PK_NAME"),
    *smallints("DEFERRABILITY"),
]
_FOREIGN: Final = """
SELECT rs.name, ro.name, rc.name, s.name, o.name, c.name, fc.constraint_column_id, f.update_referential_action,
       f.delete_referential_action, f.name, i.name
FROM sys.foreign_keys f
JOIN sys.foreign_key_columns fc ON fc.constraint_object_id = f.object_id
JOIN sys.objects o ON o.object_id = f.parent_object_id
JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.columns c ON c.object_id = f.parent_object_id AND c.column_id = fc.parent_column_id
JOIN sys.objects ro ON ro.object_id = f.referenced_object_id
JOIN sys.schemas rs ON rs.schema_id = ro.schema_id
JOIN sys.columns rc ON rc.object_id = f.referenced_object_id AND rc.column_id = fc.referenced_column_id
LEFT JOIN sys.indexes i ON i.object_id = f.referenced_object_id AND i.index_id = f.key_index_id
WHERE ro.name LIKE @pk_name AND rs.name LIKE @pk_owner AND o.name LIKE @fk_name AND s.name LIKE @fk_owner
"""
_ODBC_RULES: Final = {0: 3, 1: 0, 2: 2, 3: 4}
"""sys.foreign_keys' NO ACTION, CASCADE, SET NULL, SET DEFAULT as ODBC numbers them."""
# SQL Server checks foreign keys at the end of the statement, never at the commit.
_NOT_DEFERRABLE: Final = 7


def _primary_keys(call: ProcedureCall) -> Iterator[Event]:
    arguments = call.arguments
    check_qualifier(call, arguments["@table_qualifier"])
    found = query(
        call,
        _PRIMARY,
        name=pattern(arguments["@table_name"], use_pattern=False),
        owner=pattern(arguments["@table_owner"], use_pattern=False),
    )
    # ODBC's SQLPrimaryKeys takes names, never patterns: an underscore in a name is no wildcard.
    yield from result_set(_PRIMARY_COLUMNS, [(call.engine.database, *row) for row in found])


def _foreign_keys(call: ProcedureCall) -> Iterator[Event]:
    arguments = call.arguments
    for side in ("pk", "fk"):
        check_qualifier(call, arguments[f"@{side}table_qualifier"])
    found = query(
        call,
        _FOREIGN,
        pk_name=pattern(arguments["@pktable_name"], use_pattern=False),
        pk_owner=pattern(arguments["@pktable_owner"], use_pattern=False),
        fk_name=pattern(arguments["@fktable_name"], use_pattern=False),
        fk_owner=pattern(arguments["@fktable_owner"], use_pattern=False),
    )
    # By the tables of the other side, as ODBC's SQLForeignKeys: the referencing ones when the referenced is given.
    first = 3 if arguments["@pktable_name"] else 0
    found.sort(key=lambda row: (str(row[first]), str(row[first + 1]), str(row[9]), int(str(row[6]))))
    yield from result_set(_FOREIGN_COLUMNS, [_foreign_row(call.engine.database, row) for row in found])


def _foreign_row(database: str, row: Row) -> Row:
    rules = (_ODBC_RULES[int(str(row[7]))], _ODBC_RULES[int(str(row[8]))])
    return (database, *row[:3], database, *row[3:6], row[6], *rules, row[9], row[10], _NOT_DEFERRABLE)


SP_PKEYS: Final = SystemProcedure(
    "sp_pkeys",
    (
        Parameter("@table_name", SYSNAME),
        Parameter("@table_owner", SYSNAME, None),
        Parameter("@table_qualifier", SYSNAME, None),
    ),
    _primary_keys,
)
SP_FKEYS: Final = SystemProcedure(
    "sp_fkeys",
    tuple(
        Parameter(f"@{side}table_{part}", SYSNAME, None)
        for side in ("pk", "fk")
        for part in ("name", "owner", "qualifier")
    ),
    _foreign_keys,
)
