"""Windows that were planned and can no longer be loaded as they were: the next run finds its way out."""

from __future__ import annotations

import pytest
from repair_runner import Runner, small_runner
from small_source import settings
from warehouse_shop import PIPELINE, first_load

from floodmark.core.alert import Alert
from floodmark.core.plan import TablePlan, WindowState, load_lane
from floodmark.core.recovery import repair_key
from floodmark.core.schema import TableName
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.open_window import open_window
from lsns import lsn
from table_plans import with_settings

ITEMS = TableName("dbo", "Items")
"""Once in the configuration."""


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> Runner:
    return small_runner(database, ledger)


def items() -> TablePlan:
    return with_settings(first_load(), source=ITEMS, target=TableName("shop", "items"))


def test_first_load_whose_changes_expire_before_it_is_read_is_planned_again(runner: Runner) -> None:
    first = open_window(settings(), runner.source, runner.shop.ledger)
    runner.expire()
    second = runner.run()
    assert first.window_id is not None
    assert second.window_id == first.window_id + 1
    assert runner.equal()
    # Nothing was lost: the table had not been loaded.
    assert runner.shop.rows("SELECT FROM floodmark.gaps") == []


def test_table_that_left_the_configuration_leaves_the_unfinished_window(runner: Runner) -> None:
    opened = runner.shop.ledger.open_window(PIPELINE, lsn(runner.source.position), [items(), first_load()])
    assert runner.run().window_id == opened.window_id
    assert runner.equal()
    assert runner.shop.ledger.list_unfinished(PIPELINE) == []


def test_window_of_nothing_but_tables_that_left_the_configuration_is_given_up(runner: Runner) -> None:
    opened = runner.shop.ledger.open_window(PIPELINE, lsn(runner.source.position), [items()])
    again = runner.run()
    assert (again.state, again.window_id) == (WindowState.PLANNED, opened.window_id + 1)
    assert runner.equal()


def test_load_of_a_table_that_left_the_configuration_is_given_up_and_its_alert_ends(runner: Runner) -> None:
    ledger, key = runner.shop.ledger, repair_key(PIPELINE, ITEMS)
    ledger.open_window(PIPELINE, lsn(runner.source.position), [items()], lane=load_lane(ITEMS))
    runner.reported.raise_alert(
        Alert(kind="repair", subject=PIPELINE, table=ITEMS, what="expired", means="-", do="-", event_key=key)
    )
    assert runner.load().window_id is None
    assert ledger.list_unfinished(PIPELINE) == []
    assert (runner.reported.open, runner.reported.ended) == ({}, [key])
