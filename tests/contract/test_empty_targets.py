"""First loads of many rows into a target without rows: the key's index is built after them, where it can be."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import psycopg
import pytest
from warehouse_shop import INSERT, Row, Shop, changes, first_load

from cdc_database import wait_until
from floodmark.core.errors import FloodmarkBugError
from floodmark.core.plan import TableCounts, WindowPlan, staging_table
from floodmark.core.schema import quote_table
from floodmark.core.settings import Deletes
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.merge import BULK_ROWS, insert_into_empty, merge_of

KEY = "SELECT oid, conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint WHERE contype = 'p'"


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


@pytest.mark.parametrize("deletes", Deletes)
def test_key_is_built_after_the_rows_and_is_the_same_as_before(shop: Shop, deletes: Deletes) -> None:
    plan = shop.begin(first_load(deletes), 10)
    (before,) = shop.rows(f"{KEY} AND conrelid = 'shop.orders'::regclass")
    _stage(shop, plan)
    assert shop.merge(plan) == TableCounts(staged_rows=BULK_ROWS, inserted_rows=BULK_ROWS)
    (after,) = shop.rows(f"{KEY} AND conrelid = 'shop.orders'::regclass")
    assert (after["conname"], after["definition"]) == (before["conname"], before["definition"])
    assert after["oid"] != before["oid"]
    assert _rows(shop) == [{"rows": BULK_ROWS, "amounts": BULK_ROWS * (BULK_ROWS + 1) // 2, "living": BULK_ROWS}]


def test_first_load_into_a_target_with_rows_keeps_the_key(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(-1, INSERT, 10)])
    shop.set_watermark(None)
    with _key_kept(shop):
        plan = shop.begin(first_load(), 20)
        _stage(shop, plan)
        assert shop.merge(plan).inserted_rows == BULK_ROWS
    assert _rows(shop)[0]["rows"] == BULK_ROWS + 1


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE shop.lines (order_id int REFERENCES shop.orders)",
        'CREATE VIEW shop.by_key AS SELECT "Id", "Amount" FROM shop.orders GROUP BY "Id"',
        "ALTER TABLE shop.orders REPLICA IDENTITY USING INDEX orders_pkey",
        "ALTER TABLE shop.orders CLUSTER ON orders_pkey",
        "ALTER INDEX shop.orders_pkey SET (fillfactor = 70)",
        "COMMENT ON CONSTRAINT orders_pkey ON shop.orders IS 'mine'",
        "COMMENT ON INDEX shop.orders_pkey IS 'mine'",
    ],
)
def test_key_that_would_lose_something_is_kept(shop: Shop, statement: str) -> None:
    plan = shop.begin(first_load(), 10)
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(statement)
    _is_loaded_with_its_key(shop, plan)


def test_reader_of_the_empty_target_holds_up_no_load(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    with psycopg.connect(shop.connection.conninfo()) as reader:
        reader.execute("SELECT FROM shop.orders")
        _is_loaded_with_its_key(shop, plan)


def test_reader_that_waits_for_another_table_of_the_merge_is_no_deadlock(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    _stage(shop, plan)
    address = shop.connection.conninfo()
    with ThreadPoolExecutor(1) as pool, psycopg.connect(address) as reader, psycopg.connect(address) as loader:
        loader.execute("CREATE TABLE shop.merged_before ()")
        loader.commit()
        loader.execute("SET deadlock_timeout = '50ms'")
        reader.execute("SET deadlock_timeout = '1min'")
        reader.execute("SELECT FROM shop.orders")
        loader.execute("LOCK TABLE shop.merged_before IN ACCESS EXCLUSIVE MODE")
        reading = pool.submit(reader.execute, "SELECT FROM shop.merged_before")
        waits = f"SELECT FROM pg_stat_activity WHERE pid = {reader.info.backend_pid} AND wait_event_type = 'Lock'"
        wait_until(lambda: bool(shop.rows(waits)))
        assert not insert_into_empty(loader, merge_of(plan, 0, False))
        loader.commit()
        reading.result()


def test_role_that_does_not_own_the_target_loads_it(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute("DROP ROLE IF EXISTS filler")
        session.execute("CREATE ROLE filler LOGIN")
        session.execute("GRANT ALL ON SCHEMA shop, floodmark, floodmark_staging TO filler")
        session.execute("GRANT ALL ON ALL TABLES IN SCHEMA shop, floodmark TO filler")
        session.execute(f"ALTER TABLE {quote_table(staging_table(plan, 0))} OWNER TO filler")
    connection = replace(shop.connection, user="filler")
    _is_loaded_with_its_key(Shop(connection, PostgresLedger(connection)), plan)


def test_double_key_is_refused_and_leaves_the_target_as_it_was(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    _stage(shop, plan)
    shop.stage(plan, [Row(7, INSERT, 10)])
    with _key_kept(shop), pytest.raises(FloodmarkBugError, match="duplicate key in staging"):
        shop.merge(plan)
    assert shop.warehouse.drop_duplicates(plan, 0) == 1
    assert shop.merge(plan).inserted_rows == BULK_ROWS


def test_window_of_changes_keeps_the_key_of_an_empty_target(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    plan = shop.begin(changes(10, 20), 20)
    _is_loaded_with_its_key(shop, plan)


def _is_loaded_with_its_key(shop: Shop, plan: WindowPlan) -> None:
    with _key_kept(shop):
        _stage(shop, plan)
        assert shop.merge(plan).inserted_rows == BULK_ROWS
    assert _rows(shop)[0]["rows"] == BULK_ROWS


@contextmanager
def _key_kept(shop: Shop) -> Iterator[None]:
    before = shop.rows(f"{KEY} AND conrelid = 'shop.orders'::regclass")
    yield
    assert shop.rows(f"{KEY} AND conrelid = 'shop.orders'::regclass") == before


def _stage(shop: Shop, plan: WindowPlan) -> None:
    staging = quote_table(staging_table(plan, 0))
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(
            f'INSERT INTO {staging} ("Id", "Amount", __lsn, __op, __part) '
            "SELECT n, n, decode('0000000000000000000a', 'hex'), 2, 0 FROM generate_series(1, %s) AS n",
            [BULK_ROWS],
        )


def _rows(shop: Shop) -> list[dict[str, object]]:
    return shop.rows(
        'SELECT count(*) AS rows, sum("Amount")::bigint AS amounts, count(*) FILTER (WHERE NOT __deleted) AS living '
        "FROM shop.orders"
    )
