"""Tables with ``where``: random changes under random filters, and what a target has of rows that do not pass."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from switch_rig import SwitchRig

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator
from floodmark.core.errors import DefinitionChangedError, TableNotPlannableError
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    ColumnSettings,
    Deletes,
    Filter,
    FirstLoad,
    OnFailure,
    PipelineSettings,
    Rule,
    Style,
    TableSettings,
)
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sync.filters import parse_filter
from tracking_rig import PIPELINE, TrackingRig, tracking_rig

PEOPLE, TARGET = TableName("dbo", "People"), TableName("shop", "people")
COLUMNS = ("Id", "Region", "Amount", "Born", "IsTest")
NAMES = ", ".join(COLUMNS)
TABLE = "Id int NOT NULL PRIMARY KEY, Region nvarchar(5), Amount int, Born date, IsTest bit NOT NULL"
REGIONS, DAYS = ("N", "n ", "S", "", "so", "a%"), ("20260101", "20260115", "20260201")
KEYS = 7


class Draw:
    """Filters and statements of one seed. hands_on: a statement may give a row the key that another one leaves."""

    def __init__(self, seed: int, *, hands_on: bool = True) -> None:
        self.chance = random.Random(seed)
        self.hands_on = hands_on
        self.newest = 1000

    def condition(self, depth: int = 3) -> str:
        """Return a filter of any form of the grammar, as a person writes it."""
        form = self.chance.randrange(9 if depth else 6)
        region, day, number = self.text(), self.chance.choice(DAYS), self.chance.randint(0, 4)
        compared = self.chance.choice(("=", "<>", "!=", "<", "<=", ">", ">="))
        is_not = self.chance.choice(("", "NOT "))
        match form:
            case 0:
                return f"Region {compared} {region}"
            case 1:
                return self.chance.choice((f"Amount {compared} {number}", f"[Amount] {compared} Id", f"{number} < Id"))
            case 2:
                return f"Region {is_not}IN ({region}, {self.text()})"
            case 3:
                return f"Born {is_not}BETWEEN '{day}' AND '20260131'"
            case 4:
                pattern = self.chance.choice(("n%", "_", "a!%"))
                return f"Region {is_not}LIKE {self.chance.choice(('N', ''))}'{pattern}' ESCAPE '!'"
            case 5:
                return f"{self.chance.choice(('Region', 'Amount', 'Born'))} IS {is_not}NULL OR IsTest = {number % 2}"
            case 6:
                return f"NOT ({self.condition(depth - 1)})"
        return f"({self.condition(depth - 1)}) {'AND' if form == 7 else 'OR'} {self.condition(depth - 1)}"

    def text(self) -> str:
        return f"{self.chance.choice(('N', ''))}'{self.chance.choice(REGIONS)}'"

    def values(self) -> list[str]:
        """Return the values of a row but its key."""
        born = self.chance.choice(["NULL", *(f"'{day}'" for day in DAYS)])
        amount = self.chance.choice(("NULL", "0", "1", "2", "3"))
        return [self.chance.choice(("NULL", self.text())), amount, born, str(self.chance.randrange(2))]

    def statement(self) -> str:
        key, names, values = self.chance.randrange(KEYS), COLUMNS[1:], self.values()
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                return (
                    f"INSERT INTO dbo.People ({NAMES}) SELECT {key}, {', '.join(values)}"
                    f" WHERE NOT EXISTS (SELECT 1 FROM dbo.People WHERE Id = {key})"
                )
            case 3:
                return f"DELETE FROM dbo.People WHERE Id = {key}"
            case 4 if not self.hands_on:
                self.newest += 1
                return f"UPDATE dbo.People SET Id = {self.newest} WHERE Id = {key}"
            case 4:
                return f"UPDATE dbo.People SET Id = Id + 1 WHERE Id BETWEEN {key} AND 500"
            case 5:
                return f"UPDATE dbo.People SET {names[1]} = {values[1]}, IsTest = 1 - IsTest WHERE Id % 2 = {key % 2}"
        place = self.chance.randrange(4)
        return f"UPDATE dbo.People SET {names[place]} = {values[place]} WHERE Id = {key}"

    def newcomer(self) -> str:
        """Return the statement of a row that was never there, so that the log has something new."""
        self.newest += 1
        return f"INSERT INTO dbo.People ({NAMES}) VALUES ({self.newest}, {', '.join(self.values())})"

    def transaction(self) -> str:
        statements = [self.statement() for _ in range(self.chance.choice((1, 1, 2, 4)))]
        return f"BEGIN TRANSACTION; {'; '.join(statements)}; COMMIT"


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(f"CREATE TABLE dbo.People ({TABLE})")
        made.enable("People")
        yield made


@pytest.fixture
def rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    return SwitchRig(emulator, source, database)


def configure(rig: SwitchRig, where: Filter | None, **chosen: Any) -> None:
    settings = TableSettings(PEOPLE, TARGET, where=where, first_load=FirstLoad(chunk_rows=2), **chosen)
    rig.pipelines = [PipelineSettings("shop", (settings,))]


def passing(source: CdcDatabase, where: str) -> list[tuple[Any, ...]]:
    """Return the rows of the source, by the filter as it was written."""
    rows = source.query(f"SELECT {NAMES} FROM dbo.People WHERE {where} ORDER BY Id")
    return [tuple(row.values()) for row in rows]


def living(rig: SwitchRig | TrackingRig, condition: str = "NOT __deleted", table: str = "shop.people") -> Any:
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    return rig.rows(f'SELECT {names} FROM {table} WHERE {condition} ORDER BY "Id"')


@pytest.mark.parametrize("seed", range(12))
def test_target_has_the_rows_of_the_source_that_pass(rig: SwitchRig, seed: int) -> None:
    draw = Draw(seed)
    where, deletes = draw.condition(), draw.chance.choice(list(Deletes))
    configure(rig, parse_filter(where), deletes=deletes)
    rig.change(*(draw.newcomer(), *(draw.transaction() for _ in range(draw.chance.randrange(6)))))
    for _ in range(5):
        rig.run()
        assert living(rig) == passing(rig.database, where), where
        assert rig.differing() == []
        rig.change(*(draw.transaction() for _ in range(draw.chance.choice((1, 2, 8)))), draw.newcomer())


@pytest.mark.parametrize("seed", range(20, 26))
def test_history_is_that_of_the_rows_that_pass_at_every_commit(rig: SwitchRig, seed: int) -> None:
    draw = Draw(seed)
    where = draw.condition()
    configure(rig, parse_filter(where), style=Style.HISTORY)
    rig.change(draw.newcomer(), draw.transaction())
    rig.run()
    states: dict[str, list[tuple[Any, ...]]] = {}
    for _ in range(3):
        for _ in range(4):
            rig.change(draw.transaction(), draw.newcomer())
            [newest] = rig.database.query("SELECT sys.fn_cdc_get_max_lsn() AS lsn")
            states[newest["lsn"].hex()] = passing(rig.database, where)
        rig.run()
    for lsn, rows in states.items():
        at = f"'\\x{lsn}'"
        then = f"__lsn <= {at} AND (__next_lsn > {at} OR __next_lsn IS NULL) AND NOT __deleted"
        assert living(rig, then, "shop.people_history") == rows, where
    assert rig.differing() == []
    # No history begins with a delete, and no delete follows another: a row that never passed has no version.
    versions = rig.rows('SELECT "Id", __deleted FROM shop.people_history ORDER BY "Id", __load, __lsn')
    gone = {key for key, _ in versions}
    for key, is_deleted in versions:
        assert not (is_deleted and key in gone), where
        (gone.add if is_deleted else gone.discard)(key)


@pytest.mark.parametrize("seed", range(30, 36))
def test_log_has_the_changes_of_a_table_of_the_rows_that_pass(rig: SwitchRig, seed: int) -> None:
    # Of two entries of one statement for a key, a log does not show which row has it.
    draw = Draw(seed, hands_on=False)
    where = draw.condition()
    configure(rig, parse_filter(where), style=Style.LOG)
    rig.change(draw.newcomer(), draw.transaction())
    for _ in range(4):
        rig.run()
        assert rows_of_log(rig) == passing(rig.database, where), where
        rig.change(*(draw.transaction() for _ in range(4)), draw.newcomer())


def rows_of_log(rig: SwitchRig) -> list[tuple[Any, ...]]:
    """Return the rows that the entries of a log make. Each must fit those before it."""
    rows: dict[int, tuple[Any, ...]] = {}
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    for lsn, command, op, *values in rig.rows(
        f"SELECT __lsn, __command_id, __op, {names} FROM shop.people ORDER BY __lsn, __command_id, __seq, __op"
    ):
        key, row = values[0], tuple(values)
        if op == 1:
            assert rows.pop(key) == row, (lsn, command)
        else:
            assert (key in rows) == (op == 4), (lsn, command)
            rows[key] = row
    return sorted(rows.values())


TRACKED = (
    f"CREATE TABLE dbo.People ({TABLE}, Note nvarchar(max))",
    "ALTER TABLE dbo.People ENABLE CHANGE_TRACKING",
)


def tracked(where: str, **chosen: Any) -> PipelineSettings:
    settings = TableSettings(PEOPLE, TARGET, where=parse_filter(where), first_load=FirstLoad(chunk_rows=2), **chosen)
    return PipelineSettings(PIPELINE, (settings,))


@pytest.fixture
def tracking(emulator: Emulator, database: WarehouseConnection) -> Iterator[TrackingRig]:
    with tracking_rig(emulator, database, tracked("Amount > 0"), TRACKED) as made:
        yield made


@pytest.mark.parametrize("seed", range(40, 48))
def test_target_of_change_tracking_has_the_rows_that_pass(tracking: TrackingRig, seed: int) -> None:
    draw = Draw(seed)
    where, deletes = draw.condition(), draw.chance.choice(list(Deletes))
    tracking.settings = tracked(where, deletes=deletes)
    tracking.run(draw.newcomer())
    for _ in range(5):
        tracking.sync()
        rows = tracking.client.rows(f"SELECT {NAMES} FROM dbo.People WHERE {where} ORDER BY Id")
        assert living(tracking) == rows, where
        assert tracking.differing() == []
        # What a deleted row keeps are values that passed once: the key alone would be NULL in a NOT NULL column.
        assert tracking.rows('SELECT "Id" FROM shop.people WHERE "IsTest" IS NULL') == []
        tracking.run(*(draw.transaction() for _ in range(draw.chance.choice((1, 2, 8)))), draw.newcomer())


def test_row_that_leaves_and_enters_is_deleted_and_inserted(rig: SwitchRig) -> None:
    configure(rig, parse_filter("Amount > 0"))
    rig.change("INSERT INTO dbo.People VALUES (1, 'N', 1, NULL, 0), (2, 'N', 0, NULL, 0), (3, 'N', 3, NULL, 0)")
    rig.run()
    # Never there, never deleted: no row, and no count.
    rig.change(
        "INSERT INTO dbo.People VALUES (4, 'S', 0, NULL, 0), (5, 'S', NULL, NULL, 0), (6, 'S', 6, NULL, 0)",
        "UPDATE dbo.People SET Region = 'X' WHERE Amount = 0",
        "DELETE dbo.People WHERE Id = 5",
        "UPDATE dbo.People SET Amount = -1, Region = 'no' WHERE Id = 1",
        "UPDATE dbo.People SET Amount = 2 WHERE Id = 2",
    )
    opened = rig.run()
    assert rig.rows('SELECT "Id", "Region", "Amount", __op, __deleted FROM shop.people ORDER BY 1') == [
        (1, "N", 1, 1, True),
        (2, "X", 2, 2, False),
        (3, "N", 3, 2, False),
        (6, "S", 6, 2, False),
    ]
    counts = "SELECT read_rows, inserted_rows, updated_rows, deleted_rows, unchanged_rows FROM floodmark.window_tables"
    assert rig.rows(f"{counts} WHERE window_id = {opened.window_id}") == [(3, 2, 0, 1, 0)]


def test_replay_of_a_part_does_not_bring_back_a_row_that_left_within_a_window(rig: SwitchRig) -> None:
    configure(rig, parse_filter("Amount > 0"), deletes=Deletes.HARD)
    rig.change("INSERT INTO dbo.People VALUES (1, 'N', 1, NULL, 0)")
    rig.run()
    rig.change(
        "INSERT INTO dbo.People VALUES (2, 'N', 2, NULL, 0), (3, 'N', 0, NULL, 0)",
        "UPDATE dbo.People SET Amount = 0",
    )
    rig.run()
    assert living(rig, "true") == []
    keys = rig.rows("SELECT key FROM floodmark.tombstones ORDER BY key")
    assert keys == [([1],), ([2],)]


def test_delete_without_a_value_that_the_filter_needs_is_a_delete_all_the_same(rig: SwitchRig) -> None:
    configure(rig, parse_filter("IsTest = 0"), columns=(ColumnSettings("IsTest", is_dropped=True),))
    rig.change("INSERT INTO dbo.People VALUES (1, 'N', 1, NULL, 0), (2, 'N', 2, NULL, 0), (3, 'N', 3, NULL, 1)")
    rig.run()
    rig.change("DELETE dbo.People WHERE Id > 1")
    # As servers have written it (docs/reference/sqlserver_cdc.md, "Types").
    rig.database.run("UPDATE cdc.dbo_People_CT SET IsTest = NULL, Region = 'hid' WHERE __$operation = 1")
    rig.run()
    found = rig.rows('SELECT "Id", "Region" FROM shop.people WHERE __deleted ORDER BY 1')
    assert found[0] == (2, None)
    assert rig.rows('SELECT "Id", "Region" FROM shop.people WHERE NOT __deleted') == [(1, "N")]
    assert "hid" not in str(found)


def test_reload_applies_another_filter_and_nothing_else_does(rig: SwitchRig) -> None:
    configure(rig, parse_filter("Amount > 0"))
    rig.change("INSERT INTO dbo.People VALUES (1, 'N', 1, NULL, 0), (2, 'S', 2, NULL, 0), (3, 'S', 0, NULL, 0)")
    rig.run()
    configure(rig, parse_filter("([Amount]>0)"))
    rig.change("UPDATE dbo.People SET IsTest = 1")
    rig.run()
    configure(rig, parse_filter("Region = 'S'"))
    rig.change("UPDATE dbo.People SET Born = '20260101'")
    with pytest.raises(DefinitionChangedError, match=r"where: \[Amount\] > 0, and .* where: \[Region\] = 'S' now"):
        rig.run()
    with pytest.raises(DefinitionChangedError):
        rig.open_load("shop", PEOPLE, "Id = 3")
    rig.finish(rig.load_planner().open_reload(PEOPLE))
    assert [row[0] for row in living(rig)] == [2, 3]
    rig.change("UPDATE dbo.People SET IsTest = 0")
    rig.run()
    assert [row[0] for row in living(rig)] == [2, 3]
    assert rig.differing() == []
    configure(rig, None)
    rig.change("UPDATE dbo.People SET IsTest = 1")
    with pytest.raises(DefinitionChangedError, match="brings the rows that pass"):
        rig.run()


def test_window_that_was_planned_with_another_filter_is_not_merged(rig: SwitchRig) -> None:
    configure(rig, parse_filter("Amount > 0"))
    rig.change("INSERT INTO dbo.People VALUES (1, 'N', 1, NULL, 0), (2, 'S', 2, NULL, 0)")
    rig.run()
    rig.change("UPDATE dbo.People SET IsTest = 1")
    planned = rig.open()
    configure(rig, parse_filter("Amount > 1"))
    with psycopg.connect(rig.connection.conninfo(), autocommit=True) as session:
        session.execute(
            "UPDATE floodmark.tables SET definition = jsonb_set(definition, '{\"\",where}', '\"[Amount] > 1\"')"
        )
    with pytest.raises(DefinitionChangedError, match="where"):
        rig.finish(planned)


def test_table_that_cannot_be_filtered_so_is_refused(rig: SwitchRig) -> None:
    rig.database.run("CREATE TABLE dbo.Docs (Id int NOT NULL PRIMARY KEY, Amount int, Twice AS Amount * 2, Doc ntext)")
    rig.database.enable("Docs")
    rig.change("INSERT INTO dbo.Docs (Id, Amount, Doc) VALUES (1, 1, N'a'), (2, 0, N'b')")
    drop = (ColumnSettings("Doc", is_dropped=True),)

    def run(where: str, **chosen: Any) -> None:
        settings = TableSettings(TableName("dbo", "Docs"), TARGET, where=parse_filter(where), **chosen)
        rig.pipelines = [PipelineSettings("shop", (settings,))]
        rig.run()

    for where, why in {
        "Amount > 0": "may lack Doc, .* leave such columns out",
        "amount > 0": "no captured column amount in this spelling",
        "Twice > 0": "no captured column Twice .* computed",
        "Amount = 'x'": "Amount is int, and is compared with a text",
        "Amount LIKE 'x'": "Amount is int, and is compared with a pattern",
        "Doc IS NULL": "Doc is ntext, which no filter compares",
    }.items():
        with pytest.raises(TableNotPlannableError, match=why):
            run(where)
    run("Amount > 0", columns=drop)
    assert rig.rows('SELECT "Id" FROM shop.people') == [(1,)]


def test_deletes_of_keys_that_never_passed_are_no_rows_of_change_tracking(tracking: TrackingRig) -> None:
    tracking.settings = tracked("Amount > 0", rules=(Rule("small", '"Amount" < 9', OnFailure.QUARANTINE),))
    tracking.run("INSERT INTO dbo.People VALUES (1, 'N', 1, NULL, 0, N'a'), (2, 'N', 0, NULL, 0, N'b')")
    tracking.sync()
    tracking.run(
        "INSERT INTO dbo.People VALUES (3, 'S', 0, NULL, 0, N'c'), (4, 'S', 99, NULL, 0, N'd')",
        "UPDATE dbo.People SET Amount = 0, Region = 'no', Note = N'no' WHERE Id = 1",
    )
    opened = tracking.sync()
    kept = 'SELECT "Id", "Region", "Amount", "Note", __deleted FROM shop.people ORDER BY 1'
    assert tracking.rows(kept) == [(1, "N", 1, "a", True)]
    counts = "SELECT staged_rows, inserted_rows, deleted_rows, quarantined_rows FROM floodmark.window_tables"
    assert tracking.rows(f"{counts} WHERE window_id = {opened.window_id}") == [(2, 0, 1, 1)]
    waiting = "SELECT key FROM floodmark.quarantine WHERE settled_at IS NULL"
    assert tracking.rows(waiting) == [([4],)]
    # The row in quarantine leaves the filter: its release would bring a row that does not pass.
    tracking.run("UPDATE dbo.People SET Amount = 0 WHERE Id = 4", "UPDATE dbo.People SET Amount = 5 WHERE Id = 1")
    tracking.sync()
    assert tracking.rows(waiting) == []
    assert tracking.rows(kept) == [(1, "no", 5, "no", False)]
    assert tracking.differing() == []


HIDDEN = ("kept-secret", "770077", "1987-06")


@pytest.mark.parametrize("style", Style)
def test_values_of_rows_that_do_not_pass_are_in_no_table_of_the_warehouse(
    rig: SwitchRig, style: Style, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch_tables(rig, monkeypatch)
    rule = Rule("small", '"Amount" < 9', OnFailure.QUARANTINE)
    configure(rig, parse_filter("IsTest = 0"), style=style, rules=() if style is Style.LOG else (rule,))
    rig.change("INSERT INTO dbo.People VALUES (1, 'seen', 1, NULL, 0), (2, 'x', 770077, '1987-06-02', 1)")
    rig.run()
    rig.change(
        "UPDATE dbo.People SET Amount = 770077, Born = '1987-06-01', IsTest = 1 WHERE Id = 1",
        "UPDATE dbo.People SET Amount = 770077, Born = '1987-06-03' WHERE Id = 2",
        "INSERT INTO dbo.People VALUES (3, 'seen', 770077, '1987-06-02', 1), (4, 'seen', 4, NULL, 0)",
        "DELETE dbo.People WHERE Id = 2",
        "UPDATE dbo.People SET Id = 8, Amount = 770077, IsTest = 1 WHERE Id = 4",
    )
    rig.run()
    rig.finish(rig.load_planner().open_reload(PEOPLE))
    assert any("seen" in text for text in seen)
    assert [value for value in HIDDEN if any(value in text for text in seen)] == []


def test_values_of_rows_that_do_not_pass_stay_in_a_source_with_change_tracking(
    tracking: TrackingRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch_tables(tracking, monkeypatch)
    tracking.settings = tracked("IsTest = 0")
    tracking.run(
        "INSERT INTO dbo.People VALUES (1, 'seen', 1, NULL, 0, N'a'), (2, 'x', 770077, NULL, 1, N'kept-secret')"
    )
    tracking.sync()
    tracking.run(
        "UPDATE dbo.People SET Amount = 770077, Note = N'kept-secret', IsTest = 1 WHERE Id = 1",
        "INSERT INTO dbo.People VALUES (3, 'x', 770077, '1987-06-02', 1, N'kept-secret')",
    )
    tracking.sync()
    assert any("seen" in text for text in seen)
    assert [value for value in HIDDEN if any(value in text for text in seen)] == []


CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - source: dbo.People
        target: shop.people
        style: current
        where: "Amount > 0 AND Region LIKE N'n%'"
        rules: [{name: small, sql: '"Amount" < 9'}]
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("style", [Style.CURRENT, Style.HISTORY])
def test_commands_filter_rows_and_the_checks_of_a_window_hold(
    commands: CommandRig, source: CdcDatabase, style: Style
) -> None:
    rig = commands
    config = CONFIG.replace("style: current", f"style: {style.value}")
    rig.configure(config)
    source.run("INSERT INTO dbo.People VALUES (1, 'N', 1, NULL, 0), (2, 'S', 2, NULL, 0), (3, 'n', 99, NULL, 0)")
    source.scan()
    rig.call("config", "check")
    rig.call("run", "shop")
    source.run(
        "INSERT INTO dbo.People VALUES (4, 'S', 4, NULL, 0), (5, 'n', 5, NULL, 0)",
        "UPDATE dbo.People SET Region = 'S' WHERE Id = 1",
        "UPDATE dbo.People SET Region = 'N' WHERE Id = 2",
        "UPDATE dbo.People SET Amount = 0 WHERE Id = 3",
    )
    source.scan()
    rig.call("run", "shop")
    found = 'SELECT "Id" FROM shop.people WHERE NOT __deleted ORDER BY 1'
    assert rig.rows(found) == [(2,), (5,)]
    # A version in quarantine keeps its place in a history; the row that left overtakes it elsewhere.
    waiting = rig.rows("SELECT key ->> 0 FROM floodmark.quarantine WHERE settled_at IS NULL")
    assert waiting == ([("3",)] if style is Style.HISTORY else [])
    assert "dbo.People equal" in rig.call("verify", "shop")
    rig.configure(config.replace("Amount > 0", "Amount >= 4"))
    source.run("UPDATE dbo.People SET Amount = 6 WHERE Id = 2")
    source.scan()
    status, output = rig.try_call("run", "shop")
    assert (status != 0, "definition_changed" in output, "[Amount] > 0" in output) == (True, True, True)
    assert "where" in rig.try_call("plan", "shop")[1]
    rig.call("reload", "shop", "dbo.People")
    assert rig.rows(found) == [(2,), (5,)]
    source.run("UPDATE dbo.People SET Amount = 3 WHERE Id = 5")
    source.scan()
    rig.call("run", "shop")
    assert rig.rows(found) == [(2,)]
    assert "dbo.People equal" in rig.call("verify", "shop")
    rig.configure(config.replace("Amount > 0", "UPPER(Region) = 'N'"))
    status, output = rig.try_call("config", "check")
    assert (status != 0, "a filter cannot have UPPER(Region)" in output) == (True, True)


def watch_tables(rig: SwitchRig | TrackingRig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets every row of every table of the warehouse, before and after each merge."""
    seen: list[str] = []
    merge = PostgresWarehouse.merge_window

    def dump() -> str:
        tables = rig.rows(
            "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables"
            " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        )
        return "\n".join(str(rig.rows(f"SELECT t::text FROM {table} AS t")) for (table,) in tables)

    def watched(self: PostgresWarehouse, *arguments: Any, **named: Any) -> Any:
        seen.append(dump())
        merged = merge(self, *arguments, **named)
        seen.append(dump())
        return merged

    monkeypatch.setattr(PostgresWarehouse, "merge_window", watched)
    return seen
