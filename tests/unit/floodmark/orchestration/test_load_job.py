"""The load job as a command: what it is given, and what its output means."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.core.errors import FloodmarkBugError, LoadKilledError, SourceLoginError
from floodmark.core.load_result import LoadResult, format_load_result
from floodmark.core.window import TableCounts
from floodmark.orchestration.load_job import (
    JobOutput,
    application,
    job_environment,
    job_settings,
    submit_command,
)

SECRET = '{"password": "s3cret"}'


def test_command_names_window_and_config_and_holds_no_secret() -> None:
    command = submit_command(job_settings("local[2]"), "local[2]", 7, Path("/etc/pipelines.yaml"))
    assert command[:3] == ["spark-submit", "--master", "local[2]"]
    assert command[-5:] == [str(application()), "--window-id", "7", "--config", "/etc/pipelines.yaml"]
    assert "FLOODMARK_SOURCE" not in " ".join(command)


def test_environment_holds_both_connections_and_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    environment = job_environment(SECRET, "{}", "local[*]")
    assert environment["FLOODMARK_SOURCE"] == SECRET
    assert environment["FLOODMARK_WAREHOUSE"] == "{}"
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))


def test_environment_brings_java_where_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    environment = job_environment(SECRET, "{}", "local[*]")
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    of_spark = [java, "--add-modules=jdk.incubator.vector", "-version"]
    assert (
        subprocess.run(of_spark, env=environment | {"PATH": "/bin"}, capture_output=True, check=False).returncode == 0
    )


def test_environment_names_spark_where_nobody_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert (Path(job_environment(SECRET, "{}", "local[*]")["SPARK_HOME"]) / "bin" / "spark-class").is_file()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert job_environment(SECRET, "{}", "local[*]")["SPARK_HOME"] == "/opt/spark"


def test_settings_bind_a_local_driver_to_loopback_and_leave_a_cluster_alone() -> None:
    assert job_settings("local[*]")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in job_settings("spark://master:7077")


def test_output_hands_on_every_line_but_the_result() -> None:
    result = LoadResult(7, {"dbo.Orders": TableCounts(read_rows=1)})
    output = JobOutput()
    assert list(output.watch(["a\n", format_load_result(result) + "\n", "b\n"])) == ["a\n", "b\n"]
    assert output.require_result(7, "exit status 0") == result


def test_output_raises_what_the_job_reported() -> None:
    output = JobOutput()
    list(output.watch([format_load_result(LoadResult(7, error=SourceLoginError("source", "refused.")))]))
    with pytest.raises(SourceLoginError, match=r"source: refused\."):
        output.require_result(7, "exit status 1")


def test_output_without_a_result_is_a_killed_load_that_is_tried_again() -> None:
    with pytest.raises(LoadKilledError, match="window 7: the load ended without a result") as caught:
        JobOutput().require_result(7, "exit status 137")
    assert caught.value.retryable
    assert caught.value.hint.startswith("Nothing is half-written")


@pytest.mark.parametrize("variable", ["TMPDIR", "SPARK_LOCAL_DIRS"])
def test_output_without_a_result_names_the_folder_that_takes_no_temporary_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "gone"))
    with pytest.raises(LoadKilledError) as caught:
        JobOutput().require_result(7, "exit status 1")
    assert f"{tmp_path / 'gone'} cannot be written to: No such file or directory." in caught.value.message
    assert "have TMPDIR name another folder" in caught.value.hint


def test_output_that_tells_of_a_full_disk_is_told_of_also_when_there_is_room_again() -> None:
    full = "ERROR DiskBlockObjectWriter: /tmp/blockmgr-d6be/15/temp_shuffle_526e, No space left on device"
    output = JobOutput()
    lines = ["a\n", f"{full}\n", "java.io.IOException: No space left on device\n"]
    assert list(output.watch(lines)) == lines
    with pytest.raises(LoadKilledError, match="its output says that a file could not be written") as caught:
        output.require_result(7, "exit status 1")
    assert caught.value.detail == full
    bug = FloodmarkBugError("window 7", "Py4JJavaError", "See the log of the job.", "a row")
    list(output.watch([format_load_result(LoadResult(7, error=bug))]))
    with pytest.raises(FloodmarkBugError, match=r"See the log of the job\. It needs a folder") as caught_bug:
        output.require_result(7, "exit status 1")
    assert caught_bug.value.detail == "a row"


def test_java_keeps_its_temporary_files_where_everything_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.delenv("TMPDIR", raising=False)
    assert "SPARK_SUBMIT_OPTS" not in job_environment(SECRET, "{}", "local[*]")
    monkeypatch.setenv("TMPDIR", "/data/my tmp")
    assert job_environment(SECRET, "{}", "local[*]")["SPARK_SUBMIT_OPTS"] == '"-Djava.io.tmpdir=/data/my tmp"'
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Djava.io.tmpdir=/other")
    assert "SPARK_SUBMIT_OPTS" not in job_environment(SECRET, "{}", "local[*]")
