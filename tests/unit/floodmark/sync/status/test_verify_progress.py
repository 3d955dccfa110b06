from __future__ import annotations

import logging
import re

import pyarrow as pa
import pytest

from floodmark.core.schema import TableName
from floodmark.sync.ports import LoggedProgress
from floodmark.sync.verify import rows_reported
from kept_progress import KeptProgress

ORDERS = TableName("dbo", "Orders")
BATCHES = [pa.RecordBatch.from_pydict({"Id": list(range(1_500))}) for _ in range(2)]


def test_rows_are_counted_in_the_log_and_pass_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert list(rows_reported(ORDERS, BATCHES, None, LoggedProgress(every_seconds=0))) == BATCHES
    first, second = caplog.messages
    assert re.fullmatch(r"dbo\.Orders: 1,500 rows read for the comparison, [\d,]+ rows/s\.", first)
    assert second.startswith("dbo.Orders: 3,000 rows read")


def test_log_has_percent_and_time_left_where_the_total_is_known(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert list(rows_reported(ORDERS, BATCHES, 6_000, LoggedProgress(every_seconds=0))) == BATCHES
    pace = r", [\d,]+ rows/s, about \d+ s left\."
    assert re.fullmatch(rf"dbo\.Orders: 25 %, 1,500 rows read for the comparison{pace}", caplog.messages[0])
    assert caplog.messages[1].startswith("dbo.Orders: 50 %, 3,000 rows read")


def test_short_comparison_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert list(rows_reported(ORDERS, BATCHES, 3_000, LoggedProgress())) == BATCHES
    assert caplog.messages == []


def test_end_of_the_read_is_reported_before_the_warehouse_compares() -> None:
    kept = KeptProgress()
    list(rows_reported(ORDERS, BATCHES, 9_000, kept))
    assert [(read.rows, read.percent, read.is_done) for read in kept.reads] == [
        (1_500, 16, False),
        (3_000, 33, False),
        (3_000, 100, True),
    ]
    assert [str(step) for step in kept.steps] == ["comparing dbo.Orders"]
