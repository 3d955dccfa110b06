"""Effects of the last step of a run, or of one that fails, in addition to its work: ended alerts, measures, events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from floodmark.app import alerts as app_alerts
from floodmark.app import run
from floodmark.app.pipeline import App, Pipeline
from floodmark.config.loading import load_config
from floodmark.core.alert import Alert
from floodmark.core.errors import (
    CdcNotEnabledError,
    DataQualityError,
    FloodmarkError,
    LoadKilledError,
    NotCapturedYetError,
    SourceUnavailableError,
    WarehouseUnavailableError,
)
from floodmark.core.plan import (
    MAIN_LANE,
    AdvanceResult,
    LoadKind,
    PublishedTable,
    QuarantinedMessages,
    TableCounts,
    WindowState,
    load_lane,
    replay_lane,
)
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import TableName
from floodmark.core.snapshot import Validity, Verdict
from floodmark.orchestration import tasks
from floodmark.orchestration.dags import pipelines
from floodmark.sync.window import OpenResult
from lsns import lsn

ORDERS = TableName("dbo", "Orders")
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines: {shop: {source: shop, max_lag: 15m, tables: [{source: dbo.Orders, target: shop.orders}]}}
"""


LOW = lsn(1)


CHECKED = ["table_not_taken", "repair", "messages_quarantined", "rows_quarantined", "table_left_out"]
"""The kinds of alerts that the end of each run checks."""


@dataclass
class World:
    """Around a window (1, 5]. ended: kinds of alerts that are over; measured: how often the lag was asked for.
    kind, read_rows: what the window read of the table. loading: whether the table is being reloaded. stopped: what
    the last check said of it, where a gap stops it. deleted: whose old windows were, with their age in seconds."""

    state: WindowState = WindowState.CHECKED
    lane: str = MAIN_LANE
    kind: LoadKind = LoadKind.CHANGES
    read_rows: int = 1
    watermark: Lsn = LOW
    ended: list[str] = field(default_factory=list)
    raised: list[Alert] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    measured: int = 0
    loading: bool = False
    stopped: list[Validity] = field(default_factory=list)
    deleted: list[tuple[str, float]] = field(default_factory=list)
    events: dict[Any, Any] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    config: Path = Path()

    def ledger(self) -> Any:
        plan = SimpleNamespace(pipeline="shop", lane=self.lane, to=lsn(5), tables=(SimpleNamespace(source=ORDERS),))
        return SimpleNamespace(
            read_window=lambda _: SimpleNamespace(plan=plan, state=self.state),
            list_unfinished=lambda _: [SimpleNamespace(plan=plan)] if self.loading else [],
            list_stopped=lambda _: self.stopped,
            list_stopped_members=lambda _: [],
            count_quarantined_messages=lambda _: QuarantinedMessages(()),
            count_waiting=lambda _: [],
            read_tables=lambda _: {ORDERS: SimpleNamespace(watermark=self.watermark)},
            delete_old_windows=self.delete_old_windows,
        )

    def delete_old_windows(self, pipeline: str, keep_seconds: float, at_most: int) -> int:
        self.deleted.append((pipeline, keep_seconds))
        return at_most

    @property
    def pipeline(self) -> Pipeline:
        return tasks.open_app(self.config).pipeline("shop")

    def advance(self) -> None:
        self.events = {"asset": SimpleNamespace(extra=None)}
        stores = {"asset": SimpleNamespace(set=self.shown.__setitem__)}
        assets: Any = {ORDERS: "asset"}
        tasks.run_advance(self.pipeline, 7, assets=assets, events=self.events, stores=stores)


