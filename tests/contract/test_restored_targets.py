"""Targets that were restored from a backup, or written into another file, and what the ledger then says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from small_replay import Pipeline
from small_source import SmallSource, SmallStager
from warehouse_shop import INSERT, ORDERS, PIPELINE, TARGET, Row, Shop, first_load

from floodmark.core.errors import TargetLostError
from floodmark.core.plan import Bound, WindowPlan
from floodmark.core.settings import Deletes, TableSettings
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sync.load import load_window


@pytest.fixture
def pipeline(database: WarehouseConnection, ledger: PostgresLedger) -> Pipeline:
    """Five rows, and nothing of them loaded."""
    source = SmallSource()
    for key in range(1, 6):
        source.write(key, key * 10)
    return Pipeline(Shop(database, ledger), source)


def execute(pipeline: Pipeline, *statements: str) -> None:
    with psycopg.connect(pipeline.shop.connection.conninfo(), autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


@contextmanager
def taken_back(pipeline: Pipeline) -> Iterator[None]:
    """Restore the target, as it was before the block, after it."""
    execute(
        pipeline,
        "CREATE TABLE shop.saved (LIKE shop.orders INCLUDING ALL)",
        "INSERT INTO shop.saved SELECT * FROM shop.orders",
    )
    yield
    execute(pipeline, "DROP TABLE shop.orders", "ALTER TABLE shop.saved RENAME TO orders")


@pytest.mark.parametrize("deletes", Deletes)
def test_target_from_before_a_delete_is_lost(pipeline: Pipeline, deletes: Deletes) -> None:
    """A hard delete leaves no row with the number of its window."""
    pipeline.run(deletes=deletes)
    with taken_back(pipeline):
        pipeline.source.write(2, None)
        pipeline.run(deletes=deletes)
    pipeline.source.write(3, 33)
    with pytest.raises(TargetLostError, match="restored"):
        pipeline.run(deletes=deletes)
    pipeline.reload(deletes=deletes)
    pipeline.run(deletes=deletes)
    assert pipeline.equal()


def test_row_that_came_back_after_its_delete_is_no_sign_of_a_restore(pipeline: Pipeline) -> None:
    pipeline.run(deletes=Deletes.HARD)
    for amount in (None, 22):
        pipeline.source.write(2, amount)
        pipeline.run(deletes=Deletes.HARD)
    execute(pipeline, "VACUUM FULL shop.orders")
    pipeline.source.write(3, 33)
    pipeline.run(deletes=Deletes.HARD)
    assert pipeline.equal()


@pytest.mark.parametrize("deletes", Deletes)
def test_target_whose_rows_were_merged_again_unchanged_is_known_in_another_file(
    pipeline: Pipeline, deletes: Deletes
) -> None:
    """A replay gives its number also to rows that it does not change."""
    pipeline.run(deletes=deletes)
    pipeline.source.write(1, 11)
    pipeline.run(deletes=deletes)
    pipeline.replay(10, pipeline.source.position, deletes=deletes)
    execute(pipeline, "VACUUM FULL shop.orders")
    pipeline.source.write(3, 33)
    pipeline.run(deletes=deletes)
    assert pipeline.equal()


@pytest.mark.parametrize("deletes", Deletes)
def test_target_of_a_row_that_came_and_went_is_known_in_another_file(pipeline: Pipeline, deletes: Deletes) -> None:
    """A soft delete of a row that the target never had writes a row with the number of its window."""
    pipeline.run(deletes=deletes)
    pipeline.source.write(9, 90)
    pipeline.source.write(9, None)
    pipeline.run(deletes=deletes)
    execute(pipeline, "VACUUM FULL shop.orders")
    pipeline.source.write(3, 33)
    pipeline.run(deletes=deletes)
    assert pipeline.equal()


def test_target_that_is_dropped_while_a_load_reads_is_made_again_by_the_next(pipeline: Pipeline) -> None:
    pipeline.run()
    opened = pipeline.load_planner().open_reload(ORDERS)

    @dataclass
    class Dropping(SmallStager):
        def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
            execute(pipeline, "DROP TABLE shop.orders")
            return super().read_chunk_bounds(plan, index)

    assert opened.window_id is not None
    shop = pipeline.shop
    with pytest.raises(TargetLostError, match="does not exist"):
        load_window(opened.window_id, shop.ledger, shop.warehouse, pipeline.source, Dropping(shop, pipeline.source))
    pipeline.reload()
    assert pipeline.equal()


def test_release_into_a_target_that_was_dropped_before_its_first_load_was_published_is_refused(
    pipeline: Pipeline,
) -> None:
    plan = pipeline.shop.begin(first_load(), 10)
    pipeline.shop.merge(plan)
    execute(pipeline, "DROP TABLE shop.orders")
    with pytest.raises(TargetLostError, match="does not exist"):
        PostgresQuarantine(pipeline.shop.connection).release(PIPELINE, TableSettings(ORDERS, TARGET), "anna")


def test_chunks_of_a_load_that_a_restored_ledger_does_not_have_are_read_again(pipeline: Pipeline) -> None:
    """The next window has the number of the lost one, and its load finds the staging table of that one."""
    pipeline.run()
    shop, source = pipeline.shop, pipeline.source
    opened = pipeline.load_planner().open_reload(ORDERS)
    assert opened.window_id is not None
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    for number, key in enumerate(sorted(source.rows)):
        shop.stage(plan, [Row(key, INSERT, source.position, 1, part=number)])
    execute(
        pipeline,
        f"DELETE FROM floodmark.windows WHERE window_id = {opened.window_id}",
        f"SELECT setval('floodmark.windows_window_id_seq', {opened.window_id}, false)",
    )
    source.write(5, None)
    pipeline.reload()
    pipeline.run()
    assert pipeline.equal()
