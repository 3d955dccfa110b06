"""How a run finds that the DAGs of drift and of loads have work: everything that they found by a clock of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from shop_connections import set_connections
from typer.testing import CliRunner

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.app.operate import ProposedSwitch, find_drift_work
from floodmark.app.pipeline import App
from floodmark.app.run import list_waiting, open_next
from floodmark.app.upkeep import is_check_due
from floodmark.cli.main import app as command
from floodmark.config.loading import load_config
from floodmark.core.alerts import DRIFT_RUN_FAILED, run_failed
from floodmark.core.plan import load_lane
from floodmark.core.schema import TableName
from floodmark.postgres.session import WarehouseConnection

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    on_gap: repair
    tables: [{source: dbo.Orders, target: shop.orders}, {source: dbo.Plain, target: shop.plain}]
"""
ORDERS = TableName("dbo", "Orders")
AWAY = json.dumps({"conn_type": "mssql", "host": "127.0.0.1", "port": 1, "login": "u", "password": "p"})


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY)", "CREATE TABLE dbo.Plain (Id int PRIMARY KEY)")
        made.enable("Orders", "Plain")
        yield made


@pytest.fixture
def app(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    emulator: Emulator,
    source: CdcDatabase,
    database: WarehouseConnection,
) -> App:
    """The configuration, after a run of the pipeline has planned the first load."""
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    set_connections(monkeypatch, emulator, source.name, database, "s3cret")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    made = App(load_config(path))
    open_next(made.pipeline("shop"))
    return made


@pytest.fixture
def run_sql(database: WarehouseConnection) -> Callable[[str], None]:
    def run(statement: str) -> None:
        with psycopg.connect(database.conninfo()) as session:
            session.execute(statement)

    return run


def never_asked(questions: Sequence[ProposedSwitch]) -> bool:
    return not questions


def asked(_: Sequence[ProposedSwitch]) -> bool:
    return True


def test_source_at_rest_has_no_work_and_is_not_asked(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", AWAY)
    assert find_drift_work(App(app.config), "shop", never_asked) == ""


def test_details_are_read_again_after_an_hour_and_find_what_a_run_does_not(
    app: App, source: CdcDatabase, run_sql: Callable[[str], None]
) -> None:
    assert not is_check_due(app, "shop")
    source.run("ALTER TABLE dbo.Orders ADD Note int", "ALTER TABLE dbo.Orders DROP COLUMN Note")
    source.scan()
    run_sql("UPDATE floodmark.drift_shapes SET seen_at = seen_at - interval '59 minutes'")
    assert not is_check_due(app, "shop")
    run_sql("UPDATE floodmark.drift_shapes SET seen_at = seen_at - interval '1 minute'")
    assert is_check_due(app, "shop")
    assert find_drift_work(app, "shop", never_asked) == ""
    kinds = [event.explained.difference.kind.value for event in app.drift_ledger.list_events("shop")]
    assert kinds == ["unknown", "unknown"]
    assert not is_check_due(app, "shop")


def test_former_instances_and_removed_tables_are_not_waited_for(app: App, run_sql: Callable[[str], None]) -> None:
    columns = "source, source_schema, source_name, instance_name, shape, absent, seen_at"
    values = "source, source_schema, {}, instance_name || '_old', shape, absent, seen_at - interval '1 day'"
    for name in ("source_name", "'Removed'"):
        insert = f"INSERT INTO floodmark.drift_shapes ({columns}) SELECT {values} FROM floodmark.drift_shapes"
        run_sql(f"{insert.format(name)} WHERE source_name = 'Orders' AND instance_name = 'dbo_Orders'")
    assert not is_check_due(app, "shop")


def test_new_column_is_work_until_the_operator_has_been_asked_and_its_switch_until_it_is_done(
    app: App, source: CdcDatabase
) -> None:
    source.run("ALTER TABLE dbo.Plain ADD Note int")
    source.scan()
    open_next(app.pipeline("shop"))
    assert find_drift_work(app, "shop", never_asked) == ("the operator has not been asked: dbo.Plain: capture Note?")
    assert find_drift_work(app, "shop", asked) == ""
    assert CliRunner().invoke(command, ["drift", "approve", "1"]).exit_code == 0
    assert find_drift_work(app, "shop", asked) == "the switch of dbo.Plain to dbo_Plain_2 is in progress"


def test_source_of_a_lake_has_the_same_work_and_its_next_run_a_plan(
    app: App, source: CdcDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, postgres = tmp_path / "pipelines.yaml", "{conn_id: warehouse}"
    path.write_text(CONFIG.replace(postgres, f"{{kind: iceberg, conn_id: lake}}\nledger: {postgres}"), encoding="utf-8")
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "fs", "extra": {"path": str(tmp_path)}}))
    # The ledger of this test is reached by a socket, which Spark could not use: none is started.
    monkeypatch.setattr("floodmark.iceberg.warehouse.catalog_settings", lambda *_: {})
    lake = App(load_config(path))
    assert find_drift_work(lake, "shop", asked) == ""
    source.run("ALTER TABLE dbo.Plain ADD Note int")
    source.scan()
    open_next(lake.pipeline("shop"))
    assert find_drift_work(lake, "shop", never_asked) == "the operator has not been asked: dbo.Plain: capture Note?"
    planned = CliRunner().invoke(command, ["plan", "shop"])
    assert (planned.exit_code, "first load" in planned.stdout) == (0, True), planned.output


def test_failed_run_of_the_drift_dag_is_work_until_one_succeeds(app: App) -> None:
    app.alerts.raise_alert(
        run_failed(DRIFT_RUN_FAILED, "shop", None, dag_id="cdc_drift_shop", run_id="r", task_id="watch_drift")
    )
    assert find_drift_work(app, "shop", asked) == "its last run failed"
    app.alerts.end_alerts(DRIFT_RUN_FAILED, "shop")
    assert find_drift_work(app, "shop", asked) == ""


def test_check_that_fails_is_work_for_the_dag_which_has_retries_and_an_alert(
    app: App, run_sql: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sql("UPDATE floodmark.drift_shapes SET seen_at = seen_at - interval '1 day'")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", AWAY)
    assert find_drift_work(App(app.config), "shop", asked).startswith("a run could not check it: ")


def test_load_that_is_unfinished_waits(app: App, run_sql: Callable[[str], None]) -> None:
    pipeline = app.pipeline("shop")
    assert list_waiting(pipeline) == []
    run_sql(f"UPDATE floodmark.windows SET lane = '{load_lane(ORDERS)}'")
    assert list_waiting(pipeline) == [ORDERS]