def test_table_of_a_pattern_is_emitted_by_its_alias(world: World) -> None:
    alias, asset = AssetAlias("floodmark.shop"), Asset("shop.x", "floodmark://shop/x/x")
    brought, events = tasks.BroughtAssets(alias, {ORDERS: asset}), OutletEventAccessors()
    tasks.run_advance(world.pipeline, 7, assets={}, events=events, stores={}, brought=brought)
    (event,) = events[alias].asset_alias_events
    assert (event.dest_asset_key.uri, event.extra["source"]) == (asset.uri, str(ORDERS))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    made = World(config=tmp_path / "pipelines.yaml")
    made.config.write_text(CONFIG, encoding="utf-8")

    def advanced(window_id: int, *_: Any) -> AdvanceResult:
        table = PublishedTable(ORDERS, ORDERS, made.kind, lsn(1), lsn(5), TableCounts(made.read_rows))
        return AdvanceResult(window_id, "shop", lsn(5), (table,), is_replay=made.lane != MAIN_LANE)

    def measure(*_: Any) -> None:
        made.measured += 1

    def end_alerts(kind: str, subject: str, *, keep: Sequence[str] = ()) -> None:
        made.ended.append(kind)
        made.kept = list(keep)

    alerts = SimpleNamespace(end_alerts=end_alerts, raise_alert=made.raised.append)
    monkeypatch.setattr(run, "advance_window", advanced)
    monkeypatch.setattr(App, "alerts", alerts)
    monkeypatch.setattr(App, "ledger", property(lambda _: made.ledger()))
    monkeypatch.setattr(App, "warehouse", None)
    monkeypatch.setattr(Pipeline, "kept_sessions", lambda _: nullcontext())
    for module in (run, app_alerts):
        monkeypatch.setattr(module, "measure_run", measure)
    return made


def test_good_end_of_a_run_ends_the_alerts_about_failed_and_late_ones(world: World) -> None:
    world.advance()
    assert (world.ended, world.measured) == (
        ["run_failed", "run_late", *CHECKED],
        1,
    )
    assert (world.events["asset"].extra["to_lsn"], world.shown) == (str(lsn(5)), {"watermark": str(lsn(5))})
    assert world.deleted == [("shop", 400 * 86_400.0)]


@pytest.mark.parametrize(
    ("kind", "read_rows", "shown"),
    [(LoadKind.CHANGES, 0, {}), (LoadKind.FIRST_LOAD, 0, {"watermark": str(lsn(5))})],
)
def test_watermark_of_a_table_without_rows_in_the_window_is_not_shown_again(
    world: World, kind: LoadKind, read_rows: int, shown: dict[str, str]
) -> None:
    """Each one is a request to Airflow. A first load is shown also of an empty table."""
    world.kind, world.read_rows = kind, read_rows
    world.advance()
    assert (world.events["asset"].extra["to_lsn"], world.shown) == (str(lsn(5)), shown)


def test_window_with_a_table_that_is_not_in_the_configuration_any_more_is_finished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks.run_advance(world.pipeline, 7, assets={}, events={}, stores={})
    assert world.ended == ["run_failed", "run_late", *CHECKED]
    table = SimpleNamespace(source=ORDERS)
    monkeypatch.setattr(tasks, "end_load", lambda *_: SimpleNamespace(tables=(table,)))
    tasks.run_advance_load(world.pipeline, 7, assets={}, events={}, stores={})


def test_lag_is_over_when_nobody_wants_to_hear_of_it_any_more(world: World) -> None:
    world.config.write_text(CONFIG.replace("max_lag: 15m, ", ""), encoding="utf-8")
    world.advance()
    assert world.ended == ["run_failed", "run_late", "lag", *CHECKED]


def test_run_with_a_table_that_a_gap_stops_publishes_and_fails_in_the_end(world: World) -> None:
    world.stopped = [Validity(ORDERS, Verdict.EXPIRED, "changes have been cleaned up.", "", lsn(1), lsn(3), lsn(5))]
    world.advance()
    # The table has an alert of its own: what made an earlier run fail as a whole is over.
    assert (world.ended, world.measured) == (["run_failed", "run_late", *CHECKED], 1)
    assert world.events["asset"].extra["to_lsn"] == str(lsn(5))
    (alert,) = world.raised
    assert (alert.kind, alert.table, world.kept) == ("table_left_out", ORDERS, [alert.event_key])
    with pytest.raises(AirflowFailException, match=r"dbo\.Orders: expired"):
        tasks.run_report_gaps(world.pipeline)
    world.stopped = []
    tasks.run_report_gaps(world.pipeline)


def test_run_with_nothing_to_read_ends_well_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "open_next", lambda *_: OpenResult(None, "all is read."))
    with pytest.raises(AirflowSkipException, match="all is read"):
        tasks.run_open_window(world.config, "shop")
    assert (world.ended, world.measured) == (
        ["run_failed", "run_late", *CHECKED],
        1,
    )


