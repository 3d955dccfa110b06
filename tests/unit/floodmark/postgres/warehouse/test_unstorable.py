"""Texts that PostgreSQL cannot store are found by column and by reason, and no value is in a message."""

from __future__ import annotations

import json
from datetime import datetime

import pyarrow as pa
import pytest

from floodmark.core.errors import DataQualityError
from floodmark.core.plan import LoadKind, TablePlan, value_columns
from floodmark.core.position import Interval
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable, TableName
from floodmark.core.settings import TableSettings, TemporalPolicy, UnstorablePolicy
from floodmark.core.snapshot import Feed, FeedIdentity
from floodmark.postgres.warehouse import sink
from floodmark.postgres.warehouse.sink import TextCheck, replace_unstorable
from lsns import lsn
from table_plans import with_settings

NAME = TableName("dbo", "Notes")
SOURCE = SourceTable(
    NAME,
    (
        SourceColumn("Code", "nvarchar", 1, 40, nullable=False),
        SourceColumn("Note", "nvarchar", 2, MAX_LENGTH),
        SourceColumn("Size", "int", 3),
    ),
    ("Code",),
)
FIRST, SECOND = (lsn(each) for each in (1, 9))
TABLE = TablePlan(
    TableSettings(NAME, TableName("shop", "notes")),
    LoadKind.CHANGES,
    Feed(FeedIdentity("dbo_Notes", 1, datetime(2026, 1, 1)), SOURCE, FIRST, False, True),
    Interval(FIRST, SECOND),
    FIRST,
)
COLUMNS = value_columns(SOURCE, TemporalPolicy.TRUNCATE)
SURROGATE = "a\ud800b".encode(errors="surrogatepass")
DELETE, INSERT = 1, 2


def texts(*values: str | bytes | None) -> pa.Array:
    """Return texts, of which some may be no valid UTF-8."""
    raw = pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)


def batch(codes: pa.Array, notes: pa.Array, operations: list[int] | None = None) -> pa.RecordBatch:
    rows = len(codes)
    arrays = [codes, notes, pa.array(range(rows), pa.int32()), pa.array(operations or [INSERT] * rows, pa.int16())]
    positions = pa.repeat(SECOND.value, rows)
    return pa.RecordBatch.from_arrays([*arrays, positions], names=["Code", "Note", "Size", "__op", "__lsn"])


def check(policy: UnstorablePolicy = UnstorablePolicy.QUARANTINE) -> TextCheck:
    return TextCheck(with_settings(TABLE, unstorable=policy), COLUMNS)


def notes_of(found: pa.Array) -> list[dict[str, str] | None]:
    return [json.loads(note) if note else None for note in found.to_pylist()]


def test_batch_without_such_texts_is_passed_on_as_it_is() -> None:
    given = batch(texts("a", "ä", "😀"), texts(None, "", "x"))
    storable, notes = check().apply(given)
    assert storable is given
    assert notes.to_pylist() == [None, None, None]


def test_each_reason_is_named_with_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "MAX_TEXT_BYTES", 10)
    given = batch(texts("a", "b", "c\0", "d", "e"), texts("x\0y", SURROGATE, "fine", "0123456789A", b"\xff"))
    storable, notes = check().apply(given)
    assert notes_of(notes) == [
        {"Note": "U+0000"},
        {"Note": "an unpaired surrogate"},
        {"Code": "U+0000"},
        {"Note": "more than 1 GB"},
        {"Note": "not Unicode"},
    ]
    assert storable.column("Note").to_pylist() == ["x\ufffdy", "a\ufffdb", "fine", "\ufffd", "\ufffd"]
    assert storable.column("Code").to_pylist() == ["a", "b", "c\ufffd", "d", "e"]
    storable.validate(full=True)


def test_texts_of_a_slice_are_checked_by_their_own_rows() -> None:
    given = batch(texts("a", "b", "c"), texts("\0", "fine", "x\0")).slice(1)
    storable, notes = check().apply(given)
    assert notes_of(notes) == [None, {"Note": "U+0000"}]
    assert storable.column("Note").to_pylist() == ["fine", "x\ufffd"]


def test_replace_merges_the_row_unless_its_key_cannot_be_stored() -> None:
    _, notes = check(UnstorablePolicy.REPLACE).apply(batch(texts("a", "b\0"), texts("x\0", "y")))
    assert notes_of(notes) == [None, {"Code": "U+0000"}]


def test_fail_names_columns_and_reasons_and_no_value() -> None:
    with pytest.raises(
        DataQualityError, match=r"dbo\.Notes: texts cannot be stored in PostgreSQL: Note \(U\+0000\)\."
    ) as e:
        check(UnstorablePolicy.FAIL).apply(batch(texts("4711", "b"), texts("secret\0", "y")))
    assert "secret" not in e.value.in_full
    assert e.value.detail == f"such as at {SECOND}"


@pytest.mark.parametrize("policy", UnstorablePolicy)
def test_delete_is_applied_whatever_its_last_values_were(policy: UnstorablePolicy) -> None:
    given = batch(texts("a", "b\0"), texts("x\0", "y"), [DELETE, DELETE])
    _, notes = check(policy).apply(given)
    assert notes_of(notes) == [None, {"Code": "U+0000"}]


def test_columns_without_text_are_not_read() -> None:
    only = tuple(column for column in COLUMNS if column.name == "Size")
    given = batch(texts("a\0"), texts("x\0"))
    assert replace_unstorable(given, only) == (given, {})
