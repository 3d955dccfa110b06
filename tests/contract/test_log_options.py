"""The options of ``style: log``: the row before each update, and a log without the rows of the first load."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, OnFailure, PipelineSettings, Rule, Style, TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.filters import parse_filter

LOG = TableName("shop", "orders_log")
ORDER = "ORDER BY __load, __lsn, __command_id, __seq, __op"
EVENTS = f'SELECT __op, "Id", "Amount", "Note", __changed FROM shop.orders_log {ORDER}'
LOADS = f'SELECT __load, __window_id, __op, "Id" FROM shop.orders_log {ORDER}'
CAPTURED = (
    "SELECT Id, Amount, Note, __$start_lsn AS lsn, __$command_id AS command, __$seqval AS place, __$operation AS op"
    " FROM cdc.dbo_Orders_CT"
)
PLACES = '"Id", "Amount", "Note", encode(__lsn, \'hex\'), __command_id, encode(__seq, \'hex\'), __op'


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    """A table of three rows."""
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(9))",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'a'), (2, 20, N'b'), (3, 30, N'c')",
        )
        source.enable("Orders")
        yield SwitchRig(emulator, source, database)


def configure(rig: SwitchRig, source: TableName = ORDERS, **settings: Any) -> None:
    chosen = {"style": Style.LOG, "first_load": FirstLoad(chunk_rows=2)} | settings
    rig.pipelines = [PipelineSettings("shop", (TableSettings(source, LOG, **chosen),))]


# --------------------------------------------------------------------------------------------------------------------
# The row before each update.


def test_log_has_the_row_before_each_update_when_it_is_asked_for(rig: SwitchRig) -> None:
    configure(rig)
    rig.run()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    configure(rig, before_images=True)
    rig.change(
        "UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1",
        "UPDATE dbo.Orders SET Id = 4 WHERE Id = 2",
        "DELETE dbo.Orders WHERE Id = 3",
    )
    rig.run()
    assert rig.rows(EVENTS)[3:] == [
        (4, 1, 11, "a", ["Amount"]),
        (3, 1, 11, "a", ["Amount"]),
        (4, 1, 12, "a", ["Amount"]),
        (1, 2, 20, "b", None),
        (2, 4, 20, "b", None),
        (1, 3, 30, "c", None),
    ]
    places = "SELECT count(DISTINCT (__lsn, __command_id, __seq))::int FROM shop.orders_log WHERE __op = 3"
    assert rig.rows(places) == [(1,)]
    assert rig.rows(f"{places.replace('= 3', 'IN (3, 4)')} AND __window_id = 3") == [(1,)]


def test_update_of_a_declared_key_is_a_delete_and_an_insert_with_the_images_of_others(rig: SwitchRig) -> None:
    rig.database.run("CREATE TABLE dbo.Heap (Code varchar(9), Amount int)", "INSERT INTO dbo.Heap VALUES ('A', 1)")
    rig.database.enable("Heap")
    configure(rig, TableName("dbo", "Heap"), key=("Code",), before_images=True)
    rig.run()
    rig.change("UPDATE dbo.Heap SET Code = 'B' WHERE Code = 'A'", "UPDATE dbo.Heap SET Amount = 2 WHERE Code = 'B'")
    rig.run()
    assert rig.rows(f'SELECT __op, "Code", "Amount" FROM shop.orders_log WHERE __op > 0 {ORDER}') == [
        (1, "A", 1),
        (2, "B", 1),
        (3, "B", 1),
        (4, "B", 2),
    ]


class Draw:
    """Random statements over rows of a table with a key."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def statement(self) -> str:
        key, other, value = (self.chance.randrange(5) for _ in range(3))
        match self.chance.randrange(5):
            case 0:
                exists = f"EXISTS (SELECT 1 FROM dbo.Orders WHERE Id = {key})"
                return f"IF NOT {exists} INSERT INTO dbo.Orders VALUES ({key}, 1, N'x')"
            case 1:
                return f"DELETE dbo.Orders WHERE Id = {key}"
            case 2:
                taken = f"EXISTS (SELECT 1 FROM dbo.Orders WHERE Id = {other})"
                return f"IF NOT {taken} UPDATE dbo.Orders SET Id = {other}, Amount = {value} WHERE Id = {key}"
            case 3:
                return f"UPDATE dbo.Orders SET Note = N'{value}' WHERE Id > {key}"
        return f"UPDATE dbo.Orders SET Amount = {value} WHERE Id < {key}"

    def transaction(self) -> str:
        statements = [self.statement() for _ in range(self.chance.choice((1, 1, 2, 4)))]
        return f"BEGIN TRANSACTION; {'; '.join(statements)}; COMMIT"


