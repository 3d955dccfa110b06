"""Tables with ``style: snapshot``: each window with changes reads the whole table again and replaces the target."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from switch_rig import SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import (
    ConfigError,
    OperatorError,
    WatermarkConflictError,
    WindowBusyError,
)
from floodmark.core.plan import LoadKind
from floodmark.core.position import Interval
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    Deletes,
    NetSource,
    OnFailure,
    PipelineSettings,
    Rule,
    SecurityFiltered,
    Style,
    TableSettings,
)
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sources.cdc.operations import SqlServerReplaySource
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.filters import parse_filter
from floodmark.sync.load import load_window
from floodmark.sync.replay import Replay
from in_process_stager import InProcessStager
from row_verification import reading

ZONES, TARGET = TableName("dbo", "Zones"), TableName("shop", "zones")
ROWS = 'SELECT "Code", "Rate" FROM shop.zones ORDER BY 1, 2'


@pytest.fixture(params=["Code int, Rate int", "Code int NOT NULL PRIMARY KEY, Rate int"], ids=["heap", "key"])
def rig(emulator: Emulator, database: WarehouseConnection, request: pytest.FixtureRequest) -> Iterator[SwitchRig]:
    """A table of three rows, with or without a key."""
    with cdc_database(emulator) as source:
        source.run(
            f"CREATE TABLE dbo.Zones ({request.param})", "INSERT INTO dbo.Zones VALUES (1, 10), (2, 20), (3, 30)"
        )
        source.enable("Zones")
        made = SwitchRig(emulator, source, database)
        configure(made)
        yield made


def configure(rig: SwitchRig, **settings: Any) -> None:
    rig.pipelines = [PipelineSettings("shop", (TableSettings(ZONES, TARGET, style=Style.SNAPSHOT, **settings),))]


def test_snapshot_has_the_rows_of_the_newest_read_and_its_position(rig: SwitchRig) -> None:
    rig.run()
    assert rig.rows(ROWS) == [(1, 10), (2, 20), (3, 30)]
    rig.change("UPDATE dbo.Zones SET Rate = 11 WHERE Code = 1", "DELETE dbo.Zones WHERE Code > 1")
    opened = rig.run()
    assert rig.rows(ROWS) == [(1, 11)]
    assert opened.to is not None
    read = rig.rows("SELECT __lsn, __window_id, __loaded_at IS NOT NULL FROM shop.zones")
    assert read == [(opened.to.value, opened.window_id, True)]


@pytest.mark.parametrize("seed", range(3))
def test_snapshot_equals_the_table_after_each_window(rig: SwitchRig, seed: int) -> None:
    chance = random.Random(seed)
    codes = iter(range(10, 99))
    for _ in range(5):
        opened = rig.run()
        source = rig.database.query("SELECT Code, Rate FROM dbo.Zones")
        assert Counter(rig.rows(ROWS)) == Counter(tuple(row.values()) for row in source)
        assert rig.rows("SELECT DISTINCT __window_id FROM shop.zones") in ([], [(opened.window_id,)])
        drawn = [
            f"INSERT INTO dbo.Zones VALUES ({next(codes)}, {chance.randrange(3)})",
            f"DELETE TOP ({chance.randrange(1, 4)}) dbo.Zones",
            f"UPDATE dbo.Zones SET Rate = {chance.randrange(40, 99)} WHERE Code % 2 = {chance.randrange(2)}",
        ]
        rig.change(*chance.sample(drawn, chance.randrange(1, 4)), f"INSERT INTO dbo.Zones VALUES ({next(codes)}, 0)")


def test_nothing_is_read_without_a_change(rig: SwitchRig) -> None:
    rig.run()
    rig.change("CREATE TABLE dbo.Others (Id int)")
    rig.database.enable("Others")
    rig.change("INSERT INTO dbo.Others VALUES (1)")
    before = rig.rows("SELECT * FROM shop.zones ORDER BY __seq")
    opened = rig.run()
    assert opened.window_id is None
    assert rig.rows("SELECT * FROM shop.zones ORDER BY __seq") == before
    watermark = rig.ledger.read_tables("shop")[ZONES].watermark
    assert watermark is not None
    assert watermark.value > before[0][3]


def test_readers_see_the_old_rows_until_the_new_ones_are_there(rig: SwitchRig) -> None:
    """No lock of the replacement holds up a reader, and a reader that has begun keeps what it sees."""
    rig.run()
    rig.change("UPDATE dbo.Zones SET Rate = 0")
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert session.execute(ROWS).fetchall() == [(1, 10), (2, 20), (3, 30)]
        rig.run()
        assert session.execute(ROWS).fetchall() == [(1, 10), (2, 20), (3, 30)]
    assert rig.rows(ROWS) == [(1, 0), (2, 0), (3, 0)]


def test_window_is_merged_once_and_no_other_load_comes_between(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Zones SET Rate = 1")
    opened = rig.open()
    with pytest.raises(WindowBusyError, match="is unfinished and holds the table"):
        rig.load_planner().open_reload(ZONES)
    rig.finish(opened)
    assert opened.window_id is not None
    rig.change("UPDATE dbo.Zones SET Rate = 2")
    rig.run()
    stager = InProcessStager(reading(rig.at))
    load_window(opened.window_id, rig.ledger, rig.warehouse, SqlServerSource(rig.at), stager)
    assert rig.rows(ROWS) == [(1, 2), (2, 2), (3, 2)]


def test_late_window_puts_no_older_rows_over_newer_ones(rig: SwitchRig) -> None:
    """The ledger opens no such windows. A merge compares all the same."""
    rig.run()
    rig.change("UPDATE dbo.Zones SET Rate = 1")
    late = rig.open().window_id
    assert late is not None
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("UPDATE floodmark.windows SET state = 'advanced' WHERE window_id = %s", [late])
        rig.change("UPDATE dbo.Zones SET Rate = 2")
        rig.run()
        session.execute("UPDATE floodmark.windows SET state = 'planned' WHERE window_id = %s", [late])
    stager = InProcessStager(reading(rig.at))
    with pytest.raises(WatermarkConflictError, match="the whole table was read since the window was planned"):
        load_window(late, rig.ledger, rig.warehouse, SqlServerSource(rig.at), stager)
    assert rig.rows(ROWS) == [(1, 2), (2, 2), (3, 2)]


def test_emptied_table_empties_the_target_which_is_not_taken_for_lost(rig: SwitchRig) -> None:
    rig.run()
    rig.change("DELETE dbo.Zones")
    rig.run()
    assert rig.rows(ROWS) == []
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("VACUUM FULL shop.zones")
    assert rig.ledger.read_tables("shop")[ZONES].target_fault == ""
    rig.change("INSERT INTO dbo.Zones VALUES (4, 40)")
    rig.run()
    assert rig.rows(ROWS) == [(4, 40)]


def test_reload_reads_the_table_again_and_some_rows_are_refused(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute('DELETE FROM shop.zones WHERE "Code" = 1')
    rig.finish(rig.load_planner().open_reload(ZONES))
    assert rig.rows(ROWS) == [(1, 10), (2, 20), (3, 30)]
    with pytest.raises(ConfigError, match="a snapshot of the table, of which all rows are of one read"):
        rig.load_planner().open_reload(ZONES, "Code = 1")


def test_rows_that_break_a_rule_are_not_in_the_snapshot_until_they_are_released(rig: SwitchRig) -> None:
    configure(rig, rules=(Rule("positive", '"Rate" > 0', OnFailure.QUARANTINE),))
    rig.run()
    rig.change("UPDATE dbo.Zones SET Rate = -1 WHERE Code = 2")
    rig.run()
    assert rig.rows(ROWS) == [(1, 10), (3, 30)]
    released = PostgresQuarantine(rig.connection).release("shop", replace(rig.pipelines[0].tables[0], rules=()), "anna")
    assert (released.released, released.inserted_rows) == (1, 1)
    assert rig.rows(ROWS) == [(1, 10), (2, -1), (3, 30)]
    rig.change("DELETE dbo.Zones WHERE Code = 2")
    rig.run()
    assert rig.rows(ROWS) == [(1, 10), (3, 30)]


def test_row_in_quarantine_is_settled_by_the_next_read(rig: SwitchRig) -> None:
    configure(rig, rules=(Rule("positive", '"Rate" > 0', OnFailure.QUARANTINE),))
    rig.change("UPDATE dbo.Zones SET Rate = -1 WHERE Code = 2")
    rig.run()
    rig.change("UPDATE dbo.Zones SET Rate = 2 WHERE Code = 2")
    rig.run()
    assert rig.rows(ROWS) == [(1, 10), (2, 2), (3, 30)]
    assert rig.rows("SELECT outcome FROM floodmark.quarantine") == [("overtaken",)]


def test_filter_applies_to_each_read(rig: SwitchRig) -> None:
    configure(rig, where=parse_filter("Rate > 10"))
    rig.run()
    assert rig.rows(ROWS) == [(2, 20), (3, 30)]
    rig.change("UPDATE dbo.Zones SET Rate = Rate - 10")
    rig.run()
    assert rig.rows(ROWS) == [(3, 20)]


def test_snapshot_is_neither_compared_nor_replayed(rig: SwitchRig) -> None:
    first = rig.run()
    rig.change("UPDATE dbo.Zones SET Rate = 1")
    second = rig.run()
    with pytest.raises(OperatorError, match="a snapshot, whose rows have no key to compare them by"):
        rig.differing()
    source = SqlServerSource(rig.at)
    replay = Replay(rig.pipelines[0], source, SqlServerReplaySource(rig.at), rig.ledger, rig.warehouse)
    assert first.to is not None
    assert second.to is not None
    opened = replay.open(Interval(first.to, second.to))
    assert opened.window_id is None
    assert "its target is a snapshot of the table, which has no changes: reload it" in opened.reason


def test_settings_without_a_meaning_for_a_snapshot_are_refused(rig: SwitchRig) -> None:
    for settings, cause in (
        ({"deletes": Deletes.HARD}, "deletes: hard"),
        ({"net": NetSource.SERVER}, "net: server"),
        ({"live_view": True}, "live_view: true"),
        ({"key": ("Code",)}, r"key: \[Code\]"),
        ({"security_filtered": SecurityFiltered.ACCEPT}, "security_filtered: accept"),
    ):
        configure(rig, **settings)
        with pytest.raises(ConfigError, match=f"style: snapshot, but {cause}"):
            rig.run()


def test_window_of_a_snapshot_is_a_load_of_the_whole_table(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Zones SET Rate = 1")
    opened = rig.open()
    assert opened.window_id is not None
    (table,) = rig.ledger.read_window(opened.window_id).plan.tables
    assert (table.kind, table.feed.table.key) == (LoadKind.FIRST_LOAD, ())
