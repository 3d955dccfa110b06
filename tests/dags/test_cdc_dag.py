"""The DAG of a pipeline: its tasks, their order, how often and how it is tried, and what it reports to consumers."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.config.models import Config
from floodmark.core.errors import ConfigError, SourceLoginError, SourceUnavailableError
from floodmark.orchestration.dags.pipelines import build_dag, build_dags
from floodmark.orchestration.load_operator import LoadHook, LoadWindow
from floodmark.orchestration.tasks import explained

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: "*/5 * * * *"
    deletes: hard
    tables:
      - source: dbo.Orders
        target: shop.orders
        rules: [{name: amount_not_negative, sql: "Amount >= 0 OR Status = 'a|b'", on_failure: warn}]
      - {source: dbo.Order Lines, target: shop.order lines}
  quiet: {source: shop, tables: [{source: dbo.Orders, target: other.orders}]}
"""


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def config(config_file: Path) -> Config:
    return load_config(config_file)


@pytest.fixture(scope="module")
def dag(config: Config, config_file: Path) -> DAG:
    return build_dag(App(config).pipeline("shop"), config_file)


def test_dag_runs_its_tasks_one_after_the_other(dag: DAG) -> None:
    order = [task.task_id for task in dag.topological_sort() if task.task_id != "follow_up"]
    assert order == ["open_window", "load", "check", "advance", "report_gaps"]
    assert dag.get_task("load").downstream_task_ids == {"check"}
    assert dag.get_task("advance").upstream_task_ids == {"open_window", "check"}


def test_loads_and_drift_do_not_wait_for_the_window_and_its_failure_does_not_keep_them_back(dag: DAG) -> None:
    follow_up = dag.get_task("follow_up")
    assert (follow_up.upstream_task_ids, follow_up.trigger_rule) == ({"open_window"}, "all_done")
    assert follow_up.downstream_task_ids == {"report_gaps"}
    # The state of the run, and of what follows a group of Floodmark, is that of its only last task.
    assert [task.task_id for task in dag.leaves] == ["report_gaps"]


def test_pipeline_that_repairs_every_gap_still_reports_tables_that_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG.replace("deletes: hard", "on_gap: repair"), encoding="utf-8")
    dag = build_dag(App(load_config(path)).pipeline("shop"), path)
    assert "report_gaps" in dag.task_ids


def test_dag_never_runs_twice_at_once_and_makes_up_for_nothing(dag: DAG) -> None:
    assert dag.max_active_runs == 1
    assert not dag.catchup


def test_schedule_covers_intervals_that_are_not_empty(dag: DAG) -> None:
    assert type(dag.timetable).__name__ == "CronDataIntervalTimetable"


def test_a_pipeline_without_a_schedule_runs_on_demand(config: Config, config_file: Path) -> None:
    assert build_dag(App(config).pipeline("quiet"), config_file).schedule is None


def test_every_pipeline_gets_its_dag(config: Config, config_file: Path) -> None:
    assert sorted(build_dags(App(config), config_file)) == ["cdc_quiet", "cdc_shop"]


def test_tasks_are_retried_with_growing_pauses(dag: DAG) -> None:
    for task in dag.tasks:
        assert task.retries == 3
        assert task.retry_delay >= timedelta(seconds=10)
        assert task.retry_exponential_backoff > 1


def test_advance_has_one_asset_per_target(dag: DAG) -> None:
    outlets = dag.get_task("advance").outlets
    assert [asset.uri for asset in outlets if isinstance(asset, Asset)] == [
        "floodmark://shop/shop/orders",
        "floodmark://shop/shop/order%20lines",
    ]
    assert dag.get_task("open_window").outlets == []


def test_tables_of_a_pattern_have_an_alias_and_ask_no_server(tmp_path: Path) -> None:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG + "  all: {source: shop, tables: [{source: dbo.*, target: all.*}]}\n", encoding="utf-8")
    dag = build_dag(App(load_config(path)).pipeline("all"), path)
    assert [outlet.name for outlet in dag.get_task("advance").outlets] == ["floodmark.all"]
    assert "| dbo.* | all.* |" in (dag.doc_md or "")


