"""sp_datatype_info and sp_datatype_info_100: the types of the server, as ODBC's SQLGetTypeInfo lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.events import Column, Event
from sqlserver_emulator.tsql.catalog.odbc_types import BY_NAME, OdbcType
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
_IDENTITY: Final = ("tinyint", "smallint", "int", "bigint", "decimal", "numeric")
_SIZED: Final = {
    "char": "length", "varchar": "max length", "nchar": "length", "nvarchar": "max length", "binary": "length",
    "varbinary": "max length", "decimal": "precision,scale", "numeric": "precision,scale", "time": "scale",
    "datetime2": "scale", "datetimeoffset": "scale",
}  # fmt: skip
_CHARACTERS: Final = frozenset({"char", "varchar", "text", "nchar", "nvarchar", "ntext", "sysname", "xml"})
_BINARIES: Final = frozenset({"binary", "varbinary", "image", "timestamp"})
_NUMBERS: Final = frozenset({*_IDENTITY, "money", "smallmoney", "real", "float"})
_QUOTED: Final = _CHARACTERS | {
    "date", "time", "datetime2", "datetimeoffset", "datetime", "smalldatetime", "uniqueidentifier",
}  # fmt: skip
_USER_TYPES: Final = {
    "bit": 16, "tinyint": 5, "smallint": 6, "int": 7, "decimal": 24, "numeric": 10, "money": 11, "smallmoney": 21,
    "real": 23, "float": 8, "char": 1, "varchar": 2, "text": 19, "binary": 3, "varbinary": 4, "image": 20,
    "timestamp": 80, "datetime": 12, "smalldatetime": 22, "sysname": 18,
}  # fmt: skip


def _data_types(call: ProcedureCall) -> Iterator[Event]:
    wanted, version = call.arguments["@data_type"], call.arguments["@odbcver"]
    is_odbc_3 = isinstance(version, int) and version >= 3
    rows = [row for name, odbc in BY_NAME.items() for row in _rows(name, odbc, is_odbc_3)]
    rows = [row for row in rows if wanted in (0, None, row[1])]
    rows.sort(key=lambda row: (int(str(row[1])), row[11] or 0, str(row[0])))
    yield from result_set(_COLUMNS, rows)


def _rows(name: str, odbc: OdbcType, is_odbc_3: bool) -> Iterator[Row]:
    yield _row(name, odbc, is_odbc_3, identity=False)
    if name in _IDENTITY:
        yield _row(name, odbc, is_odbc_3, identity=True)


def _row(name: str, odbc: OdbcType, is_odbc_3: bool, *, identity: bool) -> Row:
    code = odbc.code if is_odbc_3 or odbc.code_before_3 is None else odbc.code_before_3
    shown = f"{name}() identity" if identity and name in ("decimal", "numeric") else name
    if identity and shown == name:
        shown = f"{name} identity"
    number = name in _NUMBERS
    scaled = name in ("decimal", "numeric")
    return (
        *(shown, code, odbc.precision, _prefix(name), "'" if name in _QUOTED else None, _SIZED.get(name)),
        *(0 if identity or name == "timestamp" else 1, int(name in _CHARACTERS), _searchable(name)),
        *((1 if name == "tinyint" else 0) if number else None, int("money" in name), int(identity) if number else None),
        *(shown, odbc.scale if not scaled else 0, 38 if scaled else odbc.scale),
        *(odbc.verbose_code if is_odbc_3 else code, odbc.subtype, odbc.radix, None, _USER_TYPES.get(name, 0)),
    )


def _prefix(name: str) -> str | None:
    if name in ("nchar", "nvarchar", "ntext", "sysname", "xml"):
        return "N'"
    if name in _QUOTED:
        return "'"
    if name in _BINARIES:
        return "0x"
    return "$" if "money" in name else None


def _searchable(name: str) -> int:
    """ODBC: 0 not, 1 with LIKE only, 2 without LIKE, 3 fully."""
    if name in ("text", "ntext"):
        return 1
    if name in ("image", "xml"):
        return 0
    return 3 if name in _QUOTED else 2


_PARAMETERS: Final = (Parameter("@data_type", INT, 0), Parameter("@ODBCVer", TsqlType("tinyint"), 2))
SP_DATATYPE_INFO: Final = SystemProcedure("sp_datatype_info", _PARAMETERS, _data_types)
SP_DATATYPE_INFO_100: Final = SystemProcedure("sp_datatype_info_100", _PARAMETERS, _data_types)
