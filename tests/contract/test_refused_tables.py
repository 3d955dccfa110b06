"""Tables whose rows are refused leave the window, the others are merged, and a correction brings them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest
from two_tables import ITEMS, ITEMS_TARGET, PairRunner, pair
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.errors import (
    DataQualityError,
    FloodmarkBugError,
    SourceUnavailableError,
    TableRefusedError,
    TargetRefusedError,
)
from floodmark.core.plan import LoadKind
from floodmark.core.settings import Deletes, OnFailure, Rule
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse import targets, warehouse
from floodmark.postgres.warehouse.merge import Merge, MergeCounts, count_merge
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window

SMALL = (Rule("small", "Amount < 100", OnFailure.STOP),)
BAD = 4711


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> PairRunner:
    return PairRunner(Shop(database, ledger))


def change(runner: PairRunner, statement: str) -> None:
    with psycopg.connect(runner.shop.connection.conninfo()) as session:
        session.execute(statement)


def healed_by(runner: PairRunner, correct: Callable[[], None]) -> None:
    """Check that a correction brings the table back, and that it brought rows of the other one meanwhile."""
    strict = pair(items={"rules": SMALL})
    runner.run(strict)
    runner.source.write(ITEMS, 2, BAD)
    for amount in (11, 12):
        runner.source.write(ORDERS, 1, amount)
        with pytest.raises(TableRefusedError, match=r"dbo\.Items: refused: rows .* broke rule small") as found:
            runner.run(strict)
        assert str(BAD) not in str(found.value)
        assert runner.equal(ORDERS)
        assert runner.watermark(ORDERS) == runner.position
        assert runner.verdicts()["Items"] == "refused"
    correct()
    runner.run(strict)
    assert runner.equal(ITEMS)
    assert runner.watermark(ITEMS) == runner.position
    assert runner.verdicts()["Items"] == "ready"


@pytest.mark.parametrize("corrected", [22, None])
def test_row_that_breaks_a_stopping_rule_heals_by_an_update_or_a_delete(
    runner: PairRunner, corrected: int | None
) -> None:
    healed_by(runner, lambda: runner.source.write(ITEMS, 2, corrected))


@pytest.mark.parametrize("corrected", [22, None])
def test_only_table_of_a_pipeline_is_planned_again_with_a_later_end(runner: PairRunner, corrected: int | None) -> None:
    runner.run()
    # Both tables are refused, so that nothing of the window can be merged.
    strict = pair(orders={"rules": SMALL}, items={"rules": SMALL})
    runner.source.write(ITEMS, 2, BAD)
    runner.source.write(ORDERS, 2, BAD)
    with pytest.raises(TableRefusedError, match="2 tables cannot be loaded"):
        runner.run(strict)
    assert runner.shop.ledger.unfinished_window(PIPELINE) is not None
    for table in (ORDERS, ITEMS):
        runner.source.write(table, 2, corrected)
    runner.run(strict)
    assert (runner.equal(ORDERS), runner.equal(ITEMS)) == (True, True)
    assert runner.shop.ledger.unfinished_window(PIPELINE) is None


@pytest.mark.parametrize("corrected", [22, None])
def test_row_that_a_first_load_refuses_heals_at_the_source(runner: PairRunner, corrected: int | None) -> None:
    strict = pair(items={"rules": SMALL})
    runner.source.write(ITEMS, 2, BAD)
    with pytest.raises(TableRefusedError):
        runner.run(strict)
    assert (runner.equal(ORDERS), runner.watermark(ITEMS)) == (True, None)
    runner.source.write(ITEMS, 2, corrected)
    runner.run(strict)
    assert runner.equal(ITEMS)


def test_refused_table_that_is_taken_out_meanwhile_continues_at_its_watermark(runner: PairRunner) -> None:
    strict = pair(items={"rules": SMALL})
    runner.run(strict)
    watermark = runner.watermark(ITEMS)
    runner.source.write(ITEMS, 2, BAD)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError):
        runner.run(strict)
    runner.source.write(ORDERS, 1, 12)
    runner.run(replace(strict, tables=strict.tables[:1]))
    assert (runner.equal(ORDERS), runner.watermark(ITEMS)) == (True, watermark)
    runner.source.write(ITEMS, 2, 22)
    opened = runner.run(strict)
    plan = runner.shop.ledger.read_window(opened.window_id or 0).plan
    assert {table.source: table.kind for table in plan.tables}[ITEMS] is LoadKind.CHANGES
    assert runner.equal(ITEMS)


def test_unique_index_on_one_target_stops_that_table_alone(runner: PairRunner) -> None:
    runner.run()
    change(runner, 'CREATE UNIQUE INDEX mine ON shop.items ("Amount")')
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ITEMS, 3, 20)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError, match=r"constraint mine of shop\.items rejected rows"):
        runner.run()
    assert runner.equal(ORDERS)
    change(runner, "DROP INDEX shop.mine")
    runner.run()
    assert runner.equal(ITEMS)


def test_trigger_that_fails_stops_one_table(runner: PairRunner) -> None:
    runner.run()
    change(
        runner,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';"
        "CREATE TRIGGER refuse BEFORE UPDATE ON shop.items FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError, match="error P0001"):
        runner.run()
    assert runner.equal(ORDERS)


def test_locked_row_of_one_target_stops_that_table_alone(runner: PairRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MERGE_LOCK_SECONDS", 0.5)
    runner.run()
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    with psycopg.connect(runner.shop.connection.conninfo()) as blocking:
        blocking.execute("SELECT FROM shop.items FOR UPDATE")
        with pytest.raises(TableRefusedError, match=f"locked for more than .* by session {blocking.info.backend_pid}"):
            runner.run()
        assert runner.equal(ORDERS)
    runner.run()
    assert runner.equal(ITEMS)


def test_deferred_foreign_key_without_its_row_stops_that_table_alone(runner: PairRunner) -> None:
    """The row that it needs is in quarantine."""
    gate = pair(orders={"rules": (Rule("small", "amount < 100", OnFailure.QUARANTINE),)})
    runner.run(gate)
    change(
        runner,
        'ALTER TABLE shop.items ADD CONSTRAINT of FOREIGN KEY ("Id") REFERENCES shop.orders DEFERRABLE '
        "INITIALLY DEFERRED",
    )
    for table, amount in ((ORDERS, BAD), (ITEMS, 40)):
        runner.source.write(table, 4, amount)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError, match=r"dbo\.Items: .*constraint of of shop\.items rejected .* quarantine"):
        runner.run(gate)
    assert runner.verdicts()["Orders"] == "ready"
    runner.source.write(ORDERS, 4, 44)
    runner.run(gate)
    assert runner.equal(ORDERS)
    assert runner.equal(ITEMS)


def test_deferred_foreign_key_finds_the_rows_of_a_table_that_is_merged_later(runner: PairRunner) -> None:
    runner.run()
    for one, other in (("items", "orders"), ("orders", "items")):
        references = f'FOREIGN KEY ("Id") REFERENCES shop.{other} DEFERRABLE INITIALLY DEFERRED'
        change(runner, f"ALTER TABLE shop.{one} ADD CONSTRAINT to_{other} {references}")
    for table in (ORDERS, ITEMS):
        runner.source.write(table, 4, 40)
    runner.run()
    assert runner.equal(ORDERS)
    assert runner.equal(ITEMS)


def test_deleted_row_that_another_table_refers_to_stops_the_table_of_the_delete(runner: PairRunner) -> None:
    hard = pair(orders={"deletes": Deletes.HARD}, items={"deletes": Deletes.HARD})
    runner.run(hard)
    change(
        runner,
        "CREATE TABLE shop.mine (id bigint REFERENCES shop.items DEFERRABLE INITIALLY DEFERRED);"
        "INSERT INTO shop.mine VALUES (2)",
    )
    runner.source.write(ITEMS, 2, None)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError, match=r"dbo\.Items: .*constraint mine_id_fkey of shop\.mine rejected"):
        runner.run(hard)
    assert runner.equal(ORDERS)


def test_deferred_trigger_that_fails_stops_one_table(runner: PairRunner) -> None:
    runner.run()
    change(
        runner,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';"
        "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON shop.items DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError, match=r"dbo\.Items: .*error P0001"):
        runner.run()
    assert runner.equal(ORDERS)


def test_merge_that_fails_unexpectedly_stops_one_table(runner: PairRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_for_items(session: psycopg.Connection, merge: Merge) -> MergeCounts:
        if merge.target == ITEMS_TARGET:
            raise KeyError(BAD)
        return count_merge(session, merge)

    runner.run()
    monkeypatch.setattr(warehouse, "count_merge", fail_for_items)
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError, match=r"dbo\.Items: .*the merge failed \(KeyError\)") as found:
        runner.run()
    assert str(BAD) not in str(found.value)
    assert runner.equal(ORDERS)


def test_target_of_another_shape_stops_one_table(runner: PairRunner) -> None:
    runner.run()
    change(runner, 'ALTER TABLE shop.items ALTER "Disc%" TYPE text')
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    with pytest.raises(TableRefusedError, match=r"shop\.items exists with another shape"):
        runner.run()
    assert runner.equal(ORDERS)
    change(runner, 'ALTER TABLE shop.items ALTER "Disc%" TYPE integer USING "Disc%"::integer')
    runner.run()
    assert runner.equal(ITEMS)


@pytest.mark.parametrize("kind", LoadKind)
def test_table_that_cannot_be_staged_leaves_the_others_staged_once(runner: PairRunner, kind: LoadKind) -> None:
    if kind is LoadKind.CHANGES:
        runner.run()
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    runner.stager.staged.clear()
    runner.stager.refused = {ITEMS: FloodmarkBugError("dbo.Items", "Spark failed.", "", "a value")}
    with pytest.raises(TableRefusedError, match=r"dbo\.Items: refused: Spark failed\. The log of the load"):
        runner.run()
    assert runner.stager.staged.count(ORDERS) == 1
    assert runner.equal(ORDERS)
    runner.stager.refused = {}
    runner.run()
    assert runner.equal(ITEMS)


def test_error_that_is_retried_stops_the_whole_window_and_leaves_no_table_out(runner: PairRunner) -> None:
    runner.run()
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    runner.stager.refused = {ITEMS: SourceUnavailableError("dbo.Items", "it went away.")}
    with pytest.raises(SourceUnavailableError):
        runner.run()
    assert not runner.equal(ORDERS)
    runner.stager.refused = {}
    unfinished = runner.shop.ledger.unfinished_window(PIPELINE)
    assert unfinished is not None
    assert runner.run().window_id == unfinished.plan.window_id
    assert (runner.equal(ORDERS), runner.equal(ITEMS)) == (True, True)


def test_load_that_is_run_again_after_it_refused_all_refuses_them_in_the_same_window(runner: PairRunner) -> None:
    runner.run()
    strict = pair(items={"rules": SMALL})
    runner.source.write(ITEMS, 2, BAD)
    runner.source.write(ORDERS, 1, 11)
    opened = open_window(strict, runner.source, runner.shop.ledger)
    for _ in range(2):
        runner.stager.refused = {ORDERS: FloodmarkBugError("dbo.Orders", "Spark failed.")}
        with pytest.raises((DataQualityError, TableRefusedError)):
            runner.finish(opened)
    runner.stager.refused = {}
    runner.source.write(ITEMS, 2, 5)
    runner.run(strict)
    assert runner.equal(ITEMS)


def test_details_are_in_the_log_where_every_table_is_refused(
    runner: PairRunner, caplog: pytest.LogCaptureFixture
) -> None:
    runner.run()
    for table in (ORDERS, ITEMS):
        runner.source.write(table, 2, 11)
        runner.stager.refused[table] = FloodmarkBugError(str(table), "Spark failed.", "", f"the cause of {table}")
    with pytest.raises(TableRefusedError, match="2 tables cannot be loaded") as raised:
        runner.run()
    assert "the cause of" not in raised.value.in_full
    for table in (ORDERS, ITEMS):
        assert f"the cause of {table}" in caplog.text


def test_reload_takes_a_refused_table_out_of_an_unfinished_window(runner: PairRunner) -> None:
    strict = pair(orders={"rules": SMALL}, items={"rules": SMALL})
    runner.run(strict)
    runner.source.write(ITEMS, 2, BAD)
    runner.source.write(ORDERS, 2, BAD)
    with pytest.raises(TableRefusedError):
        runner.run(strict)
    runner.source.write(ITEMS, 2, 22)
    opened = runner.planner(strict).open_reload(ITEMS)
    runner.finish(opened)
    assert runner.equal(ITEMS)
    runner.source.write(ORDERS, 2, 22)
    runner.run(strict)
    assert (runner.equal(ORDERS), runner.equal(ITEMS)) == (True, True)


def test_load_of_one_table_that_is_refused_keeps_its_own_error(runner: PairRunner) -> None:
    runner.run()
    change(runner, 'CREATE UNIQUE INDEX mine ON shop.items ("Amount")')
    runner.source.write(ITEMS, 4, 30)
    opened = runner.planner().open_reload(ITEMS)
    with pytest.raises(TargetRefusedError, match="constraint mine"):
        runner.finish(opened)
    change(runner, "DROP INDEX shop.mine")
    runner.finish(runner.planner().open_reload(ITEMS))
    assert runner.equal(ITEMS)


def test_killed_between_refusal_and_merge_the_next_attempt_merges_the_others(
    runner: PairRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.run()
    strict = pair(items={"rules": SMALL})
    runner.source.write(ITEMS, 2, BAD)
    runner.source.write(ORDERS, 1, 11)
    opened = open_window(strict, runner.source, runner.shop.ledger)
    ledger = runner.shop.ledger
    refuse = ledger.refuse_tables

    def killed(*arguments: object) -> None:
        refuse(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger, "refuse_tables", killed)
    with pytest.raises(KeyboardInterrupt):
        load_window(opened.window_id or 0, ledger, runner.shop.warehouse, runner.source, runner.stager)
    monkeypatch.undo()
    with pytest.raises(TableRefusedError):
        runner.run(strict)
    assert runner.equal(ORDERS)
    assert runner.watermark(ORDERS) == runner.position
