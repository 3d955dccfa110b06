"""Replays on a real ledger and warehouse: in any order, again, killed anywhere, and in parallel with windows."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from small_replay import Pipeline, between, run_replay
from small_source import SmallSource, settings
from warehouse_shop import ORDERS, PIPELINE, Shop, first_load

from floodmark.core.errors import DataQualityError, FloodmarkError, WindowBusyError, WindowExpiredError
from floodmark.core.plan import TableCounts, WindowPlan, WindowState, is_replay_lane, load_lane
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.open_window import open_window
from lsns import lsn


@pytest.fixture
def pipeline(database: WarehouseConnection, ledger: PostgresLedger) -> Pipeline:
    source = SmallSource()
    for key in (1, 2, 3):
        source.write(key, key * 10)
    made = Pipeline(Shop(database, ledger), source)
    made.run()
    return made


def change_some(source: SmallSource, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 6)):
        key = chance.randint(1, 6)
        source.write(key, None if key in source.rows and chance.random() < 0.4 else chance.randint(1, 99))


@pytest.mark.parametrize("deletes", [Deletes.SOFT, Deletes.HARD])
def test_replays_in_any_order_and_again_leave_rows_and_watermark_as_they_are(
    pipeline: Pipeline, deletes: Deletes
) -> None:
    chance = random.Random(11)
    loaded_at = pipeline.watermark()
    for _ in range(6):
        change_some(pipeline.source, chance)
        pipeline.run(deletes=deletes)
    rows, watermark = pipeline.target(), pipeline.watermark()
    bounds = list(range(loaded_at, watermark + 1, 3))
    intervals = list(pairwise(bounds)) * 2 + [(pipeline.source.oldest, watermark)]
    chance.shuffle(intervals)
    for after, to in intervals:
        assert pipeline.replay(after, to, deletes=deletes).window_id is not None
        assert (pipeline.target(), pipeline.watermark()) == (rows, watermark)
    assert pipeline.equal()


class _Refusing:
    """A ``Quality`` that refuses every table."""

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        return {table: DataQualityError(str(table), "refused by a check.") for table in counts}


def test_replay_that_the_checks_refused_is_planned_and_merged_again(pipeline: Pipeline) -> None:
    after = pipeline.watermark()
    pipeline.source.write(1, 11)
    pipeline.run()
    shop, source, interval = pipeline.shop, pipeline.source, between(after, pipeline.watermark())
    with pytest.raises(DataQualityError, match="refused by a check"):
        run_replay(shop, source, interval, quality=_Refusing())
    (refused,) = shop.ledger.list_unfinished(PIPELINE)
    opened = run_replay(shop, source, interval)
    assert opened.window_id != refused.plan.window_id
    assert shop.ledger.list_unfinished(PIPELINE) == []
    assert pipeline.equal()


def test_replays_between_normal_runs_end_as_if_there_had_been_none(pipeline: Pipeline) -> None:
    chance = random.Random(12)
    for _ in range(8):
        change_some(pipeline.source, chance)
        planned = open_window(settings(), pipeline.source, pipeline.shop.ledger)
        after = chance.randint(pipeline.source.oldest, pipeline.source.position - 1)
        pipeline.replay(after, pipeline.source.position)
        assert planned.window_id is not None
        pipeline.run()
        assert pipeline.equal()
        assert pipeline.watermark() == pipeline.source.position


def test_replay_of_some_tables_opens_a_window_of_its_own(pipeline: Pipeline) -> None:
    pipeline.run()
    begin = pipeline.source.position
    pipeline.source.write(7, 10)
    pipeline.run()
    whole = pipeline.open_replay(begin, begin + 1)
    only = pipeline.planner(only=[ORDERS]).open(between(begin, begin + 1))
    assert (whole.window_id is None, only.window_id is None) == (False, False)
    assert whole.window_id != only.window_id
    assert pipeline.planner(only=[ORDERS]).open(between(begin, begin + 1)).window_id == only.window_id


def test_a_row_that_was_lost_from_the_target_comes_back(pipeline: Pipeline) -> None:
    pipeline.source.write(1, 11)
    pipeline.run()
    after = pipeline.watermark() - 1
    with psycopg.connect(pipeline.shop.connection.conninfo()) as session:
        session.execute('DELETE FROM shop.orders WHERE "Id" = 1')
    assert not pipeline.equal()
    pipeline.replay(after, pipeline.watermark())
    assert pipeline.equal()


def test_what_lies_above_the_watermark_is_left_to_the_normal_runs(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.source.write(1, 11)
    pipeline.run()
    watermark = pipeline.watermark()
    pipeline.source.write(1, 12)
    with caplog.at_level("INFO"):
        pipeline.replay(watermark - 1, watermark + 1)
    assert pipeline.target()[1] == 11
    assert f"dbo.Orders: up to the watermark {lsn(watermark)}" in caplog.text
    result = pipeline.replay(watermark, watermark + 1)
    assert result.window_id is None
    assert "all of it lies above the watermark" in result.reason
    pipeline.run()
    assert pipeline.equal()


def test_an_interval_below_the_validity_interval_is_refused_before_anything_is_planned(pipeline: Pipeline) -> None:
    loaded_at = pipeline.watermark()
    for amount in (11, 12, 13):
        pipeline.source.write(1, amount)
    pipeline.run()
    pipeline.source.oldest = loaded_at + 2
    with pytest.raises(WindowExpiredError, match="expired"):
        pipeline.replay(loaded_at, pipeline.watermark())
    assert pipeline.shop.ledger.list_unfinished(PIPELINE) == []


def test_an_interval_without_a_change_starts_no_load(pipeline: Pipeline) -> None:
    pipeline.source.idle()
    pipeline.run()
    result = pipeline.replay(pipeline.watermark() - 1, pipeline.watermark())
    assert result.window_id is None
    assert "no table has a change to replay" in result.reason


def test_the_dry_run_counts_change_rows_and_plans_nothing(pipeline: Pipeline) -> None:
    pipeline.source.write(1, 11)
    pipeline.source.write(1, 12)
    pipeline.run()
    (count,) = pipeline.planner().count(between(pipeline.watermark() - 2, pipeline.watermark() + 5))
    assert (count.table, count.rows) == (ORDERS, 2)
    assert count.interval == between(pipeline.watermark() - 2, pipeline.watermark())
    assert pipeline.shop.ledger.list_unfinished(PIPELINE) == []


def test_two_replays_of_one_interval_meet_in_one_window(pipeline: Pipeline) -> None:
    pipeline.source.write(1, 11)
    pipeline.run()
    interval = between(pipeline.watermark() - 1, pipeline.watermark())
    ledger = pipeline.shop.ledger
    first, second = pipeline.planner().open(interval), pipeline.planner().open(interval)
    assert first.window_id == second.window_id
    assert first.window_id is not None
    with ledger.hold_load(first.window_id), pytest.raises(WindowBusyError):
        run_replay(pipeline.shop, pipeline.source, interval)
    run_replay(pipeline.shop, pipeline.source, interval)
    assert ledger.read_window(first.window_id).state is WindowState.ADVANCED
    assert is_replay_lane(ledger.read_window(first.window_id).plan.lane)


def test_a_watermark_that_moves_while_a_replay_is_planned_does_not_stop_it(pipeline: Pipeline) -> None:
    pipeline.source.write(1, 11)
    pipeline.run()
    pipeline.source.write(1, 12)
    moved = []

    class MovesFirst:
        """A ledger on which a normal run is faster, once."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name == "open_window" and not moved:
                moved.append(True)
                pipeline.run()
            method: Callable[..., Any] = getattr(pipeline.shop.ledger, name)
            return method

    result = run_replay(
        pipeline.shop, pipeline.source, between(pipeline.watermark() - 1, pipeline.watermark()), ledger=MovesFirst()
    )
    assert moved
    assert result.window_id is not None
    assert pipeline.equal()


