"""sp_columns and sp_columns_100: the columns of tables and views, as ODBC wants them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.odbc_types import describe_column
from sqlserver_emulator.tsql.catalog.queries import (
    NAME,
    REMARKS,
    Row,
    check_qualifier,
    ints,
    names,
    pattern,
    query,
    result_set,
    smallints,
)
from sqlserver_emulator.types import BIT, INT, NVARCHAR_4000, SYSNAME, TsqlType

_COLUMNS: Final = [
    *names("TABLE_QUALIFIER TABLE_OWNER TABLE_NAME COLUMN_NAME"),
    *smallints("DATA_TYPE"),
    *names("TYPE_NAME"),
    *ints("PRECISION LENGTH"),
    *smallints("SCALE RADIX NULLABLE"),
    Column("REMARKS", REMARKS),
    Column("COLUMN_DEF", NVARCHAR_4000),
    *smallints("SQL_DATA_TYPE SQL_DATETIME_SUB"),
    *ints("CHAR_OCTET_LENGTH ORDINAL_POSITION"),
    Column("IS_NULLABLE", TsqlType("varchar", 254)),
]
_COLUMNS_100: Final = [
    *smallints("SS_IS_SPARSE SS_IS_COLUMN_SET SS_IS_COMPUTED SS_IS_IDENTITY"),
    *names("SS_UDT_CATALOG_NAME SS_UDT_SCHEMA_NAME"),
    Column("SS_UDT_ASSEMBLY_TYPE_NAME", TsqlType("nvarchar", -1)),
    *names("SS_XML_SCHEMACOLLECTION_CATALOG_NAME SS_XML_SCHEMACOLLECTION_SCHEMA_NAME SS_XML_SCHEMACOLLECTION_NAME"),
]
_SS_DATA_TYPE: Final = Column("SS_DATA_TYPE", TsqlType("tinyint"))
_ALL_COLUMNS: Final = """
SELECT s.name, o.name, c.name, c.column_id, b.name, t.name, c.max_length, c.precision, c.scale, c.is_nullable,
       c.is_identity, c.is_computed, d.definition
FROM sys.all_objects o
JOIN sys.schemas s ON s.schema_id = o.schema_id
JOIN sys.all_columns c ON c.object_id = o.object_id
JOIN sys.types t ON t.user_type_id = c.user_type_id
JOIN sys.types b ON b.user_type_id = c.system_type_id
LEFT JOIN sys.default_constraints d ON d.object_id = c.default_object_id
WHERE o.type IN ('U', 'V', 'S') AND o.name LIKE @name AND s.name LIKE @owner AND c.name LIKE @column
ORDER BY s.name, o.name, c.column_id
"""


def _columns(call: ProcedureCall) -> Iterator[Event]:
    # Without the ten columns that sp_columns_100 added.
    yield from result_set([*_COLUMNS, _SS_DATA_TYPE], [row[:18] + row[28:] for row in _rows(call)])


def _columns_100(call: ProcedureCall) -> Iterator[Event]:
    yield from result_set([*_COLUMNS, *_COLUMNS_100, _SS_DATA_TYPE], _rows(call))


def _rows(call: ProcedureCall) -> list[Row]:
    arguments = call.arguments
    check_qualifier(call, arguments["@table_qualifier"])
    use_pattern = bool(arguments.get("@fusepattern", 1))
    found = query(
        call,
        _ALL_COLUMNS,
        name=pattern(arguments["@table_name"], use_pattern=use_pattern),
        owner=pattern(arguments["@table_owner"], use_pattern=use_pattern),
        column=pattern(arguments["@column_name"], use_pattern=use_pattern),
    )
    version = arguments["@odbcver"]
    is_odbc_3 = isinstance(version, int) and version >= 3
    return [_row(call.engine.database, row, is_odbc_3) for row in found]


def _row(database: str, found: Row, is_odbc_3: bool) -> Row:
    (
        owner,
        table,
        column,
        column_id,
        base,
        shown,
        max_length,
        precision,
        scale,
        nullable,
        identity,
        computed,
        default,
    ) = found
    odbc = describe_column(str(base), int(str(max_length)), int(str(precision)), int(str(scale)))
    # ODBC 2 numbered dates and times otherwise; drivers say which version they speak.
    code = odbc.code if is_odbc_3 or odbc.code_before_3 is None else odbc.code_before_3
    name = f"{shown}() identity" if identity and base in ("decimal", "numeric") else shown
    if identity and name == shown:
        name = f"{shown} identity"
    # Fixed-length types have two numbers on the wire, of which the NOT NULL one is the older.
    ss = odbc.ss if nullable or odbc.ss_fixed is None else odbc.ss_fixed
    return (
        *(database, owner, table, column, code, name, odbc.precision, odbc.length, odbc.scale, odbc.radix),
        *(int(bool(nullable)), None, default, odbc.verbose_code if is_odbc_3 else code, odbc.subtype, odbc.octets),
        *(column_id, "YES" if nullable else "NO", 0, 0, int(bool(computed)), int(bool(identity))),
        *(None, None, None, None, None, None, ss),
    )


_PARAMETERS: Final = (
    Parameter("@table_name", NAME),
    Parameter("@table_owner", NAME, None),
    Parameter("@table_qualifier", SYSNAME, None),
    Parameter("@column_name", NAME, None),
)
SP_COLUMNS: Final = SystemProcedure("sp_columns", (*_PARAMETERS, Parameter("@ODBCVer", INT, 2)), _columns)
SP_COLUMNS_100: Final = SystemProcedure(
    "sp_columns_100",
    (
        *_PARAMETERS,
        Parameter("@NameScope", INT, 0),
        Parameter("@ODBCVer", INT, 2),
        Parameter("@fUsePattern", BIT, 1),
    ),
    _columns_100,
)
