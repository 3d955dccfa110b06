"""Tables without a key and with ``style: log``: from the change table of an emulator to the rows of the log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from switch_rig import SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import DataQualityError, TableNotPlannableError
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, OnFailure, PipelineSettings, Rule, Style, TableSettings, UnstorablePolicy
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.filters import parse_filter

READINGS, LOG = TableName("dbo", "Readings"), TableName("shop", "readings_log")
EVENTS = (
    'SELECT __op, "Sensor", "Value", "Note", __changed FROM shop.readings_log'
    " ORDER BY __load, __lsn, __command_id, __seq, __op"
)
NEWCOMER = "INSERT INTO dbo.Readings VALUES (9, 9, N'x')"
PLACES = '"Sensor", "Value", "Note", encode(__lsn, \'hex\'), __command_id, encode(__seq, \'hex\'), __op'
CAPTURED = (
    "SELECT Sensor, Value, Note, __$start_lsn AS lsn, __$command_id AS command, __$seqval AS place, __$operation AS op"
    " FROM cdc.dbo_Readings_CT"
)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    """A heap of four rows, of which two are equal, to be read two at a time where that is possible."""
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Readings (Sensor int, Value int, Note nvarchar(max))",
            "INSERT INTO dbo.Readings VALUES (1, 10, N'a'), (1, 10, N'a'), (2, NULL, NULL), (NULL, 30, N'c')",
        )
        source.enable("Readings")
        made = SwitchRig(emulator, source, database)
        configure(made)
        yield made


def configure(rig: SwitchRig, **settings: Any) -> None:
    chosen = {"style": Style.LOG, "first_load": FirstLoad(chunk_rows=2)} | settings
    rig.pipelines = [PipelineSettings("shop", (TableSettings(READINGS, LOG, **chosen),))]


def captured(source: CdcDatabase) -> Counter[tuple[Any, ...]]:
    """Return the rows of the change table."""
    rows = [tuple(row.values()) for row in source.query(CAPTURED)]
    return Counter((*values, lsn.hex(), command, place.hex(), op) for *values, lsn, command, place, op in rows)


def logged(rig: SwitchRig) -> Counter[tuple[Any, ...]]:
    """Return the changes in the log."""
    return Counter(rig.rows(f"SELECT {PLACES} FROM shop.readings_log WHERE __op > 0"))


def test_log_has_each_row_of_the_load_and_both_images_of_updates(rig: SwitchRig) -> None:
    rig.run()
    loaded = [(0, 1, 10, "a", None), (0, 1, 10, "a", None), (0, 2, None, None, None), (0, None, 30, "c", None)]
    assert rig.rows(EVENTS) == loaded
    rig.change(
        "UPDATE TOP (1) dbo.Readings SET Value = 11 WHERE Sensor = 1",
        "INSERT INTO dbo.Readings VALUES (1, 10, N'a')",
        "DELETE dbo.Readings WHERE Sensor IS NULL",
    )
    rig.run()
    first, second, *others = rig.rows(EVENTS)[4:]
    # The server leaves a LOB that was not changed out of the image before the update.
    assert (first[:3], first[4]) == ((3, 1, 10), ["Value"])
    assert (second[:3], second[4]) == ((4, 1, 11), ["Value"])
    assert others == [(2, 1, 10, "a", None), (1, None, 30, "c", None)]


class Draw:
    """Random statements over rows of which some are equal."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def statement(self) -> str:
        sensor, value = self.chance.randrange(3), self.chance.randrange(3)
        match self.chance.randrange(6):
            case 0 | 1:
                rows = ", ".join([f"({sensor}, {value}, N'{value}')"] * self.chance.randrange(1, 4))
                return f"INSERT INTO dbo.Readings VALUES {rows}"
            case 2:
                return f"DELETE TOP (1) dbo.Readings WHERE Sensor = {sensor}"
            case 3:
                return f"UPDATE TOP (1) dbo.Readings SET Sensor = {sensor} WHERE Value = {value}"
            case 4:
                return f"UPDATE dbo.Readings SET Note = N'x{value}' WHERE Sensor = {sensor}"
        return f"UPDATE dbo.Readings SET Value = {value}, Note = NULL WHERE Sensor = {sensor}"

    def transaction(self) -> str:
        statements = [self.statement() for _ in range(self.chance.choice((1, 1, 2, 4)))]
        return f"BEGIN TRANSACTION; {'; '.join(statements)}; COMMIT"


@pytest.mark.parametrize("seed", range(6))
def test_log_has_the_rows_of_the_change_table(rig: SwitchRig, seed: int) -> None:
    draw = Draw(seed)
    rig.run()
    before = captured(rig.database)
    for _ in range(4):
        rig.change(*(draw.transaction() for _ in range(draw.chance.randrange(1, 6))), NEWCOMER)
        rig.run()
        assert logged(rig) == captured(rig.database) - before


