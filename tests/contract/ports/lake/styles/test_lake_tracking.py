"""Change tracking into a lake: each style has the rows that it has in PostgreSQL."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pytest
from lake_rig import LakeRig
from pyiceberg.table import StaticTable

from emulator_process import Emulator
from floodmark.core.naming import versions_name
from floodmark.core.settings import FirstLoad, OnFailure, OnGap, Rule, Style
from floodmark.iceberg.lake import PUBLISHED
from floodmark.iceberg.release import LakeQuarantine
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sync.filters import parse_filter
from tracking_rig import TrackingRig, changed_order, tracked_tables, tracking_database

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(max), IsTest bit NOT NULL)",
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "INSERT INTO dbo.Orders VALUES (1, 10, N'a', 0), (2, 20, N'b', 0), (3, 30, NULL, 1)",
)
_numbers = itertools.count(1)
SMALL = (Rule("small", '"Amount" < 100', OnFailure.QUARANTINE),)
SEEN: Mapping[Style, Sequence[str]] = {
    Style.CURRENT: ("Id", "Amount", "Note", "IsTest", "__op", "__lsn", "__deleted"),
    Style.LOG: ("__lsn", "__seq", "__op", "Id", "Amount", "Note", "IsTest", "__changed"),
    Style.HISTORY: (
        "Id", "__lsn", "__next_lsn", "Amount", "Note", "IsTest", "__op", "__deleted", "__kept", "__committed_at",
        "__valid_from", "__valid_to",
    ),
}  # fmt: skip
_SET = {"__kept", "__changed"}


@dataclass
class Both:
    """Two pipelines over one database, with the same settings: into a lake, and into PostgreSQL."""

    lake: TrackingRig
    postgres: TrackingRig
    style: Style

    @classmethod
    def of(cls, rig: TrackingRig, lake: LakeRig, style: Style, **settings: Any) -> Self:
        rigs = [
            replace(
                rig,
                settings=tracked_tables(
                    "Orders",
                    number=f"_{next(_numbers)}_{kind}",
                    style=style,
                    first_load=FirstLoad(chunk_rows=1),
                    **settings,
                ),
                lake=lake.lake if kind == "lake" else None,
            )
            for kind in ("lake", "postgres")
        ]
        return cls(*rigs, style)

    @property
    def rigs(self) -> tuple[TrackingRig, TrackingRig]:
        return self.lake, self.postgres

    def sync(self, *statements: str) -> None:
        """Change the source, run both pipelines, and compare."""
        self.lake.run(*statements)
        for rig in self.rigs:
            rig.sync()
        self.compare()

    def compare(self) -> None:
        assert self._in_lake() == self._in_postgres()

    def _in_lake(self) -> list[tuple[Any, ...]]:
        [table] = self.lake.settings.tables
        assert self.lake.lake is not None
        written = [table.target, *([versions_name(table.target)] if self.style is Style.HISTORY else [])]
        found = self.lake.lake.catalog.read_locations(written)
        rows = [
            row
            for each in written
            for row in StaticTable.from_metadata(found[PUBLISHED, each]).scan().to_arrow().to_pylist()
        ]
        return sorted((self._seen(row) for row in rows), key=str)

    def _in_postgres(self) -> list[tuple[Any, ...]]:
        [table] = self.postgres.settings.tables
        name = f"{table.target.name}_history" if self.style is Style.HISTORY else table.target.name
        columns = SEEN[self.style]
        quoted = ", ".join(f'"{each}"' for each in columns)
        rows = self.postgres.rows(f'SELECT {quoted} FROM "{table.target.schema}"."{name}"')
        return sorted((self._seen(dict(zip(columns, row, strict=True))) for row in rows), key=str)

    def _seen(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a row, with the names of columns that are kept or changed in no order."""
        values = ((name, row.get(name)) for name in SEEN[self.style])
        return tuple(sorted(value) if name in _SET and value is not None else value for name, value in values)


@pytest.fixture(scope="module")
def tracked(emulator: Emulator, lake: LakeRig) -> Iterator[TrackingRig]:
    with tracking_database(emulator, ()) as (client, at):
        yield TrackingRig(client, at, lake.at, tracked_tables("Orders"))