@pytest.mark.parametrize(
    ("kind", "style", "rows"),
    [
        ("cdc", "log", "rows of the log | none: it has every change"),
        ("cdc", "history", "versions | one of a key for each commit"),
        ("cdc", "snapshot", "the rows of the newest read | none: the table is read again"),
        ("change_tracking", "log", "rows of the log | one of a key for each window"),
        ("change_tracking", "history", "versions | one of a key for each window"),
        ("event_stream, stream_conn_id: bus", "log", "rows of the log | none: it has every change"),
        ("event_stream, stream_conn_id: bus", "history", "versions | one of a key for each event"),
    ],
)
def test_page_of_the_dag_says_what_a_style_does_with_changes(tmp_path: Path, kind: str, style: str, rows: str) -> None:
    path = tmp_path / "pipelines.yaml"
    table = f"  kept: {{source: own, tables: [{{source: dbo.Orders, target: kept.orders, style: {style}}}]}}\n"
    own = f"sources: {{own: {{conn_id: own_mssql, kind: {kind}}}, "
    path.write_text(CONFIG.replace("sources: {", own) + table, encoding="utf-8")
    page = build_dag(App(load_config(path)).pipeline("kept"), path).doc_md or ""
    assert f"| dbo.Orders | kept.orders | {rows} |  |" in page


def test_load_is_called_with_window_and_config_and_nothing_else(dag: DAG, config_file: Path) -> None:
    load = dag.get_task("load")
    assert isinstance(load, LoadWindow)
    assert load.application.endswith("spark_jobs/load_window.py")
    window = "{{ ti.xcom_pull(task_ids='open_window') }}"
    assert load.application_args == ["--window-id", window, "--config", str(config_file)]
    assert load.env_vars is None


def test_page_of_the_dag_shows_tables_targets_and_decisions(dag: DAG) -> None:
    page = str(dag.doc_md)
    assert "| dbo.Orders | shop.orders | removed, with a tombstone | by spark |" in page
    assert "amount_not_negative: `Amount >= 0 OR Status = 'a\\|b'`, else warn" in page


@pytest.fixture
def spark_on_yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "client"}}'
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)


def test_secrets_stay_off_the_command_line_on_every_master(spark_on_yarn: None) -> None:
    hook = LoadHook({"FLOODMARK_SOURCE": '{"password": "s3cret"}'}, application_args=["--window-id", "7"])
    command = hook._build_spark_submit_command("job.py")
    assert command == [sys.executable, "job.py", "--window-id", "7"]
    assert "--master yarn " in hook._env["PYSPARK_SUBMIT_ARGS"]
    assert "s3cret" not in hook._env["PYSPARK_SUBMIT_ARGS"]
    assert hook._env["FLOODMARK_SOURCE"] == '{"password": "s3cret"}'


def test_cluster_mode_is_refused_because_of_the_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = '{"conn_type": "spark", "host": "spark://m:7077", "extra": {"deploy-mode": "cluster"}}'
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    with pytest.raises(ConfigError, match="connection spark_default: deploy mode cluster"):
        LoadHook({})


def test_spark_runs_here_when_no_connection_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    hook = LoadHook({})
    hook._build_spark_submit_command("job.py")
    assert "--master 'local[*]' " in hook._env["PYSPARK_SUBMIT_ARGS"]


def test_an_error_that_may_pass_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AirflowException) as caught, explained():
        raise SourceUnavailableError("dbo.Orders", "the source cut the connection.")
    assert type(caught.value) is AirflowException
    assert str(caught.value) == "dbo.Orders: the source cut the connection."
    assert "The task is retried" in caplog.text


def test_an_error_that_the_operator_must_fix_ends_the_task(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AirflowFailException, match="source: login failed") as caught, explained():
        raise SourceLoginError("source", "login failed.")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "The task is not retried" in caplog.text
