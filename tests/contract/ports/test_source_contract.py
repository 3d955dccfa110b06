"""The contracts of a source and of its readers, on every source there is, against the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest
from source_contract import ServerReaderContract, ServerSourceContract, SourceRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.position import Lsn, Version
from floodmark.sources.cdc import reader as cdc_reads
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.change_tracking import reader as tracking_reads
from floodmark.sources.change_tracking.reader import TrackingReader
from floodmark.sources.change_tracking.source import TrackingSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from tracking_rig import tracking_database

TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(18,2), Note nvarchar(max))",
    "CREATE TABLE dbo.Plain (Id int PRIMARY KEY)",
    "INSERT INTO dbo.Plain VALUES (0)",
)


@contextmanager
def _cdc(emulator: Emulator) -> Iterator[SourceRig]:
    with cdc_database(emulator) as made:
        made.run(*TABLES)
        made.enable("Orders")
        at = SqlServerConnection(
            emulator.host, emulator.port, made.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )

        def write(statement: str) -> None:
            made.run(statement)
            made.scan()

        yield SourceRig(
            SqlServerSource(at),
            lambda plan, end: CdcReader(plan, at, end),
            partial(cdc_reads.plan_reads, source=at),
            write,
            unknown=Lsn(b"\0\0\0\1".ljust(10, b"\0")),
        )


@contextmanager
def _change_tracking(emulator: Emulator) -> Iterator[SourceRig]:
    with tracking_database(emulator, (*TABLES, "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING")) as (client, at):

        def write(statement: str) -> None:
            client.run(statement)

        yield SourceRig(
            TrackingSource(at),
            lambda plan, end: TrackingReader(plan, at, end),
            partial(tracking_reads.plan_reads, source=at),
            write,
            unknown=Version.of(10**9),
            keeps_history=False,
        )


SOURCES = {"cdc": _cdc, "change_tracking": _change_tracking}


@pytest.fixture(params=SOURCES)
def rig(emulator: Emulator, request: pytest.FixtureRequest) -> Iterator[SourceRig]:
    opened: AbstractContextManager[SourceRig] = SOURCES[request.param](emulator)
    with opened as made:
        made.write("INSERT INTO Orders (Id, Amount, Note) VALUES (0, 0, NULL)")
        made.write("DELETE FROM Orders")
        yield made


class TestSource(ServerSourceContract):
    """With the fixture ``rig`` of every source."""


class TestTableReader(ServerReaderContract):
    """With the fixture ``rig`` of every source."""


def test_capture_instance_that_is_not_there_is_not_replaced_by_another(emulator: Emulator) -> None:
    with _cdc(emulator) as rig:
        found = rig.source.read_snapshot([rig.orders], {rig.orders: "another"}).tables[0]
        assert (found.exists, found.feed) == (True, None)