@pytest.fixture
def orders(tracked: TrackingRig) -> Iterator[TrackingRig]:
    tracked.run(*TABLES)
    yield tracked
    tracked.run("DROP TABLE dbo.Orders")


@pytest.mark.parametrize(("style", "where"), [(Style.LOG, ""), (Style.HISTORY, "IsTest = 0")])
def test_windows_of_net_changes_bring_what_they_bring_to_postgresql(
    orders: TrackingRig, lake: LakeRig, style: Style, where: str
) -> None:
    both = Both.of(orders, lake, style, where=parse_filter(where) if where else None)
    chance = random.Random(f"{style} {where}")
    both.sync()
    for number in range(1, 4):
        both.sync(*(changed_order(chance, 100 * number + each) for each in range(chance.choice((2, 4, 6)))))
    # A row that came and went within a window has no version, and no second delete.
    both.sync("DELETE dbo.Orders WHERE Id = 2")
    both.sync("INSERT INTO dbo.Orders VALUES (2, 1, N'x', 0)", "DELETE dbo.Orders WHERE Id = 2")
    if style is not Style.LOG:
        assert both.lake.differing() == both.postgres.differing() == []


def waiting(rig: TrackingRig) -> list[tuple[Any, ...]]:
    """Return the rows of a pipeline in quarantine: the key at the source, and what became of them."""
    named = f"pipeline = '{rig.settings.name}'"
    return rig.rows(f"SELECT key -> 0, rule, outcome FROM floodmark.quarantine WHERE {named} ORDER BY 1, lsn")


def test_delete_settles_a_row_in_quarantine_that_left_the_filter(orders: TrackingRig, lake: LakeRig) -> None:
    both = Both.of(orders, lake, Style.CURRENT, where=parse_filter("IsTest = 0"), rules=SMALL)
    both.sync()
    both.sync("INSERT INTO dbo.Orders VALUES (7, 700, N'g', 0), (8, 8, N'h', 1)")
    assert waiting(both.lake) == waiting(both.postgres) == [(7, "small", None)]
    both.sync("UPDATE dbo.Orders SET IsTest = 1 WHERE Id = 7", "UPDATE dbo.Orders SET Amount = 9 WHERE Id = 8")
    assert waiting(both.lake) == waiting(both.postgres) == [(7, "small", "overtaken")]
    assert [row[0] for row in both._in_lake()] == [1, 2]


def test_delete_of_a_row_in_quarantine_waits_for_its_release(orders: TrackingRig, lake: LakeRig) -> None:
    both = Both.of(orders, lake, Style.HISTORY, rules=SMALL)
    both.sync()
    both.sync("INSERT INTO dbo.Orders VALUES (7, 700, N'g', 0)")
    both.sync("DELETE dbo.Orders WHERE Id = 7", "INSERT INTO dbo.Orders VALUES (8, 8, NULL, 0)")
    both.sync("DELETE dbo.Orders WHERE Id = 8")
    for quarantine, rig in (
        (LakeQuarantine(lake.lake, lambda: None), both.lake),
        (PostgresQuarantine(orders.warehouse), both.postgres),
    ):
        [table] = rig.settings.tables
        assert quarantine.release(rig.settings.name, replace(table, rules=()), "anna").released == 1
    both.compare()
    of_seven = [(row[6], row[3], row[7]) for row in both._in_lake() if row[0] == 7]
    assert of_seven == [(2, 700, False), (1, 700, True)]


def test_gap_is_one_change_in_a_lake_too(orders: TrackingRig, lake: LakeRig) -> None:
    both = Both.of(orders, lake, Style.HISTORY, on_gap=OnGap.REPAIR)
    both.sync()
    both.lake.run("TRUNCATE TABLE dbo.Orders", "INSERT INTO dbo.Orders VALUES (1, 10, N'a', 0), (4, 40, N'd', 0)")
    for rig in both.rigs:
        rig.sync()
        rig.load_pending()
    both.sync()
    seen = [(row[0], row[3], row[6], row[7]) for row in both._in_lake()]
    assert (2, 20, 1, True) in seen and (4, 40, 2, False) in seen and (1, 10, 2, False) in seen
    assert both.lake.differing() == both.postgres.differing() == []
