"""Records that the ledger keeps of each window for the charts of its tables; the upgrade of a ledger without them."""

from __future__ import annotations

import psycopg
import pytest
from warehouse_shop import INSERT, ORDERS, PIPELINE, Row, Shop, changes, first_load

from floodmark.core.planning import PlanMeasures
from floodmark.core.schema import TableName
from floodmark.core.status import TableWindow
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresMarkLedger, PostgresStatusLedger
from floodmark.postgres.session import WarehouseConnection
from lsns import lsn


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    made = Shop(database, ledger)
    made.run(first_load(), 10, [Row(1, INSERT, 10)])
    return made


def last_window(shop: Shop) -> TableWindow:
    return PostgresStatusLedger(shop.connection).read_history(PIPELINE, ORDERS, 60).windows[-1]


def execute(shop: Shop, *statements: str) -> None:
    with psycopg.connect(shop.connection.conninfo(), autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


def test_lag_of_a_published_window_is_the_age_of_its_end_and_the_time_that_it_took(shop: Shop) -> None:
    measures = PlanMeasures(40.0, {ORDERS: 3600.5, TableName("dbo", "Other"): 1.0})
    plan = shop.ledger.open_window(PIPELINE, lsn(20), [changes(10, 20)], measures=measures)
    assert (last_window(shop).lag_seconds, last_window(shop).margin_seconds) == (40.0, 3600.5)
    execute(shop, "UPDATE floodmark.windows SET opened_at = opened_at - interval '2 minutes' WHERE state = 'planned'")
    plan = shop.ledger.begin_load(plan.window_id).plan
    shop.warehouse.prepare_window(plan)
    shop.merge(plan)
    shop.finish(plan)
    found = last_window(shop)
    assert found.lag_seconds == pytest.approx(160, abs=30)
    assert found.margin_seconds == 3600.5
    shop.finish(plan)  # again: a cleared task
    assert last_window(shop).lag_seconds == found.lag_seconds


def test_window_without_measures_has_none(shop: Shop) -> None:
    found = last_window(shop)
    assert found.state == "advanced"
    assert {found.lag_seconds, found.margin_seconds, found.change_rows, found.change_bytes, found.run_id} == {None}


def test_run_of_airflow_that_continues_a_window_is_the_recorded_one(shop: Shop) -> None:
    plan = shop.ledger.open_window(PIPELINE, lsn(20), [changes(10, 20)])
    for run in ("first", "second"):
        shop.ledger.record_run(plan.window_id, "cdc_shop", run)
    assert (last_window(shop).dag_id, last_window(shop).run_id) == ("cdc_shop", "second")


def test_sizes_of_change_tables_are_those_of_the_newest_window(shop: Shop) -> None:
    PostgresMarkLedger(shop.connection).record_sizes(PIPELINE, {ORDERS: (5, 8192), TableName("dbo", "Other"): (1, 1)})
    shop.run(changes(10, 20), 20, [])
    PostgresMarkLedger(shop.connection).record_sizes(PIPELINE, {ORDERS: (7, None)})
    PostgresMarkLedger(shop.connection).record_sizes("another", {ORDERS: (9, 9)})
    windows = PostgresStatusLedger(shop.connection).read_history(PIPELINE, ORDERS, 60).windows
    assert [(each.change_rows, each.change_bytes) for each in windows] == [(5, 8192), (7, None)]


def test_ledger_of_version_11_is_upgraded_and_its_windows_have_no_measures(shop: Shop) -> None:
    execute(
        shop,
        "ALTER TABLE floodmark.windows DROP COLUMN lag_seconds, DROP COLUMN dag_id, DROP COLUMN run_id",
        "ALTER TABLE floodmark.window_tables DROP COLUMN margin_seconds, DROP COLUMN change_rows,"
        " DROP COLUMN change_bytes",
        "UPDATE floodmark.ledger_version SET version = 11",
    )
    found = last_window(shop)
    assert (found.read_rows, found.inserted_rows, found.lag_seconds, found.run_id) == (0, 1, None, None)
    shop.ledger.open_window(PIPELINE, lsn(20), [changes(10, 20)], measures=PlanMeasures(1.0, {ORDERS: 2.0}))
    assert (last_window(shop).lag_seconds, last_window(shop).margin_seconds) == (1.0, 2.0)
