"""Progress as lines of the log: every ten seconds, where something has changed."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from floodmark.core.progress import ReadKind, ReadProgress, StepProgress
from floodmark.core.schema import TableName
from floodmark.sync.ports import LoggedProgress

REPLAY = ReadProgress(TableName("dbo", "Orders"), ReadKind.REPLAY, 0, 0.0)
ITEMS = replace(REPLAY, table=TableName("dbo", "Items"))


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_table_has_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    progress = LoggedProgress()
    for second in range(1, 36):
        progress.report(replace(REPLAY, rows=100 * second, seconds=float(second)))
    assert caplog.messages == [
        "dbo.Orders: 1,000 rows of the replay staged, 100 rows/s.",
        "dbo.Orders: 2,000 rows of the replay staged, 100 rows/s.",
        "dbo.Orders: 3,000 rows of the replay staged, 100 rows/s.",
    ]


def test_each_table_has_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    progress = LoggedProgress()
    progress.report(replace(REPLAY, rows=5, seconds=10.0))
    progress.report(replace(ITEMS, rows=7, seconds=10.0))
    assert [line.split(":")[0] for line in caplog.messages] == ["dbo.Orders", "dbo.Items"]


def test_table_that_has_not_changed_has_no_further_line(caplog: pytest.LogCaptureFixture) -> None:
    progress = LoggedProgress()
    for seconds in (10.0, 20.0, 30.0):
        progress.report(replace(REPLAY, rows=5, seconds=seconds))
    assert len(caplog.messages) == 1


def test_finished_read_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    LoggedProgress().report(replace(REPLAY, rows=5, seconds=60.0, is_done=True))
    assert caplog.messages == []


def test_step_has_a_line_while_no_table_has_one(caplog: pytest.LogCaptureFixture) -> None:
    progress = LoggedProgress()
    progress.report_step(StepProgress("window 7: reading"))
    progress.report_step(StepProgress("window 7: reading", 10.0, 8, 2))
    progress.report(replace(REPLAY, rows=5, seconds=20.0))
    progress.report_step(StepProgress("window 7: reading", 20.0, 8, 2))
    progress.report_step(StepProgress("window 7: reading", 30.0, 8, 2))
    assert caplog.messages == [
        "Window 7: reading, 2 of 8 tables done, 10 s.",
        "dbo.Orders: 5 rows of the replay staged, 0 rows/s.",
        "Window 7: reading, 2 of 8 tables done, 30 s.",
    ]
