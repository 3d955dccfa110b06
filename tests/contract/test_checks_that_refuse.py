"""Tables that a check refuses after the merge leave the window; the others go on, and a correction brings them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg
import pytest
from fuse import Fuse, KilledError
from two_tables import ITEMS, PairRunner, pair
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.errors import DataQualityError, FloodmarkError, TableRefusedError
from floodmark.core.plan import TableCounts, WindowPlan, WindowState
from floodmark.core.schema import TableName, quote_table
from floodmark.core.settings import Deletes, NetSource
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.finish import check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window

BAD = 4711
REFUSED = (TableRefusedError, DataQualityError)


@dataclass
class SmallAmounts:
    """A ``Quality`` that refuses a table where a living row of the window has a large amount."""

    shop: Shop

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        assert set(counts) == {table.source for table in plan.tables}
        errors: dict[TableName, FloodmarkError] = {}
        for table in plan.tables:
            rows = self.shop.rows(
                f'SELECT 1 FROM {quote_table(table.target)} WHERE "Amount" >= 100 AND NOT __deleted'
                f" AND __window_id = {plan.window_id}"
            )
            if rows:
                errors[table.source] = DataQualityError(str(table.source), f"small: {len(rows)} rows against it.")
        return errors


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> PairRunner:
    shop = Shop(database, ledger)
    return PairRunner(shop, quality=SmallAmounts(shop))


def refused(runner: PairRunner, match: str = r"dbo\.Items: refused: small: 1 rows against it") -> None:
    with pytest.raises(TableRefusedError, match=match):
        runner.run()


@pytest.mark.parametrize("corrected", [22, None])
def test_table_leaves_the_merged_window_and_heals_by_an_update_or_a_delete(
    runner: PairRunner, corrected: int | None
) -> None:
    runner.run()
    watermark = runner.watermark(ITEMS)
    runner.source.write(ITEMS, 2, BAD)
    for amount in (11, 12):
        runner.source.write(ORDERS, 1, amount)
        refused(runner)
        assert runner.equal(ORDERS)
        assert (runner.watermark(ORDERS), runner.watermark(ITEMS)) == (runner.position, watermark)
        assert runner.verdicts()["Items"] == "refused"
        # The target has the rows of the window: the merge has published them.
        assert runner.equal(ITEMS)
    runner.source.write(ITEMS, 2, corrected)
    runner.run()
    assert runner.equal(ITEMS)
    assert runner.watermark(ITEMS) == runner.position
    assert runner.verdicts()["Items"] == "ready"


def test_row_of_a_refused_window_that_is_gone_before_the_next_window_is_deleted(runner: PairRunner) -> None:
    """The server's net changes from the old watermark on omit it: it came and went in between."""
    settings = pair(items={"net": NetSource.SERVER})
    runner.run(settings)
    runner.source.write(ITEMS, 1, 11)
    runner.run(settings)
    runner.source.write(ITEMS, 50, BAD)
    with pytest.raises(TableRefusedError):
        runner.run(settings)
    runner.source.write(ITEMS, 50, None)
    runner.run(settings)
    assert runner.equal(ITEMS)
    assert runner.verdicts()["Items"] == "ready"


def test_row_that_was_changed_in_the_target_is_merged_again(runner: PairRunner) -> None:
    runner.run()
    with psycopg.connect(runner.shop.connection.conninfo()) as session:
        session.execute(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS"
            ' $$BEGIN NEW."Amount" := 4711; RETURN NEW; END$$;'
            "CREATE TRIGGER spoil BEFORE UPDATE ON shop.items FOR EACH ROW EXECUTE FUNCTION spoil()"
        )
    runner.source.write(ITEMS, 2, 22)
    runner.source.write(ORDERS, 1, 11)
    refused(runner)
    with psycopg.connect(runner.shop.connection.conninfo()) as session:
        session.execute("DROP TRIGGER spoil ON shop.items")
    runner.run()
    assert (runner.equal(ORDERS), runner.equal(ITEMS)) == (True, True)


def test_window_of_which_every_table_fails_is_planned_again_with_a_later_end(runner: PairRunner) -> None:
    runner.run()
    for table in (ORDERS, ITEMS):
        runner.source.write(table, 2, BAD)
    refused(runner, "2 tables cannot be loaded")
    unfinished = runner.shop.ledger.unfinished_window(PIPELINE)
    assert unfinished is not None
    assert unfinished.state is WindowState.MERGED
    for table in (ORDERS, ITEMS):
        runner.source.write(table, 2, 22)
    runner.run()
    assert (runner.equal(ORDERS), runner.equal(ITEMS)) == (True, True)
    assert runner.shop.ledger.unfinished_window(PIPELINE) is None
    assert runner.shop.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging'") == []


def test_check_that_is_repeated_after_the_target_was_corrected_publishes_the_window(runner: PairRunner) -> None:
    runner.run()
    for table in (ORDERS, ITEMS):
        runner.source.write(table, 2, BAD)
    refused(runner, "2 tables cannot be loaded")
    window = runner.shop.ledger.unfinished_window(PIPELINE)
    assert window is not None
    with psycopg.connect(runner.shop.connection.conninfo()) as session:
        session.execute('UPDATE shop.items SET "Amount" = 1 WHERE "Id" = 2')
        session.execute('UPDATE shop.orders SET "Amount" = 1 WHERE "Id" = 2')
    assert check_window(window.plan.window_id, runner.shop.ledger, runner.quality)
    runner.run()
    assert (runner.watermark(ORDERS), runner.watermark(ITEMS)) == (runner.position, runner.position)


