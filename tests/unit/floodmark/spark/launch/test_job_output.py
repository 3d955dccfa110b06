"""The meaning of a load job's output and exit status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from floodmark.core.errors import FloodmarkBugError, LoadKilledError, LoadStartError, SourceLoginError
from floodmark.core.plan import TableCounts
from floodmark.core.planning import STARTED, STARTING, LoadResult, format_load_result
from floodmark.core.progress import PROGRESS_PREFIX, ReadKind, ReadProgress, StepProgress
from floodmark.core.schema import TableName
from floodmark.spark.job import PrintedProgress
from floodmark.spark.launch.command import JobOutput, start_failure
from kept_progress import KeptProgress

_NO_MODULE = [
    "Error occurred during initialization of boot layer",
    "java.lang.module.FindException: Module jdk.incubator.vector not found",
]


def job_output(*lines: str) -> JobOutput:
    """That of a job which printed these."""
    output = JobOutput()
    list(output.watch(f"{line}\n" for line in lines))
    return output


def test_output_hands_on_every_line_but_the_result() -> None:
    result = LoadResult(7, {"dbo.Orders": TableCounts(read_rows=1)})
    output = JobOutput()
    assert list(output.watch(["a\n", format_load_result(result) + "\n", "b\n"])) == ["a\n", "b\n"]
    assert output.require_result(7, 0) == result


def test_output_passes_the_progress_of_the_job_on(capsys: pytest.CaptureFixture[str]) -> None:
    read = ReadProgress(TableName("dbo", "Orders"), ReadKind.REPLAY, 5, 1.0)
    step = StepProgress("window 7: reading", 1.0, 3, 1)
    job = PrintedProgress()
    job.report(read)
    job.report_step(step)
    lines = ["a\n", *capsys.readouterr().out.splitlines(keepends=True), f"{PROGRESS_PREFIX}torn\n", "b\n"]
    kept = KeptProgress()
    assert list(JobOutput(kept).watch(lines)) == ["a\n", f"{PROGRESS_PREFIX}torn\n", "b\n"]
    assert (kept.reads, kept.steps) == ([read], [step])


def test_output_raises_what_the_job_reported() -> None:
    output = JobOutput()
    list(output.watch([format_load_result(LoadResult(7, error=SourceLoginError("source", "refused.")))]))
    with pytest.raises(SourceLoginError, match=r"source: refused\."):
        output.require_result(7, 1)


def test_output_without_a_result_is_a_killed_load_that_is_tried_again() -> None:
    with pytest.raises(
        LoadKilledError, match=r"window 7: the load ended without a result \(ended by SIGKILL\)"
    ) as caught:
        JobOutput().require_result(7, 137)
    assert caught.value.retryable
    assert caught.value.hint.startswith("Nothing is half-written")


@pytest.mark.parametrize("variable", ["TMPDIR", "SPARK_LOCAL_DIRS"])
def test_output_without_a_result_names_the_folder_that_takes_no_temporary_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "gone"))
    with pytest.raises(LoadKilledError) as caught:
        JobOutput().require_result(7, 1)
    assert f"{tmp_path / 'gone'} cannot be written to: No such file or directory." in caught.value.message
    assert "have TMPDIR name another folder" in caught.value.hint


def test_output_that_names_a_full_disk_is_reported_also_when_there_is_room_again() -> None:
    full = "ERROR DiskBlockObjectWriter: /tmp/blockmgr-d6be/15/temp_shuffle_526e, No space left on device"
    output = JobOutput()
    lines = ["a\n", f"{full}\n", "java.io.IOException: No space left on device\n"]
    assert list(output.watch(lines)) == lines
    with pytest.raises(LoadKilledError, match="its output says that a file could not be written") as caught:
        output.require_result(7, 1)
    assert caught.value.detail == f"{full} Its last lines: a | {full} | java.io.IOException: No space left on device."
    bug = FloodmarkBugError("window 7", "Py4JJavaError", "See the log of the job.", "a row")
    list(output.watch([format_load_result(LoadResult(7, error=bug))]))
    with pytest.raises(FloodmarkBugError, match=r"See the log of the job\. It needs a folder") as caught_bug:
        output.require_result(7, 1)
    assert caught_bug.value.detail == "a row"


def test_java_that_does_not_start_is_not_tried_again_and_its_last_lines_are_in_the_message() -> None:
    with pytest.raises(LoadStartError) as caught:
        job_output(*_NO_MODULE).require_result(7, 1)
    assert not caught.value.retryable
    assert caught.value.message == (
        f"Spark did not start the load (exit status 1). Its last lines: {' | '.join(_NO_MODULE)}."
    )
    assert "JAVA_HOME" in caught.value.hint


def test_job_that_never_began_and_printed_nothing_says_so() -> None:
    with pytest.raises(LoadStartError, match=r"\(exit status 127\)\. It printed nothing\."):
        JobOutput().require_result(7, 127)


def test_frames_of_java_and_its_options_are_no_last_lines() -> None:
    output = job_output(
        "Picked up JAVA_TOOL_OPTIONS: -Dstore.password=s3cret",
        'Exception in thread "main" java.lang.RuntimeException: unresolved dependency',
        "\tat org.apache.spark.util.MavenUtils$.resolve(MavenUtils.scala:539)",
        "\t... 12 more",
        "",
    )
    with pytest.raises(LoadStartError) as caught:
        output.require_result(7, 1)
    assert caught.value.message.endswith(
        'lines: Exception in thread "main" java.lang.RuntimeException: unresolved dependency.'
    )


def test_options_that_java_repeats_are_not_shown_in_a_log() -> None:
    output = JobOutput()
    lines = ["Picked up JAVA_TOOL_OPTIONS: -Dstore.password=s3cret\n", "NOTE: Picked up JDK_JAVA_OPTIONS: -Dp=s3cret\n"]
    assert list(output.watch(lines)) == ["Picked up JAVA_TOOL_OPTIONS.\n", "NOTE: Picked up JDK_JAVA_OPTIONS.\n"]


def test_only_the_last_lines_are_kept_and_long_ones_are_cut() -> None:
    with pytest.raises(LoadStartError) as caught:
        job_output("the first line", *(f"{number} " + "x" * 1000 for number in range(8))).require_result(7, 1)
    assert "the first line" not in str(caught.value)
    assert "7 xxx" in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_last_lines_of_a_job_that_had_begun_may_hold_rows_and_stay_out_of_the_message() -> None:
    output = job_output("before", STARTED, "a fatal error at row 4711")
    with pytest.raises(LoadKilledError) as caught:
        output.require_result(7, 1)
    assert caught.value.retryable
    assert "4711" not in str(caught.value)
    assert caught.value.in_full.endswith("(Its last lines: a fatal error at row 4711.)")


def test_mark_of_the_beginning_is_not_handed_on() -> None:
    output = JobOutput()
    assert list(output.watch(["a\n", f"{STARTED}\n", "b\n"])) == ["a\n", "b\n"]


_NO_SPARK = format_load_result(LoadResult(7, error=LoadStartError("Spark", "its Java did not start.")))


def test_load_whose_spark_does_not_start_is_not_tried_again_and_says_what_java_said() -> None:
    output = job_output(STARTED, "Window 7 of shop.", STARTING, *_NO_MODULE, _NO_SPARK)
    with pytest.raises(LoadStartError, match=re.escape(" | ".join(_NO_MODULE))) as caught:
        output.require_result(7, 1)
    assert "Window 7" not in caught.value.message


def test_error_after_the_start_of_spark_is_raised_as_it_was_reported() -> None:
    error = LoadStartError("the load", "Python does not start on Spark's executors.", "It needs packages.")
    output = job_output(STARTED, STARTING, STARTED, format_load_result(LoadResult(7, error=error)))
    with pytest.raises(LoadStartError, match="Python does not start"):
        output.require_result(7, 1)


@pytest.mark.parametrize("code", [-9, 137, -15, 143, 134])
def test_job_that_a_signal_ended_before_it_began_is_tried_again(code: int) -> None:
    with pytest.raises(LoadKilledError, match="ended by SIG"):
        JobOutput().require_result(7, code)


def test_exit_status_that_is_no_signals_is_not_taken_for_one() -> None:
    with pytest.raises(LoadStartError, match=r"\(exit status 255\)"):
        JobOutput().require_result(7, 255)


def test_java_that_finds_no_memory_is_tried_again() -> None:
    line = "Error occurred during initialization of VM: Could not reserve enough space for 131072KB object heap"
    with pytest.raises(LoadKilledError, match="Free memory where the load runs") as caught:
        job_output(line).require_result(7, 1)
    assert caught.value.detail == f"Its last lines: {line}."


def test_program_that_is_not_there_is_named() -> None:
    error = start_failure(7, FileNotFoundError(2, "No such file or directory", "spark3-submit"))
    assert error.message == "spark-submit cannot be run: spark3-submit: No such file or directory."
    assert not error.retryable
