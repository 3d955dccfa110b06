"""Status and measures of a source with change tracking: what is late counts from the first change that was not read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shop_connections import set_connections
from typer.testing import CliRunner

from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.core.snapshot import Verdict
from floodmark.core.status import TableMark, measure_tables
from floodmark.orchestration.pages import content
from floodmark.orchestration.pages.buttons import Rights
from floodmark.orchestration.pages.content import Query, pipeline_page
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.change_tracking.source import read_progress
from tracking_rig import PIPELINE, TrackingRig, tracked_tables, tracking_rig

CONFIG = f"""
sources: {{shop: {{conn_id: shop_mssql, kind: change_tracking}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  {PIPELINE}: {{source: shop, tables: [{{source: dbo.Orders, target: shop.orders}}]}}
"""
TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "INSERT dbo.Orders VALUES (1, 1)",
)
DAY = 86_400


@pytest.fixture
def rig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulator: Emulator, database: WarehouseConnection
) -> Iterator[TrackingRig]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    with tracking_rig(emulator, database, tracked_tables("Orders"), TABLES) as made:
        set_connections(monkeypatch, emulator, made.at.database, database)
        made.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING (AUTO_CLEANUP = ON)")
        made.sync()
        yield made


def status() -> dict[str, Any]:
    done = CliRunner().invoke(app, ["status", "--live", "--json"])
    [[table]] = [each["tables"] for each in json.loads(done.output)]
    found: dict[str, Any] = table
    return found


def test_source_without_changes_is_neither_late_nor_short_of_retention(rig: TrackingRig) -> None:
    rig.run(f"EXEC emulator.advance_clock {3 * DAY}")
    quiet = status()
    assert (quiet["verdict"], quiet["standing"], quiet["lag_seconds"]) == ("caught_up", "fine", 0.0)
    assert quiet["headroom_seconds"] == pytest.approx(2 * DAY, abs=60)
    # The first change after a quiet time is as old as itself, and not as the watermark.
    rig.run("UPDATE dbo.Orders SET Amount = 2", "EXEC emulator.advance_clock 600")
    behind = status()
    assert (behind["verdict"], behind["standing"], behind["transactions_behind"]) == ("ready", "fine", 1)
    assert 600 <= behind["lag_seconds"] < 900
    assert 2 * DAY - 900 < behind["headroom_seconds"] <= 2 * DAY - 600
    snapshot = rig.source.read_snapshot(())
    mark = TableMark(rig.settings.tables[0].source, rig.watermark(), None, Verdict.READY)
    [measure] = measure_tables([mark], snapshot, read_progress(rig.at, [rig.watermark()]))
    assert measure.lag_seconds is not None
    assert 600 <= measure.lag_seconds < 900
    rig.sync()
    assert status()["lag_seconds"] == 0.0


def test_changes_that_cleanup_is_about_to_pass_need_attention(rig: TrackingRig) -> None:
    rig.run("UPDATE dbo.Orders SET Amount = 2", f"EXEC emulator.advance_clock {2 * DAY - 3600}")
    short = status()
    assert short["standing"] == "attention"
    assert 0 < short["headroom_seconds"] <= 3600
    rig.clean_up()
    gone = status()
    assert (gone["verdict"], gone["standing"], gone["headroom_seconds"]) == ("expired", "incident", 0.0)
    assert gone["headroom_transactions"] == 0


def test_nothing_ends_where_nothing_is_cleaned_up(rig: TrackingRig) -> None:
    rig.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING (AUTO_CLEANUP = OFF)", "UPDATE dbo.Orders SET Amount = 2")
    rig.run(f"EXEC emulator.advance_clock {30 * DAY}")
    assert status()["standing"] == "attention"
    assert "no end" in CliRunner().invoke(app, ["status", "--live"]).output


def test_login_that_sees_no_commit_times_knows_what_versions_show(rig: TrackingRig) -> None:
    rig.run(
        "CREATE LOGIN sees_versions WITH PASSWORD = 'S33s!versions'",
        "CREATE USER sees_versions FOR LOGIN sees_versions",
        "GRANT SELECT, VIEW CHANGE TRACKING ON dbo.Orders TO sees_versions",
    )
    # Version 1 may be cleaned up: a watermark that equals the oldest valid version is valid.
    assert status()["headroom_transactions"] == 1
    try:
        at = replace(rig.at, user="sees_versions", password="S33s!versions")
        mark = rig.watermark()
        assert mark is not None
        progress = read_progress(at, [mark])
        assert progress.transactions_behind == {mark: 0}
        assert list(progress.first_unread_at) == [mark]
        rig.run("UPDATE dbo.Orders SET Amount = 2")
        progress = read_progress(at, [mark])
        assert progress.transactions_behind == {mark: 1}
        assert progress.first_unread_at == {}
    finally:
        rig.run("DROP USER sees_versions", "DROP LOGIN sees_versions")


@pytest.mark.usefixtures("rig")
def test_page_speaks_of_no_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_CONFIG", str(tmp_path / "pipelines.yaml"))
    monkeypatch.setattr(content, "read_dag_states", lambda _: {})
    page = pipeline_page(Rights([f"cdc_{PIPELINE}"]), PIPELINE, Query(live=True)).body
    assert "dbo.Orders" in page
    assert "capture" not in page