@pytest.mark.parametrize("deletes", Deletes)
def test_first_load_that_is_refused_is_swept_by_the_next_one(runner: PairRunner, deletes: Deletes) -> None:
    settings = pair(items={"deletes": deletes})
    runner.source.write(ITEMS, 2, BAD)
    with pytest.raises(TableRefusedError):
        runner.run(settings)
    assert (runner.equal(ORDERS), runner.watermark(ITEMS)) == (True, None)
    runner.source.write(ITEMS, 1, None)
    runner.source.write(ITEMS, 2, 22)
    runner.run(settings)
    assert runner.equal(ITEMS)
    runner.source.write(ITEMS, 1, 12)
    runner.run(settings)
    assert (runner.equal(ITEMS), runner.watermark(ITEMS)) == (True, runner.position)


def test_window_whose_checks_end_unexpectedly_is_given_up_and_planned_again(runner: PairRunner) -> None:
    class Broken:
        def check_window(
            self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
        ) -> Mapping[TableName, FloodmarkError]:
            raise ValueError("no such key")

    runner.run()
    checks, runner.quality = runner.quality, Broken()
    runner.source.write(ORDERS, 1, 11)
    runner.source.write(ITEMS, 1, 12)
    with pytest.raises(TableRefusedError, match=r"unexpected error \(ValueError\).* The next run gives up this window"):
        runner.run()
    assert runner.verdicts() == {"Orders": "refused", "Items": "refused"}
    runner.quality = checks
    runner.source.write(ORDERS, 2, 22)
    runner.run()
    assert runner.equal(ORDERS)
    assert runner.equal(ITEMS)


def test_load_of_one_table_fails_as_a_whole(runner: PairRunner) -> None:
    runner.run()
    runner.source.write(ITEMS, 2, BAD)
    opened = runner.planner().open_reload(ITEMS)
    with pytest.raises(DataQualityError, match="small"):
        runner.finish(opened)
    assert opened.window_id is not None
    assert runner.shop.ledger.read_window(opened.window_id).state is WindowState.MERGED


@pytest.mark.parametrize("is_given_up", [False, True])
def test_load_that_the_checks_refused_is_read_again(runner: PairRunner, is_given_up: bool) -> None:
    runner.run()
    runner.source.write(ITEMS, 2, BAD)
    runner.source.write(ITEMS, 50, 50)
    with pytest.raises(DataQualityError, match="small"):
        runner.finish(runner.planner().open_reload(ITEMS))
    for key, amount in ((2, 22), (50, None)):
        runner.source.write(ITEMS, key, amount)
    if is_given_up:
        runner.planner().give_up(ITEMS)
    else:
        runner.finish(runner.planner().open_reload(ITEMS))
        assert runner.equal(ITEMS)
    runner.run(pair(items={"net": NetSource.SERVER}))
    assert runner.equal(ITEMS)
    assert runner.shop.ledger.list_unfinished(PIPELINE) == []
    assert runner.shop.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging'") == []


@pytest.mark.parametrize("all_fail", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_run_that_is_killed_at_any_call_ends_as_if_it_had_not_been(
    runner: PairRunner, after: bool, all_fail: bool
) -> None:
    runner.run()
    bad = (ORDERS, ITEMS) if all_fail else (ITEMS,)
    for blows_at in range(1, 100):
        for table in (ORDERS, ITEMS):
            runner.source.write(table, 1, 10 + blows_at % 80)
        for table in bad:
            runner.source.write(table, 2, BAD)
        fuse = Fuse(blows_at, after)
        with pytest.raises((KilledError, *REFUSED)):
            runner.run(fuse=fuse)
        with pytest.raises(REFUSED):
            runner.run()
        assert all_fail or runner.equal(ORDERS)
        # A run that finishes the unfinished window, or drops it, and one that reads the correction.
        for table in bad:
            runner.source.write(table, 2, 22)
        for _ in range(2):
            try:
                runner.run()
            except REFUSED:
                continue
        assert (runner.equal(ORDERS), runner.equal(ITEMS)) == (True, True)
        assert (runner.watermark(ORDERS), runner.watermark(ITEMS)) == (runner.position, runner.position)
        assert set(runner.verdicts().values()) <= {"ready", "caught_up"}
        assert runner.shop.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging'") == []
        if fuse.calls < blows_at:
            break
    assert blows_at > 10


def test_overtaken_check_changes_nothing(runner: PairRunner) -> None:
    runner.run()
    runner.source.write(ITEMS, 2, BAD)
    runner.source.write(ORDERS, 1, 11)
    ledger = runner.shop.ledger
    opened = open_window(pair(), runner.source, ledger)
    assert opened.window_id is not None
    load_window(opened.window_id, ledger, runner.shop.warehouse, runner.source, runner.stager)
    assert check_window(opened.window_id, ledger, runner.quality)
    left = ledger.read_window(opened.window_id)
    assert ledger.refuse_merged(opened.window_id, []) == left.plan
    ledger.drop_merged(opened.window_id)
    assert ledger.read_window(opened.window_id) == left
    assert [table.source for table in left.plan.tables] == [ORDERS]
