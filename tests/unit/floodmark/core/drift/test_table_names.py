"""One table under several spellings, and several tables whose names differ in case alone."""

from __future__ import annotations

from datetime import datetime

import pytest

from floodmark.core.position import NoPosition
from floodmark.core.schema import TableName
from floodmark.core.shapes import TableShape, is_named, known_as
from floodmark.core.snapshot import FeedIdentity
from source_snapshots import ORDERS, instance, table_seen

LOUD = TableName("DBO", "ORDERS")


def shape(name: TableName, number: int = 42) -> TableShape:
    return TableShape(name, FeedIdentity("dbo_Orders", number, datetime(2026, 5, 1, 12)), (), (), (), (), 1)


def test_table_is_known_as_the_server_calls_it_however_it_is_spelled() -> None:
    seen = table_seen(LOUD, feed=instance(ORDERS), server_name=ORDERS)
    assert known_as(seen, []) == ORDERS
    assert known_as(seen, [(ORDERS, shape(ORDERS))]) == ORDERS


def test_name_under_which_drift_is_kept_stays_when_the_server_calls_the_table_otherwise() -> None:
    seen = table_seen(ORDERS, feed=instance(LOUD, identity=shape(LOUD).identity), server_name=LOUD)
    assert known_as(seen, [(ORDERS, shape(ORDERS))]) == ORDERS


@pytest.mark.parametrize(
    ("asked", "called", "expected"),
    [
        (LOUD, None, ORDERS),  # dropped, and with it all names of it
        (LOUD, ORDERS, ORDERS),  # not captured any more
        (LOUD, LOUD, LOUD),  # another table of a case-sensitive source, which has never been captured
    ],
)
def test_table_that_is_not_captured_is_known_as_it_was(
    asked: TableName, called: TableName | None, expected: TableName
) -> None:
    seen = table_seen(asked, feed=None, oldest=NoPosition.NULL, server_name=called)
    assert known_as(seen, [(ORDERS, shape(ORDERS)), (TableName("dbo", "Items"), shape(ORDERS))]) == expected


def test_two_tables_of_a_case_sensitive_source_that_are_gone_are_known_apart() -> None:
    known = [(ORDERS, shape(ORDERS)), (LOUD, shape(LOUD, 43))]
    for asked in (ORDERS, LOUD):
        assert known_as(table_seen(asked, feed=None, oldest=NoPosition.NULL), known) == asked


def test_pipeline_means_the_table_unless_the_source_has_another_of_exactly_that_name() -> None:
    assert is_named(LOUD, ORDERS, ORDERS, {ORDERS})
    assert not is_named(LOUD, ORDERS, ORDERS, {ORDERS, LOUD})
    assert is_named(ORDERS, LOUD, ORDERS, {ORDERS})
    assert not is_named(TableName("dbo", "Order"), ORDERS, ORDERS, {ORDERS})
