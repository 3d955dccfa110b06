"""Tables with ``style: history``, from the change table of an emulator to the versions in target and view."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator, running_emulator
from floodmark.core.errors import ConfigError, TargetLostError, TargetRefusedError
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, Naming, PipelineSettings, Style, TableSettings
from floodmark.postgres.session import WarehouseConnection

PAGE = Path("docs/histories.md")
TARGET = TableName("shop", "orders")
VERSIONS = 'SELECT __op, "Id", "Amount", "Note", __deleted, __next_lsn IS NULL FROM shop.orders_history'
IN_ORDER = f'{VERSIONS} ORDER BY "Id", __load, __lsn'


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
    chosen = {"style": Style.HISTORY, "first_load": FirstLoad(chunk_rows=2)} | settings
    rig.pipelines = [PipelineSettings("shop", (TableSettings(ORDERS, TARGET, **chosen),))]


def test_each_commit_of_a_row_is_a_version(rig: SwitchRig) -> None:
    rig.run()
    loaded = [(2, 1, 10, "a", False, True), (2, 2, 20, "b", False, True), (2, 3, 30, "c", False, True)]
    assert rig.rows(IN_ORDER) == loaded
    rig.change(
        "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1",
        "UPDATE dbo.Orders SET Amount = 12, Note = NULL WHERE Id = 1",
        "BEGIN TRANSACTION; INSERT INTO dbo.Orders VALUES (4, 40, N'd'); DELETE dbo.Orders WHERE Id = 4; COMMIT",
        "DELETE dbo.Orders WHERE Id = 2",
    )
    rig.run()
    assert rig.rows(IN_ORDER) == [
        (2, 1, 10, "a", False, False),
        (4, 1, 11, "a", False, False),
        (4, 1, 12, None, False, True),
        (2, 2, 20, "b", False, False),
        (1, 2, 20, "b", True, True),
        (2, 3, 30, "c", False, True),
    ]
    assert rig.rows('SELECT "Id", "Amount" FROM shop.orders WHERE NOT __deleted ORDER BY 1') == [(1, 12), (3, 30)]


def odd_table(rig: SwitchRig, columns: str) -> None:
    rig.database.run(f"CREATE TABLE dbo.Odd ({columns})")
    rig.database.enable("Odd")
    odd = TableSettings(TableName("dbo", "Odd"), TableName("shop", "odd"), style=Style.HISTORY)
    rig.pipelines = [PipelineSettings("shop", (odd,))]


def as_of(rig: SwitchRig, at: datetime) -> list[tuple[Any, ...]]:
    return rig.rows(
        f"""SELECT "Id", "Amount" FROM shop.orders_history WHERE __valid_from <= '{at.isoformat()}'
        AND ('{at.isoformat()}' < __valid_to OR __valid_to IS NULL) AND NOT __deleted ORDER BY 1"""
    )


def test_rows_of_a_time_are_found_by_the_times_of_commits(
    open_dir: Path, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the hour that comes twice, where the time of a commit is a guess."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    with running_emulator(open_dir / "autumn") as emulator, cdc_database(emulator) as source:
        source.run("CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(max))")
        source.enable("Orders")
        source.run("EXEC emulator.set_clock @now = '2027-10-30T12:00:00'")
        source.run("INSERT INTO dbo.Orders VALUES (1, 0, NULL)")
        source.scan()
        rig = SwitchRig(emulator, source, database)
        configure(rig)
        rig.run()
        utc = [row["at"].replace(tzinfo=UTC) for row in source.query("SELECT GETUTCDATE() AS at")]
        for number, at in enumerate(("2027-10-30T23:30", "2027-10-31T02:30", "2027-10-31T05:30"), 1):
            rig.change(f"EXEC emulator.set_clock @now = '{at}:00'", f"UPDATE dbo.Orders SET Amount = {number}")
            utc += [row["at"].replace(tzinfo=UTC) for row in source.query("SELECT GETUTCDATE() AS at")]
        rig.run()
    assert as_of(rig, utc[0] - timedelta(minutes=5)) == []
    margin = timedelta(hours=1, minutes=5)
    found = {amount: (as_of(rig, at - margin), as_of(rig, at + margin)) for amount, at in enumerate(utc)}
    assert {amount: after for amount, (_, after) in found.items()} == {amount: [(1, amount)] for amount in range(4)}
    assert {amount: before for amount, (before, _) in found.items() if amount} == {
        amount: [(1, amount - 1)] for amount in range(1, 4)
    }


def answer(rig: SwitchRig, number: int, **values: object) -> list[tuple[Any, ...]]:
    """Return what a query of the documents finds."""
    _, *blocks = PAGE.read_text(encoding="utf-8").split("```sql\n")
    query = blocks[number].partition("```")[0].replace("shop.prices", str(TARGET)).replace("PriceID", "Id")
    for name, value in values.items():
        query = query.replace(f":{name}", str(value))
    return rig.rows(query.replace("SELECT *", 'SELECT "Id", "Amount"'))


def test_queries_of_the_documents_find_rows_of_now_and_of_then(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    before, after = [(1, 10), (2, 20), (3, 30)], [(1, 11), (3, 30)]
    ((begun, lsn, at),) = rig.rows(
        "SELECT min(__valid_from)::text, min(__lsn)::text, max(__valid_from)::text FROM shop.orders_history"
    )
    assert sorted(answer(rig, 0)) == after
    assert sorted(answer(rig, 1, at=f"'{begun}'")) == before
    assert sorted(answer(rig, 1, at=f"'{at}'")) == after
    assert sorted(answer(rig, 2, lsn=f"'{lsn}'")) == before
    assert answer(rig, 3, id=1) == [(1, 10), (1, 11)]


def test_lob_that_a_change_left_out_is_that_of_the_version_before(rig: SwitchRig) -> None:
    odd_table(rig, "Id int NOT NULL PRIMARY KEY, Amount int, Note ntext")
    rig.change("INSERT INTO dbo.Odd VALUES (1, 10, N'a')")
    rig.run()
    rig.change("UPDATE dbo.Odd SET Note = N'new'")
    rig.run()
    rig.change("UPDATE dbo.Odd SET Amount = 11", "UPDATE dbo.Odd SET Amount = 12", "DELETE dbo.Odd")
    rig.run()
    found = rig.rows('SELECT "Amount", "Note" FROM shop.odd_history ORDER BY __lsn')
    assert found == [(10, "a"), (10, "new"), (11, "new"), (12, "new"), (12, "new")]
    assert rig.rows("SELECT __kept FROM shop.odd WHERE __deleted") == [(["Note"],)]


def test_null_that_a_delete_has_of_a_column_without_null_is_not_its_last_value(rig: SwitchRig) -> None:
    odd_table(rig, "Id int NOT NULL PRIMARY KEY, Amount int NOT NULL, Note nvarchar(10)")
    rig.change("INSERT INTO dbo.Odd VALUES (1, 10, N'a'), (2, 20, NULL)")
    rig.run()
    rig.change("EXEC emulator.null_in_deletes N'dbo.Odd', N'Amount'", "DELETE dbo.Odd")
    rig.run()
    found = rig.rows('SELECT "Amount", "Note", __kept FROM shop.odd WHERE __deleted ORDER BY "Id"')
    assert found == [(10, "a", ["Amount"]), (20, None, ["Amount"])]


def test_key_that_is_updated_ends_and_begins_in_one_commit(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Id = 7 WHERE Id = 1", "UPDATE dbo.Orders SET Id = Id + 1 WHERE Id IN (2, 3)")
    rig.run()
    living = 'SELECT "Id", "Amount" FROM shop.orders WHERE NOT __deleted ORDER BY 1'
    assert rig.rows(living) == [(3, 20), (4, 30), (7, 10)]
    assert rig.rows(f'{VERSIONS} WHERE "Id" IN (1, 7) ORDER BY "Id", __lsn') == [
        (2, 1, 10, "a", False, False),
        (1, 1, 10, "a", True, True),
        (2, 7, 10, "a", False, True),
    ]


def test_versions_are_found_by_their_keys_and_ended_ones_by_their_ends_too(rig: SwitchRig) -> None:
    """The merge of late events, and the deletion of old versions, read the ended ones by their ends."""
    rig.run()
    indexes = rig.rows(
        "SELECT tablename, split_part(indexdef, ' USING ', 2), indexdef LIKE '%UNIQUE%' FROM pg_indexes"
        " WHERE schemaname = 'shop' ORDER BY 1, 3, 2"
    )
    assert indexes == [
        ("orders", 'btree ("Id")', True),
        ("orders_versions", "btree (__next_load, __next_lsn)", False),
        ("orders_versions", 'btree ("Id", __load, __lsn)', True),
    ]


def test_table_without_a_key_has_a_history_by_a_declared_one(rig: SwitchRig) -> None:
    """A row that is given the key of another one is a new row of it."""
    rig.database.run("CREATE TABLE dbo.Heap (Code int, Amount int)", "INSERT INTO dbo.Heap VALUES (1, 10), (2, 20)")
    rig.database.enable("Heap")
    heap = TableSettings(TableName("dbo", "Heap"), TableName("shop", "heap"), key=("Code",), style=Style.HISTORY)
    rig.pipelines = [PipelineSettings("shop", (heap,))]
    rig.run()
    rig.change("UPDATE dbo.Heap SET Code = Code + 1", "UPDATE dbo.Heap SET Amount = 21 WHERE Code = 3")
    rig.run()
    versions = 'SELECT __op, "Code", "Amount", __next_lsn IS NULL FROM shop.heap_history ORDER BY "Code", __lsn'
    assert rig.rows(versions) == [
        (2, 1, 10, False),
        (1, 1, 10, True),
        (2, 2, 20, False),
        (2, 2, 10, True),
        (2, 3, 20, False),
        (4, 3, 21, True),
    ]
    assert rig.differing() == []


def test_version_has_the_window_that_brought_it(rig: SwitchRig) -> None:
    odd_table(rig, "Id int NOT NULL PRIMARY KEY, Amount int")
    rig.change("INSERT INTO dbo.Odd VALUES (1, 10), (2, 20)")
    rig.run()
    rig.change("UPDATE dbo.Odd SET Amount = 11 WHERE Id = 1")
    rig.run()
    rig.change("UPDATE dbo.Odd SET Amount = 21 WHERE Id = 2", "UPDATE dbo.Odd SET Amount = 22 WHERE Id = 2")
    rig.run()
    brought = 'SELECT "Amount", __load, __window_id FROM shop.odd_history ORDER BY 1'
    assert rig.rows(brought) == [(10, 1, 1), (11, 1, 2), (20, 1, 1), (21, 1, 3), (22, 1, 3)]
    times = "SELECT __window_id, min(__loaded_at), max(__loaded_at) FROM shop.odd_history GROUP BY 1 ORDER BY 1"
    (_, *first), (_, *second), (_, *third) = rig.rows(times)
    assert first[0] == first[1] < second[0] == second[1] < third[0] == third[1]


def test_load_counts_what_became_of_the_newest_versions(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute('UPDATE shop.orders SET __deleted = true WHERE "Id" = 1')
        session.execute('UPDATE shop.orders SET "Amount" = 21 WHERE "Id" = 2')
    rig.change("DELETE dbo.Orders WHERE Id = 3", "INSERT INTO dbo.Orders VALUES (4, 40, N'd'), (5, 50, N'e')")
    rig.finish(rig.load_planner().open_reload(ORDERS))
    counts = "inserted_rows, updated_rows, swept_rows, unchanged_rows FROM floodmark.window_tables"
    assert rig.rows(f"SELECT {counts} ORDER BY window_id") == [(3, 0, 0, 0), (3, 1, 1, 0)]


def test_added_column_is_null_in_the_versions_before_it(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    rig.change("ALTER TABLE dbo.Orders ADD Place nvarchar(9)", "UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1")
    rig.run()
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 13 WHERE Id = 1")
    rig.run()
    assert rig.switches.take()[-1].endswith("done; dbo_Orders was dropped.")
    rig.change("UPDATE dbo.Orders SET Place = N'x' WHERE Id = 1", "UPDATE dbo.Orders SET Place = N'z' WHERE Id = 1")
    rig.run()
    places = rig.rows('SELECT "Amount", "Place" FROM shop.orders_history WHERE "Id" = 1 ORDER BY __lsn')
    assert places == [(10, None), (11, None), (12, None), (13, None), (13, "x"), (13, "z")]


def test_column_that_the_source_no_longer_has_keeps_its_values_in_the_versions_before(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        for table in ("orders_versions", "orders"):
            session.execute(f'ALTER TABLE shop.{table} ADD COLUMN "Old" int')
        session.execute('UPDATE shop.orders SET "Old" = 5')
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 2")
    rig.finish(rig.load_planner().open_reload(ORDERS))
    old = rig.rows('SELECT "Id", "Amount", "Old" FROM shop.orders_history ORDER BY "Id", __load, __lsn')
    assert old == [(1, 10, 5), (1, 11, None), (2, 20, 5), (2, 12, None), (3, 30, 5)]


def test_wider_type_reaches_both_tables_and_the_view(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("DROP VIEW shop.orders_history")
        for table in ("orders", "orders_versions"):
            session.execute(f'ALTER TABLE shop.{table} ALTER COLUMN "Amount" TYPE smallint')
    rig.change("UPDATE dbo.Orders SET Amount = 100000 WHERE Id = 1", "UPDATE dbo.Orders SET Amount = 5 WHERE Id = 1")
    rig.run()
    amounts = rig.rows('SELECT "Amount" FROM shop.orders_history WHERE "Id" = 1 ORDER BY __lsn')
    assert amounts == [(10,), (100000,), (5,)]


def test_column_of_a_user_is_no_part_of_the_history(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute('ALTER TABLE shop.orders ADD COLUMN twice int GENERATED ALWAYS AS ("Amount" * 2) STORED')
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    assert rig.rows('SELECT twice FROM shop.orders WHERE "Id" = 1') == [(22,)]
    assert rig.rows('SELECT "Amount" FROM shop.orders_history WHERE "Id" = 1 ORDER BY __lsn') == [(10,), (11,)]


@pytest.mark.parametrize("other", [Style.CURRENT, Style.LOG])
def test_history_is_refused_as_a_target_of_another_style(rig: SwitchRig, other: Style) -> None:
    rig.run()
    configure(rig, style=other)
    rig.change("DELETE dbo.Orders WHERE Id = 1")
    message = f"was made with style: history, and pipelines.yaml has style: {other.value}.*Restore style"
    with pytest.raises(ConfigError, match=message):
        rig.run()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("TABLE shop.orders_versions (id int)", "the target shop.orders_versions exists with another shape"),
        ("TABLE shop.orders_history (id int)", "the view shop.orders_history cannot be made: there is a table"),
        ("VIEW shop.orders_history AS SELECT 1 AS one", "the view shop.orders_history cannot be made: there is a view"),
    ],
)
def test_name_that_a_history_needs_is_refused_where_it_is_taken(rig: SwitchRig, made: str, message: str) -> None:
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute(f"CREATE SCHEMA shop; CREATE {made}")
    with pytest.raises(ConfigError, match=message):
        rig.run()


def test_versions_that_were_dropped_need_a_load_of_the_table(rig: SwitchRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("DROP TABLE shop.orders_versions CASCADE")
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    with pytest.raises(TargetLostError, match=r"shop\.orders_versions does not exist, and was loaded before"):
        rig.run()
    rig.finish(rig.load_planner().open_reload(ORDERS))
    versions = rig.rows(f'{VERSIONS} WHERE "Id" = 1 ORDER BY __load')
    assert versions == [(2, 1, 10, "a", False, False), (2, 1, 11, "a", False, True)]


def test_some_rows_of_a_history_cannot_be_reloaded(rig: SwitchRig) -> None:
    rig.run()
    with pytest.raises(ConfigError, match="a history, in which a load of some rows has no place"):
        rig.load_planner().open_reload(ORDERS, "Id = 1")


def test_column_with_a_name_of_the_history_is_refused(rig: SwitchRig) -> None:
    odd_table(rig, "Id int NOT NULL PRIMARY KEY, __valid_to int")
    rig.database.scan()
    with pytest.raises(ConfigError, match="column __valid_to has a name that is reserved in a history"):
        rig.run()


def test_names_and_texts_with_special_characters_are_values_of_a_history(rig: SwitchRig) -> None:
    odd_table(rig, '[100%] int NOT NULL PRIMARY KEY, [it\'s "{x}"] ntext, lsn int, s int, at int')
    rig.change("INSERT INTO dbo.Odd VALUES (1, N'a%s{b}', 1, 1, 1)")
    rig.run()
    rig.change("UPDATE dbo.Odd SET lsn = 2", "UPDATE dbo.Odd SET s = 2")
    rig.run()
    found = rig.rows("SELECT lsn, s FROM shop.odd_history ORDER BY __lsn")
    assert found == [(1, 1), (2, 1), (2, 2)]
    assert rig.rows('SELECT DISTINCT left("it\'s ""{x}""", 6) FROM shop.odd_history') == [("a%s{b}",)]


