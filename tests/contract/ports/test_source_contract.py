"""The contracts of a source and of its readers, on every source there is, against the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from source_contract import SourceContract, SourceRig, TableReaderContract

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.sources.cdc.rows.change_reader import CdcReader
from floodmark.sources.cdc.rows.parts import plan_parts
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.connection import SqlServerConnection

SOURCES = ["sqlserver_cdc"]


@pytest.fixture(params=SOURCES)
def rig(emulator: Emulator) -> Iterator[SourceRig]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(18,2), Note nvarchar(max))",
            "CREATE TABLE dbo.Plain (Id int PRIMARY KEY)",
            "INSERT INTO dbo.Plain VALUES (0)",
        )
        made.enable("Orders")
        at = SqlServerConnection(
            emulator.host, emulator.port, made.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )

        def write(statement: str) -> None:
            made.run(statement)
            made.scan()

        write("INSERT INTO dbo.Orders VALUES (0, 0, NULL)")
        write("DELETE FROM dbo.Orders")
        yield SourceRig(
            SqlServerSource(at),
            lambda plan, end: CdcReader(plan, at, end),
            partial(plan_parts, source=at),
            write,
        )


class TestSource(SourceContract):
    """With the fixture ``rig`` of every source."""


class TestTableReader(TableReaderContract):
    """With the fixture ``rig`` of every source."""
