"""The limits of a table: how many columns it may have, and how long the shortest of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlserver_emulator.engine.translation import CatalogColumn
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.record import Declared
from sqlserver_emulator.system_types.sizes import decimal_bytes, time_bytes
from sqlserver_emulator.system_types.wire import Form, Packing
from sqlserver_emulator.types import TsqlType

MOST_COLUMNS: Final = 1024
_LONGEST_ROW: Final = 8060
_ROW_HEADER: Final = 6
"""Bytes: the header of a row, and the number of its columns."""
_LONGEST_PLAIN: Final = 16
"""Bytes of the largest type of a fixed size (uniqueidentifier)."""


def check_limits(statement: str, table: str, columns: Sequence[CatalogColumn]) -> None:
    """Raise 1702 for too many columns, 1701 where even the shortest row would not fit a page."""
    if len(columns) > MOST_COLUMNS:
        name = columns[MOST_COLUMNS].name
        message = f"{statement} failed because column '{name}' in table '{table}' exceeds the maximum of"
        raise SqlServerError(1702, f"{message} {MOST_COLUMNS} columns.")
    # A computed column is counted as none: most are not stored.
    stored = [column.type for column in columns if not column.computed]
    overhead = _ROW_HEADER + _bytes_of_bits(len(stored))
    bits = sum(BY_NAME[type.name].wire.packing is Packing.BIT for type in stored)
    length = overhead + _bytes_of_bits(bits) + sum(map(_fixed_bytes, stored))
    if length > _LONGEST_ROW:
        message = f"Creating or altering table '{table}' failed because the minimum row size would be {length},"
        limit = f"exceeds the maximum allowable table row size of {_LONGEST_ROW} bytes."
        raise SqlServerError(1701, f"{message} including {overhead} bytes of internal overhead. This {limit}")


def _bytes_of_bits(count: int) -> int:
    return (count + 7) // 8


def _fixed_bytes(type: TsqlType) -> int:
    """The bytes that every value of the type takes; 0 for bits, and where values differ in length."""
    record = BY_NAME[type.name]
    if record.length is not None:
        return type.length * record.unit_bytes if record.length.is_fixed else 0
    if record.declared is Declared.PRECISION_SCALE:
        return decimal_bytes(type.precision)
    if record.moment is not None and record.declared is Declared.SCALE:
        return time_bytes(type.scale) + record.moment.more_bytes
    longest = record.facets.max_length
    varies = record.wire.packing is Packing.BIT or record.wire.form is Form.LONG or record.varies_in_length
    return longest if 0 < longest <= _LONGEST_PLAIN and not varies else 0
