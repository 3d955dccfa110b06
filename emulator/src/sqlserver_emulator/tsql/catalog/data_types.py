"""sp_datatype_info and sp_datatype_info_100: the types of the server, as ODBC's SQLGetTypeInfo lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.system_types import SYSTEM_TYPES
from sqlserver_emulator.system_types.binaries import ROWVERSION
from sqlserver_emulator.system_types.record import BINARY, GUID, TEMPORAL, TEXT, Declared, SystemType
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.tsql.catalog.queries import Row, ints, names, result_set, smallints
from sqlserver_emulator.types import INT, TsqlType

_TEXT: Final = TsqlType("varchar", 32)
_COLUMNS: Final = [
    *names("TYPE_NAME"),
    *smallints("DATA_TYPE"),
    *ints("PRECISION"),
    *(Column(name, _TEXT) for name in ("LITERAL_PREFIX", "LITERAL_SUFFIX", "CREATE_PARAMS")),
    *smallints("NULLABLE CASE_SENSITIVE SEARCHABLE UNSIGNED_ATTRIBUTE MONEY AUTO_INCREMENT"),
    *names("LOCAL_TYPE_NAME"),
    *smallints("MINIMUM_SCALE MAXIMUM_SCALE SQL_DATA_TYPE SQL_DATETIME_SUB"),
    *ints("NUM_PREC_RADIX"),
    *smallints("INTERVAL_PRECISION USERTYPE"),
]
_CREATE_PARAMS: Final = {
    Declared.PRECISION_SCALE: "precision,scale",
    Declared.SCALE: "scale",
}
_QUOTED: Final = frozenset((TEXT, TEMPORAL, GUID))
"""The families whose literals are quoted."""


def _data_types(call: ProcedureCall) -> Iterator[Event]:
    wanted, version = call.arguments["@data_type"], call.arguments["@odbcver"]
    is_odbc_3 = isinstance(version, int) and version >= 3
    rows = [row for record in SYSTEM_TYPES for row in _rows(record, is_odbc_3)]
    rows = [row for row in rows if wanted in (0, None, row[1])]
    # ODBC wants the list by type code, the closest type first: pyodbc takes the scale of its timestamps from the first
    # row. The row of an identity column comes after that of its type.
    rows.sort(key=lambda row: (int(str(row[1])), row[11] or 0, -int(str(row[2])), str(row[0])))
    yield from result_set(_COLUMNS, rows)


def _rows(record: SystemType, is_odbc_3: bool) -> Iterator[Row]:
    yield _row(record, is_odbc_3, identity=False)
    # Each type that may be an identity column has a second row, which says so by its name.
    if record.wire.packing in (Packing.INTEGER, Packing.DECIMAL):
        yield _row(record, is_odbc_3, identity=True)


def _row(record: SystemType, is_odbc_3: bool, *, identity: bool) -> Row:
    odbc, number = record.odbc, record.is_number
    code = odbc.code if is_odbc_3 or odbc.code_before_3 is None else odbc.code_before_3
    scaled = record.declared is Declared.PRECISION_SCALE
    parentheses = "()" if scaled else ""
    shown = f"{record.catalog_name}{parentheses} identity" if identity else record.catalog_name
    suffix = "'" if record.family in _QUOTED else None
    # The server fills both columns itself, so they are never NULL.
    nullable = 0 if identity or record is ROWVERSION else 1
    unsigned = int(record.wire.number_format.isupper()) if number else None
    return (
        *(shown, code, odbc.precision, _prefix(record), suffix, _create_params(record)),
        *(nullable, int(record.family == TEXT), _searchable(record)),
        *(unsigned, int(_is_money(record)), int(identity) if number else None),
        *(shown, odbc.scale if not scaled else 0, record.facets.scale if scaled else odbc.scale),
        *(odbc.verbose_code if is_odbc_3 else code, odbc.subtype, odbc.radix, None, record.user_type),
    )


def _is_money(record: SystemType) -> bool:
    return record.wire.packing is Packing.MONEY


def _create_params(record: SystemType) -> str | None:
    if record.length is not None:
        return "length" if record.length.is_fixed else "max length"
    return _CREATE_PARAMS.get(record.declared)


def _prefix(record: SystemType) -> str | None:
    if record.family in _QUOTED:
        return "N'" if record.is_national else "'"
    if record.family == BINARY:
        return "0x"
    return "$" if _is_money(record) else None


def _searchable(record: SystemType) -> int:
    """ODBC: 0 not, 1 with LIKE only, 2 without LIKE, 3 fully."""
    if record.is_legacy_lob or record.wire.packing is Packing.XML:
        return 1 if record.has_collation else 0
    return 3 if record.family in _QUOTED else 2


_PARAMETERS: Final = (Parameter("@data_type", INT, 0), Parameter("@ODBCVer", TsqlType("tinyint"), 2))
SP_DATATYPE_INFO: Final = SystemProcedure("sp_datatype_info", _PARAMETERS, _data_types)
SP_DATATYPE_INFO_100: Final = SystemProcedure("sp_datatype_info_100", _PARAMETERS, _data_types)
