"""The measures of a plan, from a snapshot and the ledger's states."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from floodmark.core.planning import measure_plan
from floodmark.core.position import NoPosition
from floodmark.core.schema import TableName
from floodmark.core.snapshot import SourceSnapshot, TableSnapshot, TableState
from lsns import lsn

NOON = datetime(2026, 5, 1, 12)
ORDERS, LINES, NEW = (TableName("dbo", name) for name in ("Orders", "Lines", "New"))
SNAPSHOT = SourceSnapshot(
    database="Shop",
    cdc_enabled=True,
    newest=lsn(9),
    newest_at=NOON - timedelta(seconds=40),
    taken_at=NOON,
    seconds_behind=40.0,
    capture_running=True,
    tables=(
        TableSnapshot(ORDERS, True, None, lsn(1), oldest_at=NOON - timedelta(days=3)),
        TableSnapshot(LINES, True, None, NoPosition.NULL),
        TableSnapshot(NEW, True, None, lsn(1), oldest_at=NOON - timedelta(days=3)),
    ),
)


def state(table: TableName, hours_ago: float) -> TableState:
    return TableState(table, lsn(5), None, True, NOON - timedelta(hours=hours_ago))


STATES = {ORDERS: state(ORDERS, 2), LINES: state(LINES, 2)}


def test_margin_is_known_where_both_ends_have_a_time() -> None:
    measures = measure_plan(SNAPSHOT, STATES)
    assert (measures.lag_seconds, dict(measures.margin_seconds)) == (40.0, {ORDERS: 70 * 3600.0})
    assert not measure_plan(SNAPSHOT).margin_seconds


def test_margin_is_not_negative() -> None:
    assert measure_plan(SNAPSHOT, {ORDERS: state(ORDERS, 100)}).margin_seconds == {ORDERS: 0.0}


@pytest.mark.parametrize(("synchronous", "lag"), [(True, 0.0), (False, None)])
def test_end_of_a_source_without_a_capture_job_is_as_new_as_its_snapshot(synchronous: bool, lag: float | None) -> None:
    snapshot = replace(SNAPSHOT, seconds_behind=None, is_synchronous=synchronous)
    assert measure_plan(snapshot).lag_seconds == lag
