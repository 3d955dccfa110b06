"""One table never stops the others: it leaves the window with a verdict, and the run fails at its end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from two_tables import ITEMS, PairRunner, pair
from warehouse_shop import ORDERS, TARGET, Shop, instance

from floodmark.core.errors import CdcNotEnabledError, ConfigError, SourcePermissionError, TableNotPlannableError
from floodmark.core.settings import NetSource, OnGap
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.open_window import open_window


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> PairRunner:
    return PairRunner(Shop(database, ledger))


def test_table_that_cannot_be_planned_leaves_the_others_alone_and_heals_with_its_configuration(
    runner: PairRunner,
) -> None:
    keyless = pair(items={"key": ("Nope",)})
    with pytest.raises(TableNotPlannableError, match=r"dbo\.Items: not_plannable: key column Nope is not captured"):
        runner.run(keyless)
    assert runner.equal(ORDERS)
    assert runner.verdicts() == {"Orders": "not_started", "Items": "not_plannable"}
    runner.source.write(ORDERS, 4, 40)
    with pytest.raises(TableNotPlannableError):
        runner.run(keyless)
    assert runner.equal(ORDERS)
    runner.run()
    assert runner.equal(ITEMS)


def test_net_changes_that_are_gone_stop_one_table(runner: PairRunner) -> None:
    runner.run()
    lacking = replace(instance(), supports_net_changes=False)
    runner.source.tables[ITEMS].seen = {"feed": lacking}
    runner.source.write(ORDERS, 1, 11)
    runner.source.write(ITEMS, 1, 11)
    with pytest.raises(TableNotPlannableError, match="has no net changes"):
        runner.run(pair(items={"net": NetSource.SERVER}))
    assert runner.equal(ORDERS)
    assert runner.watermark(ORDERS) == runner.position


def test_target_of_another_table_is_refused_for_one_table(runner: PairRunner) -> None:
    runner.run()
    runner.source.write(ORDERS, 1, 11)
    runner.source.write(ITEMS, 1, 11)
    with pytest.raises(TableNotPlannableError, match=r"its target was shop\.items and is now shop\.other"):
        runner.run(pair(items={"target": replace(TARGET, name="other")}))
    assert runner.equal(ORDERS)
    runner.run()
    assert runner.equal(ITEMS)


def test_gap_of_a_table_that_cannot_be_planned_again_does_not_stop_the_others(runner: PairRunner) -> None:
    runner.run()
    for key in (1, 2):
        runner.source.write(ITEMS, key, 7)
    runner.source.write(ORDERS, 1, 11)
    runner.source.tables[ITEMS].oldest = runner.position
    with pytest.raises(TableNotPlannableError, match="Nope"):
        runner.run(pair(items={"key": ("Nope",), "on_gap": OnGap.REPAIR}))
    assert runner.equal(ORDERS)


@pytest.mark.parametrize(
    ("seen", "kind"), [({"permitted": False}, SourcePermissionError), ({"feed": None}, CdcNotEnabledError)]
)
def test_table_that_cannot_be_read_leaves_an_unfinished_window_too(
    runner: PairRunner, seen: dict[str, object], kind: type[Exception]
) -> None:
    runner.run()
    runner.source.write(ORDERS, 1, 11)
    runner.source.write(ITEMS, 1, 11)
    opened = open_window(pair(), runner.source, runner.shop.ledger)
    runner.source.tables[ITEMS].seen = seen
    with pytest.raises(kind):
        runner.run()
    assert runner.shop.ledger.read_window(opened.window_id or 0).plan.tables[0].source == ORDERS
    assert runner.equal(ORDERS)
    runner.source.tables[ITEMS].seen = {}
    runner.run()
    assert runner.equal(ITEMS)


def test_error_about_the_only_planned_table_ends_the_run(runner: PairRunner) -> None:
    runner.run()
    runner.source.write(ITEMS, 1, 11)
    moved = pair(items={"target": replace(TARGET, name="other")})
    with pytest.raises(ConfigError, match=r"its target was shop\.items and is now shop\.other"):
        runner.run(replace(moved, tables=moved.tables[1:]))
