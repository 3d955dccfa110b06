"""Values that are too long to travel: they are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import DataQualityError
from floodmark.core.window.columns import ValueColumn

MAX_VALUE_BYTES = (1 << 30) - (1 << 10)
"""PostgreSQL holds values below 1 GiB, and so does each message of COPY."""
MAX_ROW_BYTES = (2 << 30) - (64 << 20)
"""A row travels through Spark as one value, of less than 2 GiB."""


def refuse_long_values(
    batch: pa.RecordBatch,
    columns: Sequence[ValueColumn],
    subject: str,
    *,
    max_value_bytes: int = MAX_VALUE_BYTES,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> None:
    """Raise DataQualityError, naming table and column, for a value or a row that cannot be carried.

    batch: as the driver returned it, with the LOBs among ``columns`` by name. Text has its length in UTF-8.
    """
    lobs = [column.name for column in columns if column.is_lob]
    if batch.nbytes <= max_value_bytes:
        return
    lengths = {name: pc.fill_null(pc.binary_length(batch.column(name)).cast(pa.int64()), 0) for name in lobs}
    for name, length in lengths.items():
        longest = pc.max(length).as_py()
        if longest > max_value_bytes:
            raise _too_long(subject, f"column {name} has a value of {longest} bytes", max_value_bytes)
    rows = [sum(row) for row in zip(*(length.to_pylist() for length in lengths.values()), strict=True)]
    if rows and max(rows) > max_row_bytes:
        raise _too_long(subject, f"columns {', '.join(lobs)} have {max(rows)} bytes in one row", max_row_bytes)


def split_batch(batch: pa.RecordBatch, max_bytes: int = MAX_VALUE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield a batch, or its rows one by one where all together are too long for the 32-bit offsets of a column."""
    if batch.nbytes <= max_bytes:
        yield batch
        return
    for row in range(batch.num_rows):
        yield batch.take(pa.array([row]))  # a slice would keep the offsets


def _too_long(subject: str, found: str, limit: int) -> DataQualityError:
    return DataQualityError(
        subject,
        f"{found}; at most {limit} bytes can be carried.",
        "Shorten the value at the source, or leave the column out of the capture instance (@captured_column_list).",
    )
