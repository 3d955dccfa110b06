"""Whole runs over a source whose tables change their shape: nothing is lost, and one table never stops the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_database import CdcDatabase, cdc_database
from command_line import command_environment
from emulator_process import Emulator
from forked_floodmark import begin
from prepared_folders import PreparedPostgres

pytestmark = pytest.mark.timeout(600)

_LIMIT_SECONDS = 300

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables: [{source: dbo.Orders, target: shop.orders}, {source: dbo.Plain, target: shop.plain}]
"""


@dataclass
class Runs:
    """The command line on a source of two tables."""

    source: CdcDatabase
    conninfo: str
    environment: dict[str, str]

    def change(self, *statements: str) -> None:
        self.source.run(*statements)
        self.source.scan()

    def run(self) -> None:
        self.call("run", "shop")

    def call(self, *arguments: str) -> str:
        command = begin(arguments, self.environment)
        assert command.wait(_LIMIT_SECONDS) == 0, command.output
        return command.output

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.conninfo) as session:
            return session.execute(query).fetchall()


@pytest.fixture
def runs(emulator: Emulator, open_dir: Path, tmp_path: Path) -> Iterator[Runs]:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    with cdc_database(emulator) as source, PreparedPostgres(open_dir / "drift_warehouse") as server:
        environment = command_environment(emulator, source.name, server, path)
        source.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Code int, Note nvarchar(20))",
            "CREATE TABLE dbo.Plain (Id int PRIMARY KEY)",
            "INSERT INTO dbo.Orders VALUES (1, 10, N'one'), (2, 20, N'two')",
        )
        source.enable("Orders")
        source.enable("Plain")
        yield Runs(source, server.conninfo(), environment)


def test_tables_widen_lose_a_column_and_are_held_and_end_with_every_row(runs: Runs) -> None:
    runs.run()
    runs.change(
        "ALTER TABLE dbo.Orders ALTER COLUMN Code bigint",
        "ALTER TABLE dbo.Orders DROP COLUMN Note",
        "UPDATE dbo.Orders SET Code = 5000000000 WHERE Id = 1",
        "INSERT INTO dbo.Plain VALUES (1)",
    )
    runs.run()
    assert runs.rows('SELECT "Id", "Code", "Note" FROM shop.orders ORDER BY 1') == [
        (1, 5_000_000_000, "one"),
        (2, 20, "two"),
    ]
    runs.change(
        "ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)",
        "UPDATE dbo.Orders SET Code = N'x' WHERE Id = 2",
        "INSERT INTO dbo.Plain VALUES (2)",
    )
    runs.run()
    assert runs.rows('SELECT "Id" FROM shop.plain ORDER BY 1') == [(1,), (2,)]
    assert runs.rows('SELECT "Code" FROM shop.orders ORDER BY "Id"') == [(5_000_000_000,), (20,)]
    kinds = [event["kind"] for event in json.loads(runs.call("drift", "list", "--json"))]
    assert sorted(kinds) == ["column_dropped", "type_changed", "type_widened"]
    with psycopg.connect(runs.conninfo) as session:
        session.execute('ALTER TABLE shop.orders ALTER COLUMN "Code" TYPE varchar(20) USING "Code"::varchar(20)')
    runs.call("drift", "release", "shop", "dbo.Orders")
    # So that no table is caught up: the capture job is paused here, which a table that is would show.
    runs.change("INSERT INTO dbo.Plain VALUES (3)")
    runs.run()
    assert runs.rows('SELECT "Id", "Code", "Note" FROM shop.orders ORDER BY 1') == [
        (1, "5000000000", "one"),
        (2, "x", "two"),
    ]
