"""The Arrow type of each kind of value in the batches between a reader and a sink.

A time of day is ISO text, which sorts and compares like the time: Spark 4.1 has no TIME by default. A UUID is text.
"""

from __future__ import annotations

import pyarrow as pa

from floodmark.core.types import Kind, WarehouseType

ARROW_TYPES: dict[Kind, pa.DataType] = {
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


def arrow_type(of: WarehouseType) -> pa.DataType:
    """Return the type of a column in a batch."""
    if of.kind is Kind.DECIMAL:
        return pa.decimal128(of.precision, of.scale)
    return ARROW_TYPES[of.kind]