@pytest.mark.parametrize("seed", range(10, 16))
def test_log_with_a_filter_makes_the_rows_that_pass(
    emulator: Emulator, database: WarehouseConnection, seed: int
) -> None:
    draw = Draw(seed)
    with cdc_database(emulator) as source:
        source.run("CREATE TABLE dbo.Readings (Sensor int, Value int, Note nvarchar(9))")
        source.enable("Readings")
        rig = SwitchRig(emulator, source, database)
        where = draw.chance.choice(["Value > 0", "Sensor <> 1 AND Note IS NOT NULL", "Note LIKE N'x%' OR Value = 2"])
        configure(rig, where=parse_filter(where))
        # Changes after the begin of a load are listed too: from an empty table on, they make the rows.
        rig.change(NEWCOMER, "DELETE dbo.Readings")
        rig.run()
        rows: Counter[tuple[Any, ...]] = Counter()
        for _ in range(3):
            rig.change(*(draw.transaction() for _ in range(6)), NEWCOMER)
            window_id = rig.run().window_id
            for op, *values in rig.rows(
                f'SELECT __op, "Sensor", "Value", "Note" FROM shop.readings_log WHERE __window_id = {window_id}'
                " ORDER BY __lsn, __command_id, __seq, __op"
            ):
                rows[tuple(values)] += 1 if op in (2, 4) else -1
                assert rows[tuple(values)] >= 0, where
            # An image of an update that is alone is a delete or an insert.
            places = "SELECT __lsn, __command_id, __seq FROM shop.readings_log WHERE __op IN (3, 4) GROUP BY 1, 2, 3"
            assert rig.rows(f"{places} HAVING count(*) <> 2") == [], where
            passing = source.query(f"SELECT Sensor, Value, Note FROM dbo.Readings WHERE {where}")
            assert +rows == Counter(tuple(row.values()) for row in passing), where


def test_reload_adds_all_rows_behind_a_new_load_and_repeats_no_change(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Readings SET Value = 1 WHERE Sensor = 1")
    rig.run()
    rig.finish(rig.load_planner().open_reload(READINGS))
    counts = "SELECT __load, __op, count(*)::int FROM shop.readings_log GROUP BY 1, 2 ORDER BY 1, 2"
    assert rig.rows(counts) == [(1, 0, 4), (1, 3, 2), (1, 4, 2), (3, 0, 4)]


def test_rules_judge_no_image_before_an_update(rig: SwitchRig) -> None:
    configure(rig, rules=(Rule("positive", '"Value" > 0', OnFailure.QUARANTINE),))
    rig.run()
    rig.change(*(f"UPDATE dbo.Readings SET Value = {value} WHERE Sensor = 2" for value in (-1, 2)))
    rig.run()
    assert [row[:3] for row in rig.rows(EVENTS)[4:]] == [(3, 2, None), (3, 2, -1), (4, 2, 2)]
    assert rig.rows("SELECT row_data -> '__op', row_data -> 'Value' FROM floodmark.quarantine") == [(4, -1)]


def test_text_that_cannot_be_stored_never_holds_back_an_image_before_an_update(rig: SwitchRig) -> None:
    rig.run()
    rig.change(
        "INSERT INTO dbo.Readings VALUES (5, 5, N'a' + NCHAR(0))",
        "UPDATE dbo.Readings SET Note = N'b' WHERE Sensor = 5",
    )
    rig.run()
    assert [row[:4] for row in rig.rows(EVENTS)[4:]] == [(3, 5, 5, "a\ufffd"), (4, 5, 5, "b")]
    assert rig.rows("SELECT rule, (row_data ->> '__op')::int FROM floodmark.quarantine") == [("text_can_be_stored", 2)]
    configure(rig, unstorable=UnstorablePolicy.FAIL)
    rig.change("INSERT INTO dbo.Readings VALUES (6, 6, NCHAR(0))")
    with pytest.raises(DataQualityError, match=r"texts cannot be stored in PostgreSQL: Note \(.*\)\.") as raised:
        rig.run()
    assert raised.value.detail.startswith("such as at 0x")


def test_key_of_a_log_may_be_declared_and_taken_back(rig: SwitchRig) -> None:
    configure(rig, key=("Sensor",))
    rig.change("DELETE dbo.Readings WHERE Sensor IS NULL", "DELETE TOP (1) dbo.Readings WHERE Sensor = 1")
    rig.run()
    rig.change("UPDATE dbo.Readings SET Value = 1 WHERE Sensor = 2")
    rig.run()
    configure(rig)
    rig.change("UPDATE dbo.Readings SET Value = 2 WHERE Sensor = 2")
    rig.run()
    assert [row[:3] for row in rig.rows(EVENTS)[2:]] == [(4, 2, 1), (3, 2, 1), (4, 2, 2)]


@pytest.mark.parametrize("style", [Style.CURRENT, Style.HISTORY])
def test_other_styles_refuse_a_table_without_a_key_and_name_the_ways_out(rig: SwitchRig, style: Style) -> None:
    configure(rig, style=style)
    with pytest.raises(
        TableNotPlannableError, match=r"neither a primary key nor a declared key.* key: \[\.\.\].* style: log"
    ):
        rig.run()
    rig.pipelines = [replace(rig.pipelines[0], tables=(replace(rig.pipelines[0].tables[0], style=Style.LOG),))]
    rig.run()
    assert len(rig.rows(EVENTS)) == 4
