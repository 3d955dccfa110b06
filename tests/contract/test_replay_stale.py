"""A replay that was left unfinished, and what it was planned on is true no more: it is given up and planned again."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from small_replay import Pipeline, SmallLog, between
from small_source import SmallSource
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.errors import SourceUnavailableError, WindowExpiredError
from floodmark.core.position import Interval
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection


class LeftReplay(Pipeline):
    """Loaded at ``loaded_at``, followed by three windows of a change each; a replay of all three was begun and left."""

    loaded_at: int
    window_id: int

    def begin(self) -> None:
        for key in (1, 2, 3):
            self.source.write(key, key * 10)
        self.run()
        self.loaded_at = self.watermark()
        for key in (1, 2, 3):
            self.source.write(key, key * 11)
            self.run()
        opened = self.open_replay(self.loaded_at, self.loaded_at + 3)
        assert opened.window_id is not None
        self.window_id = opened.window_id
        self.shop.warehouse.prepare_window(self.shop.ledger.begin_load(self.window_id).plan)
        assert self.staged() == 1

    def again(self, **other: Any) -> Any:
        return self.planner(**other).open(between(self.loaded_at, self.loaded_at + 3))

    def staged(self) -> int:
        return len(self.shop.rows("SELECT FROM pg_tables WHERE schemaname = 'floodmark_staging'"))

    def is_given_up(self) -> bool:
        found = self.shop.rows(f"SELECT FROM floodmark.windows WHERE window_id = {self.window_id}")
        return not found and self.staged() == 0


@pytest.fixture
def left(database: WarehouseConnection, ledger: PostgresLedger) -> LeftReplay:
    made = LeftReplay(Shop(database, ledger), SmallSource())
    made.begin()
    return made


def test_a_replay_that_still_holds_true_is_gone_on_with(left: LeftReplay) -> None:
    left.source.write(1, 12)
    left.run()
    assert left.again().window_id == left.window_id
    assert left.staged() == 1


def test_a_replay_of_a_table_that_was_reloaded_since_is_given_up(
    left: LeftReplay, caplog: pytest.LogCaptureFixture
) -> None:
    left.reload()
    result = left.again()
    assert result.window_id is None
    assert "nothing to replay: the whole table was read" in result.reason
    assert left.is_given_up()
    assert f"Window {left.window_id}, a replay of the same interval, was given up. dbo.Orders: nothing" in caplog.text


def test_a_replay_of_a_source_that_was_taken_back_since_is_planned_again(left: LeftReplay) -> None:
    left.source.restore(left.loaded_at + 1)
    left.source.write(5, 50)
    left.reload()
    left.source.write(5, None)
    left.run()
    opened = left.again()
    assert opened.window_id not in (None, left.window_id)
    assert left.is_given_up()
    left.finish(opened)
    assert left.equal()


def test_a_replay_of_a_table_that_is_held_since_is_given_up(left: LeftReplay) -> None:
    def examine(settings: Any, snapshot: Any, states: Any) -> Any:
        return SimpleNamespace(snapshot=snapshot, holds={ORDERS: object()})

    result = left.again(drift=SimpleNamespace(examine=examine))
    assert result.window_id is None
    assert "it is held because of a schema drift" in result.reason
    assert left.is_given_up()


def test_a_replay_whose_interval_has_expired_since_is_given_up_and_says_expired(left: LeftReplay) -> None:
    left.source.oldest = left.loaded_at + 2
    with pytest.raises(WindowExpiredError, match="expired: the interval"):
        left.again()
    assert left.is_given_up()


def test_a_source_that_does_not_answer_is_no_reason_to_give_up(
    left: LeftReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise SourceUnavailableError("Shop", "it does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(SmallSource, "read_snapshot", refuse)
        with pytest.raises(SourceUnavailableError):
            left.again()
    assert left.again().window_id == left.window_id


def test_cleanup_between_the_snapshot_and_the_count_is_expired_and_not_nothing(left: LeftReplay) -> None:
    class CleanedUp(SmallLog):
        def count_changes(self, intervals: Mapping[str, Interval], limit: int = 0) -> Mapping[str, int]:
            self.source.oldest = left.loaded_at + 3
            self.source.log = [row for row in self.source.log if row.lsn >= self.source.oldest]
            return super().count_changes(intervals, limit)

    interval = between(left.loaded_at, left.loaded_at + 2)
    for attempt in ("count", "open"):
        left.source.oldest = left.loaded_at
        with pytest.raises(WindowExpiredError, match="cleaned up"):
            getattr(left.planner(CleanedUp(left.source)), attempt)(interval)
    assert [opened.plan.window_id for opened in left.shop.ledger.list_unfinished(PIPELINE)] == [left.window_id]
