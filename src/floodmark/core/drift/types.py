"""The comparison of a column's old and new type: which one can hold the values of the other in a warehouse."""

from __future__ import annotations

from enum import Enum

from floodmark.core.errors import ConfigError
from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable, TableName
from floodmark.core.types import Kind, WarehouseType, warehouse_type

_INTEGER_DIGITS = {Kind.INT16: 5, Kind.INT32: 10, Kind.INT64: 19}
_INTEGER_BITS = {"bit": 1, "tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_UNICODE = frozenset({"nchar", "nvarchar", "ntext", "sysname", "xml", "json"})
_OF_ONE_CODE_PAGE = frozenset({"char", "varchar", "text"})
_NOWHERE = TableName("-", "-")


class TypeChange(Enum):
    """The relation between the values of a new type and those of the old one."""

    WIDENED = "widened"
    """Every old value is a value of the new type."""
    NARROWED = "narrowed"
    """Every new value is a value of the old type."""
    CHANGED = "changed"
    """Neither."""


def classify_type(
    before: SourceColumn, after: SourceColumn, temporal: TemporalPolicy, key: tuple[str, ...] = ()
) -> TypeChange | None:
    """Return how a type changed, None where the declared types are the same. key: the columns of the table's key."""
    if before.declared_type == after.declared_type:
        return None
    try:
        old, new = (warehouse_type(SourceTable(_NOWHERE, (), key), column, temporal) for column in (before, after))
    except ConfigError:  # a type that Floodmark does not support
        return TypeChange.CHANGED
    grows, shrinks = holds(new, old), holds(old, new)
    if grows and before.type_name in _UNICODE and after.type_name in _OF_ONE_CODE_PAGE:
        # The source has written a question mark for each character that the code page lacks.
        return TypeChange.NARROWED
    if grows and shrinks:
        # It is one type in the warehouse. Values of a smaller type may have been truncated at the source.
        return TypeChange.NARROWED if _size(after) < _size(before) else TypeChange.WIDENED
    if grows:
        return TypeChange.WIDENED
    return TypeChange.NARROWED if shrinks else TypeChange.CHANGED


def holds(wide: WarehouseType, narrow: WarehouseType) -> bool:
    """Return whether every value of ``narrow`` is a value of ``wide``, as a target's column may be changed to it."""
    if wide.kind is narrow.kind is Kind.TEXT:
        return not wide.length or 0 < narrow.length <= wide.length
    if wide.kind is Kind.DECIMAL:
        return _decimal_holds(wide, narrow)
    if wide.kind in _INTEGER_DIGITS and narrow.kind in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[wide.kind] >= _INTEGER_DIGITS[narrow.kind]
    if wide.kind is Kind.FLOAT64 and narrow.kind is Kind.FLOAT32:
        return True
    return wide.kind is narrow.kind


def _decimal_holds(wide: WarehouseType, narrow: WarehouseType) -> bool:
    if narrow.kind is Kind.DECIMAL:
        digits, scale = narrow.precision - narrow.scale, narrow.scale
    elif narrow.kind in _INTEGER_DIGITS:
        digits, scale = _INTEGER_DIGITS[narrow.kind], 0
    else:
        return False
    return wide.precision - wide.scale >= digits and wide.scale >= scale


def _size(column: SourceColumn) -> tuple[float, int]:
    """Return a size that orders two types that are one in the warehouse."""
    if column.type_name in _INTEGER_BITS:
        return (_INTEGER_BITS[column.type_name], 0)
    length = float("inf") if column.max_length == MAX_LENGTH or column.is_lob else float(column.max_length)
    return (length, column.scale)
