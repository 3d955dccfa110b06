"""Bounds of a replay: deleted rows stay deleted; changes that no window read, and tables read whole, are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from small_replay import Pipeline
from small_source import SmallSource, settings
from warehouse_shop import ORDERS, Shop

from floodmark.core.errors import WatermarkConflictError
from floodmark.core.settings import Deletes, NetSource
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.open_window import open_window
from lsns import lsn


@pytest.fixture
def pipeline(database: WarehouseConnection, ledger: PostgresLedger) -> Pipeline:
    """Three rows, and a fourth that was there between two others; not loaded yet."""
    source = SmallSource()
    source.write(1, 10)
    source.write(4, 40)
    source.write(2, 20)
    source.write(4, None)
    source.write(3, 30)
    return Pipeline(Shop(database, ledger), source)


@pytest.mark.parametrize("deletes", Deletes)
def test_a_row_that_was_deleted_before_the_first_load_stays_away(pipeline: Pipeline, deletes: Deletes) -> None:
    pipeline.run(deletes=deletes)
    loaded_at = pipeline.watermark()
    result = pipeline.replay(loaded_at - 4, loaded_at - 2, deletes=deletes)
    assert pipeline.equal()
    assert result.window_id is None
    assert f"dbo.Orders: nothing to replay: the whole table was read at {lsn(loaded_at)}" in result.reason


@pytest.mark.parametrize("deletes", Deletes)
def test_a_row_that_was_deleted_while_only_a_reload_read_stays_away(pipeline: Pipeline, deletes: Deletes) -> None:
    pipeline.run(deletes=deletes)
    before = pipeline.watermark()
    pipeline.source.write(5, 50)
    pipeline.source.write(1, 11)
    pipeline.source.write(5, None)
    pipeline.reload(deletes=deletes)
    pipeline.source.write(2, 22)
    pipeline.run(deletes=deletes)
    pipeline.replay(before, before + 2, deletes=deletes)
    assert pipeline.equal()


def test_what_came_after_a_load_is_replayed_and_what_came_before_is_said_to_be_complete(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.run()
    loaded_at = pipeline.watermark()
    pipeline.source.write(1, 11)
    pipeline.run()
    with psycopg.connect(pipeline.shop.connection.conninfo()) as session:
        session.execute('DELETE FROM shop.orders WHERE "Id" = 1')
    with caplog.at_level("INFO"):
        assert pipeline.replay(loaded_at - 4, loaded_at + 1).window_id is not None
    assert pipeline.equal()
    reported = f"dbo.Orders: from {lsn(loaded_at)} (2026-05-01 12:00:10) on, at which the whole table was read"
    assert reported in caplog.text


def test_a_load_makes_up_for_what_was_cleaned_up_before_it(pipeline: Pipeline) -> None:
    pipeline.run()
    loaded_at = pipeline.watermark()
    pipeline.source.write(1, 11)
    pipeline.run()
    pipeline.source.oldest = loaded_at + 1
    assert "nothing to replay: the whole table" in pipeline.replay(loaded_at - 4, loaded_at - 2).reason
    assert pipeline.replay(loaded_at - 4, loaded_at + 1).window_id is not None


@pytest.mark.parametrize("deletes", Deletes)
def test_a_replay_whose_load_is_under_way_while_the_table_is_reloaded_merges_nothing(
    pipeline: Pipeline, deletes: Deletes
) -> None:
    """Rows that were staged before the source was restored are of a past that it has forgotten."""
    pipeline.run(deletes=deletes)
    pipeline.source.write(1, 11)
    kept = pipeline.source.position
    pipeline.source.write(6, 60)
    pipeline.run(deletes=deletes)
    opened = pipeline.open_replay(kept - 1, kept + 1, deletes=deletes)
    assert opened.window_id is not None
    ledger, warehouse = pipeline.shop.ledger, pipeline.shop.warehouse
    plan = ledger.begin_load(opened.window_id).plan
    warehouse.prepare_window(plan)
    pipeline.shop.stage(plan, pipeline.source.log[-1:])
    pipeline.source.restore(kept)
    pipeline.reload(deletes=deletes)
    with pytest.raises(WatermarkConflictError, match="the whole table was read since the replay was planned"):
        warehouse.merge_window(plan)
    assert pipeline.equal()


def test_a_load_that_begins_while_a_replay_is_planned_takes_the_table_out_of_it(pipeline: Pipeline) -> None:
    pipeline.run()
    pipeline.source.write(1, 11)
    pipeline.run()
    begun: list[int | None] = []

    class LoadsFirst:
        """A ledger on which another caller is faster to begin a load of the table."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name == "open_window" and not begun:
                begun.append(pipeline.load_planner().open_reload(ORDERS).window_id)
            method: Callable[..., Any] = getattr(pipeline.shop.ledger, name)
            return method

    result = pipeline.replay(pipeline.watermark() - 1, pipeline.watermark(), ledger=LoadsFirst())
    assert begun != [None]
    assert result.window_id is None
    assert "dbo.Orders: it is being reloaded." in result.reason


def test_a_row_that_came_and_went_in_one_window_stays_away_also_if_the_server_computed_its_net_changes(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.run(net=NetSource.SERVER)
    pipeline.source.write(1, 11)
    pipeline.run(net=NetSource.SERVER)
    before = pipeline.watermark()
    pipeline.source.write(5, 50)
    pipeline.source.write(2, 22)
    pipeline.source.write(5, None)
    pipeline.run(net=NetSource.SERVER)
    assert pipeline.shop.rows('SELECT FROM shop.orders WHERE "Id" = 5') == []
    for net in NetSource:
        with caplog.at_level("INFO"):
            assert pipeline.replay(before, before + 1, net=net).window_id is not None
        assert pipeline.equal()
        reported = f"dbo.Orders: up to {lsn(before + 3)}, the end of a window whose net changes the server computed."
        assert reported in caplog.text
        caplog.clear()


@pytest.mark.parametrize("net", NetSource)
def test_a_row_that_came_and_went_in_a_window_that_the_ledger_no_longer_has_stays_away(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture, net: NetSource
) -> None:
    """Changes may be kept for longer than windows. net: of today."""
    pipeline.run(net=NetSource.SERVER)
    pipeline.source.write(1, 10)
    pipeline.run(net=NetSource.SERVER)
    before = pipeline.watermark()
    pipeline.source.write(5, 50)
    pipeline.source.write(2, 22)
    pipeline.source.write(5, None)
    pipeline.run(net=NetSource.SERVER)
    pipeline.source.write(1, 11)
    pipeline.run(net=NetSource.SERVER)
    assert pipeline.shop.rows('SELECT FROM shop.orders WHERE "Id" = 5') == []
    assert pipeline.shop.ledger.delete_old_windows("shop", 0, 10) == 2
    with caplog.at_level("INFO"):
        assert pipeline.replay(before, before + 1, net=net).window_id is not None
    assert pipeline.equal()
    assert f"dbo.Orders: up to {lsn(before + 3)}: the ledger has no window around" in caplog.text


@pytest.mark.parametrize("net", NetSource)
def test_a_row_that_a_load_read_between_its_coming_and_going_goes_away_again(
    pipeline: Pipeline, net: NetSource
) -> None:
    opened = open_window(settings(net=net), pipeline.source, pipeline.shop.ledger)
    pipeline.source.write(5, 50)
    pipeline.finish(opened)
    assert 5 in pipeline.target()
    pipeline.source.write(5, None)
    pipeline.run(net=net)
    assert pipeline.equal()
