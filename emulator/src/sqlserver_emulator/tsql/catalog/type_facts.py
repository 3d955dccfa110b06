"""What describing procedures say of a data type: number, name, length, precision and scale, as sys.types has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.tds.type_info import (
    COLLATION,
    PLP_LENGTH,
    decimal_bytes,
    encode_type_info,
    is_character,
    is_plp,
    time_bytes,
)
from sqlserver_emulator.types import TsqlType

SYSNAME_TYPE_ID: Final = 256
SYSTEM_TYPE_IDS: Final = {
    "image": 34, "text": 35, "uniqueidentifier": 36, "date": 40, "time": 41, "datetime2": 42, "datetimeoffset": 43,
    "tinyint": 48, "smallint": 52, "int": 56, "smalldatetime": 58, "real": 59, "money": 60, "datetime": 61,
    "float": 62, "sql_variant": 98, "ntext": 99, "bit": 104, "decimal": 106, "numeric": 108, "smallmoney": 122,
    "bigint": 127, "varbinary": 165, "varchar": 167, "binary": 173, "char": 175, "rowversion": 189, "nvarchar": 231,
    "sysname": 231, "nchar": 239, "xml": 241,
}  # fmt: skip
_FACETS: Final = {
    "bit": (1, 1, 0), "tinyint": (1, 3, 0), "smallint": (2, 5, 0), "int": (4, 10, 0), "bigint": (8, 19, 0),
    "money": (8, 19, 4), "smallmoney": (4, 10, 4), "real": (4, 24, 0), "float": (8, 53, 0), "date": (3, 10, 0),
    "datetime": (8, 23, 3), "smalldatetime": (4, 16, 0), "uniqueidentifier": (16, 0, 0), "rowversion": (8, 0, 0),
    "text": (16, 0, 0), "ntext": (16, 0, 0), "image": (16, 0, 0), "xml": (-1, 0, 0), "sql_variant": (8016, 0, 0),
}  # fmt: skip
"""max_length, precision, scale of the types that have no facets of their own."""
_TIMES: Final = {"time": (0, 8), "datetime2": (3, 19), "datetimeoffset": (5, 26)}
"""Bytes beside those of the time of day, and characters without a fraction."""
_WIDE: Final = frozenset({"nchar", "nvarchar", "sysname"})


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """``name`` with its facets: nvarchar(20)."""

    system_type_id: int
    name: str
    max_length: int
    precision: int
    scale: int

    @classmethod
    def of(cls, type: TsqlType) -> TypeFacts:
        shown = {"rowversion": "timestamp", "sysname": "nvarchar(128)"}.get(type.name, str(type))
        return cls(SYSTEM_TYPE_IDS[type.name], shown, *_facets(type))


def _facets(type: TsqlType) -> tuple[int, int, int]:
    if type.name in ("decimal", "numeric"):
        return decimal_bytes(type.precision), type.precision, type.scale
    if type.name in _TIMES:
        more_bytes, width = _TIMES[type.name]
        return time_bytes(type.scale) + more_bytes, width + (type.scale + 1 if type.scale else 0), type.scale
    if type.name in _FACETS:
        return _FACETS[type.name]
    if type.name == "sysname":
        return 256, 0, 0
    return -1 if type.is_max else type.length * (2 if type.name in _WIDE else 1), 0, 0


def wire_type(type: TsqlType) -> tuple[int, int]:
    """tds_type_id and tds_length: the token of the nullable type, and the length that goes with it."""
    length = PLP_LENGTH if is_plp(type) else TypeFacts.of(type).max_length
    return encode_type_info(type)[0], length


def wire_collation(type: TsqlType) -> tuple[int | None, int | None]:
    """tds_collation_id and tds_collation_sort_id; NULL for what is no character type."""
    if not is_character(type):
        return None, None
    return int.from_bytes(COLLATION[:4], "little"), COLLATION[4]
