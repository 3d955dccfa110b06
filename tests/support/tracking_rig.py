"""A pipeline over a database with change tracking, in this process: steps, readers, ledger and warehouse are real."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa

from emulator_process import Emulator
from floodmark.core.plan import TablePlan, WindowPlan
from floodmark.core.planning import classify_tables, known_positions
from floodmark.core.position import Position, Version
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.snapshot import LogEntry, Validity, Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.change_tracking.reader import TrackingCutReader, TrackingReader
from floodmark.sources.change_tracking.source import TrackingSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync import status
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import Cut, CutReader, LoggedProgress, OpenReader, Stager
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from sql_client import SqlClient

_numbers = itertools.count(1)
PIPELINE = "tracked"


@dataclass
class InterruptedCut:
    """``sync.ports.Cut`` that calls something between its tables."""

    cut: Cut
    before_table: Mapping[int, Callable[[], None]]
    read_tables: int = 0

    @property
    def end(self) -> LogEntry:
        return self.cut.end

    def read(self, table: TablePlan) -> Iterator[pa.RecordBatch]:
        self.before_table.get(self.read_tables, lambda: None)()
        self.read_tables += 1
        return self.cut.read(table)


@dataclass
class InterruptedCutReader:
    reader: CutReader
    before_table: Mapping[int, Callable[[], None]]
    after_read: Callable[[], None]

    @contextmanager
    def open(self) -> Iterator[Cut | None]:
        with self.reader.open() as cut:
            yield InterruptedCut(cut, self.before_table) if cut else None
        self.after_read()


@dataclass
class TrackingRig:
    """``client`` is a session in the database, ``at`` the connection of the pipeline."""

    client: SqlClient
    at: SqlServerConnection
    warehouse: WarehouseConnection
    settings: PipelineSettings
    stager: Stager | None = None
    """None: without Spark."""

    @property
    def source(self) -> TrackingSource:
        return TrackingSource(self.at)

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.warehouse)

    def open_reader(self) -> OpenReader:
        return lambda plan, end: TrackingReader(plan, self.at, end)

    def open_cut(self, plan: WindowPlan) -> TrackingCutReader:
        return TrackingCutReader(plan.pipeline, plan.end, self.at)

    def run(self, *statements: str) -> None:
        """Run statements at the source, each a batch."""
        for statement in statements:
            self.client.run(statement)

    def open(self) -> OpenResult:
        return open_window(self.settings, self.source, self.ledger)

    def finish(
        self,
        opened: OpenResult,
        *,
        before_table: Mapping[int, Callable[[], None]] | None = None,
        after_read: Callable[[], None] = lambda: None,
    ) -> OpenResult:
        """Load and publish a window.

        before_table: called before the table of that number is read, in the transaction of the read. after_read: called
        when all have been read.
        """

        def open_cut(plan: WindowPlan) -> CutReader:
            return InterruptedCutReader(self.open_cut(plan), before_table or {}, after_read)

        if opened.window_id is not None:
            stager = self.stager or InProcessStager(self.open_reader(), open_cut)
            warehouse = PostgresWarehouse(self.warehouse)
            load_window(opened.window_id, self.ledger, warehouse, self.source, stager)
            self.ledger.mark_checked(opened.window_id)
            advance_window(opened.window_id, self.ledger, warehouse)
        return opened

    def sync(self) -> OpenResult:
        """One run of the pipeline."""
        return self.finish(self.open())

    def classify(self, watermark: int | None = None) -> tuple[Validity, ...]:
        """Return the verdicts of the next run. watermark: of all tables, instead of their own."""
        states = self.ledger.read_tables(PIPELINE)
        snapshot = self.source.read_snapshot(self.settings.sources, None, known_positions(states))
        if watermark is not None:
            states = {
                name: replace(state, watermark=Version.of(watermark), watermark_at=None)
                for name, state in states.items()
            }
        return classify_tables(self.settings, snapshot, states)

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict of the next run on each table."""
        self.ledger.ensure_schema()
        return {each.table.name: each.verdict for each in self.classify()}

    def differing(self) -> list[TableName]:
        """Return the tables whose living rows are not those of the source, row by row."""
        comparer = PostgresRowComparer(self.warehouse)
        results = status.verify_tables(
            self.settings, self.source, self.open_reader(), self.ledger, comparer, progress=LoggedProgress()
        )
        return [each.source for each in results if not each.equal]

    def load_pending(self) -> OpenResult:
        """One run of the load DAG."""
        planner = LoadPlanner(self.settings, self.source, self.ledger, PostgresWarehouse(self.warehouse))
        return self.finish(planner.open_pending())

    def clean_up(self) -> None:
        """Let all changes expire, and clean them up."""
        self.run(
            f"EXEC emulator.advance_clock {3 * 86_400}",
            "EXEC sys.sp_flush_CT_internal_table_on_demand",
            "EXEC sys.sp_flush_commit_table_on_demand",
        )

    def watermark(self, table: str = "Orders") -> Position | None:
        return self.ledger.read_tables(PIPELINE)[TableName("dbo", table)].watermark

    def change_warehouse(self, statements: str) -> None:
        """Run statements in the warehouse, as someone by hand would."""
        with psycopg.connect(self.warehouse.conninfo(), autocommit=True) as session:
            session.execute(statements)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the warehouse."""
        with psycopg.connect(self.warehouse.conninfo()) as session:
            return session.execute(sql).fetchall()


def tracked_tables(*names: str, **chosen: Any) -> PipelineSettings:
    """The settings of a pipeline with tables of dbo."""
    tables = (TableSettings(TableName("dbo", name), TableName("shop", name.lower()), **chosen) for name in names)
    return PipelineSettings(PIPELINE, tuple(tables))


@contextmanager
def tracking_rig(
    emulator: Emulator, warehouse: WarehouseConnection, settings: PipelineSettings, statements: Sequence[str]
) -> Iterator[TrackingRig]:
    """Create a database as ``tracking_database`` does, for a pipeline."""
    with tracking_database(emulator, statements) as (client, at):
        yield TrackingRig(client, at, warehouse, settings)


@contextmanager
def tracking_database(emulator: Emulator, statements: Sequence[str]) -> Iterator[tuple[SqlClient, SqlServerConnection]]:
    """Create a database that tracks changes and allows SNAPSHOT, and run statements in it."""
    name = f"Tracked{next(_numbers)}"
    connection = emulator.connect_pymssql("master", autocommit=True)
    try:
        client = SqlClient(connection)
        client.run(f"CREATE DATABASE {name}")
        client.run(f"ALTER DATABASE {name} SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2 DAYS, AUTO_CLEANUP = OFF)")
        client.run(f"ALTER DATABASE {name} SET ALLOW_SNAPSHOT_ISOLATION ON")
        client.run(f"USE {name}")
        for statement in statements:
            client.run(statement)
        at = SqlServerConnection(
            emulator.host, emulator.port, name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        yield client, at
        client.run("USE master")
        client.run("EXEC emulator.reset_clock")
        client.run(f"DROP DATABASE {name}")
    finally:
        connection.close()
