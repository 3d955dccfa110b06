"""The line with which a load job ends."""

import pytest

from floodmark.core.errors import FloodmarkBugError, SourceUnavailableError
from floodmark.core.plan import TableCounts
from floodmark.core.planning import LoadResult, format_load_result, parse_load_result


def test_result_of_a_merged_window_reads_back() -> None:
    result = LoadResult(7, {"dbo.Orders": TableCounts(read_rows=3, staged_rows=2, inserted_rows=2)})
    assert parse_load_result(format_load_result(result)) == result


def test_result_of_a_failed_load_brings_the_error_back_with_its_class() -> None:
    error = SourceUnavailableError("dbo.Orders", "the source cut the connection.", "It is tried again.")
    read = parse_load_result(format_load_result(LoadResult(7, error=error)))
    assert read is not None
    assert type(read.error) is SourceUnavailableError
    assert str(read.error) == str(error)


def test_words_that_may_hold_values_stay_apart_from_the_message_on_their_way() -> None:
    error = FloodmarkBugError("dbo.Orders", "the source answered with error 245.", "Report it.", "varchar value '4711'")
    read = parse_load_result(format_load_result(LoadResult(7, error=error)))
    assert read is not None
    assert read.error is not None
    assert "4711" not in str(read.error)
    assert read.error.in_full == "dbo.Orders: the source answered with error 245. Report it. (varchar value '4711')"


def test_result_with_an_unknown_error_is_a_bug_that_names_it() -> None:
    line = 'FLOODMARK_RESULT {"window_id": 1, "error": {"type": "str", "subject": "a", "message": "b", "hint": ""}}'
    read = parse_load_result(line)
    assert read is not None
    assert isinstance(read.error, FloodmarkBugError)
    assert "str: b" in str(read.error)


def test_any_other_line_is_no_result() -> None:
    assert parse_load_result("26/11/21 08:00:00 INFO SparkContext: Running Spark") is None


def test_a_broken_result_raises() -> None:
    with pytest.raises(FloodmarkBugError, match="could not be read"):
        parse_load_result("FLOODMARK_RESULT {")
