import dataclasses

from change_histories import histories_plan
from floodmark.core.plan import LoadKind, WindowPlan, staging_prefix, staging_table
from floodmark.core.position import Lsn
from floodmark.core.schema import (
    IDENTIFIER_MAX_BYTES,
    MAX_LENGTH,
    SourceColumn,
    SourceTable,
    TableName,
    keep_column,
    optional_columns,
    quote_table,
)


def two_attempts(kind: LoadKind) -> list[WindowPlan]:
    planned = dataclasses.replace(histories_plan(), kind=kind)
    return [WindowPlan(7, "shop", Lsn.parse("0x" + "01" * 10), (planned,), attempt) for attempt in (1, 2)]


def test_staging_of_a_first_load_is_the_same_in_every_attempt_and_place_of_the_plan() -> None:
    first, second = two_attempts(LoadKind.FIRST_LOAD)
    behind_another = dataclasses.replace(second, tables=(*two_attempts(LoadKind.CHANGES)[0].tables, *second.tables))
    assert staging_table(first, 0) == staging_table(second, 0) == staging_table(behind_another, 1)
    assert staging_table(first, 0).name.startswith(staging_prefix(7))


def test_staging_table_of_changes_differs_between_attempts() -> None:
    first, second = two_attempts(LoadKind.CHANGES)
    assert str(staging_table(first, 0)).startswith("floodmark_staging.w7_1_")
    assert staging_table(first, 0) != staging_table(second, 0)
    assert staging_table(first, 0).name.startswith(staging_prefix(7))


def test_keep_columns_of_long_names_stay_distinct_and_fit_an_identifier() -> None:
    long_names = ["ü" * 100 + "a", "ü" * 100 + "b"]
    kept = [keep_column(name) for name in long_names]
    assert len(set(kept)) == 2
    assert all(len(name.encode()) <= IDENTIFIER_MAX_BYTES for name in kept)
    assert keep_column("Notes") == "__keep_Notes"


def test_lob_columns_are_the_stored_ones_a_change_row_may_leave_out() -> None:
    columns = (
        SourceColumn("Id", "int", 1),
        SourceColumn("Notes", "nvarchar", 2, MAX_LENGTH),
        SourceColumn("Name", "nvarchar", 3, 50),
        SourceColumn("Upper", "nvarchar", 4, MAX_LENGTH, is_computed=True),
        SourceColumn("Doc", "xml", 5),
    )
    assert optional_columns(SourceTable(TableName("dbo", "T"), columns, ("Id",))) == ("Notes", "Doc")


def test_quoted_table_keeps_quotes_and_dots_of_a_name() -> None:
    assert quote_table(TableName("a.b", 'c"d')) == '"a.b"."c""d"'
