"""The job's edges: its environment, its last line and errors out of workers."""

from __future__ import annotations

import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext

from floodmark.core.errors import CdcNotEnabledError, ConfigError, FloodmarkBugError, FloodmarkError, LoadKilledError
from floodmark.core.planning import STARTED, parse_load_result
from floodmark.core.settings import LEDGER_VARIABLE, SOURCE_VARIABLE, WAREHOUSE_VARIABLE
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.kind import find_kind
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.spark import engine, job
from floodmark.spark.stage import recover, transported_errors
from load_without_spark import no_session

ERROR = CdcNotEnabledError("dbo.Orders", 'error 208: "dbo.Orders" {ä}', "Enable it.")


def test_error_survives_the_text_of_a_traceback() -> None:
    try:
        with transported_errors():
            raise ERROR
    except RuntimeError as error:
        text = f"Traceback (most recent call last):\n  File …\nCarriedError: {error}\n\tat org.apache.spark…"
    found = recover(RuntimeError(text))
    assert type(found) is CdcNotEnabledError
    assert str(found) == str(ERROR)


def test_other_error_is_not_taken_for_ours() -> None:
    assert recover(RuntimeError("FLOODMARK is down")) is None
    with pytest.raises(KeyError), transported_errors():
        raise KeyError("x")


@pytest.mark.parametrize("value", [None, "{}", "not json", '{"host": "h", "password": "s3cret"'])
def test_job_without_a_connection_says_which_variable_and_shows_no_password(
    value: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(job.SOURCE_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(job.SOURCE_VARIABLE, value)
    assert job.main(no_session(), ["--window-id", "7"]) == 1
    output = capsys.readouterr().out
    assert output.splitlines()[0] == STARTED
    result = parse_load_result(output.splitlines()[-1])
    assert result is not None
    assert result.window_id == 7
    assert type(result.error) is ConfigError
    assert "FLOODMARK_SOURCE" in str(result.error)
    assert "s3cret" not in output


def test_job_whose_file_of_authorities_is_missing_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SqlServerConnection("db", 1433, "Shop", "cdc", "s3cret", ca_file="/not/there.pem")
    monkeypatch.setenv(SOURCE_VARIABLE, source.to_json())
    warehouse = WarehouseConnection("w", 5432, "dwh", "floodmark", "s3cret").to_json()
    monkeypatch.setenv(LEDGER_VARIABLE, warehouse)
    monkeypatch.setenv(WAREHOUSE_VARIABLE, warehouse)
    assert job.main(no_session(), ["--window-id", "7"]) == 1
    result = parse_load_result(capsys.readouterr().out.splitlines()[-1])
    assert result is not None
    assert type(result.error) is ConfigError
    assert "its ca_file /not/there.pem cannot be read: No such file" in str(result.error)


@pytest.mark.parametrize(("command", "found"), [("true", LoadKilledError), ("cat", FloodmarkBugError)])
def test_error_of_a_java_that_has_ended_is_tried_again(
    command: str, found: type[FloodmarkError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_ENDING_SECONDS", 1)
    monkeypatch.setattr(
        job, "run_load_job", lambda *_: (_ for _ in ()).throw(Py4JError("Answer from Java side is empty"))
    )
    with subprocess.Popen([command], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        error = job._result(7, no_session()).error
    assert type(error) is found


def test_engine_that_several_threads_wait_for_is_opened_once_and_its_time_counts_once() -> None:
    waiting, opened, seconds = threading.Barrier(4), [], 0.3

    def open_engine() -> Any:
        time.sleep(seconds)
        opened.append(1)

    opening = engine.OpeningEngine(open_engine)
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(lambda: (waiting.wait(), opening.get())) for _ in range(4)]:
            each.result()
    assert opened == [1]
    # Each of the four has waited for nearly all of it.
    assert opening.waited_seconds <= time.monotonic() - began


def test_engine_that_is_not_needed_is_not_opened() -> None:
    opening = engine.OpeningEngine(lambda: pytest.fail("it was opened"))
    opening.stop()
    assert opening.waited_seconds == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "/var/run/postgresql"])
def test_executors_elsewhere_cannot_reach_a_host_of_this_machine(host: str) -> None:
    with pytest.raises(ConfigError, match=r"the warehouse's connection: its host is .* another machine"):
        job._require_reachable("spark://master:7077", {"source": "db", "warehouse": host})
    job._require_reachable("spark://127.0.0.1:7077", {"warehouse": host})
    job._require_reachable("local[*]", {"warehouse": host})
    job._require_reachable("yarn", {"warehouse": "10.0.0.7"})


@pytest.mark.parametrize("kind", ["cdc", "change_tracking"])
def test_cluster_without_a_keytab_is_refused_for_a_login_by_kerberos(kind: str) -> None:
    at = SqlServerConnection("db", 1433, "Shop", "", authentication="Kerberos")
    names = find_kind(kind).load_adapters().executor_variables(at)
    conf: dict[str, str] = {}
    with pytest.raises(ConfigError, match=r"of yarn have no keytab: spark\.executorEnv\.KRB5_CLIENT_KTNAME is not set"):
        job._require_variables("yarn", names, conf.get)
    job._require_variables("local[*]", names, conf.get)
    conf["spark.executorEnv.KRB5_CLIENT_KTNAME"] = "FILE:/etc/floodmark.keytab"
    job._require_variables("yarn", names, conf.get)
    by_password = SqlServerConnection("db", 1433, "Shop", "reader")
    assert find_kind("cdc").load_adapters().executor_variables(by_password) == ()
