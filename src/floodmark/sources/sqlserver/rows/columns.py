"""The transport of source columns: their expressions in the SELECT list, and their Arrow types in a batch."""

from __future__ import annotations

import pyarrow as pa

from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceTable
from floodmark.core.source.scripts import bracket
from floodmark.core.types import Kind, WarehouseType
from floodmark.core.window.columns import ValueColumn, value_columns
from floodmark.sources.sqlserver.rows.code_units import units_expression

_ODBC_CANONICAL_STYLE = 121
"""The style of CONVERT that prints all digits of a temporal value, and the offset of a datetimeoffset."""
_TEMPORAL_TEXT_LENGTH = 34
_CLR_TYPES = frozenset({"hierarchyid", "geography", "geometry"})
_TEMPORAL_TYPES = frozenset({"time", "datetime2", "datetimeoffset"})


def select_expressions(table: SourceTable, temporal: TemporalPolicy) -> tuple[str, ...]:
    """Return the expressions of the SELECT list for the stored columns, in order. Raises as ``value_columns``."""
    return tuple(_select_expression(table, column, temporal) for column in value_columns(table, temporal))


def _select_expression(table: SourceTable, column: ValueColumn, temporal: TemporalPolicy) -> str:
    name, type_name = bracket(column.name), table.column(column.name).type_name
    if type_name in _TEMPORAL_TYPES and column.type.kind is Kind.TEXT:
        applies_offset = type_name == "datetimeoffset" and temporal is TemporalPolicy.TRUNCATE
        # In a key: two offsets of one moment are one key at the source.
        value = f"SWITCHOFFSET({name}, '+00:00')" if applies_offset else name
        return f"CONVERT(varchar({_TEMPORAL_TEXT_LENGTH}), {value}, {_ODBC_CANONICAL_STYLE}) AS {name}"
    if type_name in _CLR_TYPES:
        return f"CONVERT(varbinary(max), {name}) AS {name}"
    units = units_expression(table.column(column.name), name)
    return f"{units} AS {name}" if units else name


def to_transport(array: pa.Array, kind: WarehouseType, target: pa.DataType) -> pa.Array:
    """Return a column of the driver in the type of a batch. Fractions finer than a microsecond are cut off."""
    if array.type == target:
        return array
    if kind.kind is Kind.TIME:
        return array.cast(pa.time64("us"), safe=False).cast(target)
    # Only temporal casts may lose digits; all others must fail rather than change a value.
    return array.cast(target, safe=not pa.types.is_temporal(target))
