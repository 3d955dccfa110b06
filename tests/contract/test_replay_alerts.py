"""A replay on the command line ends what was said of backfills that failed inside its interval, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from shop_connections import set_connections

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.app.operate import end_failed_replays, replay_of
from floodmark.app.pipeline import App
from floodmark.config import Config, load_config
from floodmark.core.alerts import REPLAY_FAILED, data_interval, run_failed
from floodmark.core.position import Interval, Lsn
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresAlertLedger
from floodmark.postgres.session import WarehouseConnection

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
"""


@pytest.fixture
def shop(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Orders (Id int IDENTITY PRIMARY KEY)")
        made.enable("Orders")
        yield made
        made.run("EXEC emulator.reset")


@pytest.fixture
def config(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    emulator: Emulator,
    shop: CdcDatabase,
    database: WarehouseConnection,
) -> Config:
    set_connections(monkeypatch, emulator, shop.name, database)
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return load_config(path)


def write(shop: CdcDatabase) -> Lsn:
    """A change, a minute later, and its LSN."""
    shop.run("EXEC emulator.advance_clock @seconds = 60", "INSERT dbo.Orders DEFAULT VALUES")
    shop.scan()
    return Lsn(shop.scalar("sys.fn_cdc_get_max_lsn()"))


def fail(config: Config, *parts: str) -> None:
    """Runs of a backfill, all of one cause."""
    for part in parts:
        App(config).alerts.raise_alert(
            run_failed(REPLAY_FAILED, "shop", None, dag_id="cdc_shop", run_id=part, task_id="load", part=part)
        )


def test_alert_is_over_when_the_last_failed_interval_has_been_replayed(
    config: Config, ledger: PostgresLedger, database: WarehouseConnection, shop: CdcDatabase
) -> None:
    start = write(shop)
    moments, lsns = [], []
    for _ in range(4):
        lsns.append(write(shop))
        moments.append(shop.scalar("GETUTCDATE()").replace(tzinfo=UTC, microsecond=0) + timedelta(seconds=1))
    early, late = (data_interval(moments[n], moments[n + 1] + timedelta(seconds=1)) for n in (0, 2))
    unknown = data_interval(datetime(2001, 1, 1, tzinfo=UTC), datetime(2001, 1, 2, tzinfo=UTC))
    fail(config, early, late)
    alerts, replay = PostgresAlertLedger(database), replay_of(App(config).pipeline("shop"))

    end_failed_replays(App(config).pipeline("shop"), replay, Interval(lsns[2], lsns[3]))
    assert alerts.list_parts(REPLAY_FAILED, "shop") == [early]
    end_failed_replays(App(config).pipeline("shop"), replay, Interval(lsns[1], lsns[3]))
    assert [open_alert.alert.kind for open_alert in alerts.list_open()] == [REPLAY_FAILED]
    fail(config, unknown)
    end_failed_replays(App(config).pipeline("shop"), replay, Interval(start, lsns[3]))
    assert alerts.list_parts(REPLAY_FAILED, "shop") == [unknown]
    App(config).alerts.end_part(REPLAY_FAILED, "shop", unknown)
    assert alerts.list_open() == []
