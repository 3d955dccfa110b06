"""Loads on demand: a whole table, or the rows of a condition, in parallel with the windows of its pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from repair_runner import Runner, small_runner
from small_source import SmallSource, settings
from warehouse_shop import ORDERS, PIPELINE, first_load

from floodmark.core.errors import (
    ConfigError,
    OperatorError,
    SourcePermissionError,
    WindowBusyError,
    WindowExpiredError,
)
from floodmark.core.plan import load_lane
from floodmark.core.recovery import repair_key
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, OnGap, PipelineSettings, SecurityFiltered, TableSettings
from floodmark.core.snapshot import SourceSnapshot
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from lsns import lsn
from table_plans import with_settings


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> Runner:
    return small_runner(database, ledger)


def test_reload_waits_for_the_window_that_holds_the_table(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    open_window(settings(), runner.source, runner.shop.ledger)
    with pytest.raises(WindowBusyError, match="window 2 is unfinished and holds the table"):
        runner.reload()


def test_reload_takes_a_table_out_of_a_window_that_can_no_longer_be_read(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    open_window(settings(), runner.source, runner.shop.ledger)
    runner.expire()
    runner.reload()
    assert runner.equal()
    assert runner.shop.ledger.list_unfinished(PIPELINE) == []


def test_table_under_a_reload_leaves_the_windows_until_that_is_published(runner: Runner) -> None:
    runner.run()
    opened = runner.planner().open_reload(ORDERS)
    runner.source.write(1, 11)
    result = runner.run()
    assert result.window_id is None
    assert "window 2 (planned) reloads it: its reading has not begun" in result.reason
    assert runner.planner().open_reload(ORDERS).window_id == opened.window_id
    runner.load()
    assert runner.reported.open == {}
    runner.run()
    assert runner.equal()


def test_load_that_is_given_up_leaves_the_table_to_the_next_window(runner: Runner) -> None:
    runner.run()
    runner.planner().open_reload(ORDERS)
    runner.source.write(1, 11)
    runner.run()
    assert runner.verdict()[0] == "repairing"
    assert runner.planner().give_up(ORDERS) == 2
    assert runner.shop.rows("SELECT FROM pg_tables WHERE schemaname = 'floodmark_staging'") == []
    runner.run()
    assert runner.verdict()[0] == "ready"
    assert runner.equal()
    with pytest.raises(OperatorError, match="no load of it is unfinished, so nothing was given up"):
        runner.planner().give_up(ORDERS)


def test_load_over_a_gap_that_is_given_up_leaves_the_gap(runner: Runner) -> None:
    runner.run()
    runner.expire()
    runner.run(on_gap=OnGap.REPAIR)
    assert list(runner.reported.open) == [repair_key(PIPELINE, ORDERS)]
    runner.planner().give_up(ORDERS)
    assert runner.reported.open == {}
    with pytest.raises(WindowExpiredError):
        runner.run()
    runner.reload()
    assert runner.equal()


def test_load_that_runs_or_is_merged_is_not_given_up(runner: Runner) -> None:
    runner.run()
    opened = runner.planner().open_reload(ORDERS)
    assert opened.window_id is not None
    ledger, warehouse = runner.shop.ledger, runner.shop.warehouse
    with ledger.hold_load(opened.window_id), pytest.raises(WindowBusyError):
        runner.planner().give_up(ORDERS)
    load_window(opened.window_id, ledger, warehouse, runner.source, runner.stager)
    with pytest.raises(OperatorError, match=r"window 2 is merged, .* Finish it \(floodmark reload shop dbo\.Orders\)"):
        runner.planner().give_up(ORDERS)
    runner.reload()
    assert ledger.list_unfinished(PIPELINE) == []


def test_part_of_a_table_is_merged_and_nothing_swept_and_no_watermark_moves(runner: Runner) -> None:
    runner.run()
    runner.stager.kept = lambda key, where: not where or key < 3
    before = runner.watermark()
    runner.source.write(1, 11)
    runner.source.write(2, None)
    runner.source.write(5, 55)
    runner.reload("[Id] < 3")
    assert {key: int(row[0]) for key, row in runner.shop.target().items()} == {1: 11, 2: 20, 3: 30, 4: 40, 5: 50}
    assert runner.watermark() == before
    assert not runner.shop.ledger.read_tables(PIPELINE)[ORDERS].consistent
    runner.source.write(1, 12)
    runner.run()
    assert runner.equal()


def test_part_of_a_table_with_a_gap_is_refused(runner: Runner) -> None:
    with pytest.raises(OperatorError, match="it has not been loaded yet"):
        runner.reload("[Id] < 3")
    runner.run()
    runner.expire()
    with pytest.raises(OperatorError, match="it is expired; a partial load is not enough"):
        runner.reload("[Id] < 3")


def test_other_condition_waits_for_the_unfinished_load(runner: Runner) -> None:
    runner.run()
    runner.planner().open_reload(ORDERS, "[Id] < 3")
    with pytest.raises(OperatorError, match=r"window 2 is unfinished and loads the rows where \[Id\] < 3"):
        runner.reload("[Id] > 3")
    runner.stager.kept = lambda key, where: key < 3
    runner.reload()
    assert runner.shop.ledger.unfinished_window(PIPELINE, load_lane(ORDERS)) is None


def test_table_that_the_pipeline_has_not_is_refused_by_name(runner: Runner) -> None:
    with pytest.raises(ConfigError, match=r"it has no table dbo\.Nope\. Its tables: dbo\.Orders"):
        runner.planner().open_reload(TableName("dbo", "Nope"))


def test_load_that_fails_again_and_again_leaves_the_others_their_turn(runner: Runner) -> None:
    ledger = runner.shop.ledger
    names = (ORDERS, TableName("dbo", "Items"))
    first, second = (
        ledger.open_window(
            PIPELINE,
            lsn(9),
            [with_settings(first_load(), source=name, target=TableName("shop", name.name))],
            lane=load_lane(name),
        ).window_id
        for name in names
    )
    tables = tuple(TableSettings(name, TableName("shop", name.name)) for name in names)
    planner = replace(runner.planner(), settings=PipelineSettings(PIPELINE, tables), source=TwoTables(runner.source))
    assert planner.open_pending().window_id == first
    ledger.begin_load(first)
    assert planner.open_pending().window_id == second


@dataclass
class TwoTables:
    """Shows every table as the one there is."""

    source: SmallSource

    def read_snapshot(
        self,
        tables: Sequence[TableName],
        feeds: object = None,
        positions: object = (),
        marks: object = None,
        whole: object = (),
    ) -> SourceSnapshot:
        seen = self.source.read_snapshot(tables)
        return replace(seen, tables=tuple(replace(seen.tables[0], table=name) for name in tables))


@pytest.mark.parametrize("deletes", list(Deletes))
@pytest.mark.parametrize("policy", list(SecurityFiltered))
def test_row_that_the_source_hides_is_swept_only_where_nothing_may_be_hidden(
    runner: Runner, policy: SecurityFiltered, deletes: Deletes
) -> None:
    runner.run()
    del runner.source.rows[3]  # no change is captured: a filter hides the row from the login
    runner.reload(security_filtered=policy, deletes=deletes)
    assert (3 in runner.shop.target()) is (policy is SecurityFiltered.ACCEPT)
    assert {1, 2, 4, 5} <= set(runner.shop.target())


def test_load_is_not_merged_when_a_filter_came_after_it_was_planned(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.run()
    opened = runner.planner().open_reload(ORDERS)
    read_snapshot = runner.source.read_snapshot

    def filtered(*arguments: Any, **others: Any) -> SourceSnapshot:
        snapshot = read_snapshot(*arguments, **others)
        return replace(snapshot, tables=tuple(replace(table, filters=("sec.f",)) for table in snapshot.tables))

    monkeypatch.setattr(runner.source, "read_snapshot", filtered)
    del runner.source.rows[3]
    with pytest.raises(SourcePermissionError, match=r"security policy sec\.f filters its rows"):
        runner.finish(opened)
    assert 3 in runner.shop.target()


def test_repair_of_a_gap_sweeps_no_row_that_may_be_hidden(runner: Runner) -> None:
    chosen = {"on_gap": OnGap.REPAIR, "security_filtered": SecurityFiltered.ACCEPT}
    runner.run(**chosen)
    del runner.source.rows[3]
    runner.expire()
    runner.run(**chosen)
    runner.load(**chosen)
    target = {key: int(row[0]) for key, row in runner.shop.target().items()}
    # Row 2 is gone from the source and row 3 is hidden: the load cannot distinguish them.
    assert target == {1: 111, 2: 20, 3: 30, 4: 40, 5: 50, 9: 90}
