"""Tables with ``style: log``, from the change table of an emulator to the rows of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator, running_emulator
from floodmark.core.errors import ConfigError, OperatorError
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

PAGE = Path("docs/change_logs.md")
LOG = TableName("shop", "orders_log")
EVENTS = (
    'SELECT __op, "Id", "Amount", "Note", __changed FROM shop.orders_log'
    " ORDER BY __load, __lsn, __command_id, __seq, __op"
)


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
    chosen = {"style": Style.LOG, "first_load": FirstLoad(chunk_rows=2)} | settings
    rig.pipelines = [PipelineSettings("shop", (TableSettings(ORDERS, LOG, **chosen),))]


def test_log_has_the_rows_of_the_load_and_every_change_after_it(rig: SwitchRig) -> None:
    rig.run()
    assert rig.rows(EVENTS) == [(0, 1, 10, "a", None), (0, 2, 20, "b", None), (0, 3, 30, "c", None)]
    rig.change(
        "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1",
        "UPDATE dbo.Orders SET Amount = 12, Note = NULL WHERE Id = 1",
        "BEGIN TRANSACTION; INSERT INTO dbo.Orders VALUES (4, 40, N'd'); DELETE dbo.Orders WHERE Id = 4; COMMIT",
        "DELETE dbo.Orders WHERE Id = 2",
    )
    rig.run()
    assert rig.rows(EVENTS)[3:] == [
        (4, 1, 11, "a", ["Amount"]),
        (4, 1, 12, None, ["Amount", "Note"]),
        (2, 4, 40, "d", None),
        (1, 4, 40, "d", None),
        (1, 2, 20, "b", None),
    ]
    assert rig.rows("SELECT DISTINCT __load, __window_id FROM shop.orders_log ORDER BY 2") == [(1, 1), (1, 2)]


def test_changes_have_the_time_of_their_commit(rig: SwitchRig) -> None:
    rig.run()
    began = datetime.now(UTC)
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    # Commits of one tick of the server's clock have the same time.
    found = rig.rows("SELECT DISTINCT __lsn, __committed_at FROM shop.orders_log ORDER BY __lsn")
    loaded, first, second = (committed_at for _, committed_at in found)
    assert loaded is None
    assert began - timedelta(seconds=1) < first <= second < datetime.now(UTC) + timedelta(seconds=1)


def test_times_of_commits_are_in_utc_and_unknown_in_the_hour_that_comes_twice(
    open_dir: Path, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    with running_emulator(open_dir / "autumn") as emulator, cdc_database(emulator) as source:
        source.run("CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(max))")
        source.enable("Orders")
        source.run("EXEC emulator.set_clock @now = '2027-10-30T12:00:00'")
        rig = SwitchRig(emulator, source, database)
        configure(rig)
        source.run("INSERT INTO dbo.Orders VALUES (0, 0, NULL)")
        source.scan()
        rig.run()
        utc = []
        for number, at in enumerate(("2027-10-30T23:30", "2027-10-31T02:30", "2027-10-31T05:30"), 1):
            rig.change(
                f"EXEC emulator.set_clock @now = '{at}:00'", f"INSERT INTO dbo.Orders VALUES ({number}, 0, NULL)"
            )
            utc += [row["at"].replace(tzinfo=UTC) for row in source.query("SELECT GETUTCDATE() AS at")]
        rig.run()
        (before,), twice, (after,) = rig.rows(
            'SELECT __committed_at FROM shop.orders_log WHERE "Id" > 0 ORDER BY __lsn'
        )
    assert twice == (None,)
    assert abs(before - utc[0]) < timedelta(minutes=5)
    assert abs(after - utc[2]) < timedelta(minutes=5)


def test_key_that_is_updated_in_place_is_a_delete_and_an_insert(emulator: Emulator, rig: SwitchRig) -> None:
    """The server does not know a declared key, and captures an update of it as one."""
    rig.database.run("CREATE TABLE dbo.Heap (Code varchar(9), Amount int)", "INSERT INTO dbo.Heap VALUES ('A', 1)")
    rig.database.enable("Heap")
    heap = TableSettings(TableName("dbo", "Heap"), TableName("shop", "heap_log"), key=("Code",), style=Style.LOG)
    rig.pipelines = [PipelineSettings("shop", (heap,))]
    rig.run()
    rig.change("UPDATE dbo.Heap SET Code = 'B' WHERE Code = 'A'", "UPDATE dbo.Heap SET Amount = 2 WHERE Code = 'B'")
    rig.run()
    order = "__lsn, __command_id, __seq, __op"
    assert rig.rows(f'SELECT __op, "Code", "Amount" FROM shop.heap_log WHERE __op > 0 ORDER BY {order}') == [
        (1, "A", 1),
        (2, "B", 1),
        (4, "B", 2),
    ]


def test_reload_adds_the_rows_of_the_table_behind_a_new_load(rig: SwitchRig) -> None:
    rig.run()
    rig.change("DELETE dbo.Orders WHERE Id = 1")
    rig.run()
    opened = rig.load_planner().open_reload(ORDERS)
    rig.finish(opened)
    rig.change("DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    found = rig.rows('SELECT __load, __window_id, __op, "Id" FROM shop.orders_log ORDER BY 2, __lsn, __op, 4')
    loaded = [(1, 1, 0, 1), (1, 1, 0, 2), (1, 1, 0, 3)]
    assert found == [*loaded, (1, 2, 1, 1), (3, 3, 0, 2), (3, 3, 0, 3), (3, 4, 1, 2)]


def test_some_rows_of_a_log_cannot_be_reloaded(rig: SwitchRig) -> None:
    rig.run()
    with pytest.raises(ConfigError, match="a log of changes, which has no row to correct"):
        rig.load_planner().open_reload(ORDERS, "Id = 1")


def test_settings_that_lose_changes_are_refused_with_a_log(rig: SwitchRig) -> None:
    for settings, cause in (
        ({"deletes": Deletes.HARD}, "deletes: hard"),
        ({"net": NetSource.SERVER}, "net: server"),
        ({"live_view": True}, "live_view: true"),
    ):
        configure(rig, **settings)
        with pytest.raises(ConfigError, match=f"style: log, but {cause}"):
            rig.run()


@pytest.mark.parametrize(("before", "after"), [(Style.LOG, Style.CURRENT), (Style.CURRENT, Style.LOG)])
def test_target_of_another_style_is_refused_until_it_is_renamed_and_reloaded(
    rig: SwitchRig, before: Style, after: Style
) -> None:
    configure(rig, style=before)
    rig.run()
    configure(rig, style=after)
    rig.change("DELETE dbo.Orders WHERE Id = 1")
    message = f"was made with style: {before.value}, and pipelines.yaml has style: {after.value}.*Restore style"
    with pytest.raises(ConfigError, match=message):
        rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("ALTER TABLE shop.orders_log RENAME TO orders_before")
    rig.finish(rig.load_planner().open_reload(ORDERS))
    rig.change("DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    found = rig.rows('SELECT __op, "Id" FROM shop.orders_log ORDER BY __window_id, "Id"')
    assert found == ([(0, 2), (0, 3), (1, 2)] if after is Style.LOG else [(2, 3), (1, 2)])


def test_log_goes_on_with_a_second_capture_instance_and_loads_no_row_for_it(rig: SwitchRig) -> None:
    """A change of the new column alone is one since the switch, when the pipeline began to read the column."""
    rig.run()
    rig.change("ALTER TABLE dbo.Orders ADD Place nvarchar(9)", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    rig.change("UPDATE dbo.Orders SET Place = N'x', Amount = 12 WHERE Id = 1")
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Place = N'y' WHERE Id = 2")
    rig.run()
    said = rig.switches.take()
    assert said[-1].endswith("done; dbo_Orders was dropped.")
    rig.change("UPDATE dbo.Orders SET Place = N'z' WHERE Id = 3")
    rig.run()
    assert rig.rows(
        'SELECT "Id", "Amount", "Place", __changed FROM shop.orders_log WHERE __op > 0'
        " ORDER BY __lsn, __command_id, __seq"
    ) == [
        (1, 11, None, ["Amount"]),
        (1, 12, None, ["Amount"]),
        (3, 30, "z", ["Place"]),
    ]


def test_log_is_not_compared_with_its_source(rig: SwitchRig) -> None:
    rig.run()
    with pytest.raises(OperatorError, match="a log of changes, and the source has only the newest rows"):
        rig.differing()


def test_changes_that_break_a_rule_wait_each_by_itself_and_are_released_each(rig: SwitchRig) -> None:
    positive = Rule("positive", '"Amount" > 0', OnFailure.QUARANTINE)
    configure(rig, rules=(positive,))
    rig.run()
    rig.change(
        "BEGIN TRANSACTION; UPDATE dbo.Orders SET Amount = -1 WHERE Id = 1; UPDATE dbo.Orders SET Amount = -2 WHERE"
        " Id = 1; UPDATE dbo.Orders SET Amount = 3 WHERE Id = 1; COMMIT",
        "DELETE dbo.Orders WHERE Id = 2",
    )
    rig.run()
    assert [row[:3] for row in rig.rows(EVENTS)[3:]] == [(4, 1, 3), (1, 2, 20)]
    released = PostgresQuarantine(rig.connection).release("shop", replace(rig.pipelines[0].tables[0], rules=()), "anna")
    assert (released.released, released.inserted_rows) == (2, 2)
    assert [row[:3] for row in rig.rows(EVENTS)[3:]] == [(4, 1, -1), (4, 1, -2), (4, 1, 3), (1, 2, 20)]
    assert rig.rows('SELECT __load, __window_id FROM shop.orders_log WHERE "Amount" < 0') == [(1, 3), (1, 3)]


def test_delete_of_a_text_that_cannot_be_stored_is_in_the_log_without_the_rest(rig: SwitchRig) -> None:
    """Also where it is a text of the key, by which other targets could find no row."""
    rig.database.run("CREATE TABLE dbo.Odd (Code nvarchar(9) NOT NULL PRIMARY KEY, Note nvarchar(9))")
    rig.database.enable("Odd")
    odd = TableSettings(TableName("dbo", "Odd"), TableName("shop", "odd"), style=Style.LOG)
    rig.pipelines = [PipelineSettings("shop", (odd,))]
    rig.run()
    rig.change("INSERT INTO dbo.Odd VALUES (N'a' + NCHAR(0), N'b'), (N'c', N'd' + NCHAR(0))", "DELETE dbo.Odd")
    rig.run()
    deletes = rig.rows('SELECT __op, "Code", "Note" FROM shop.odd ORDER BY "Code" COLLATE "C"')
    assert deletes == [(1, "a\ufffd", "b"), (1, "c", "d\ufffd")]
    waiting = rig.rows("SELECT rule, (row_data ->> '__op')::int FROM floodmark.quarantine")
    assert waiting == [("text_can_be_stored", 2)] * 2


def test_reload_leaves_the_place_of_a_change_that_was_set_aside(rig: SwitchRig) -> None:
    """A load after a restore lowers the positions of other targets, whose rows would win for ever."""
    configure(rig, rules=(Rule("positive", '"Amount" > 0', OnFailure.QUARANTINE),))
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = -1 WHERE Id = 1", "UPDATE dbo.Orders SET Amount = 1 WHERE Id = 1")
    rig.run()
    highest = b"\xfe" * 10
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("UPDATE floodmark.quarantine SET lsn = %s", [highest])
    rig.finish(rig.load_planner().open_reload(ORDERS))
    assert rig.rows("SELECT lsn, outcome FROM floodmark.quarantine") == [(highest, "overtaken")]


def test_column_with_a_name_of_the_log_is_refused(rig: SwitchRig) -> None:
    rig.database.run("CREATE TABLE dbo.Odd (Id int NOT NULL PRIMARY KEY, __seq int)")
    rig.database.enable("Odd")
    odd = TableSettings(TableName("dbo", "Odd"), TableName("shop", "odd"), style=Style.LOG)
    rig.pipelines = [PipelineSettings("shop", (odd,))]
    rig.database.scan()
    with pytest.raises(ConfigError, match="column __seq has a name that is reserved in a log"):
        rig.run()


def read_after(rig: SwitchRig, cursor: int) -> list[tuple[Any, ...]]:
    """Return window, operation and amount of what a consumer reads, by the query of the documents."""
    _, *blocks = PAGE.read_text(encoding="utf-8").split("```sql\n")
    query = next(block.partition("```")[0] for block in blocks if ":cursor" in block)
    query = query.replace("shop.order_lines_log", str(LOG)).replace("'OrderLines'", "'Orders'")
    query = query.replace("SELECT *", 'SELECT __window_id, __op, "Amount"', 1).replace(":cursor", str(cursor))
    return rig.rows(query)


def test_cursor_of_the_documents_waits_for_a_window_that_a_release_overtakes(rig: SwitchRig) -> None:
    configure(rig, rules=(Rule("positive", '"Amount" > 0', OnFailure.QUARANTINE),))
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = -1 WHERE Id = 1")
    rig.run()
    assert [row[:2] for row in read_after(rig, 0)] == [(1, 0)] * 3
    rig.change("UPDATE dbo.Orders SET Amount = 2 WHERE Id = 2")
    opened = rig.open()
    PostgresQuarantine(rig.connection).release("shop", replace(rig.pipelines[0].tables[0], rules=()), "anna")
    assert opened.window_id == 3
    assert rig.rows('SELECT __window_id FROM shop.orders_log WHERE "Amount" < 0') == [(4,)]
    assert read_after(rig, 1) == []
    rig.finish(opened)
    assert read_after(rig, 1) == [(4, 4, -1), (3, 4, 2)]
    # In another file, the target is the same also where the last window that wrote is not the highest.
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("VACUUM FULL shop.orders_log")
    rig.change("DELETE dbo.Orders WHERE Id = 3")
    rig.run()
    assert read_after(rig, 4) == [(5, 1, 30)]
