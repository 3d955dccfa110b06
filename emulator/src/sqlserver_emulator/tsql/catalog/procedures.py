"""sp_stored_procedures, sp_sproc_columns and sp_sproc_columns_100: the procedures of users and their parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.syntax.parsing.modules import parse_procedure
from sqlserver_emulator.syntax.statements import ParameterDeclaration
from sqlserver_emulator.system_types.odbc import OdbcType
from sqlserver_emulator.tsql.catalog.odbc_types import describe_type
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
from sqlserver_emulator.tsql.catalog.user_made import ODBC_TABLE, user_made
from sqlserver_emulator.types import BIT, INT, NVARCHAR_4000, SYSNAME, TsqlType

_PROCEDURE_COLUMNS: Final = [
    *names("PROCEDURE_QUALIFIER PROCEDURE_OWNER"),
    Column("PROCEDURE_NAME", TsqlType("nvarchar", 134)),
    *ints("NUM_INPUT_PARAMS NUM_OUTPUT_PARAMS NUM_RESULT_SETS"),
    Column("REMARKS", REMARKS),
    *smallints("PROCEDURE_TYPE"),
]
_PARAMETER_COLUMNS: Final = [
    *names("PROCEDURE_QUALIFIER PROCEDURE_OWNER"),
    Column("PROCEDURE_NAME", TsqlType("nvarchar", 134)),
    *names("COLUMN_NAME"),
    *smallints("COLUMN_TYPE DATA_TYPE"),
    *names("TYPE_NAME"),
    *ints("PRECISION LENGTH"),
    *smallints("SCALE RADIX NULLABLE"),
    Column("REMARKS", REMARKS),
    Column("COLUMN_DEF", NVARCHAR_4000),
    *smallints("SQL_DATA_TYPE SQL_DATETIME_SUB"),
    *ints("CHAR_OCTET_LENGTH ORDINAL_POSITION"),
    Column("IS_NULLABLE", TsqlType("varchar", 254)),
    *names("SS_TYPE_CATALOG_NAME SS_TYPE_SCHEMA_NAME SS_UDT_CATALOG_NAME SS_UDT_SCHEMA_NAME"),
    Column("SS_UDT_ASSEMBLY_TYPE_NAME", TsqlType("nvarchar", -1)),
    *names("SS_XML_SCHEMACOLLECTION_CATALOG_NAME SS_XML_SCHEMACOLLECTION_SCHEMA_NAME SS_XML_SCHEMACOLLECTION_NAME"),
    Column("SS_DATA_TYPE", TsqlType("tinyint")),
]
_PROCEDURES: Final = """
SELECT s.name, p.name, m.definition
FROM sys.procedures p
JOIN sys.schemas s ON s.schema_id = p.schema_id
JOIN sys.sql_modules m ON m.object_id = p.object_id
WHERE p.name LIKE @name AND s.name LIKE @owner
ORDER BY s.name, p.name
"""
# ODBC's SQLProcedures: -1 where the number of parameters or results is not known.
_UNKNOWN: Final = -1
_IS_PROCEDURE: Final = 2
_INPUT, _INPUT_OUTPUT, _RETURNED = 1, 2, 5


def _stored_procedures(call: ProcedureCall) -> Iterator[Event]:
    arguments = call.arguments
    check_qualifier(call, arguments["@sp_qualifier"])
    rows = [
        (call.engine.database, owner, f"{name};1", _UNKNOWN, _UNKNOWN, _UNKNOWN, None, _IS_PROCEDURE)
        for owner, name, _ in _found(call, arguments["@sp_name"], arguments["@sp_owner"])
    ]
    yield from result_set(_PROCEDURE_COLUMNS, rows)


def _parameters(call: ProcedureCall) -> Iterator[Event]:
    """List parameters without the columns 20 to 27, which sp_sproc_columns_100 added."""
    rows = [row[:19] + row[27:] for row in _parameter_rows(call)]
    yield from result_set(_PARAMETER_COLUMNS[:19] + _PARAMETER_COLUMNS[27:], rows)


def _parameters_100(call: ProcedureCall) -> Iterator[Event]:
    yield from result_set(_PARAMETER_COLUMNS, _parameter_rows(call))


def _parameter_rows(call: ProcedureCall) -> list[Row]:
    arguments = call.arguments
    check_qualifier(call, arguments["@procedure_qualifier"])
    version, wanted = arguments["@odbcver"], arguments["@column_name"]
    is_odbc_3 = isinstance(version, int) and version >= 3
    rows: list[Row] = []
    for owner, name, source in _found(call, arguments["@procedure_name"], arguments["@procedure_owner"]):
        home = (call.engine.database, owner, f"{name};1")
        # Every procedure has a return status, which ODBC counts as its parameter 0.
        rows.append((*home, "@RETURN_VALUE", _RETURNED, *_described(INT, is_odbc_3, 0, "NO")))
        for position, parameter in enumerate(parse_procedure(str(source)).parameters, 1):
            rows.append((*home, parameter.shown, _direction(parameter), *_of(call, parameter, is_odbc_3, position)))
    if wanted not in (None, "", "%"):
        rows = [row for row in rows if str(row[3]).lower() == str(wanted).lower()]
    return rows


def _found(call: ProcedureCall, name: object, owner: object) -> list[Row]:
    # Drivers give the name with its number, as the procedure itself returns it.
    plain = None if name is None else str(name).removesuffix(";1")
    use_pattern = bool(call.arguments["@fusepattern"])
    return query(
        call, _PROCEDURES, name=pattern(plain, use_pattern=use_pattern), owner=pattern(owner, use_pattern=use_pattern)
    )


def _direction(parameter: ParameterDeclaration) -> int:
    return _INPUT_OUTPUT if parameter.output else _INPUT


def _of(call: ProcedureCall, parameter: ParameterDeclaration, is_odbc_3: bool, position: int) -> Row:
    made = user_made(call, parameter.type)
    if made is None:
        return _described(parameter.type, is_odbc_3, position, "YES")
    if made.base is not None:
        described = _described(made.base, is_odbc_3, position, "YES")
        return (described[0], made.name, *described[2:])
    # ODBC's page "Additional Table-Valued Parameter Metadata"; nothing says what SS_DATA_TYPE is.
    return (
        *(ODBC_TABLE, made.name, None, 0, None, None, 1, None, None, ODBC_TABLE, None, None, position, "YES"),
        *(call.engine.database, made.schema, *(None,) * 6, None),
    )


def _described(type: TsqlType, is_odbc_3: bool, position: int, nullable: str) -> Row:
    shown, odbc = describe_type(type)
    code = _code(odbc, is_odbc_3)
    return (
        *(code, shown, odbc.precision, odbc.length, odbc.scale, odbc.radix, int(nullable == "YES"), None, None),
        *(odbc.verbose_code if is_odbc_3 else code, odbc.subtype, odbc.octets, position, nullable),
        *(None,) * 8,
        odbc.ss if nullable == "YES" or odbc.ss_fixed is None else odbc.ss_fixed,
    )


def _code(odbc: OdbcType, is_odbc_3: bool) -> int:
    return odbc.code if is_odbc_3 or odbc.code_before_3 is None else odbc.code_before_3


SP_STORED_PROCEDURES: Final = SystemProcedure(
    "sp_stored_procedures",
    (
        Parameter("@sp_name", NAME, None),
        Parameter("@sp_owner", NAME, None),
        Parameter("@sp_qualifier", SYSNAME, None),
        Parameter("@fUsePattern", BIT, 1),
    ),
    _stored_procedures,
)
_SPROC_PARAMETERS: Final = (
    Parameter("@procedure_name", NAME, "%"),
    Parameter("@procedure_owner", NAME, None),
    Parameter("@procedure_qualifier", SYSNAME, None),
    Parameter("@column_name", NAME, None),
    Parameter("@ODBCVer", INT, 2),
    Parameter("@fUsePattern", BIT, 1),
)
SP_SPROC_COLUMNS: Final = SystemProcedure("sp_sproc_columns", _SPROC_PARAMETERS, _parameters)
SP_SPROC_COLUMNS_100: Final = SystemProcedure("sp_sproc_columns_100", _SPROC_PARAMETERS, _parameters_100)
