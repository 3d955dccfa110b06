"""Airflow's report of a failed or late run leads to an alert at a channel, also without a warehouse."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.deadline import DeadlineReference
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from alert_receivers import Posts
from floodmark.app.alerts import STATUS_PAGE
from floodmark.core.alerts import RunFailure
from floodmark.core.errors import CaptureStoppedError, TableRefusedError, WarehouseAdminError
from floodmark.orchestration import tasks
from floodmark.orchestration.pages.routes import PAGES_PREFIX, STATUS_PATH
from floodmark.orchestration.tasks import explained

CONFIG = """
sources: {shop: {conn_id: shop_mssql, capture: {}, retention: {keep: 3d}}}
warehouse: {conn_id: warehouse}
alerts: {channels: [{kind: webhook, conn_id: chat}]}
pipelines:
  shop: {source: shop, max_lag: 15m, tables: [{source: dbo.Orders, target: shop.orders}]}
  quiet: {source: shop, tables: [{source: dbo.Orders, target: other.orders}]}
"""
STOPPED = CaptureStoppedError("dbo.Orders", "the capture job does not run.", "Start it.")


@dataclass
class Task:
    """The parts of a task instance that a callback uses."""

    task_id: str = "open_window"
    left: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.left[key] = value

    def xcom_pull(self, *, task_ids: str, key: str) -> Any:
        assert task_ids == self.task_id
        return self.left.get(key)


def fail(dag: DAG, task: Task | None, **known: Any) -> None:
    """Airflow's word to the DAG."""
    reported = dag.on_failure_callback
    callback = reported[0] if isinstance(reported, list) else reported
    assert callback is not None
    callback({"dag": dag, "run_id": "r1"} | ({"ti": task} if task else {}) | known)