@pytest.mark.parametrize("seed", range(4))
def test_log_with_images_before_updates_has_the_rows_of_the_change_table(rig: SwitchRig, seed: int) -> None:
    draw = Draw(seed)
    configure(rig, before_images=True)
    rig.run()
    for _ in range(3):
        rig.change(*(draw.transaction() for _ in range(6)), "UPDATE dbo.Orders SET Amount = 99 WHERE Id = 1")
        rig.run()
        rows = [tuple(row.values()) for row in rig.database.query(CAPTURED)]
        captured = Counter((*values, lsn.hex(), command, place.hex(), op) for *values, lsn, command, place, op in rows)
        assert Counter(rig.rows(f"SELECT {PLACES} FROM shop.orders_log WHERE __op > 0")) == captured


@pytest.mark.parametrize("seed", range(4))
def test_images_before_updates_and_a_filter_make_the_rows_that_pass(rig: SwitchRig, seed: int) -> None:
    draw = Draw(seed)
    rig.database.run("DELETE dbo.Orders")
    rig.database.scan()
    where = draw.chance.choice(["Amount > 1", "Note <> N'1'", "Id <> 2 AND Amount < 4"])
    configure(rig, before_images=True, where=parse_filter(where))
    rig.run()
    rows: Counter[tuple[Any, ...]] = Counter()
    for _ in range(3):
        rig.change(*(draw.transaction() for _ in range(6)), "INSERT INTO dbo.Orders VALUES (9, 9, N'9')")
        rig.change("DELETE dbo.Orders WHERE Id = 9")
        window_id = rig.run().window_id
        for op, *values in rig.rows(
            f'SELECT __op, "Id", "Amount", "Note" FROM shop.orders_log WHERE __window_id = {window_id} {ORDER}'
        ):
            rows[tuple(values)] += 1 if op in (2, 4) else -1
            assert rows[tuple(values)] >= 0, where
        places = "SELECT __lsn, __command_id, __seq FROM shop.orders_log WHERE __op IN (3, 4) GROUP BY 1, 2, 3"
        assert rig.rows(f"{places} HAVING count(*) <> 2") == [], where
        passing = rig.database.query(f"SELECT Id, Amount, Note FROM dbo.Orders WHERE {where}")
        assert +rows == Counter(tuple(row.values()) for row in passing), where


def test_rules_judge_no_row_before_an_update_of_a_log_with_a_key(rig: SwitchRig) -> None:
    configure(rig, before_images=True, rules=(Rule("positive", '"Amount" > 0', OnFailure.QUARANTINE),))
    rig.run()
    rig.change(*(f"UPDATE dbo.Orders SET Amount = {amount} WHERE Id = 1" for amount in (-1, 2)))
    rig.run()
    assert [row[:3] for row in rig.rows(EVENTS)[3:]] == [(3, 1, 10), (3, 1, -1), (4, 1, 2)]
    assert rig.rows("SELECT row_data -> '__op', row_data -> 'Amount' FROM floodmark.quarantine") == [(4, -1)]


# --------------------------------------------------------------------------------------------------------------------
# A log without the rows of the table.


def test_log_without_a_snapshot_begins_with_the_changes_after_the_load(rig: SwitchRig) -> None:
    configure(rig, snapshot=False)
    rig.database.scan()
    rig.run()
    assert rig.rows(EVENTS) == []
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    assert rig.rows(EVENTS) == [(4, 1, 11, "a", ["Amount"]), (1, 2, 20, "b", None)]
    assert rig.rows("SELECT read_rows, staged_rows FROM floodmark.window_tables ORDER BY window_id") == [(0, 0), (2, 2)]


def test_reload_of_a_log_without_a_snapshot_adds_no_row_and_counts_as_a_load(rig: SwitchRig) -> None:
    configure(rig, snapshot=False)
    rig.database.scan()
    rig.run()
    rig.change("DELETE dbo.Orders WHERE Id = 1")
    rig.run()
    rig.finish(rig.load_planner().open_reload(ORDERS))
    rig.change("DELETE dbo.Orders WHERE Id = 2")
    rig.run()
    assert rig.rows(LOADS) == [(1, 2, 1, 1), (3, 4, 1, 2)]
    configure(rig)
    rig.finish(rig.load_planner().open_reload(ORDERS))
    assert rig.rows(LOADS)[2:] == [(5, 5, 0, 3)]


def test_table_without_a_key_has_a_log_without_a_snapshot(rig: SwitchRig) -> None:
    rig.database.run("CREATE TABLE dbo.Heap (Id int, Amount int, Note int)", "INSERT INTO dbo.Heap VALUES (1, 2, 3)")
    rig.database.enable("Heap")
    configure(rig, TableName("dbo", "Heap"), snapshot=False)
    rig.database.scan()
    rig.run()
    rig.change("UPDATE dbo.Heap SET Amount = 4")
    rig.run()
    assert [row[:4] for row in rig.rows(EVENTS)] == [(3, 1, 2, 3), (4, 1, 4, 3)]
