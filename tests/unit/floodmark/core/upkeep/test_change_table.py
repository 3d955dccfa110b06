"""The sizes of change tables: whose they are, in words, and beyond which limit the operator is notified."""

from __future__ import annotations

import pytest

from floodmark.core.alerts import change_tables_large
from floodmark.core.schema import TableName
from floodmark.core.upkeep import ChangeTableSize, format_bytes, largest_first, sizes_of, total

ORDERS = TableName("dbo", "Orders")


def size(instance: str, size_bytes: int | None = 0, table: TableName = ORDERS) -> ChangeTableSize:
    return ChangeTableSize(instance, table, 1, size_bytes)


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (8192, "8.0 KiB"), (5 << 29, "2.5 GiB"), (3 << 50, "3072.0 TiB")],
)
def test_bytes_are_formatted_in_powers_of_1024(size_bytes: int | None, words: str) -> None:
    assert format_bytes(size_bytes) == words


def test_table_of_exactly_that_name_comes_before_one_that_differs_in_case() -> None:
    shouting = size("dbo_ORDERS", table=TableName("dbo", "ORDERS"))
    mine = (size("dbo_Orders_2"), size("dbo_Orders"))
    assert sizes_of(ORDERS, (shouting, *mine)) == (mine[1], mine[0])
    assert sizes_of(ORDERS, (shouting,)) == (shouting,)
    assert sizes_of(TableName("dbo", "Items"), (shouting, *mine)) == ()


def test_sum_of_what_is_not_all_known_is_not_known() -> None:
    assert (total([1, 2]), total([1, None]), total([])) == (3, None, None)


def test_alert_names_the_largest_change_tables_first() -> None:
    large = [size(f"dbo_T{number}", number << 30) for number in (2, 5, 3, 4)]
    alert = change_tables_large("shop", large, 1 << 30)
    assert [each.instance for each in largest_first(large)] == ["dbo_T5", "dbo_T4", "dbo_T3", "dbo_T2"]
    assert alert.what == (
        "Change tables are larger than 1.0 GiB: that of dbo_T5 has 1 rows, 5.0 GiB, that of dbo_T4 has 1 rows, 4.0 GiB,"
        " that of dbo_T3 has 1 rows, 3.0 GiB, and 1 more are too large."
    )
