"""Names of tables and columns that Floodmark, PostgreSQL or a change table uses for something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from switch_rig import SwitchRig

import floodmark.postgres.sql
from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, OnFailure, PipelineSettings, Rule, TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.url import sqlalchemy_url
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.quality.great_expectations import GreatExpectationsQuality
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from row_verification import reading


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, [__$tenant] int, A nvarchar(max), B nvarchar(max))",
            "INSERT INTO dbo.Orders VALUES (1, 7, N'a', N'b')",
        )
        source.enable("Orders")
        yield SwitchRig(emulator, source, database)


def test_column_that_only_begins_like_the_servers_own_arrives_and_the_mask_is_read_in_its_place(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET A = NULL", "UPDATE dbo.Orders SET [__$tenant] = 8")
    rig.run()
    assert rig.rows('SELECT "Id", "__$tenant", "A", "B" FROM shop.orders') == [(1, 8, None, "b")]
    assert rig.differing() == []


def list_aliases() -> list[str]:
    """Return the names that statements of the merge and of the release give to their tables and values, and others."""
    folder = Path(floodmark.postgres.sql.__file__).parent
    files = (folder / "merge.sql", folder / "quarantine.sql")
    found = {alias for file in files for alias in re.findall(r"\bAS ([a-z_]+)", file.read_text())}
    others = {"s", "t", "d", "g", "target", "staged", "batch", "tombstone", "excluded", "source_rows", "row_data"}
    return sorted(found | others)


NAMES = list_aliases()


def lob_of(name: str) -> str:
    """Return the column of a table that updates may leave out."""
    return NAMES[NAMES.index(name) - 1]


class AliasRig(SwitchRig):
    """A table for each name. Its target and its key have that name, its other columns all the other names."""

    docs: Path

    def set_up(self, deletes: Deletes, docs: Path) -> None:
        tables = []
        for name in NAMES:
            lob = lob_of(name)
            others = ", ".join(f"[{other}] int" for other in NAMES if other not in {name, lob})
            self.database.run(
                f"CREATE TABLE dbo.[{name}] ([{name}] int NOT NULL PRIMARY KEY, [{lob}] nvarchar(max), {others})",
                f"INSERT dbo.[{name}] ([{name}], [{lob}]) VALUES (1, N'a'), (2, N'b'), (3, N'c')",
            )
            rules = (Rule("small", f'"{name}" < 100 OR "{lob}" IS NULL', OnFailure.QUARANTINE),)
            table, target = TableName("dbo", name), TableName("shop", name)
            tables.append(TableSettings(table, target, deletes=deletes, rules=rules))
        self.database.enable(*NAMES)
        self.pipelines, self.docs = [PipelineSettings("shop", tuple(tables))], docs

    def change_all(self, *statements: str) -> None:
        """Run statements on each table. {key}: the name of the table and of its key."""
        self.change(*(each.format(key=name, lob=lob_of(name)) for name in NAMES for each in statements))

    def finish(self, opened: OpenResult) -> OpenResult:
        assert opened.window_id is not None
        source = SqlServerSource(self.at)
        load_window(opened.window_id, self.ledger, self.warehouse, source, InProcessStager(reading(self.at)))
        quality = GreatExpectationsQuality(sqlalchemy_url(self.connection), self.warehouse.open_rows, self.docs)
        check_window(opened.window_id, self.ledger, quality)
        advance_window(opened.window_id, self.ledger, self.warehouse)
        return opened

    def count(self, statement: str) -> set[int]:
        """Return the results of a query on each target."""
        return {self.rows(statement.format(target=f'shop."{name}"', key=f'"{name}"'))[0][0] for name in NAMES}


@pytest.mark.parametrize("deletes", Deletes)
def test_table_and_columns_may_have_the_names_of_aliases(
    emulator: Emulator, database: WarehouseConnection, tmp_path: Path, deletes: Deletes
) -> None:
    with cdc_database(emulator) as source:
        rig = AliasRig(emulator, source, database)
        rig.set_up(deletes, tmp_path)
        rig.run()
        rig.change_all(
            "UPDATE dbo.[{key}] SET [{key}] = 30 WHERE [{key}] = 3",
            "DELETE dbo.[{key}] WHERE [{key}] = 1",
            "INSERT dbo.[{key}] ([{key}], [{lob}]) VALUES (100, N'd')",
        )
        rig.run()
        assert rig.rows("SELECT source_name FROM floodmark.verdicts WHERE verdict <> 'ready'") == []
        assert rig.rows("SELECT count(*) FROM floodmark.quarantine") == [(len(NAMES),)]
        assert rig.count("SELECT count(*) FROM {target} WHERE NOT __deleted") == {2}
        quarantine = PostgresQuarantine(database)
        for table in rig.pipelines[0].tables:
            assert quarantine.release("shop", replace(table, rules=()), "anna").released == 1
        assert rig.differing() == []
        for name in ("s", "t", "q"):
            source.run(f"DELETE dbo.[{name}] WHERE [{name}] = 2")
            rig.finish(rig.load_planner().open_reload(TableName("dbo", name)))
        assert rig.differing() == []
