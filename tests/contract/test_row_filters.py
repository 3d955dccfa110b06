"""Tables with ``where``: random changes under random filters, and what a target has of rows that do not pass."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from switch_rig import SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, Filter, FirstLoad, PipelineSettings, TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.filters import parse_filter
from tracking_rig import TrackingRig

PEOPLE, TARGET = TableName("dbo", "People"), TableName("shop", "people")
COLUMNS = ("Id", "Region", "Amount", "Born", "IsTest")
NAMES = ", ".join(COLUMNS)
TABLE = "Id int NOT NULL PRIMARY KEY, Region nvarchar(5), Amount int, Born date, IsTest bit NOT NULL"
REGIONS, DAYS = ("N", "n ", "S", "", "so", "a%"), ("20260101", "20260115", "20260201")
KEYS = 7


class Draw:
    """Filters and statements of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
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