def test_failed_run_is_reported_with_the_error_that_its_task_left_behind(
    dags: dict[str, DAG], posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task()
    monkeypatch.setattr(tasks, "get_current_context", lambda: {"ti": task})
    with pytest.raises(AirflowFailException), explained():
        raise STOPPED
    assert task.left == {tasks.FAILURE_KEY: asdict(RunFailure.of(STOPPED))}
    fail(dags["cdc_shop"], task)
    (text,) = posts.texts
    assert "*What:* dbo.Orders: the capture job does not run." in text
    assert "*Where:* DAG cdc_shop, run r1, task open_window" in text
    assert "*What to do:* Start it." in text


def test_failed_run_of_a_pipeline_reports_the_tables_that_are_left_out(
    dags: dict[str, DAG], posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(tasks, "report_tables", lambda pipeline: reported.append(pipeline.name))
    for dag_id in ("cdc_load_shop", "cdc_shop"):
        fail(dags[dag_id], Task())
    assert reported == ["shop"]


def test_run_that_failed_because_of_left_out_tables_is_reported_by_their_alerts_alone(
    dags: dict[str, DAG], posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task("report_gaps")
    monkeypatch.setattr(tasks, "get_current_context", lambda: {"ti": task})
    with pytest.raises(AirflowFailException), explained():
        raise TableRefusedError("dbo.Orders", "refused: rows broke a rule.")
    monkeypatch.setattr(tasks, "report_tables", lambda _: True)
    fail(dags["cdc_shop"], task)
    assert posts.texts == []
    # Where no table has an alert, the run has one.
    monkeypatch.setattr(tasks, "report_tables", lambda _: False)
    fail(dags["cdc_shop"], task)
    assert [text.splitlines()[0] for text in posts.texts] == ["*Floodmark: run failed: shop*"]


def test_message_links_to_the_page_and_the_run(
    dags: dict[str, DAG], posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/a/")
    fail(dags["cdc_shop"], Task(), run_id="scheduled__2026-05-01T02:00:00+00:00")
    (text,) = posts.texts
    assert "*Page:* https://airflow.example.com/a/floodmark/status/shop" in text
    run = "https://airflow.example.com/a/dags/cdc_shop/runs/scheduled__2026-05-01T02%3A00%3A00%2B00%3A00"
    assert f"*Run:* {run}" in text
    assert STATUS_PAGE == PAGES_PREFIX + STATUS_PATH


def test_values_of_rows_are_in_the_log_of_the_task_and_in_no_message(
    dags: dict[str, DAG], posts: Posts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task("load")
    monkeypatch.setattr(tasks, "get_current_context", lambda: {"ti": task})
    with pytest.raises(AirflowFailException), explained():
        raise WarehouseAdminError("dbo.Orders", "constraint c refuses rows.", "Drop it.", "Key (Email)=(4711)")
    assert "Key (Email)=(4711)" in caplog.text
    assert "4711" not in str(task.left)
    fail(dags["cdc_shop"], task)
    assert "constraint c refuses rows." in posts.texts[0]
    assert "4711" not in posts.texts[0]


@pytest.mark.parametrize(
    ("dag_id", "title"),
    [
        ("cdc_shop", "run failed: shop"),
        ("cdc_capture_shop", "capture run failed: shop"),
        ("cdc_drift_shop", "drift run failed: shop"),
        ("cdc_load_shop", "load run failed: shop"),
        ("cdc_retention_shop", "retention run failed: shop"),
        ("cdc_switch_shop", "switch run failed: shop"),
    ],
)
def test_run_whose_task_was_killed_is_reported_all_the_same(
    dags: dict[str, DAG], posts: Posts, dag_id: str, title: str
) -> None:
    fail(dags[dag_id], Task("load"))
    fail(dags[dag_id], None)
    assert [text.splitlines()[0] for text in posts.texts] == [f"*Floodmark: {title}*"] * 2
    assert "it was killed" in posts.texts[0]


@pytest.mark.parametrize(
    ("task_id", "title"),
    [
        ("watch_drift", "drift run failed: shop"),
        ("switch_instances", "switch run failed: shop"),
        ("list_questions", "switch run failed: shop"),
        ("ask", "switch run failed: shop"),
    ],
)
def test_drift_run_that_failed_at_a_switch_is_reported_as_that(
    dags: dict[str, DAG], posts: Posts, task_id: str, title: str
) -> None:
    assert dags["cdc_drift_shop"].has_task(task_id)
    fail(dags["cdc_drift_shop"], Task(task_id))
    assert [text.splitlines()[0] for text in posts.texts] == [f"*Floodmark: {title}*"]


@dataclass
class Run:
    """The parts of a run of a DAG that a callback uses."""

    run_type: str = "backfill"
    data_interval_start: datetime = datetime(2026, 5, 1, 2, tzinfo=UTC)
    data_interval_end: datetime = datetime(2026, 5, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("known", "title"),
    [
        ({"dag_run": Run(), "run_id": "scheduled__1"}, "replay failed: shop"),
        ({"run_id": "backfill__2026-05-01T02:00:00+00:00"}, "replay failed: shop"),
        ({"dag_run": Run("scheduled"), "run_id": "backfill__1"}, "run failed: shop"),
        ({"run_id": "scheduled__2026-05-01T02:00:00+00:00"}, "run failed: shop"),
    ],
)
def test_failed_backfill_is_reported_as_that(
    dags: dict[str, DAG], posts: Posts, known: dict[str, Any], title: str
) -> None:
    fail(dags["cdc_shop"], Task(), **known)
    (text,) = posts.texts
    assert text.splitlines()[0] == f"*Floodmark: {title}*"
    assert ("No new rows arrive" in text) is title.startswith("run")


API_IS_DOWN = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))


class TaskWithoutServer(Task):
    """Airflow's API server fails."""

    def xcom_push(self, key: str, value: Any) -> None:
        raise API_IS_DOWN

    def xcom_pull(self, *, task_ids: str, key: str) -> Any:
        raise API_IS_DOWN


def test_error_of_a_task_is_not_hidden_by_an_api_server_that_fails(
    dags: dict[str, DAG], posts: Posts, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TaskWithoutServer()
    monkeypatch.setattr(tasks, "get_current_context", lambda: {"ti": task})
    with pytest.raises(AirflowFailException, match="does not run"), explained():
        raise STOPPED
    fail(dags["cdc_shop"], task)
    assert "without reporting an error" in posts.texts[0]


def test_only_a_pipeline_with_max_lag_has_a_deadline(dags: dict[str, DAG]) -> None:
    assert not dags["cdc_quiet"].deadline
    (deadline,) = dags["cdc_shop"].deadline
    assert (deadline.reference, deadline.interval.total_seconds()) == (DeadlineReference.DAGRUN_QUEUED_AT, 900)
    assert deadline.callback.path == "floodmark.orchestration.tasks.report_late_run"


@pytest.mark.parametrize(
    ("state", "run_type", "reported"),
    [
        ("running", "scheduled", 1),
        ("queued", "manual", 1),
        ("failed", "scheduled", 0),
        ("success", "scheduled", 0),
        ("running", "backfill", 0),
    ],
)
def test_missed_deadline_is_reported_while_the_run_goes_on(
    dags: dict[str, DAG], posts: Posts, state: str, run_type: str, reported: int
) -> None:
    (deadline,) = dags["cdc_shop"].deadline
    run = {"dag_run_id": "r1", "state": state, "run_type": run_type, "queued_at": "2026-05-01T12:00:00.123456Z"}
    asyncio.run(tasks.report_late_run(**deadline.callback.kwargs, context={"dag_run": run}))
    assert len(posts.taken) == reported
    if reported:
        assert "*Since:* 2026-05-01 12:00:00 UTC" in posts.texts[0]
        assert "Run r1 has not ended within 15 min" in posts.texts[0]
