"""How values travel: casts that may not lose anything, and those that cut what must be cut."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.core.plan import ValueColumn, value_columns
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import TemporalPolicy
from floodmark.core.types import Kind, WarehouseType
from floodmark.postgres.warehouse.staging import staging_type, to_staging, uuid_bytes
from floodmark.sources.sqlserver.rows import select_expressions, to_transport
from floodmark.sync.arrow import arrow_type


def _column(column: SourceColumn, temporal: TemporalPolicy = TemporalPolicy.TRUNCATE) -> ValueColumn:
    return value_columns(SourceTable(TableName("dbo", "T"), (column,), ()), temporal)[0]


def _expression(column: SourceColumn, temporal: TemporalPolicy = TemporalPolicy.TRUNCATE) -> str:
    return select_expressions(SourceTable(TableName("dbo", "T"), (column,), ()), temporal)[0]


@settings(deadline=None)
@given(st.lists(st.uuids() | st.none()), st.booleans(), st.integers(0, 3))
def test_uuid_bytes_are_those_of_the_text(values: list[UUID | None], upper: bool, skipped: int) -> None:
    texts = [value and (str(value).upper() if upper else str(value)) for value in values]
    array = pa.array([None] * skipped + texts, pa.string()).slice(skipped)
    assert uuid_bytes(array).to_pylist() == [value and value.bytes for value in values]


@pytest.mark.parametrize(
    ("column", "expression"),
    [
        (SourceColumn("A]b", "int", 1), "[A]]b]"),
        (SourceColumn("At", "datetime2", 1, scale=7), "[At]"),
        (SourceColumn("Node", "hierarchyid", 1), "CONVERT(varbinary(max), [Node]) AS [Node]"),
    ],
)
def test_column_is_selected_as_it_is_unless_the_driver_cannot_have_it(column: SourceColumn, expression: str) -> None:
    assert _expression(column) == expression


def test_temporal_column_kept_as_text_is_converted_by_the_server() -> None:
    at = SourceColumn("At", "datetimeoffset", 1, scale=7)
    column = _column(at, TemporalPolicy.TEXT)
    assert _expression(at, TemporalPolicy.TEXT) == "CONVERT(varchar(34), [At], 121) AS [At]"
    assert (arrow_type(column.type), staging_type(column.type)) == (pa.string(), pa.string())


@pytest.mark.parametrize(
    ("type_name", "policy", "expression"),
    [
        ("datetime2", TemporalPolicy.TRUNCATE, "CONVERT(varchar(34), [At], 121) AS [At]"),
        ("time", TemporalPolicy.TRUNCATE, "CONVERT(varchar(34), [At], 121) AS [At]"),
        # Two offsets of one moment are one key.
        ("datetimeoffset", TemporalPolicy.TRUNCATE, "CONVERT(varchar(34), SWITCHOFFSET([At], '+00:00'), 121) AS [At]"),
        ("datetimeoffset", TemporalPolicy.TEXT, "CONVERT(varchar(34), [At], 121) AS [At]"),
    ],
)
def test_key_with_a_seventh_digit_is_converted_by_the_server(
    type_name: str, policy: TemporalPolicy, expression: str
) -> None:
    at = SourceColumn("At", type_name, 1, scale=7)
    table = SourceTable(TableName("dbo", "T"), (at,), ("At",))
    assert select_expressions(table, policy) == (expression,)


def test_seventh_digit_of_a_time_is_cut_off_and_not_rounded() -> None:
    column = _column(SourceColumn("Clock", "time", 1, scale=7))
    driver = pa.array([86_399_999_999_900, 0, None], pa.time64("ns"))
    carried = to_transport(driver, column.type, arrow_type(column.type))
    assert carried.to_pylist() == ["23:59:59.999999", "00:00:00.000000", None]
    staged = to_staging(carried, column.type)
    assert staged.type == pa.time64("us")
    assert staged.to_pylist() == [time(23, 59, 59, 999999), time(0), None]


def test_cast_that_would_change_a_number_fails() -> None:
    kind = WarehouseType(Kind.DECIMAL, 4, 1)
    with pytest.raises(pa.ArrowInvalid):
        to_transport(pa.array([Decimal("1.25")]), kind, pa.decimal128(4, 1))
    with pytest.raises(pa.ArrowInvalid):
        to_transport(pa.array([2**31], pa.int64()), WarehouseType(Kind.INT32), pa.int32())


def test_tinyint_of_the_driver_becomes_a_smallint() -> None:
    column = _column(SourceColumn("Tiny", "tinyint", 1))
    assert to_transport(pa.array([255, None], pa.uint8()), column.type, arrow_type(column.type)).to_pylist() == [
        255,
        None,
    ]


@pytest.mark.parametrize(
    ("type_name", "keeps"), [("nvarchar", True), ("varbinary", True), ("xml", True), ("ntext", False), ("image", False)]
)
def test_column_knows_whether_a_delete_holds_its_last_value(type_name: str, keeps: bool) -> None:
    assert _column(SourceColumn("C", type_name, 1, max_length=-1)).keeps_value_on_delete is keeps
    assert not _column(SourceColumn("C", type_name, 1, max_length=-1, nullable=False)).keeps_value_on_delete
