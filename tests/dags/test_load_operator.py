"""The operator around spark-submit: what it does with the job's last word, and with its silence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from floodmark.core.errors import DataQualityError, SourceUnavailableError
from floodmark.core.plan import TableCounts
from floodmark.core.planning import LoadResult, format_load_result
from floodmark.orchestration.load_operator import LoadHook, LoadWindow
from floodmark.spark.launch.command import application

MERGED = format_load_result(LoadResult(7, {"dbo.Orders": TableCounts(read_rows=3, inserted_rows=2)}))


class FakeLedger:
    """Says of a window, question after question, whether it is merged."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)

    def is_merged(self, window_id: int) -> bool:
        assert window_id == 7
        return self.answers.pop(0)


def operator(ledger: FakeLedger) -> LoadWindow:
    return LoadWindow(
        task_id="load",
        config=Path("/etc/pipelines.yaml"),
        window_id="7",
        read_secrets=lambda: {"FLOODMARK_SOURCE": '{"password": "s3cret"}'},
        is_merged=ledger.is_merged,
        lineage=lambda window_id: pytest.fail("no lineage was asked for"),
    )


def let_the_job_say(monkeypatch: pytest.MonkeyPatch, lines: Iterable[str], exit_code: int = 0) -> None:
    """In place of a real spark-submit; the provider turns its exit code into an exception like this one."""

    def submit(hook: SparkSubmitHook, application: str = "", **arguments: object) -> None:
        assert application.endswith("load_window.py")
        hook._submit_sp = SimpleNamespace(returncode=exit_code)
        hook._process_spark_submit_log(iter([f"{line}\n" for line in lines]))
        if exit_code:
            raise AirflowException(f"Cannot execute: spark-submit. Error code is: {exit_code}.\nLast output: …")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)


def execute(load: LoadWindow) -> None:
    # Unwrapped: Airflow refuses to run an operator outside of a task.
    LoadWindow.execute.__wrapped__(load, {})


def test_load_of_a_merged_window_starts_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSubmitHook, "submit", lambda *_, **__: pytest.fail("Spark was started"))
    execute(operator(FakeLedger(True)))


def test_load_ends_well_when_job_and_ledger_say_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_job_say(monkeypatch, ["Window 7 is merged.", MERGED])
    ledger = FakeLedger(False, True)
    execute(operator(ledger))
    assert ledger.answers == []


def test_load_does_not_take_the_job_s_word_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_job_say(monkeypatch, [MERGED])
    with pytest.raises(AirflowFailException, match="the ledger does not mark it as merged"):
        execute(operator(FakeLedger(False, False)))


def test_load_is_tried_again_for_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    error = SourceUnavailableError("dbo.Orders", "the source cut the connection.")
    let_the_job_say(monkeypatch, [format_load_result(LoadResult(7, error=error))], exit_code=1)
    with pytest.raises(AirflowException, match="cut the connection") as caught:
        execute(operator(FakeLedger(False)))
    assert not isinstance(caught.value, AirflowFailException)


def test_load_is_not_tried_again_for_broken_data(monkeypatch: pytest.MonkeyPatch) -> None:
    error = DataQualityError("dbo.Orders", "rule positive is broken by 3 rows.")
    let_the_job_say(monkeypatch, [format_load_result(LoadResult(7, error=error))], exit_code=1)
    with pytest.raises(AirflowFailException, match="rule positive is broken"):
        execute(operator(FakeLedger(False)))


def test_load_that_was_killed_is_tried_again_and_says_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_job_say(monkeypatch, ["Window 7 of shop"], exit_code=137)
    with pytest.raises(AirflowException, match=r"ended without a result \(ended by SIGKILL\)") as caught:
        execute(operator(FakeLedger(False)))
    assert not isinstance(caught.value, AirflowFailException)
    assert "Last output" not in str(caught.value)


def test_load_whose_java_does_not_start_is_not_tried_again_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_job_say(monkeypatch, ["Unrecognized VM option 'UseNothing'"], exit_code=1)
    with pytest.raises(AirflowFailException, match="Its last lines: Unrecognized VM option 'UseNothing'"):
        execute(operator(FakeLedger(False)))


def test_load_whose_spark_submit_is_not_there_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = '{"conn_type": "spark", "host": "local[*]", "extra": {"spark-binary": "spark3-submit"}}'
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)
    with pytest.raises(AirflowFailException, match="spark-submit cannot be run: spark3-submit: No such file"):
        execute(operator(FakeLedger(False)))


def test_load_whose_output_is_not_utf_8_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "spark3-submit"
    program.write_text(f"#!/bin/sh\nprintf '\\377\\n%s\\n' '{MERGED}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    spark = '{"conn_type": "spark", "host": "local[*]", "extra": {"spark-binary": "spark3-submit"}}'
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)
    ledger = FakeLedger(False, True)
    load = operator(ledger)
    execute(load)
    load._hook._submit_sp.stdout.close()  # the provider leaves it open
    assert ledger.answers == []


def test_load_with_a_spark_connection_that_the_provider_refuses_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = '{"conn_type": "spark", "host": "local[*]", "extra": {"spark-home": "/opt/spark"}}'
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)
    with pytest.raises(AirflowFailException, match="connection spark_default: The `spark-home` extra is not allowed"):
        execute(operator(FakeLedger(False)))


_SERVER = '{"conn_type": "spark_connect", "host": "localhost", "port": 15002, "password": "t0ken"}'


def test_load_through_a_server_starts_python_and_keeps_the_token_off_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", _SERVER)
    hook = LoadHook({"FLOODMARK_SOURCE": "{}"}, application_args=["--window-id", "7"])
    command = hook._build_spark_submit_command("unused.py")
    assert command == [sys.executable, str(application()), "--window-id", "7"]
    remote = "sc://localhost:15002/;use_ssl=false;token=t0ken"
    assert hook._env == {"FLOODMARK_SOURCE": "{}", "FLOODMARK_SPARK_REMOTE": remote}


def test_load_through_a_server_has_time_to_interrupt_it_when_it_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", _SERVER)
    hook = LoadHook({})
    interrupted = tmp_path / "interrupted"
    program = f"trap 'sleep 0.3; touch {interrupted}; exit 143' TERM; echo ready; while :; do sleep 0.05; done"
    hook._submit_sp = subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE, process_group=0)
    with hook._submit_sp as job:
        assert job.stdout is not None
        job.stdout.readline()
        hook.on_kill()
    assert hook.exit_code == 143
    assert interrupted.exists()


def test_load_through_a_server_with_properties_for_spark_submit_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = '{"conn_type": "spark", "host": "sc://h", "extra": {"conf": {"spark.executor.memory": "2g"}}}'
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)
    with pytest.raises(AirflowFailException, match="its extra conf is for spark-submit"):
        execute(operator(FakeLedger(False)))
