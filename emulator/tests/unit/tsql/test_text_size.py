"""SET TEXTSIZE cuts values of types without a length, in rows and in Arrow batches alike."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sqlserver_emulator.events import Column, Rows, RowsArrow
from sqlserver_emulator.tsql.state.text_size import cut_texts
from sqlserver_emulator.types import TsqlType

CASES = [
    (TsqlType("varchar", -1), "abcdefgh", "abcde"),
    (TsqlType("text"), "abcdefgh", "abcde"),
    (TsqlType("nvarchar", -1), "äbcdefgh", "äb"),
    (TsqlType("ntext"), "äbcdefgh", "äb"),
    (TsqlType("varbinary", -1), b"12345678", b"12345"),
    (TsqlType("image"), b"12345678", b"12345"),
    (TsqlType("varchar", 100), "abcdefgh", "abcdefgh"),
    (TsqlType("int"), 12345678, 12345678),
    (TsqlType("nvarchar", -1), None, None),
]


@pytest.mark.parametrize(("type_", "value", "sent"), CASES)
def test_large_value_is_cut_to_the_size(type_: TsqlType, value: object, sent: object) -> None:
    columns = [Column("id", TsqlType("int")), Column("v", type_)]
    (rows,) = cut_texts(columns, iter([Rows([(1, value), (2, None)])]), 5)
    assert isinstance(rows, Rows)
    assert list(rows.rows) == [(1, sent), (2, None)]
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([value])], names=["id", "v"])
    (cut,) = cut_texts(columns, iter([RowsArrow(batch)]), 5)
    assert isinstance(cut, RowsArrow)
    assert cut.batch.column(1).to_pylist() == [sent]
    assert cut.batch.schema.types == batch.schema.types
