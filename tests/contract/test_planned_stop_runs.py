"""Runs of a pipeline while its source's capture job is stopped: planned, ended early, or not planned at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import psycopg
import pytest
from small_source import NoChecks, SmallSource, SmallStager, settings
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.app import pipeline
from floodmark.app.pipeline import App
from floodmark.app.upkeep import current_stop
from floodmark.config.models import Config, SourceConfig
from floodmark.core.capture import PlannedStop
from floodmark.core.errors import CaptureStoppedError
from floodmark.core.snapshot import SourceSnapshot
from floodmark.postgres.ledger.ledger import PostgresLedger, PostgresUpkeepLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.alerts import Alerts
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.window import OpenResult
from lsns import lsn
from open_alerts import OpenAlerts

STOP = PlannedStop(datetime(2026, 5, 4, 8, tzinfo=UTC), datetime(2026, 5, 4, 18, tzinfo=UTC))
NINE = datetime(2026, 5, 4, 9, tzinfo=UTC)
CONFIG = Config.model_validate(
    {
        "sources": {"shop": {"conn_id": "c", "capture": {"stops": [{"stop": "0 8 * * *", "start": "0 18 * * *"}]}}},
        "warehouse": {"conn_id": "w"},
        "pipelines": {"p": {"source": "shop", "tables": [{"source": "dbo.A", "target": "a.a"}]}},
    }
)


class StoppedSource(SmallSource):
    def read_snapshot(self, *arguments: object) -> SourceSnapshot:
        return replace(super().read_snapshot(*arguments), capture_running=False)  # type: ignore[arg-type]


def run(source: SmallSource, shop: Shop, stop: PlannedStop | None, alerts: Alerts | None = None) -> OpenResult:
    opened = open_window(settings(), source, shop.ledger, planned_stop=stop, alerts=alerts)
    if opened.window_id is not None:
        load_window(opened.window_id, shop.ledger, shop.warehouse, source, SmallStager(shop, source))
        check_window(opened.window_id, shop.ledger, NoChecks())
        advance_window(opened.window_id, shop.ledger, shop.warehouse)
    return opened


def test_run_in_a_planned_stop_reads_what_was_captured_and_then_ends_in_plain_words(
    database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    source, shop = StoppedSource(), Shop(database, ledger)
    source.write(1, 10)
    assert run(source, shop, STOP).window_id is not None
    idle = run(source, shop, STOP)
    assert idle.window_id is None
    assert "does not run for a stop planned from 2026-05-04 08:00 to 2026-05-04 18:00 UTC" in idle.reason
    with pytest.raises(CaptureStoppedError, match="capture_stopped"):
        run(source, shop, None)
    assert ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(source.position)


def test_stop_that_was_ended_early_no_longer_excuses_a_job_that_does_not_run(
    database: WarehouseConnection, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "warehouse_connection", lambda _: database)
    assert current_stop(App(CONFIG).pipeline("p"), NINE) == STOP
    PostgresUpkeepLedger(database).record_ended_stop("shop", STOP.since, "the log was full")
    assert current_stop(App(CONFIG).pipeline("p"), NINE) is None


@dataclass
class SilentSource(SmallSource):
    """Its job runs; the newest entry of the log is so old."""

    behind: float = 0.0

    def read_snapshot(self, *arguments: object) -> SourceSnapshot:
        return replace(super().read_snapshot(*arguments), seconds_behind=self.behind)  # type: ignore[arg-type]


def test_job_that_runs_and_brings_nothing_is_reported_by_runs_that_end_as_skipped_until_rows_come_again(
    database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    source, shop, reported = SilentSource(), Shop(database, ledger), OpenAlerts()
    source.write(1, 10)
    run(source, shop, None, reported)
    assert reported.kinds == []
    source.behind = 5000.0
    for _ in range(2):
        assert run(source, shop, None, reported).window_id is None
        assert reported.kinds == ["capture_lagging"]
    (alert,) = reported.open.values()
    assert alert.subject == PIPELINE
    assert "5000 s old" in alert.what
    source.write(2, 20)
    source.behind = 0.0
    assert run(source, shop, None, reported).window_id is not None
    assert reported.kinds == []


def test_read_of_the_planned_stop_makes_no_ledger(
    database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "warehouse_connection", lambda _: database)
    assert current_stop(App(CONFIG).pipeline("p"), NINE) == STOP
    with psycopg.connect(database.conninfo()) as session:
        assert session.execute("SELECT to_regnamespace('floodmark')").fetchone() == (None,)


@pytest.mark.parametrize(("minutes", "excused"), [(5, True), (11, False)])
def test_job_has_a_little_time_to_come_back_after_a_planned_stop(
    database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch, minutes: int, excused: bool
) -> None:
    monkeypatch.setattr(pipeline, "warehouse_connection", lambda _: database)
    after = STOP.until.replace(minute=minutes)
    assert (current_stop(App(CONFIG).pipeline("p"), after) is not None) is excused


def test_source_whose_capture_job_is_not_kept_has_no_planned_stops() -> None:
    plain = CONFIG.model_copy(update={"sources": {"shop": SourceConfig(conn_id="c")}})
    assert current_stop(App(plain).pipeline("p"), NINE) is None
