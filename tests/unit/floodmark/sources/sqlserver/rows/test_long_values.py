"""Values that are too long to be carried, with limits small enough for a test."""

from __future__ import annotations

import pyarrow as pa
import pytest

from floodmark.core.errors import DataQualityError
from floodmark.core.plan import value_columns
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable, TableName
from floodmark.core.settings import TemporalPolicy
from floodmark.sources.sqlserver.rows import refuse_long_values, split_batch

TABLE = SourceTable(
    TableName("dbo", "Docs"),
    (
        SourceColumn("Id", "int", 1),
        SourceColumn("Doc", "varbinary", 2, MAX_LENGTH),
        SourceColumn("Note", "nvarchar", 3, MAX_LENGTH),
    ),
    ("Id",),
)
COLUMNS = value_columns(TABLE, TemporalPolicy.TRUNCATE)


def _batch(*rows: tuple[bytes | None, str | None]) -> pa.RecordBatch:
    docs, notes = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "Id": pa.array(range(len(rows)), pa.int32()),
            "Doc": pa.array(docs, pa.large_binary()),
            "Note": pa.array(notes, pa.large_string()),
        }
    )


def _refuse(batch: pa.RecordBatch) -> None:
    refuse_long_values(batch, COLUMNS, "dbo.Docs", max_value_bytes=100, max_row_bytes=150)


def test_long_value_is_refused_by_table_and_column_and_not_shown() -> None:
    with pytest.raises(
        DataQualityError, match=r"dbo\.Docs: column Note has a value of 102 bytes; at most 100"
    ) as found:
        _refuse(_batch((b"short", None), (None, "ä" * 51)))
    assert "ä" not in found.value.in_full


def test_row_that_is_too_long_as_a_whole_is_refused() -> None:
    with pytest.raises(DataQualityError, match=r"columns Doc, Note have 160 bytes in one row; at most 150"):
        _refuse(_batch((b"short", "short"), (b"x" * 80, "x" * 80)))


def test_values_of_the_greatest_length_pass() -> None:
    _refuse(_batch((b"x" * 100, "x" * 50), (b"x" * 100, None)))


def test_batch_that_is_too_long_for_the_offsets_of_a_column_is_split_into_rows() -> None:
    batch = _batch((b"x" * 80, "a"), (b"y" * 80, "b"))
    pieces = list(split_batch(batch, 100))
    assert [piece.num_rows for piece in pieces] == [1, 1]
    assert pa.concat_batches(pieces) == batch
    assert [piece["Doc"].offset for piece in pieces] == [0, 0]
    assert list(split_batch(batch, 1000)) == [batch]