def test_a_table_that_is_reloaded_is_left_out(pipeline: Pipeline) -> None:
    pipeline.source.write(1, 11)
    pipeline.run()
    watermark = lsn(pipeline.watermark())
    pipeline.shop.ledger.open_window(
        PIPELINE, watermark, [replace(first_load(), watermark=watermark)], lane=load_lane(ORDERS)
    )
    result = pipeline.replay(pipeline.watermark() - 1, pipeline.watermark())
    assert result.window_id is None
    assert "it is being reloaded" in result.reason


class KilledError(Exception):
    """A substitute for kill -9."""


class DiesAt:
    """A port whose n-th call, counted over all ports of a run, is the last one."""

    def __init__(self, port: Any, left: list[int]) -> None:
        self._port = port
        self._left = left

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._port, name)):
            return getattr(self._port, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] == 0:
                raise KilledError(name)
            return getattr(self._port, name)(*arguments, **named)

        return call


def test_a_replay_that_is_killed_at_any_call_and_run_again_ends_the_same(pipeline: Pipeline) -> None:
    chance = random.Random(13)
    change_some(pipeline.source, chance)
    pipeline.run()
    rows, watermark = pipeline.target(), pipeline.watermark()
    for calls in range(1, 60):
        left = [calls]
        ledger, warehouse = DiesAt(pipeline.shop.ledger, left), DiesAt(pipeline.shop.warehouse, left)
        try:
            pipeline.replay(pipeline.source.oldest, watermark, ledger=ledger, warehouse=warehouse)
        except KilledError:
            pipeline.replay(pipeline.source.oldest, watermark)
        else:
            break
        assert (pipeline.target(), pipeline.watermark()) == (rows, watermark)
        assert pipeline.shop.ledger.list_unfinished(PIPELINE) == []
    assert calls > 8