def test_table_of_keys_alone_has_a_history(rig: SwitchRig) -> None:
    odd_table(rig, "A int NOT NULL, B int NOT NULL, PRIMARY KEY (A, B)")
    rig.change("INSERT INTO dbo.Odd VALUES (1, 1), (2, 2)")
    rig.run()
    rig.change("DELETE dbo.Odd WHERE A = 1", "INSERT INTO dbo.Odd VALUES (1, 1)")
    rig.run()
    rig.finish(rig.load_planner().open_reload(TableName("dbo", "Odd")))
    found = rig.rows('SELECT "A", __op FROM shop.odd_history ORDER BY "A", __lsn')
    assert found == [(1, 2), (1, 1), (1, 2), (2, 2)]


def test_history_in_another_file_is_known(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11")
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("VACUUM FULL shop.orders")
        session.execute("VACUUM FULL shop.orders_versions")
    rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1")
    rig.run()
    assert rig.rows('SELECT "Amount" FROM shop.orders WHERE "Id" = 1') == [(12,)]


def test_names_of_columns_change_in_both_tables_and_the_view_with_a_reload(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    configure(rig, naming=Naming.SNAKE_CASE)
    rig.finish(rig.load_planner().open_reload(ORDERS))
    rig.change("UPDATE dbo.Orders SET Amount = 12, Note = N'n' WHERE Id = 1")
    rig.run()
    found = rig.rows("SELECT amount, note FROM shop.orders_history WHERE id = 1 ORDER BY __lsn")
    assert found == [(10, "a"), (11, "a"), (12, "n")]


def test_target_is_renamed_with_its_versions_and_the_view_follows(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute(
            "ALTER TABLE shop.orders RENAME TO sales; ALTER TABLE shop.orders_versions RENAME TO sales_versions"
        )
    rig.ledger.rename_target("shop", ORDERS, TableName("shop", "sales"))
    renamed = TableSettings(ORDERS, TableName("shop", "sales"), style=Style.HISTORY)
    rig.pipelines = [PipelineSettings("shop", (renamed,))]
    rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1")
    rig.run()
    assert rig.rows('SELECT "Amount" FROM shop.sales_history WHERE "Id" = 1 ORDER BY __lsn') == [(10,), (11,), (12,)]
    assert rig.rows("SELECT to_regclass('shop.orders_history')") == [(None,)]


def test_rows_of_another_ledger_are_refused(rig: SwitchRig) -> None:
    """The numbers of loads order the versions, and those of a new ledger begin again."""
    rig.run()
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute("DROP SCHEMA floodmark CASCADE")
    with pytest.raises(TargetRefusedError, match=r"the history shop\.orders has rows that no window of the ledger"):
        rig.run()


def test_table_with_too_many_columns_is_left_out_by_name(rig: SwitchRig) -> None:
    """A load has each column twice."""
    odd_table(rig, f"Id int NOT NULL PRIMARY KEY, {', '.join(f'C{number} bit' for number in range(850))}")
    (wide,) = rig.pipelines[0].tables
    rig.pipelines = [PipelineSettings("shop", (wide, TableSettings(ORDERS, TARGET)))]
    rig.change("INSERT INTO dbo.Odd (Id) VALUES (1)")
    rig.run()
    refused = rig.rows("SELECT source_name, cause FROM floodmark.verdicts WHERE verdict = 'refused'")
    too_many = "a row or a table is larger than PostgreSQL allows: target lists can have at most 1664 entries."
    assert refused == [("Odd", too_many)]
    assert len(rig.rows("SELECT FROM shop.orders")) == 3