def test_run_with_nothing_to_read_fails_while_the_catalog_of_readers_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise WarehouseUnavailableError("the catalog company", "it gave no answer.")

    monkeypatch.setattr(App, "register_tables", away)
    for module in (tasks, run):
        monkeypatch.setattr(module, "open_next", lambda *_: OpenResult(None, "all is read."))
    with pytest.raises(AirflowException, match="the catalog company: it gave no answer"):
        tasks.run_open_window(world.config, "shop")
    with pytest.raises(WarehouseUnavailableError):
        run.run_pipeline(world.pipeline, lambda *_: None, lambda _: None)
    assert world.ended == []


def test_run_ends_the_alert_about_a_repair_only_while_no_load_is_under_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "open_next", lambda *_: OpenResult(None, "all is read."))
    world.lane = load_lane(ORDERS)
    for world.loading, expected in ((True, []), (False, ["repair"])):
        world.ended = []
        with pytest.raises(AirflowSkipException):
            tasks.run_open_window(world.config, "shop")
        assert world.ended == [
            "run_failed",
            "run_late",
            "table_not_taken",
            *expected,
            "messages_quarantined",
            "rows_quarantined",
            "table_left_out",
        ]


def test_replay_ends_no_alerts_about_runs_and_measures_nothing(world: World) -> None:
    world.lane = replay_lane(Interval(lsn(1), lsn(5)))
    world.advance()
    assert (world.ended, world.measured, world.shown) == ([], 0, {})
    assert world.events["asset"].extra["to_lsn"] == str(lsn(5))


def test_window_that_was_published_long_ago_is_not_reported_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.state, world.watermark = WindowState.ADVANCED, lsn(9)
    caplog.set_level("INFO")
    world.advance()
    assert (world.ended, world.measured, world.shown, world.events["asset"].extra) == ([], 0, {}, None)
    assert "a later window since then: nothing was done" in caplog.text


def test_last_window_is_reported_again_after_a_death_and_ends_nothing_that_came_since(world: World) -> None:
    world.state, world.watermark = WindowState.ADVANCED, lsn(5)
    world.advance()
    assert (world.ended, world.measured) == ([], 0)
    assert (world.events["asset"].extra["to_lsn"], world.shown) == (str(lsn(5)), {"watermark": str(lsn(5))})


def test_load_that_was_published_long_ago_ends_alerts_only_where_no_other_load_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(tasks, "end_load", lambda pipeline, window_id: ended.append(window_id))
    world.state, world.watermark = WindowState.ADVANCED, lsn(9)
    for world.loading, expected in ((True, []), (False, [7])):
        tasks.run_advance_load(world.pipeline, 7, assets={}, events={}, stores={})
        assert ended == expected


@pytest.mark.parametrize(
    ("error", "count"),
    [
        (CdcNotEnabledError("dbo.Orders", "it is not tracked."), 1),
        (DataQualityError("dbo.Orders", "a rule is broken."), 1),
        (LoadKilledError("window", "killed."), 1),
        (SourceUnavailableError("shop", "away."), 0),
        (NotCapturedYetError("shop", "wait."), 0),
    ],
)
def test_step_that_fails_reports_how_late_the_data_are_and_fails_as_before(
    world: World, error: FloodmarkError, count: int
) -> None:
    with pytest.raises(type(error)) as raised, app_alerts.measured(world.pipeline):
        raise error
    assert raised.value is error
    assert world.measured == count


def test_measure_that_fails_hides_no_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(app_alerts, "measure_run", broken)
    with pytest.raises(DataQualityError), app_alerts.measured(world.pipeline):
        raise DataQualityError("dbo.Orders", "a rule is broken.")


def test_check_and_opening_that_fail_are_measured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise CdcNotEnabledError("dbo.Orders", "it is not tracked.")

    @contextmanager
    def explained() -> Iterator[None]:
        try:
            yield
        except FloodmarkError as error:
            raise AirflowException(str(error)) from None

    for module in (tasks, pipelines):
        monkeypatch.setattr(module, "explained", explained)
    monkeypatch.setattr(tasks, "open_next", broken)
    monkeypatch.setattr(pipelines, "check_window", broken)
    monkeypatch.setattr(Pipeline, "quality", None)
    with pytest.raises(AirflowException, match="not tracked"):
        tasks.run_open_window(world.config, "shop")
    check = pipelines.build_dag(App(load_config(world.config)).pipeline("shop"), world.config).get_task("check")
    with pytest.raises(AirflowException, match="not tracked"):
        check.python_callable(7)
    assert world.measured == 2
