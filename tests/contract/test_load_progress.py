"""The progress of loads on a real PostgreSQL: rows that are being written, replays, and the size of a target."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest
from fuse import Fuse
from small_source import SmallSource, SmallStager
from warehouse_shop import INSERT, ORDERS, PIPELINE, Row, Shop, changes, first_load, staged_batch

from cdc_database import wait_until
from floodmark.core.errors import WarehouseUnavailableError
from floodmark.core.plan import WindowPlan, plan_chunks, replay_lane
from floodmark.core.position import Interval
from floodmark.core.progress import ReadKind
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.sync.load import load_window
from floodmark.sync.load_progress import LoadWatch, progress_reported
from kept_progress import KeptProgress
from lsns import lsn
from table_plans import with_settings

MANY = 5_000


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


def many(first: int) -> pa.RecordBatch:
    """More rows than the client collects before it sends some."""
    return staged_batch([Row(key, INSERT, 8, 1) for key in range(first, first + MANY)])


def watched(shop: Shop, plan: WindowPlan) -> tuple[LoadWatch, KeptProgress]:
    kept = KeptProgress()
    return LoadWatch(plan, shop.ledger, shop.warehouse, kept), kept


def test_rows_of_a_chunk_count_while_it_is_written(shop: Shop) -> None:
    plan = shop.begin(with_settings(first_load(), first_load=FirstLoad(chunk_rows=2 * MANY)), 10)
    shop.ledger.store_chunks(plan, ORDERS, plan_chunks([(2 * MANY,)]))
    watch, kept = watched(shop, plan)

    def batches() -> Iterator[pa.RecordBatch]:
        yield many(1)
        yield many(MANY + 1)
        # The client sends a batch when it has the next one.
        wait_until(lambda: shop.warehouse.count_staged(plan)[ORDERS].unfinished_rows == MANY)
        watch.report()

    shop.warehouse.sink(plan, 0).write(0, batches())
    watch.report()
    during, after = kept.reads
    expected = (MANY, 0, 2, 3 * MANY, 33)
    assert (during.rows, during.staged_chunks, during.chunks, during.total_rows, during.percent) == expected
    assert (after.rows, after.staged_chunks, after.total_rows, after.percent) == (2 * MANY, 1, 4 * MANY, 50)


def test_replay_reports_the_rows_in_staging_without_a_total(shop: Shop) -> None:
    shop.run(first_load(), 5, [])
    lane = replay_lane(Interval(lsn(5), lsn(10)))
    window_id = shop.ledger.open_window(PIPELINE, lsn(10), [changes(5, 10)], lane=lane).window_id
    plan = shop.ledger.begin_load(window_id).plan
    shop.warehouse.prepare_window(plan)
    watch, kept = watched(shop, plan)
    watch.report()
    assert kept.reads == []
    shop.warehouse.sink(plan, 0).write(0, iter([many(1)]))
    wait_until(lambda: shop.warehouse.count_staged(plan)[ORDERS].rows == MANY)
    watch.report()
    watch.end(ORDERS, 2 * MANY)
    watch.report()
    staged, done = kept.reads
    assert (staged.kind, staged.rows, staged.percent) == (ReadKind.REPLAY, MANY, None)
    assert (done.rows, done.percent, done.is_done) == (2 * MANY, 100, True)
    assert [(step.what, step.done_tables, step.tables) for step in kept.steps] == [
        (f"window {plan.window_id}: reading", 0, 1),
        (f"window {plan.window_id}: reading", 0, 1),
        (f"window {plan.window_id}: reading", 1, 1),
    ]


def test_load_reports_its_steps_and_the_end_of_each_table(shop: Shop) -> None:
    source = SmallSource()
    for key in range(1, 7):
        source.write(key, key * 10)
    window_id = shop.begin(first_load(), 10).window_id
    kept = KeptProgress(every_seconds=60)
    load_window(window_id, shop.ledger, shop.warehouse, source, SmallStager(shop, source), progress=kept)
    (done,) = kept.reads
    assert (done.table, done.kind, done.rows, done.is_done) == (ORDERS, ReadKind.FIRST_LOAD, 6, True)
    assert [step.what for step in kept.steps] == [f"window {window_id}: reading", f"window {window_id}: merging"]


def test_progress_that_cannot_be_read_does_not_end_the_load(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    plan = shop.begin(first_load(), 10)
    fuse = Fuse()
    asked = 0

    def refuse(_plan: object) -> None:
        nonlocal asked
        asked += 1
        raise WarehouseUnavailableError("warehouse", "gone.")

    warehouse = fuse.guard(shop.warehouse)
    warehouse.count_staged = refuse
    with caplog.at_level(logging.WARNING), progress_reported(plan, shop.ledger, warehouse, KeptProgress()):
        wait_until(lambda: asked >= 2)
    assert "Could not read the progress of the load: warehouse: gone." in caplog.messages


def test_rows_of_a_target_are_estimated_from_its_statistics(shop: Shop) -> None:
    comparer = PostgresRowComparer(shop.connection)
    assert comparer.estimate_rows(with_settings(first_load(), target=TableName("nowhere", "orders"))) is None
    shop.run(first_load(), 10, [Row(key, INSERT, 8, 1) for key in range(1, 8)])
    wait_until(lambda: comparer.estimate_rows(first_load()) == 7)
