"""A run or a load that is overtaken by another one while it opens its window, for instance by one that was killed and
whose last word to the warehouse is committed only now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from repair_runner import Runner, small_runner
from small_source import settings
from warehouse_shop import ORDERS, PIPELINE

from floodmark.core.errors import WatermarkConflictError
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.open_window import open_window
from floodmark.sync.window import retry_on_conflict


class Overtaken:
    """A ledger of which, after the first check for unfinished windows, another caller opens one."""

    def __init__(self, ledger: PostgresLedger, open_other: Callable[[], object]) -> None:
        self._ledger = ledger
        self._open_other: Callable[[], object] | None = open_other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def unfinished_window(self, pipeline: str, *lane: str) -> Any:
        return self._then_open(self._ledger.unfinished_window(pipeline, *lane))

    def list_unfinished(self, pipeline: str) -> Sequence[Any]:
        found: Sequence[Any] = self._then_open(self._ledger.list_unfinished(pipeline))
        return found

    def _then_open(self, found: Any) -> Any:
        open_other, self._open_other = self._open_other, None
        if open_other is not None:
            open_other()
        return found


@pytest.fixture
def runner(database: WarehouseConnection, ledger: PostgresLedger) -> Runner:
    return small_runner(database, ledger)


def test_run_goes_on_with_a_window_that_another_has_opened_meanwhile(runner: Runner) -> None:
    runner.run()
    runner.source.write(1, 11)
    ledger = runner.shop.ledger
    overtaken: Any = Overtaken(ledger, lambda: open_window(settings(), runner.source, ledger))
    opened = open_window(settings(), runner.source, overtaken)
    (unfinished,) = ledger.list_unfinished(PIPELINE)
    assert opened.window_id == unfinished.plan.window_id
    runner.run()
    assert runner.equal()


def test_reload_goes_on_with_a_load_that_another_has_opened_meanwhile(runner: Runner) -> None:
    runner.run()
    ledger = runner.shop.ledger
    overtaken: Any = Overtaken(ledger, lambda: runner.planner().open_reload(ORDERS))
    opened = replace(runner.planner(), ledger=overtaken).open_reload(ORDERS)
    (unfinished,) = ledger.list_unfinished(PIPELINE)
    assert opened.window_id == unfinished.plan.window_id


def test_opening_that_is_always_overtaken_says_so() -> None:
    def overtaken() -> None:
        raise WatermarkConflictError("shop", "another run has an unfinished window.")

    with pytest.raises(WatermarkConflictError, match="unfinished window"):
        retry_on_conflict(overtaken)
