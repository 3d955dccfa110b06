"""Batches that end at a number of bytes: rows with LOBs have any size, and a whole batch is held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 16
"""The most rows to fetch at once. Rows may be much larger than those before them, so that a batch may pass its limit by
as many rows. Sixteen take hardly longer per row than hundreds."""


def read_sized_batches(
    fetch: Callable[[int], pa.RecordBatch], batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most so many rows, which end as soon as they have so many bytes.

    fetch: returns the next rows, at most the given number; an empty batch at the end.
    """
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    rows = 1
    largest = 1  # the most bytes of a row, as the mean of the rows that were fetched with it
    while (fetched := fetch(rows)).num_rows:
        held.append(fetched)
        held_rows += fetched.num_rows
        held_bytes += fetched.nbytes
        largest = max(largest, fetched.nbytes // fetched.num_rows)
        if held_bytes >= batch_bytes or held_rows >= batch_rows:
            yield _joined(held)
            held, held_rows, held_bytes = [], 0, 0
        rows = max(1, min(2 * rows, ROWS_AT_ONCE, batch_rows - held_rows, (batch_bytes - held_bytes) // largest))
    if held:
        yield _joined(held)


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415  (only reading processes need it)

    return held[0] if len(held) == 1 else pa.concat_batches(held)
