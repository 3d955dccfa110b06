"""Batches that end at a number of bytes, over rows of known sizes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from floodmark.sources.sqlserver.driver import ROWS_AT_ONCE, read_sized_batches

MEGABYTE = 1_000_000


def _fetching(sizes: list[int]) -> Callable[[int], pa.RecordBatch]:
    left = list(sizes)

    def fetch(rows: int) -> pa.RecordBatch:
        taken, left[:rows] = left[:rows], []
        return pa.record_batch({"Doc": pa.array([b"x" * size for size in taken], pa.large_binary())})

    return fetch


def test_batch_of_large_rows_ends_near_its_bytes() -> None:
    batches = list(read_sized_batches(_fetching([2 * MEGABYTE] * 40), 8192, 8 * MEGABYTE))
    assert sum(batch.num_rows for batch in batches) == 40
    assert max(batch.nbytes for batch in batches) <= 10.1 * MEGABYTE


def test_one_row_may_pass_the_limit_and_no_other_comes_with_it() -> None:
    batches = list(read_sized_batches(_fetching([20 * MEGABYTE] * 3), 8192, 8 * MEGABYTE))
    assert [batch.num_rows for batch in batches] == [1, 1, 1]


def test_rows_that_grow_pass_the_limit_by_one_fetch_at_most() -> None:
    batches = list(read_sized_batches(_fetching([10] * 500 + [2 * MEGABYTE] * 40), 8192, 8 * MEGABYTE))
    sizes = [batch.nbytes for batch in batches]
    assert sizes[0] <= (8 + 2 * ROWS_AT_ONCE) * MEGABYTE
    assert max(sizes[1:]) <= 10.1 * MEGABYTE


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 20), st.integers(1, 500))
def test_every_row_arrives_once_and_in_order(sizes: list[int], rows: int, limit: int) -> None:
    batches = list(read_sized_batches(_fetching(sizes), rows, limit))
    assert [len(value) for batch in batches for value in batch["Doc"].to_pylist()] == sizes
    assert all(0 < batch.num_rows <= rows for batch in batches)
