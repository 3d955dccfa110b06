"""Reasons in ``floodmark status`` of a pipeline that is late on purpose, by a real ledger. The source is not asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from rich.console import Console

from floodmark.app.pipeline import App
from floodmark.app.status import read_status, status_json, table_texts
from floodmark.cli.process import print_status
from floodmark.config.loading import load_config
from floodmark.core.drift import PlannedSwitch
from floodmark.core.plan import LoadKind, TablePlan, load_lane
from floodmark.core.position import Lsn
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import TableSettings
from floodmark.core.snapshot import Feed, FeedIdentity, Validity, Verdict
from floodmark.core.status import PipelineStatus, SwitchStatus
from floodmark.postgres.ledger.drift import PostgresDriftLedger
from floodmark.postgres.ledger.ledger import PostgresLedger, PostgresUpkeepLedger
from floodmark.postgres.session import WarehouseConnection
from lsns import lsn

NOON = datetime(2026, 1, 1, 12)
ORDERS, OLD, NEW = TableName("dbo", "Orders"), FeedIdentity("first", 1, NOON), FeedIdentity("second", 2, NOON)
CONFIG = """
sources: {shop: {conn_id: shop_mssql%s}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    on_gap: %s
    tables: [{source: DBO.ORDERS, target: shop.orders}, {source: dbo.Others, target: shop.others}]
"""


@pytest.fixture
def status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: WarehouseConnection
) -> Callable[..., PipelineStatus]:
    """Return the status of the pipeline, whose source has the given settings in addition."""
    warehouse = {
        "conn_type": "postgres",
        "host": database.host,
        "port": database.port,
        "login": database.user,
        "schema": database.database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(warehouse))
    path = tmp_path / "pipelines.yaml"

    def read(more: str = "", *, on_gap: str = "fail") -> PipelineStatus:
        path.write_text(CONFIG % (more, on_gap), encoding="utf-8")
        return read_status(App(load_config(path)).pipeline("shop"), live=False)

    return read


def shown(status: PipelineStatus) -> str:
    out = StringIO()
    print_status(Console(width=250, file=out), status, wide=True)
    return out.getvalue()


def daily(stop: datetime, start: datetime) -> str:
    """A planned stop of every day, between two moments."""
    stop_cron, start_cron = (f'"{at.minute} {at.hour} * * *"' for at in (stop, start))
    return f", capture: {{stops: [{{stop: {stop_cron}, start: {start_cron}}}]}}"


def test_status_says_that_a_planned_stop_is_on_and_until_when(
    status: Callable[..., PipelineStatus], database: WarehouseConnection
) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    since, until = now - timedelta(hours=2), now + timedelta(hours=3)
    assert status(daily(now + timedelta(hours=3), now + timedelta(hours=4))).planned_stop is None

    on = status(daily(since, until))
    assert on.planned_stop is not None
    assert (on.planned_stop.since, on.planned_stop.until, on.planned_stop.is_on) == (since, until, True)
    assert (
        f"a planned stop of the capture job is in effect, from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
        in shown(on)
    )
    assert f'"until": "{until.isoformat()}"' in status_json([on])
    # Changes committed during it may still follow.
    assert "has just ended" in shown(status(daily(since, now)))

    PostgresUpkeepLedger(database).record_ended_stop("shop", since, "the log is full")
    assert status(daily(since, until)).planned_stop is None


def test_status_of_a_gap_says_who_repairs_it(
    status: Callable[..., PipelineStatus], ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    spelled = TableName("DBO", "ORDERS")
    read_first(ledger, database, spelled)
    by_hand = "Reload the table (floodmark reload shop DBO.ORDERS)."
    expired = Validity(spelled, Verdict.EXPIRED, "changes after the watermark have been cleaned up.", by_hand)
    ledger.record_verdicts("shop", [expired])
    found = status()
    assert (found.standing, by_hand in shown(found)) == ("incident", True)
    found = status(on_gap="repair")
    assert (found.standing, found.tables[0].verdict) == ("attention", "expired")
    assert "cleaned up. The next run starts the reload of the table (on_gap: repair)." in shown(found)
    assert "floodmark reload" not in shown(found)


def test_verdict_of_before_a_window_is_not_shown_after_it(
    status: Callable[..., PipelineStatus], ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    spelled = TableName("DBO", "ORDERS")
    first = Validity(spelled, Verdict.NOT_STARTED, "first load, up to 9.", newest=lsn(9))
    ledger.record_verdicts("shop", [first])
    read_first(ledger, database, spelled)
    table = status().tables[0]
    assert (table.verdict, table.cause) == ("caught_up", f"the last run read all that the source had, up to {lsn(9)}.")
    behind = Validity(spelled, Verdict.READY, "changes after 9 up to 12.", watermark=lsn(9), newest=lsn(12))
    ledger.record_verdicts("shop", [behind])
    assert status().tables[0].verdict == "ready"
    stopped = Validity(spelled, Verdict.CAPTURE_STOPPED, "it is not running.", watermark=lsn(9), newest=lsn(9))
    ledger.record_verdicts("shop", [stopped])
    assert status().tables[0].verdict == "capture_stopped"


def test_verdict_that_asks_for_a_load_is_not_shown_after_it(
    status: Callable[..., PipelineStatus], ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    spelled = TableName("DBO", "ORDERS")
    read_first(ledger, database, spelled)
    for asks, other in ((Verdict.TARGET_LOST, Verdict.CAPTURE_STOPPED), (Verdict.DEFINITION_CHANGED, Verdict.DAMAGED)):
        for verdict, shown_after in ((asks, "caught_up"), (other, other.value)):
            ledger.record_verdicts("shop", [Validity(spelled, verdict, "why", watermark=lsn(9), newest=lsn(9))])
            assert status().tables[0].verdict == verdict.value
            read_all(ledger, database, spelled, watermark=lsn(9))  # the source has had no change since
            assert status().tables[0].verdict == shown_after


def test_status_shows_a_lower_bound_of_the_lag_without_the_source_and_no_dashes(
    status: Callable[..., PipelineStatus], ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    spelled = TableName("DBO", "ORDERS")
    ledger.record_verdicts("shop", [Validity(spelled, Verdict.NOT_STARTED, "first load, up to 9.", newest=lsn(9))])
    read_first(ledger, database, spelled)
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute("UPDATE floodmark.verdicts SET seen_at = now() - interval '84 s'")
    found = status()
    table = found.tables[0]
    assert (table.lag_seconds, table_texts(table).lag[:13]) == (None, "at least 0:01")
    assert table.least_lag_seconds is not None and 84 <= table.least_lag_seconds < 114
    text = shown(replace(found, tables=(table,)))
    assert not {"headroom", "behind", "-"} & set(text.split())


def test_status_says_how_far_an_approved_switch_of_a_table_has_come(
    status: Callable[..., PipelineStatus], ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    switches = PostgresDriftLedger(database)
    spelled = TableName("DBO", "ORDERS")
    window_id = read_first(ledger, database, spelled)
    assert [table.switch for table in status().tables] == [None, None]
    planned = PlannedSwitch(
        source="shop",
        table=ORDERS,
        old=OLD,
        name="second",
        added=("Note",),
        columns=("Id", "Note"),
        enabling="EXEC sys.sp_cdc_enable_table",
        drops="",
        since=None,
    )
    switch = switches.open_switch(planned, [], "anna")

    def step() -> tuple[str, str]:
        found = status()
        orders, others = found.tables
        assert others.switch is None
        assert isinstance(orders.switch, SwitchStatus)
        assert f"DBO.ORDERS: switch {switch.switch_id} from first to second for Note: {orders.switch.what}" in shown(
            found
        )
        return orders.switch.step, orders.switch.what

    assert step() == ("make", "the next run of cdc_drift_shop creates second; first is read until then, without Note.")
    switches.mark_switch_made(switch.switch_id, NEW)
    assert step()[0] == "switch_pipeline"
    (made,) = switches.list_switches("shop")
    assert switches.switch_pipeline(made, "shop", spelled, lsn(9))
    assert step() == ("load", "second is read; a window will load what Note held before.")
    switches.record_backfill(switch.switch_id, "shop", window_id)
    # The published window of the first load takes its place.
    assert step() == ("drop", "second is read, with Note; first is dropped when every pipeline reads second.")
    switches.finish_switch(switch.switch_id)
    assert status().tables[0].switch is None


def read_first(ledger: PostgresLedger, database: WarehouseConnection, table: TableName) -> int:
    """A published first load from the first instance, up to LSN 9."""
    return read_all(ledger, database, table)


def read_all(
    ledger: PostgresLedger, database: WarehouseConnection, table: TableName, watermark: Lsn | None = None
) -> int:
    """Publish a load of the whole table, which is a reload where it has a watermark."""
    columns = (SourceColumn("Id", "int", 1),)
    instance = Feed(OLD, SourceTable(table, columns, ("Id",)), lsn(1), False, True)
    plan = TablePlan(
        TableSettings(table, TableName("shop", "orders")),
        LoadKind.FIRST_LOAD,
        instance,
        None,
        watermark,
    )
    lane = load_lane(table) if watermark else ""
    window_id = ledger.open_window("shop", lsn(9), (plan,), NOON, lane=lane).window_id
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute("UPDATE floodmark.windows SET state = 'merged' WHERE window_id = %s", [window_id])
    ledger.mark_checked(window_id)
    ledger.advance(window_id)
    return window_id
