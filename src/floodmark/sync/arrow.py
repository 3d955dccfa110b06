"""The Arrow type of each kind of value in the batches between a reader and a sink.

A time of day is ISO text, which sorts and compares like the time: Spark 4.1 has no TIME by default. A UUID is text.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def rename_values(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """Return a batch with other names of columns, and with its metadata. names: by those that it has."""
    if not names:
        return batch
    fields = [field.with_name(names.get(field.name, field.name)) for field in batch.schema]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields, batch.schema.metadata))
