"""Whole runs on a real ledger and warehouse, with a source in memory, and a crash between any two calls."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from fuse import Fuse, KilledError
from small_source import START, NoChecks, SmallSource, SmallStager, settings
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.errors import DataQualityError, WindowExpiredError
from floodmark.core.plan import TableCounts, WindowState
from floodmark.core.position import NoPosition
from floodmark.core.settings import Deletes, OnFailure, Rule
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.window import OpenResult
from lsns import lsn, number_of


@dataclass
class Runner:
    shop: Shop
    source: SmallSource

    def run(self, fuse: Fuse | None = None, **chosen: Any) -> OpenResult:
        """One run, as the DAG does it."""
        fuse = fuse or Fuse()
        ledger, warehouse = fuse.guard(self.shop.ledger), fuse.guard(self.shop.warehouse)
        stager = fuse.guard(SmallStager(self.shop, self.source))
        opened = open_window(settings(**chosen), self.source, ledger)
        if opened.window_id is not None:
            load_window(opened.window_id, ledger, warehouse, self.source, stager)
            check_window(opened.window_id, ledger, NoChecks())
            advance_window(opened.window_id, ledger, warehouse)
        return opened

    def target(self) -> dict[int, Decimal]:
        return {key: row[0] for key, row in self.shop.target().items()}

    def equal(self) -> bool:
        return self.target() == {key: Decimal(amount) for key, amount in self.source.rows.items()}

    def watermark(self) -> int | None:
        state = self.shop.ledger.read_tables(PIPELINE).get(ORDERS)
        return number_of(state.watermark) if state and state.watermark else None

    def counts(self) -> TableCounts:
        """Return the counts of all windows together."""
        names = ("read_rows", "staged_rows", "inserted_rows", "updated_rows", "deleted_rows", "unchanged_rows")
        sums = ", ".join(f"coalesce(sum({name}), 0)::int AS {name}" for name in names)
        return TableCounts(**self.shop.rows(f"SELECT {sums} FROM floodmark.window_tables")[0])


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> Runner:
    source = SmallSource()
    for key in (1, 2, 3):
        source.write(key, key * 10)
    return Runner(Shop(database, ledger), source)


def change_some(source: SmallSource) -> None:
    source.write(1, 11)
    source.write(2, None)
    source.write(4, 40)
    source.write(4, 41)


def test_first_load_and_windows_end_equal_with_the_watermark_at_the_last_lsn_examined(runner: Runner) -> None:
    first = runner.run()
    assert (first.state, first.to) == (WindowState.PLANNED, lsn(runner.source.position))
    change_some(runner.source)
    runner.source.idle()
    runner.run()
    assert runner.equal()
    assert runner.watermark() == runner.source.position
    assert runner.counts() == TableCounts(read_rows=7, staged_rows=6, inserted_rows=4, updated_rows=1, deleted_rows=1)
    assert runner.shop.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging'") == []


def test_run_with_nothing_to_do_takes_one_snapshot_and_opens_no_window(runner: Runner) -> None:
    runner.run()
    taken = runner.source.snapshots_taken
    result = runner.run()
    assert (result.window_id, runner.source.snapshots_taken - taken) == (None, 1)
    assert "caught up" in result.reason


def test_quiet_source_moves_the_watermark_without_a_window(runner: Runner) -> None:
    runner.run()
    runner.source.idle()
    result = runner.run()
    assert (result.window_id, result.to) == (None, lsn(runner.source.position))
    assert runner.watermark() == runner.source.position
    assert len(runner.shop.rows("SELECT * FROM floodmark.windows")) == 1


def test_new_table_is_skipped_until_it_is_captured(runner: Runner) -> None:
    runner.source.seen = {"oldest": NoPosition.NULL}
    result = runner.run()
    assert result.window_id is None
    assert "not_captured_yet" in result.reason
    runner.source.seen = {}
    runner.run()
    assert runner.equal()


@pytest.mark.parametrize(("after", "deletes"), [(False, Deletes.SOFT), (True, Deletes.HARD)])
def test_run_killed_at_any_call_ends_as_if_it_had_not_been(runner: Runner, deletes: Deletes, after: bool) -> None:
    runner.run(deletes=deletes)
    expected = runner.counts()
    for blows_at in range(1, 100):
        change_some(runner.source)
        runner.source.write(2, 22)
        is_new = int(blows_at == 1)
        expected = TableCounts(
            read_rows=expected.read_rows + 5,
            staged_rows=expected.staged_rows + 3,
            inserted_rows=expected.inserted_rows + is_new,
            updated_rows=expected.updated_rows + 3 - is_new,
        )
        fuse = Fuse(blows_at, after)
        try:
            runner.run(fuse, deletes=deletes)
        except KilledError:
            # The source goes on meanwhile; the unfinished window must not take that along.
            position = runner.source.position
            runner.source.idle()
            runner.run(deletes=deletes)
            if runner.watermark() == position:
                runner.run(deletes=deletes)
        else:
            break
        assert runner.equal()
        assert runner.watermark() == runner.source.position
        assert runner.counts() == expected
    assert blows_at > 10


def test_unfinished_window_is_finished_and_takes_nothing_newer_along(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    planned = open_window(settings(), runner.source, runner.shop.ledger)
    runner.source.write(1, 12)
    resumed = runner.run()
    assert (resumed.window_id, resumed.to) == (planned.window_id, planned.to)
    assert "unfinished" in resumed.reason
    assert runner.target()[1] == 11
    runner.run()
    assert runner.equal()


def test_unfinished_window_takes_one_snapshot_of_the_source(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    planned = open_window(settings(), runner.source, runner.shop.ledger)
    taken = runner.source.snapshots_taken
    resumed = open_window(settings(), runner.source, runner.shop.ledger)
    assert (resumed.window_id, runner.source.snapshots_taken - taken) == (planned.window_id, 1)


def test_cleanup_during_the_read_is_found_and_nothing_is_merged(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    before = runner.target()
    opened = open_window(settings(), runner.source, runner.shop.ledger)
    assert opened.window_id is not None
    runner.source.oldest = runner.source.position + 1
    with pytest.raises(WindowExpiredError, match=r"dbo\.Orders: expired: changes after the watermark"):
        load_window(
            opened.window_id,
            runner.shop.ledger,
            runner.shop.warehouse,
            runner.source,
            SmallStager(runner.shop, runner.source),
        )
    assert runner.target() == before
    assert runner.shop.ledger.read_window(opened.window_id).state is WindowState.PLANNED


def test_cleanup_before_an_unfinished_window_is_loaded_is_found_before_spark_starts(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    open_window(settings(), runner.source, runner.shop.ledger)
    runner.source.oldest = runner.source.position + 1
    with pytest.raises(WindowExpiredError):
        open_window(settings(), runner.source, runner.shop.ledger)


def test_expired_table_leaves_its_verdict_in_the_ledger(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    runner.source.write(1, 12)
    runner.source.oldest = runner.source.position
    with pytest.raises(WindowExpiredError):
        runner.run()
    (verdict,) = runner.shop.rows("SELECT verdict, watermark, min_lsn FROM floodmark.verdicts")
    assert verdict == {
        "verdict": "expired",
        "watermark": lsn(runner.source.position - 2).value,
        "min_lsn": lsn(runner.source.position).value,
    }


def test_rule_that_stops_the_run_can_be_changed_and_the_next_run_goes_on(runner: Runner) -> None:
    strict = (Rule("small", "Amount < 100", OnFailure.STOP),)
    runner.run(rules=strict)
    runner.source.write(5, 500)
    with pytest.raises(DataQualityError, match=r"broke rule small \(Amount < 100\)\."):
        runner.run(rules=strict)
    assert runner.watermark() == START + 3
    resumed = runner.run(rules=(Rule("small", "Amount < 100", OnFailure.QUARANTINE),))
    assert resumed.window_id == 3
    assert 5 not in runner.target()
    assert runner.watermark() == runner.source.position


def test_log_says_in_plain_words_what_was_decided(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        runner.run()
    words = caplog.text
    for part in (
        "not_started: first load, up to",
        "Window 1 opened",
        "dbo.Orders -> shop.orders: first load, by key (Id).",
        "shop.orders created",
        "3 rows read, 3 staged",
        "3 inserted, 0 updated",
        "Window 1 is published",
        "Window 1 is merged: its table in one transaction",
        ": shop.orders.",
    ):
        assert part in words
