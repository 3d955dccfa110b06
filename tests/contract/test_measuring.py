"""How late tables are after a run, by a running source and a real ledger: the alert beyond ``max_lag``, and its end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from shop_connections import set_connections

from alert_receivers import Posts, http_receiver
from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.app.alerts import measure_run
from floodmark.app.pipeline import App
from floodmark.app.run import close_run
from floodmark.config import Config, load_config
from floodmark.core.alert import Alert
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.tables import read_sql

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
alerts: {channels: [{kind: webhook, conn_id: chat}]}
pipelines:
  shop: {source: shop, max_lag: 15m, tables: [{source: dbo.Orders, target: shop.orders}]}
  patient: {source: shop, tables: [{source: dbo.Orders, target: other.orders}]}
"""


@pytest.fixture
def shop(emulator: Emulator) -> Iterator[CdcDatabase]:
    """With one change, captured."""
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY)")
        made.enable("Orders")
        made.run("INSERT dbo.Orders VALUES (1)")
        made.scan()
        yield made
        made.run("EXEC emulator.reset")


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Posts]:
    with http_receiver() as receiver:
        chat = {"conn_type": "http", "password": f"http://127.0.0.1:{receiver.port}/T0/B0"}
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps(chat))
        yield receiver


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


def set_watermark(database: WarehouseConnection, shop: CdcDatabase, pipeline: str, expression: str) -> None:
    """To an LSN of the source, committed two hours ago by its clock."""
    lsn, at = shop.scalar(expression), shop.scalar("DATEADD(hour, -2, GETDATE())")
    with psycopg.connect(database.conninfo()) as session:
        session.execute(
            "INSERT INTO floodmark.tables (pipeline, source_schema, source_name, target_schema, target_name, watermark,"
            " watermark_at) VALUES (%s, 'dbo', 'Orders', %s, 'orders', %s, %s)"
            " ON CONFLICT (pipeline, source_schema, source_name) DO UPDATE SET watermark = excluded.watermark",
            [pipeline, pipeline, lsn, at],
        )


def test_table_beyond_max_lag_is_reported_once_until_it_has_caught_up(
    config: Config, ledger: PostgresLedger, database: WarehouseConnection, shop: CdcDatabase, posts: Posts
) -> None:
    set_watermark(database, shop, "shop", "sys.fn_cdc_get_min_lsn(N'dbo_Orders')")
    measure_run(App(config).pipeline("shop"))
    measure_run(App(config).pipeline("shop"))
    (text,) = posts.texts
    assert "Behind the source: dbo.Orders by 120 min; the limit is 15 min (`max_lag`)." in text
    set_watermark(database, shop, "shop", "sys.fn_cdc_get_max_lsn()")
    measure_run(App(config).pipeline("shop"))
    assert posts.texts[1].splitlines()[0] == "*Floodmark: ended: lag: shop*"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The batches that the source gets."""
    fetch_sets, texts = SourceSession.fetch_sets, list[str]()

    def recorded(session: SourceSession, text: str, parameters: tuple[object, ...] = ()) -> list[list[tuple[object]]]:
        texts.append(text)
        return fetch_sets(session, text, parameters)

    monkeypatch.setattr(SourceSession, "fetch_sets", recorded)
    return texts


@pytest.mark.usefixtures("ledger", "posts")
def test_measuring_the_lag_reads_no_table_and_no_sizes(
    config: Config, database: WarehouseConnection, shop: CdcDatabase, sent: list[str]
) -> None:
    set_watermark(database, shop, "shop", "sys.fn_cdc_get_min_lsn(N'dbo_Orders')")
    measure_run(App(config).pipeline("shop"))
    assert sent == [read_sql("read_snapshot")]


def test_pipeline_without_max_lag_is_not_measured(
    config: Config, ledger: PostgresLedger, database: WarehouseConnection, shop: CdcDatabase, posts: Posts
) -> None:
    set_watermark(database, shop, "patient", "sys.fn_cdc_get_min_lsn(N'dbo_Orders')")
    measure_run(App(config).pipeline("patient"))
    assert posts.taken == []


def test_source_that_refuses_to_be_asked_keeps_its_run_from_nothing(
    config: Config, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = json.loads(os.environ["AIRFLOW_CONN_SHOP_MSSQL"]) | {"password": "not-the-password"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    measure_run(App(config).pipeline("shop"))
    assert "Could not measure the lag of pipeline shop" in caplog.text


def test_alert_is_kept_where_a_person_finds_it(
    config: Config, posts: Posts, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    App(config).alerts.raise_alert(
        Alert(kind="lag", subject="shop", what="Late.", means="Old rows.", do="Wait.", event_key="lag:shop")
    )
    with psycopg.connect(database.conninfo()) as session:
        found = session.execute("SELECT kind, raised_to FROM floodmark.alerts WHERE ended_at IS NULL").fetchall()
    assert found == [("lag", ["chat", "log"])]


@pytest.mark.usefixtures("posts")
def test_end_of_a_run_deletes_old_windows(
    config: Config, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    with psycopg.connect(database.conninfo()) as session:
        session.execute(
            """
            INSERT INTO floodmark.windows (pipeline, to_lsn, state, plan, advanced_at)
            SELECT 'patient', decode('00000000000000000042', 'hex'), 'advanced', '{}', now() - days * interval '1 day'
            FROM unnest(ARRAY[401, 399]) AS d (days)
            """
        )
    close_run(App(config).pipeline("patient"))
    with psycopg.connect(database.conninfo()) as session:
        assert session.execute("SELECT window_id FROM floodmark.windows").fetchall() == [(2,)]
