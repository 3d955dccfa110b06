"""Lag and headroom of tables, as alerts and metrics have them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from floodmark.core.progress import SourceProgress, Unread
from floodmark.core.snapshot import Verdict
from floodmark.core.status import TableMark, TableMeasure, measure_tables
from floodmark.core.upkeep import ChangeTableSize
from lsns import lsn
from source_snapshots import ITEMS, NOON, ORDERS, snapshot

AN_HOUR_AGO = NOON - timedelta(hours=1)


def mark(verdict: Verdict | None, watermark: int = 50) -> TableMark:
    return TableMark(ORDERS, lsn(watermark), AN_HOUR_AGO, verdict)


def test_each_table_has_its_lag_and_what_is_left_of_the_retention() -> None:
    new = TableMark(ITEMS, None, None, Verdict.NOT_STARTED)
    measured = measure_tables([mark(Verdict.READY), new], snapshot(newest=100), SourceProgress({}, 90))
    assert measured == (TableMeasure(ORDERS, 3600.0, 1800.0), TableMeasure(ITEMS, None, None))


@pytest.mark.parametrize(
    ("verdict", "lag"),
    [(Verdict.CAUGHT_UP, 0.0), (Verdict.CAPTURE_STOPPED, 3600.0), (Verdict.CAPTURE_LAGGING, 3600.0), (None, 0.0)],
)
def test_source_without_news_is_no_proof_while_capture_brings_nothing(verdict: Verdict | None, lag: float) -> None:
    (measured,) = measure_tables([mark(verdict, watermark=100)], snapshot(newest=100), SourceProgress({}, None))
    assert measured == TableMeasure(ORDERS, lag, None)


def test_lag_of_a_table_that_capture_brings_nothing_for_is_no_hour_longer_when_summer_time_begins() -> None:
    facts = replace(snapshot(newest=100), clock_ahead_seconds=3600.0)
    (measured,) = measure_tables([mark(Verdict.CAPTURE_LAGGING, watermark=100)], facts, SourceProgress({}, None))
    assert measured.lag_seconds == 0.0


def test_changes_of_a_table_take_the_room_of_all_its_instances() -> None:
    sizes = (
        ChangeTableSize("dbo_Orders", ORDERS, 5, 8192),
        ChangeTableSize("dbo_Orders_2", ORDERS, 2, 16384),
        ChangeTableSize("dbo_Items", ITEMS, 1, None),
    )
    progress = SourceProgress({}, None, sizes)
    items = TableMark(ITEMS, None, None, None)
    measured = measure_tables([mark(None, watermark=100), items], snapshot(newest=100), progress)
    assert [(each.change_rows, each.change_bytes) for each in measured] == [(7, 24576), (1, None)]


def test_lag_of_a_table_that_is_read_from_a_stream_is_the_age_of_its_oldest_unread_message() -> None:
    progress = SourceProgress({}, None, unread={ORDERS: Unread(7, 90.0)})
    (measured,) = measure_tables([mark(None, watermark=50)], snapshot(newest=100), progress)
    assert (measured.lag_seconds, measured.unread_messages) == (90.0, 7)
