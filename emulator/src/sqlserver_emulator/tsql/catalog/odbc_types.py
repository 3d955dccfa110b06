"""How ODBC describes T-SQL types: the constants of sp_columns and sp_datatype_info.

The numbers are those of ODBC's SQL type codes and of Microsoft's documentation of the two procedures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sqlserver_emulator.types import TsqlType

_INT_MAX: Final = 2147483647


@dataclass(frozen=True, slots=True)
class OdbcType:
    """Of a column, or (by type name) of the type at its largest. ``ss`` nullable and ``ss_fixed`` not: SS_DATA_TYPE."""

    code: int
    precision: int
    length: int
    ss: int
    scale: int | None = None
    radix: int | None = None
    subtype: int | None = None
    octets: int | None = None
    ss_fixed: int | None = None
    code_before_3: int | None = None

    @property
    def verbose_code(self) -> int:
        """SQL_DATA_TYPE: 9 for all date and time types of ODBC, which the subtype tells apart."""
        return 9 if self.subtype is not None else self.code


def _exact(code: int, precision: int, length: int, ss: int, fixed: int | None = None) -> OdbcType:
    return OdbcType(code, precision, length, ss, 0, 10, ss_fixed=fixed)


def _sized(code: int, ss: int) -> OdbcType:
    return OdbcType(code, 8000, 8000, ss)


BY_NAME: Final[dict[str, OdbcType]] = {
    "bit": OdbcType(-7, 1, 1, 50, ss_fixed=50),
    "tinyint": _exact(-6, 3, 1, 38, 48),
    "smallint": _exact(5, 5, 2, 38, 52),
    "int": _exact(4, 10, 4, 38, 56),
    "bigint": _exact(-5, 19, 8, 108, 63),
    "decimal": _exact(3, 38, 40, 106),
    "numeric": _exact(2, 38, 40, 108),
    "money": replace(_exact(3, 19, 21, 110, 60), scale=4),
    "smallmoney": replace(_exact(3, 10, 12, 110, 122), scale=4),
    "real": OdbcType(7, 24, 4, 109, radix=2, ss_fixed=59),
    "float": OdbcType(6, 53, 8, 109, radix=2, ss_fixed=62),
    "char": _sized(1, 39),
    "varchar": _sized(12, 39),
    "nchar": OdbcType(-8, 4000, 8000, 39),
    "nvarchar": OdbcType(-9, 4000, 8000, 39),
    "sysname": OdbcType(-9, 128, 256, 39),
    "text": OdbcType(-1, _INT_MAX, _INT_MAX, 35),
    "ntext": OdbcType(-10, _INT_MAX // 2, _INT_MAX - 1, 35),
    "binary": _sized(-2, 37),
    "varbinary": _sized(-3, 37),
    "image": OdbcType(-4, _INT_MAX, _INT_MAX, 34),
    "timestamp": OdbcType(-2, 8, 8, 45),
    "uniqueidentifier": OdbcType(-11, 36, 16, 37),
    "xml": OdbcType(-152, 0, 0, 0),
    "sql_variant": OdbcType(-150, 8000, 8000, 39),
    "date": OdbcType(91, 10, 20, 0, scale=0, subtype=1, code_before_3=-9),
    "time": OdbcType(-154, 16, 32, 0, scale=7, code_before_3=-9),
    "datetime2": OdbcType(93, 27, 54, 0, scale=7, subtype=3, code_before_3=-9),
    "datetimeoffset": OdbcType(-155, 34, 68, 0, scale=7, code_before_3=-9),
    "datetime": OdbcType(93, 23, 16, 111, scale=3, subtype=3, ss_fixed=61, code_before_3=11),
    "smalldatetime": OdbcType(93, 16, 16, 111, scale=0, subtype=3, ss_fixed=58, code_before_3=11),
}
_CHARACTERS: Final = frozenset({"char", "varchar", "nchar", "nvarchar", "sysname"})
_FRACTIONAL: Final = {"time": 8, "datetime2": 19, "datetimeoffset": 26}
"""Width of the text without a fraction."""


def describe_column(name: str, max_length: int, precision: int, scale: int) -> OdbcType:
    """Of a column of system type ``name``, with the facets that sys.columns shows."""
    base = BY_NAME[name]
    if name in _CHARACTERS or name in ("binary", "varbinary"):
        return _sized_column(base, name, max_length)
    if name in ("decimal", "numeric"):
        return replace(base, precision=precision, length=precision + 2, scale=scale)
    if name in _FRACTIONAL:
        width = _FRACTIONAL[name]
        return replace(base, precision=width + (scale + 1 if scale else 0), scale=scale)
    if name in ("text", "ntext", "image"):
        return replace(base, octets=base.length)
    return base


def describe_type(type: TsqlType) -> tuple[str, OdbcType]:
    """Of a declared type: the name that is shown, and the description of a column of it."""
    name = "timestamp" if type.name == "rowversion" else type.name
    wide = 2 if name in ("nchar", "nvarchar", "sysname") and not type.is_max else 1
    return name, describe_column(name, type.length * wide, type.precision, type.scale)


def _sized_column(base: OdbcType, name: str, max_length: int) -> OdbcType:
    wide = name in ("nchar", "nvarchar", "sysname")
    if max_length == -1:
        bytes_ = _INT_MAX - 1 if wide else _INT_MAX
        return replace(base, precision=_INT_MAX // 2 if wide else _INT_MAX, length=bytes_, octets=bytes_)
    return replace(base, precision=max_length // 2 if wide else max_length, length=max_length, octets=max_length)
