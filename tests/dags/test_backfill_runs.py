"""A run of ``airflow backfill`` replays its data interval; every other run does the next window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.utils.types import DagRunType

from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.core.alerts import REPLAY_FAILED, data_interval
from floodmark.core.errors import WindowExpiredError
from floodmark.core.plan import WindowState
from floodmark.core.position import Interval
from floodmark.core.recovery import NoInterval
from floodmark.orchestration import tasks
from floodmark.orchestration.dags.pipelines import build_dag
from floodmark.sync.window import OpenResult
from lsns import lsn

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines: {shop: {source: shop, schedule: "@hourly", tables: [{source: dbo.Orders, target: shop.orders}]}}
"""
BEGIN = datetime(2026, 5, 1, 10, tzinfo=UTC)
END = BEGIN + timedelta(hours=1)


class FakeReplay:
    """The replay of a pipeline; it finds and opens what it was given."""

    def __init__(self, interval: Interval | NoInterval, opened: OpenResult | None = None) -> None:
        self.interval = interval
        self.opened = opened
        self.asked: list[tuple[datetime, datetime]] = []

    def find_moments(self, begin: datetime, end: datetime) -> Interval | NoInterval:
        self.asked.append((begin, end))
        return self.interval

    def open(self, interval: Interval) -> OpenResult:
        assert interval == self.interval
        if self.opened is None:
            raise WindowExpiredError("dbo.Orders", f"expired: the interval {interval} begins below the low end.")
        return self.opened


INTERVAL = Interval(lsn(1), lsn(9))


@pytest.fixture
def dag(tmp_path: Path) -> DAG:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return build_dag(App(load_config(path)).pipeline("shop"), path)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str, str]]:
    """The runs of Airflow that were recorded for windows."""
    runs: list[tuple[int, str, str]] = []
    ledger = SimpleNamespace(record_run=lambda *run: runs.append(run))
    monkeypatch.setattr(App, "ledger", ledger)
    return runs


@pytest.fixture
def open_window(dag: DAG, recorded: list[tuple[int, str, str]]) -> Any:
    return dag.get_task("open_window").python_callable


def run_of(run_type: DagRunType) -> Any:
    return SimpleNamespace(
        run_type=run_type, data_interval_start=BEGIN, data_interval_end=END, conf={}, dag_id="cdc_shop", run_id="r1"
    )


def use(monkeypatch: pytest.MonkeyPatch, replay: FakeReplay) -> FakeReplay:
    monkeypatch.setattr(tasks, "replay_of", lambda pipeline: replay)
    return replay


def test_a_backfill_opens_the_replay_of_its_data_interval(
    monkeypatch: pytest.MonkeyPatch, open_window: Any, recorded: list[tuple[int, str, str]]
) -> None:
    replay = use(monkeypatch, FakeReplay(INTERVAL, OpenResult(7, "a replay", WindowState.PLANNED)))
    assert open_window(dag_run=run_of(DagRunType.BACKFILL_JOB)) == 7
    assert replay.asked == [(BEGIN, END)]
    assert recorded == [(7, "cdc_shop", "r1")]


@pytest.mark.parametrize("run_type", [kind for kind in DagRunType if kind is not DagRunType.BACKFILL_JOB])
def test_any_other_run_does_the_next_window_whatever_its_data_interval(
    monkeypatch: pytest.MonkeyPatch,
    open_window: Any,
    recorded: list[tuple[int, str, str]],
    run_type: DagRunType,
) -> None:
    replay = use(monkeypatch, FakeReplay(INTERVAL))
    monkeypatch.setattr("floodmark.orchestration.tasks.run_open_window", lambda *arguments: 3)
    assert open_window(dag_run=run_of(run_type)) == 3
    assert replay.asked == []
    assert recorded == [(3, "cdc_shop", "r1")]


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        (FakeReplay(NoInterval("nothing was committed then.")), "nothing was committed then"),
        (FakeReplay(INTERVAL, OpenResult(None, "no table has a change")), "no table has a change"),
    ],
)
def test_a_backfill_with_nothing_to_replay_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, open_window: Any, replay: FakeReplay, words: str
) -> None:
    use(monkeypatch, replay)
    ended: list[tuple[str, str, str]] = []
    monkeypatch.setattr(App, "alerts", SimpleNamespace(end_part=lambda *part: ended.append(part)))
    with pytest.raises(AirflowSkipException, match=words):
        open_window(dag_run=run_of(DagRunType.BACKFILL_JOB))
    assert ended == [(REPLAY_FAILED, "shop", data_interval(BEGIN, END))]


@pytest.mark.parametrize(("run_type", "count"), [(DagRunType.BACKFILL_JOB, 1), (DagRunType.SCHEDULED, 0)])
def test_end_of_a_backfill_ends_the_alerts_about_its_data_interval(
    monkeypatch: pytest.MonkeyPatch, dag: DAG, run_type: DagRunType, count: int
) -> None:
    ended: list[tuple[str, str, str]] = []
    monkeypatch.setattr(App, "alerts", SimpleNamespace(end_part=lambda *part: ended.append(part)))
    monkeypatch.setattr("floodmark.orchestration.tasks.run_advance", lambda *arguments, **named: None)
    dag.get_task("advance").python_callable(7, dag_run=run_of(run_type))
    assert ended == [(REPLAY_FAILED, "shop", data_interval(BEGIN, END))] * count


def test_a_backfill_outside_the_validity_interval_fails_for_good_and_says_so(
    monkeypatch: pytest.MonkeyPatch, open_window: Any
) -> None:
    use(monkeypatch, FakeReplay(INTERVAL))
    with pytest.raises(AirflowFailException, match="expired: the interval"):
        open_window(dag_run=run_of(DagRunType.BACKFILL_JOB))
