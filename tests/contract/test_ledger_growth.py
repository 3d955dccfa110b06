"""The age of a ledger: what is read of it does not grow with its windows, and old windows are deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest
from warehouse_shop import DELETE, INSERT, ORDERS, PIPELINE, UPDATE, Row, Shop, changes, first_load

from floodmark.core.plan import replay_lane
from floodmark.core.position import Interval
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresStatusLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.sql import read_sql
from floodmark.sync.records import RecordedTable
from lsns import lsn

OF_TABLE = {"pipeline": PIPELINE, "source_schema": ORDERS.schema, "source_name": ORDERS.name, "at_most": 60}
READS: list[tuple[str, dict[str, Any]]] = [
    ("read_status", {"pipeline": PIPELINE}),
    ("list_table_windows", OF_TABLE),
    ("list_quarantined", {"pipeline": PIPELINE}),
    ("read_marks", {"pipelines": [PIPELINE], "over_seconds": 3600}),
    ("newest_plan", OF_TABLE),
    ("delete_old_windows", {"pipeline": PIPELINE, "keep_seconds": 400 * 86400, "at_most": 200}),
]
MOST_BLOCKS = 500
MANY_WINDOWS = """
WITH made AS (
    INSERT INTO floodmark.windows (pipeline, to_lsn, to_lsn_at, state, plan, opened_at, advanced_at)
    SELECT pipeline, decode('00000000000000000010', 'hex'), now()::timestamp, 'advanced', '{}', at, at
    FROM generate_series(50000, 1, -1) AS g (n), (VALUES ('shop'), ('another')) AS p (pipeline),
        LATERAL (SELECT now() - n * interval '5 minutes') AS t (at)
    RETURNING window_id
)
INSERT INTO floodmark.window_tables (window_id, source_schema, source_name, kind, read_rows)
SELECT window_id, 'dbo', name, 'changes', 1 FROM made, (VALUES ('Orders'), ('Lines')) AS t (name)
"""
SETTLED = """
INSERT INTO floodmark.quarantine (pipeline, source_schema, source_name, target_schema, target_name, window_id, rule,
    key, lsn, row_data, settled_at, settled_by, outcome)
SELECT 'shop', 'dbo', 'Orders', 'shop', 'orders', 1, 'r', '[1]', decode('00000000000000000010', 'hex'), '{}', now(),
    'me', 'released'
FROM generate_series(1, 30000)
"""


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    made = Shop(database, ledger)
    made.run(first_load(), 10, [Row(1, INSERT, 10), Row(2, INSERT, 10)])
    made.run(changes(10, 20), 20, [Row(1, UPDATE, 20, amount=5), Row(2, DELETE, 20), Row(3, INSERT, 20)])
    return made


def recorded(shop: Shop) -> RecordedTable:
    return PostgresStatusLedger(shop.connection).read_status(PIPELINE, "shop").tables[ORDERS]


def windows(shop: Shop) -> list[int]:
    return [row["window_id"] for row in shop.rows("SELECT window_id FROM floodmark.windows ORDER BY window_id")]


def execute(shop: Shop, *statements: str) -> None:
    with psycopg.connect(shop.connection.conninfo(), autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


def blocks_of(session: psycopg.Connection, statement: str, named: dict[str, Any]) -> int:
    """The blocks that a statement touches; it is run."""
    row = session.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {read_sql(statement)}", named).fetchone()
    plan = (row or ([{}],))[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_what_is_read_does_not_grow_with_a_hundred_thousand_windows(shop: Shop) -> None:
    execute(shop, MANY_WINDOWS, SETTLED, "UPDATE floodmark.tables SET watermark_at = now()", "VACUUM ANALYZE")
    with psycopg.connect(shop.connection.conninfo()) as session:
        touched = {statement: blocks_of(session, statement, named) for statement, named in READS}
    assert {statement: blocks for statement, blocks in touched.items() if blocks > MOST_BLOCKS} == {}


def test_totals_are_those_of_the_published_windows_without_replays(shop: Shop) -> None:
    found = recorded(shop)
    assert (found.windows, found.inserted_rows, found.updated_rows, found.deleted_rows) == (2, 3, 1, 1)
    assert found.advanced_at is not None
    assert found.last_window is not None
    assert (found.last_window.window_id, found.last_window.inserted_rows) == (2, 1)
    replayed = replace(changes(10, 20), watermark=lsn(20))
    opened = shop.ledger.open_window(PIPELINE, lsn(20), [replayed], lane=replay_lane(Interval(lsn(10), lsn(20))))
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    shop.stage(plan, [Row(1, UPDATE, 20, amount=5)])
    shop.merge(plan)
    shop.finish(plan)
    assert recorded(shop) == found
    shop.ledger.advance(2)  # again: a cleared task
    assert recorded(shop) == found


def test_totals_of_a_ledger_of_version_11_are_counted_once(shop: Shop) -> None:
    found = recorded(shop)
    totals = ("read_rows", "inserted_rows", "updated_rows", "deleted_rows", "quarantined_rows")
    columns = ("published_windows", *totals, "published_window_id", "published_at")
    dropped = ", ".join(f"DROP COLUMN {name}" for name in columns)
    execute(
        shop,
        f"ALTER TABLE floodmark.tables {dropped}",
        "INSERT INTO floodmark.tables (pipeline, source_schema, source_name, target_schema, target_name)"
        " VALUES ('new', 'dbo', 'Orders', 'new', 'orders')",
        "UPDATE floodmark.ledger_version SET version = 11",
    )
    assert recorded(shop) == found
    (new,) = PostgresStatusLedger(shop.connection).read_status("new", "shop").tables.values()
    assert (new.windows, new.read_rows, new.last_window) == (0, 0, None)
    # A later upgrade runs the same script, when old windows have been deleted.
    execute(
        shop,
        "DELETE FROM floodmark.windows WHERE window_id = 1",
        "DELETE FROM floodmark.ledger_version WHERE version > 11",
    )
    assert recorded(shop) == found


def test_old_windows_are_deleted_but_for_whole_loads_and_the_newest(shop: Shop) -> None:
    for to in (30, 40, 50):
        shop.run(changes(to - 10, to), to, [])
    found = recorded(shop)
    assert shop.ledger.delete_old_windows(PIPELINE, 3600, 10) == 0
    execute(shop, "UPDATE floodmark.windows SET advanced_at = advanced_at - interval '2 hours'")
    assert shop.ledger.delete_old_windows("another", 3600, 10) == 0
    unfinished = shop.ledger.open_window(PIPELINE, lsn(60), [changes(50, 60)]).window_id
    assert shop.ledger.delete_old_windows(PIPELINE, 3600, 2) == 2
    assert windows(shop) == [1, 4, 5, unfinished]
    assert shop.ledger.delete_old_windows(PIPELINE, 3600, 2) == 1
    assert shop.ledger.delete_old_windows(PIPELINE, 3600, 2) == 0
    assert windows(shop) == [1, 5, unfinished]
    assert recorded(shop).windows == found.windows == 5
    assert len(shop.rows("SELECT FROM floodmark.window_tables")) == 3
