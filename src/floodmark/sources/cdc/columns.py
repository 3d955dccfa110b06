"""How a source column travels: what the SELECT list says, what it is in Spark and Arrow, and what COPY sends.

The Arrow types of staging are those whose binary form is PostgreSQL's own for the column: COPY in binary form checks no
types, so that a wrong one would be stored wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn, SourceTable
from floodmark.core.types import Kind, WarehouseType, warehouse_type
from floodmark.sources.sqlserver.tsql import quote

_ODBC_CANONICAL_STYLE = 121
"""CONVERT's style that prints every digit a temporal value has, and the offset of a datetimeoffset."""
_TEMPORAL_TEXT_LENGTH = 34
_CLR_TYPES = frozenset({"hierarchyid", "geography", "geometry"})
_TEMPORAL_TYPES = frozenset({"time", "datetime2", "datetimeoffset"})

_SPARK_TYPES: dict[Kind, spark.DataType] = {
    Kind.BOOLEAN: spark.BooleanType(),
    Kind.INT16: spark.ShortType(),
    Kind.INT32: spark.IntegerType(),
    Kind.INT64: spark.LongType(),
    Kind.FLOAT32: spark.FloatType(),
    Kind.FLOAT64: spark.DoubleType(),
    Kind.TEXT: spark.StringType(),
    Kind.DATE: spark.DateType(),
    Kind.TIME: spark.StringType(),  # Spark 4.1 has no TIME by default; ISO text sorts and compares as the time does
    Kind.TIMESTAMP: spark.TimestampNTZType(),
    Kind.TIMESTAMP_TZ: spark.TimestampType(),
    Kind.UUID: spark.StringType(),
    Kind.BYTES: spark.BinaryType(),
}
_ARROW_TYPES: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMP_TZ: pa.timestamp("us", tz="UTC"),
    Kind.UUID: pa.string(),
    Kind.BYTES: pa.binary(),
}
_STAGING_TYPES = _ARROW_TYPES | {Kind.TIME: pa.time64("us"), Kind.UUID: pa.binary(16)}


@dataclass(frozen=True, slots=True)
class TransportColumn:
    """A stored column on its way. ``ordinal`` is its place in the update mask."""

    name: str
    type: WarehouseType
    expression: str
    """Of the T-SQL SELECT list."""
    ordinal: int
    is_lob: bool
    keeps_value_on_delete: bool
    """Whether a delete row holds the last value, which text, ntext and image do not."""

    @property
    def spark_type(self) -> spark.DataType:
        if self.type.kind is Kind.DECIMAL:
            return spark.DecimalType(self.type.precision, self.type.scale)
        return _SPARK_TYPES[self.type.kind]

    @property
    def arrow_type(self) -> pa.DataType:
        """In the batches that pass through Spark."""
        return self._arrow(_ARROW_TYPES)

    @property
    def staging_type(self) -> pa.DataType:
        """In the batches that COPY sends."""
        return self._arrow(_STAGING_TYPES)

    def _arrow(self, types: dict[Kind, pa.DataType]) -> pa.DataType:
        if self.type.kind is Kind.DECIMAL:
            return pa.decimal128(self.type.precision, self.type.scale)
        return types[self.type.kind]


def supported_columns(table: SourceTable, temporal: TemporalPolicy) -> tuple[TransportColumn, ...]:
    """Every stored column, in order. Raises ConfigError for a type that Floodmark does not carry."""
    return tuple(_column_of(table, column, temporal) for column in table.stored_columns)


def _column_of(table: SourceTable, column: SourceColumn, temporal: TemporalPolicy) -> TransportColumn:
    kind = warehouse_type(table, column, temporal)
    name = quote(column.name)
    expression = name
    if column.type_name in _TEMPORAL_TYPES and kind.kind is Kind.TEXT:
        expression = f"CONVERT(varchar({_TEMPORAL_TEXT_LENGTH}), {name}, {_ODBC_CANONICAL_STYLE}) AS {name}"
    elif column.type_name in _CLR_TYPES:
        expression = f"CONVERT(varbinary(max), {name}) AS {name}"
    return TransportColumn(
        name=column.name,
        type=kind,
        expression=expression,
        ordinal=column.ordinal,
        is_lob=column.is_lob,
        keeps_value_on_delete=column.type_name not in ("text", "ntext", "image"),
    )


def to_transport(array: pa.Array, kind: WarehouseType, target: pa.DataType) -> pa.Array:
    """A column as the driver gives it, in the type it has in Spark. Fractions finer than a microsecond are cut off."""
    if array.type == target:
        return array
    if kind.kind is Kind.TIME:
        return array.cast(pa.time64("us"), safe=False).cast(target)
    # Only temporal casts lose anything; all others must fail rather than change a value.
    return array.cast(target, safe=not pa.types.is_temporal(target))


def to_staging(array: pa.Array, kind: WarehouseType, target: pa.DataType) -> pa.Array:
    """A column that has passed through Spark, in the type that COPY sends."""
    if kind.kind is Kind.UUID:
        return uuid_bytes(array)
    if kind.kind is Kind.TIME:  # Arrow parses no time of day without its day
        day = pa.scalar("1970-01-01 ")
        return pc.binary_join_element_wise(day, array, "").cast(pa.timestamp("us")).cast(target)
    return array if array.type == target else array.cast(target)


_HEX_VALUE = np.zeros(256, dtype=np.uint8)
for _digits in ("0123456789abcdef", "0123456789ABCDEF"):
    _HEX_VALUE[np.frombuffer(_digits.encode(), dtype=np.uint8)] = np.arange(16, dtype=np.uint8)
_UUID_TEXT_LENGTH = 36
_UUID_DIGITS = np.array([i for i in range(_UUID_TEXT_LENGTH) if i not in (8, 13, 18, 23)])
_NIL = "00000000-0000-0000-0000-000000000000"


def uuid_bytes(array: pa.Array) -> pa.Array:
    """16 bytes in the order of the text, from an array of canonical texts of either case."""
    dense = pc.fill_null(array, _NIL).cast(pa.string())
    offset = dense.offset
    offsets = np.frombuffer(dense.buffers()[1], dtype=np.int32)[offset : offset + len(dense) + 1]
    if len(dense) == 0:
        return pa.array([], pa.binary(16))
    text = np.frombuffer(dense.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(-1, _UUID_TEXT_LENGTH)
    digits = _HEX_VALUE[text[:, _UUID_DIGITS]]
    values = np.ascontiguousarray((digits[:, 0::2] << 4) | digits[:, 1::2])
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(dense), [None, pa.py_buffer(values)])
    return pc.if_else(array.is_valid(), packed, pa.scalar(None, pa.binary(16))) if array.null_count else packed
