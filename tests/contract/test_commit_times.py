"""The times of commits in targets with the newest rows: ``commit_times: true``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    Deletes,
    FirstLoad,
    NetSource,
    OnFailure,
    PipelineSettings,
    Rule,
    Style,
    TableSettings,
)
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sync.filters import parse_filter

TARGET = TableName("shop", "orders")
TIMES = 'SELECT "Id", __committed_at FROM shop.orders'


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    """A table of three rows, read two at a time."""
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(max))",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'a'), (2, 20, N'b'), (3, 30, N'c')",
        )
        source.enable("Orders")
        made = SwitchRig(emulator, source, database)
        configure(made)
        yield made


def configure(rig: SwitchRig, **settings: Any) -> None:
    chosen = {"commit_times": True, "first_load": FirstLoad(chunk_rows=2)} | settings
    rig.pipelines = [PipelineSettings("shop", (TableSettings(ORDERS, TARGET, **chosen),))]


def times(rig: SwitchRig) -> dict[int, datetime | None]:
    return dict(rig.rows(TIMES))


def commits(rig: SwitchRig) -> dict[bytes, datetime]:
    """Return the times of all commits of the source, whose clock is in UTC."""
    rows = rig.database.query("SELECT start_lsn, tran_end_time FROM cdc.lsn_time_mapping")
    return {row["start_lsn"]: row["tran_end_time"].replace(tzinfo=UTC) for row in rows}


def assert_times_are_those_of_positions(rig: SwitchRig) -> None:
    found, known = rig.rows("SELECT __lsn, __committed_at FROM shop.orders"), commits(rig)
    assert found
    for position, at in found:
        assert abs(at - known[position]) < timedelta(milliseconds=4)


@pytest.mark.parametrize("deletes", list(Deletes))
def test_each_row_has_the_time_of_the_commit_that_its_position_names(rig: SwitchRig, deletes: Deletes) -> None:
    configure(rig, deletes=deletes)
    rig.run()
    assert len(set(times(rig).values())) == 1
    assert_times_are_those_of_positions(rig)
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1", "INSERT INTO dbo.Orders VALUES (4, 40, N'd')")
    rig.change("DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    assert_times_are_those_of_positions(rig)
    assert rig.rows('SELECT count(DISTINCT __lsn)::int FROM shop.orders WHERE "Id" IN (1, 3, 4)') == [(3,)]
    assert rig.differing() == []


def test_rows_that_a_reload_sweeps_have_the_time_of_the_load(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute('UPDATE shop.orders SET "Id" = 9, __committed_at = \'2001-01-01Z\' WHERE "Id" = 3')
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.finish(rig.load_planner().open_reload(ORDERS))
    assert rig.rows('SELECT "Id" FROM shop.orders WHERE __deleted') == [(9,)]
    assert_times_are_those_of_positions(rig)


def test_column_is_added_to_a_loaded_target_and_filled_by_changes_and_by_a_reload(rig: SwitchRig) -> None:
    configure(rig, commit_times=False, live_view=True)
    rig.run()
    configure(rig, live_view=True)
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    found = times(rig)
    assert found[1] is not None
    assert (found[2], found[3]) == (None, None)
    assert rig.rows("SELECT * FROM shop.orders_live ORDER BY 1")[0] == (1, 11, "a")
    rig.finish(rig.load_planner().open_reload(ORDERS))
    assert_times_are_those_of_positions(rig)


def test_setting_that_is_taken_back_is_refused_until_the_column_is_dropped(rig: SwitchRig) -> None:
    rig.run()
    configure(rig, commit_times=False)
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    with pytest.raises(ConfigError, match=r"commit_times: false.* ALTER TABLE .*DROP COLUMN"):
        rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute('ALTER TABLE "shop"."orders" DROP COLUMN "__committed_at"')
    rig.finish(rig.load_planner().open_reload(ORDERS))
    assert rig.rows('SELECT "Amount" FROM shop.orders WHERE "Id" = 1') == [(11,)]


def test_row_that_waited_in_quarantine_is_released_with_its_time(rig: SwitchRig) -> None:
    configure(rig, rules=(Rule("positive", '"Amount" > 0', OnFailure.QUARANTINE),))
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = -1 WHERE Id = 1")
    rig.change("UPDATE dbo.Orders SET Amount = 21 WHERE Id = 2")
    rig.run()
    PostgresQuarantine(rig.connection).release("shop", rig.pipelines[0].tables[0], "anna")
    configure(rig)
    PostgresQuarantine(rig.connection).release("shop", rig.pipelines[0].tables[0], "anna")
    assert rig.rows('SELECT "Amount" FROM shop.orders WHERE "Id" = 1') == [(-1,)]
    assert_times_are_those_of_positions(rig)


def test_rows_of_a_filter_have_times(rig: SwitchRig) -> None:
    rig.database.run("CREATE TABLE dbo.Small (Id int NOT NULL PRIMARY KEY, Amount int)")
    rig.database.enable("Small")
    rig.change("INSERT INTO dbo.Small VALUES (1, 1), (2, 2)")
    small = TableSettings(TableName("dbo", "Small"), TARGET, commit_times=True, where=parse_filter("Amount > 1"))
    rig.pipelines = [PipelineSettings("shop", (small,))]
    rig.run()
    rig.change("UPDATE dbo.Small SET Amount = 3 WHERE Id = 1")
    rig.change("UPDATE dbo.Small SET Amount = 0 WHERE Id = 2")
    rig.run()
    assert rig.rows('SELECT "Id", __deleted FROM shop.orders ORDER BY 1') == [(1, False), (2, True)]
    assert_times_are_those_of_positions(rig)


@pytest.mark.parametrize("style", [Style.LOG, Style.HISTORY])
def test_logs_and_histories_have_times_with_any_value(rig: SwitchRig, style: Style) -> None:
    for value in (False, True):
        configure(rig, style=style, commit_times=value)
        rig.change(f"UPDATE dbo.Orders SET Amount = {11 + value} WHERE Id = 1")
        rig.run()
    assert rig.rows('SELECT __committed_at IS NULL FROM shop.orders WHERE "Amount" = 12') == [(False,)]


def test_reads_without_times_are_refused(rig: SwitchRig) -> None:
    for settings, cause in (
        ({"net": NetSource.SERVER}, "net: server delivers no times of commits"),
        ({"style": Style.SNAPSHOT}, "a snapshot has the rows of a read"),
    ):
        configure(rig, **settings)
        with pytest.raises(ConfigError, match=f"commit_times: true, but {cause}"):
            rig.run()


def test_column_of_the_source_with_this_name_is_refused(rig: SwitchRig) -> None:
    rig.database.run("CREATE TABLE dbo.Odd (Id int NOT NULL PRIMARY KEY, __committed_at int)")
    rig.database.enable("Odd")
    odd = TableSettings(TableName("dbo", "Odd"), TARGET, commit_times=True)
    rig.pipelines = [PipelineSettings("shop", (odd,))]
    rig.database.scan()
    with pytest.raises(ConfigError, match="column __committed_at has the name of the column that commit_times: true"):
        rig.run()
    rig.pipelines = [PipelineSettings("shop", (TableSettings(odd.source, TARGET),))]
    rig.run()
    rig.change("INSERT INTO dbo.Odd VALUES (1, 2)")
    rig.run()
    assert rig.rows(TIMES) == [(1, 2)]
