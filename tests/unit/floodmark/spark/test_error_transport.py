from __future__ import annotations

import pytest

from floodmark.core.errors import LoadKilledError, LoadStartError, SourceUnavailableError
from floodmark.core.planning import LoadResult, format_load_result
from floodmark.spark.stage import recover

_KILLED_WORKER = """An error occurred while calling o158.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 9.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 9.0 (TID 13) (localhost executor driver): org.apache.spark.SparkException: Python \
worker exited unexpectedly (crashed). Consider setting 'spark.python.worker.faulthandler.enabled' config
Caused by: java.io.EOFException"""
_LOST_EXECUTOR = (
    "Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent failure: Lost task 1.3 in stage "
    "0.0 (TID 5) (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running tasks)"
)


@pytest.mark.parametrize("text", [_KILLED_WORKER, _LOST_EXECUTOR], ids=["worker", "executor"])
def test_death_of_a_process_of_spark_is_reported_in_one_sentence_and_is_tried_again(text: str) -> None:
    found = recover(RuntimeError(text))
    assert isinstance(found, LoadKilledError)
    assert found.retryable
    assert "java" not in str(found)


_NO_SERVER = "status = StatusCode.UNAVAILABLE details = failed to connect to all addresses; Failed to connect to remote"
_NEW_SERVER = "[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND on the server but responses were received"


@pytest.mark.parametrize("text", [_NO_SERVER, _NEW_SERVER])
def test_server_that_ended_is_tried_again(text: str) -> None:
    found = recover(RuntimeError(text))
    assert isinstance(found, LoadKilledError)
    assert "Spark Connect server ended" in found.message
    assert found.detail == text


_NO_MASTER = "All masters are unresponsive! Giving up."
_STOPPED = "Job 3 cancelled because SparkContext was shut down"


@pytest.mark.parametrize("text", [_NO_MASTER, _STOPPED])
def test_cluster_that_has_gone_is_tried_again(text: str) -> None:
    found = recover(RuntimeError(text))
    assert isinstance(found, LoadKilledError)
    assert "cluster" in found.message
    assert text not in str(found)
    assert found.detail == text


_NO_PACKAGE = """Job aborted due to stage failure: Lost task 0.1 in stage 0.0 (TID 2) (10.0.0.7 executor 1): org.\
apache.spark.SparkException: \nError from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
  ModuleNotFoundError: No module named 'pyarrow'
PYTHONPATH was:
  /opt/spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from the daemon's stdout."""
_NO_PYTHON = (
    'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or directory\n\tat java'
)
_OTHER_PYTHON = (
    "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than "
    "that in driver: 3.11, PySpark cannot run with different minor versions.\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (_NO_PACKAGE, "executors: ModuleNotFoundError: No module named 'pyarrow'."),
        (_NO_PYTHON, 'executors: Cannot run program "./environment/bin/python".'),
        (_OTHER_PYTHON, "executors: Python in worker has different version: 3.12 than"),
    ],
    ids=["package", "program", "version"],
)
def test_python_that_does_not_start_on_executors_is_reported_with_its_own_words(text: str, cause: str) -> None:
    found = recover(RuntimeError(text))
    assert isinstance(found, LoadStartError)
    assert not found.retryable
    assert cause in found.message
    assert "docs/cluster.md" in found.hint


@pytest.mark.parametrize(
    ("module", "lacks", "hint"),
    [
        ("compact_tracking", "compact-tracking", "pip install 'floodmark[edge]'"),
        ("azure.identity", "azure", "pip install 'floodmark[entra]'"),
        ("pyarrow", "pyarrow", "docs/cluster.md"),
    ],
)
def test_executors_that_lack_a_package_are_reported_with_its_extra(module: str, lacks: str, hint: str) -> None:
    text = (
        "pyspark.serializers.SerializationError: Caused by Traceback (most recent call last):\n"
        f'  File "reader.py", line 19, in <module>\nModuleNotFoundError: No module named {module!r}\n'
    )
    found = recover(RuntimeError(text))
    assert isinstance(found, LoadStartError)
    assert found.message == f"Spark's executors lack the package {lacks}."
    assert hint in found.hint
    assert found.detail == text


def test_error_that_a_worker_raised_comes_before_the_death_of_another() -> None:
    raised = SourceUnavailableError("dbo.Orders", "the source is gone.")
    transported_errors = format_load_result(LoadResult(0, error=raised))
    assert isinstance(recover(RuntimeError(f"{transported_errors}\n{_KILLED_WORKER}")), SourceUnavailableError)


def test_any_other_failure_of_spark_is_not_ours_to_explain() -> None:
    assert recover(RuntimeError("org.apache.spark.SparkException: something else")) is None
