"""The contracts of a source and of its readers, on a fleet of two devices."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from source_contract import SourceContract, SourceRig, TableReaderContract

from compact_tracking import ChangeTracking
from floodmark.core.plan import MemberRead, TablePlan
from floodmark.core.position import Interval, Position, Version
from floodmark.core.settings import SOURCE_VARIABLE
from floodmark.core.snapshot import LogEntry, MemberMark
from floodmark.sources.compact.reader import CompactReader, Fleet, plan_compact_reads
from floodmark.sources.compact.source import CompactSource
from floodmark.sync.records import noted

TABLES = (
    "CREATE TABLE Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(18,2), Note text)",
    "CREATE TABLE Plain (Id int PRIMARY KEY)",
)


@dataclass
class FleetSourceRig(SourceRig):
    """A rig whose changes begin at the marks that its devices had at a position, as the ledger keeps them."""

    marks: dict[Position, tuple[MemberMark, ...]] = field(default_factory=dict)

    def position(self) -> Position:
        found = super().position()
        reads: list[MemberRead] = []
        reader = self.open_reader(super().plan(), LogEntry(found, None))
        for _ in noted(reader.read(Interval(Version.of(0), found)), reads):
            pass
        self.marks[found] = tuple(MemberMark(read.member, read.after) for read in reads)
        return found

    def plan(self, interval: Interval | None = None) -> TablePlan:
        planned = super().plan(interval)
        return replace(planned, marks=self.marks[interval.after]) if interval else planned


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetSourceRig:
    devices = [tmp_path / f"{name}.db" for name in ("van-1", "van-2")]
    for device in devices:
        with closing(sqlite3.connect(device, isolation_level=None)) as connection:
            for statement in TABLES:
                connection.execute(statement)
            ChangeTracking(connection).enable_tracking("Orders")

    def write(statement: str) -> None:
        with closing(sqlite3.connect(devices[0], isolation_level=None)) as connection:
            connection.execute(statement)
        time.sleep(0.002)  # positions are milliseconds

    fleet = Fleet((str(tmp_path),))
    monkeypatch.setenv(SOURCE_VARIABLE, fleet.to_json())
    return FleetSourceRig(
        CompactSource(fleet),
        lambda plan, end: CompactReader(plan, fleet, end),
        plan_compact_reads,
        write,
        unknown=Version.of(1),
        keeps_history=False,
        schema="main",
        key=("__device", "Id"),
    )


class TestSource(SourceContract):
    """With the fixture ``rig``."""


class TestTableReader(TableReaderContract):
    """With the fixture ``rig``."""
