"""The progress of a read: its share, its text, and its way through the output of a load job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodmark.core.progress import (
    PROGRESS_PREFIX,
    ReadKind,
    ReadProgress,
    StepProgress,
    format_progress_line,
    parse_progress_line,
)
from floodmark.core.schema import TableName

LOAD = ReadProgress(TableName("dbo", "Orders"), ReadKind.FIRST_LOAD, 4, 2.0, 0, 6, 2, 3)


def test_first_load_reports_percent_rows_chunks_rate_and_time() -> None:
    assert str(LOAD) == "dbo.Orders: first load 66 %, 4 rows, 2 of 3 chunks, 2 rows/s, about 1 s left."


def test_rows_of_an_earlier_attempt_count_for_the_share_and_not_for_the_rate() -> None:
    resumed = replace(LOAD, earlier_rows=3)
    assert (resumed.percent, resumed.pace.rows_per_second) == (66, 0.5)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ReadKind.CHANGES, "dbo.Orders: 1,500 rows of changes staged, 150 rows/s."),
        (ReadKind.REPLAY, "dbo.Orders: 1,500 rows of the replay staged, 150 rows/s."),
        (ReadKind.COMPARISON, "dbo.Orders: 1,500 rows read for the comparison, 150 rows/s."),
        (ReadKind.RELOAD, "dbo.Orders: reload, 1,500 rows, 150 rows/s."),
    ],
)
def test_unknown_total_has_no_percent_and_no_time_left(kind: ReadKind, text: str) -> None:
    read = ReadProgress(LOAD.table, kind, 1_500, 10.0)
    assert (str(read), read.percent, read.rows_left) == (text, None, None)


def test_more_rows_than_expected_are_99_percent_until_the_end() -> None:
    read = replace(LOAD, rows=60)
    assert (read.percent, read.rows_left) == (99, None)
    assert replace(read, staged_chunks=3).percent == 100
    assert replace(read, is_done=True).percent == 100


def test_empty_table_is_complete_when_it_was_read() -> None:
    empty = ReadProgress(LOAD.table, ReadKind.COMPARISON, 0, 1.0, total_rows=0)
    assert (empty.percent, replace(empty, is_done=True).percent) == (None, 100)


def test_step_counts_tables_and_time_as_far_as_they_are_known() -> None:
    assert str(StepProgress("window 7: merging")) == "window 7: merging"
    assert str(StepProgress("window 7: reading", 130.0, 8, 2)) == "window 7: reading, 2 of 8 tables done, 2 min"


@pytest.mark.parametrize("progress", [LOAD, replace(LOAD, is_done=True), StepProgress("window 7: reading", 1.5, 8, 2)])
def test_progress_passes_through_a_line_unchanged(progress: ReadProgress | StepProgress) -> None:
    line = format_progress_line(progress)
    assert "\n" not in line
    assert parse_progress_line(line) == progress


@pytest.mark.parametrize("rest", ["", "{}", "{", '{"read": {}}', '{"step": {"nope": 1}}', '{"read": 5}', "[1]"])
def test_line_that_is_torn_is_no_progress(rest: str) -> None:
    assert parse_progress_line(PROGRESS_PREFIX + rest) is None


def test_other_lines_are_no_progress() -> None:
    assert parse_progress_line("dbo.Orders: 5 rows read, 5 staged.") is None
