"""A pipeline over a database with change tracking, in this process: steps, readers, ledger and warehouse are real."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from emulator_process import Emulator
from floodmark.core.plan import TablePlan, WindowPlan
from floodmark.core.planning import classify_tables, known_positions
from floodmark.core.position import Position, Version
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.snapshot import Validity, Verdict
from floodmark.iceberg.checks import IcebergQuality
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_statements, open_transaction
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.change_tracking.reader import SnapshotRead, TrackingReader, plan_reads
from floodmark.sources.change_tracking.source import TrackingSource
from floodmark.sources.sqlserver.driver import SourceSession, SqlServerConnection
from floodmark.sync import verify
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import Found, LoggedProgress, OpenReader, Stager, Warehouse, WindowReads
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from sql_client import SqlClient

_numbers = itertools.count(1)
PIPELINE = "tracked"


@dataclass(frozen=True)
class InterruptedRead(SnapshotRead):
    """``SnapshotRead`` that calls something between its tables and at its end."""

    before_table: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    after_read: Callable[[], None] = lambda: None

    def read(self) -> Iterator[Found]:
        yield from super().read()
        self.after_read()

    def read_table(self, session: SourceSession, table: TablePlan) -> Iterator[pa.RecordBatch]:
        self.before_table.get(list(self.tables.values()).index(table), lambda: None)()
        yield from super().read_table(session, table)


@dataclass
class TrackingRig:
    """``client`` is a session in the database, ``at`` the connection of the pipeline."""

    client: SqlClient
    at: SqlServerConnection
    warehouse: WarehouseConnection
    settings: PipelineSettings
    stager: Stager | None = None
    """None: without Spark."""
    lake: IcebergWarehouse | None = None
    """None: the targets are in PostgreSQL, in the database of the ledger."""

    @property
    def source(self) -> TrackingSource:
        return TrackingSource(self.at)

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.warehouse)

    @property
    def targets(self) -> Warehouse:
        return self.lake or PostgresWarehouse(self.warehouse)

    def open_reader(self) -> OpenReader:
        return lambda plan, end: TrackingReader(plan, self.at, end)

    def plan_reads(self, plan: WindowPlan, most: int) -> WindowReads:
        return plan_reads(plan, most, self.at)

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

        if opened.window_id is not None:
            self.load(opened.window_id, before_table=before_table, after_read=after_read)
            self.check(opened.window_id)
            advance_window(opened.window_id, self.ledger, self.targets)
        return opened

    def load(
        self,
        window_id: int,
        *,
        before_table: Mapping[int, Callable[[], None]] | None = None,
        after_read: Callable[[], None] = lambda: None,
    ) -> None:
        """Read, stage and merge a window. The arguments are those of ``finish``."""

        def interrupted(plan: WindowPlan, most: int) -> WindowReads:
            found = self.plan_reads(plan, most)
            tasks = [
                InterruptedRead(**vars(each), before_table=before_table or {}, after_read=after_read)
                if isinstance(each, SnapshotRead)
                else each
                for each in found.tasks
            ]
            return replace(found, tasks=tasks)

        stager = self.stager or InProcessStager(self.open_reader(), interrupted)
        load_window(window_id, self.ledger, self.targets, self.source, stager)

    def check(self, window_id: int) -> None:
        """Run the checks of a lake, which publishes only what they have read; PostgreSQL's need nothing here."""
        if self.lake:
            check_window(window_id, self.ledger, IcebergQuality(self.lake, lambda: None))
        else:
            self.ledger.mark_checked(window_id)

    def sync(self) -> OpenResult:
        """One run of the pipeline."""
        return self.finish(self.open())

    def classify(self, watermark: int | None = None) -> tuple[Validity, ...]:
        """Return the verdicts of the next run. watermark: of all tables, instead of their own."""
        states = self.ledger.read_tables(self.settings.name)
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
        results = verify.verify_tables(
            self.settings,
            self.source,
            self.open_reader(),
            self.ledger,
            PostgresRowComparer(self.warehouse, self.lake.read_rows if self.lake else None),
            progress=LoggedProgress(),
            options=verify.VerifyOptions(patience_seconds=0),
        )
        return [each.source for each in results if not each.equal]

    def load_pending(self) -> OpenResult:
        """One run of the load DAG."""
        planner = LoadPlanner(self.settings, self.source, self.ledger, self.targets)
        return self.finish(planner.open_pending())

    def clean_up(self) -> None:
        """Let all changes expire, and clean them up."""
        self.run(
            f"EXEC emulator.advance_clock {3 * 86_400}",
            "EXEC sys.sp_flush_CT_internal_table_on_demand",
            "EXEC sys.sp_flush_commit_table_on_demand",
        )

    def watermark(self, table: str = "Orders") -> Position | None:
        return self.ledger.read_tables(self.settings.name)[TableName("dbo", table)].watermark

    def change_warehouse(self, statements: str) -> None:
        """Run statements in the warehouse, as someone by hand would."""
        with open_statements(self.warehouse) as session:
            session.execute(statements)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the warehouse."""
        with open_transaction(self.warehouse) as session:
            return session.execute(sql).fetchall()


def tracked_tables(*names: str, number: object = "", **chosen: Any) -> PipelineSettings:
    """The settings of a pipeline with tables of dbo. number: part of its name, and of those of its targets."""
    tables = (
        TableSettings(TableName("dbo", name), TableName("shop", f"{name.lower()}{number}"), **chosen) for name in names
    )
    return PipelineSettings(f"{PIPELINE}{number}", tuple(tables))


def changed_order(chance: random.Random, number: int) -> str:
    """Return a statement that changes a row of ``dbo.Orders (Id, Amount, Note, IsTest)``, or none."""
    key, amount = chance.randrange(1, 6), chance.choice(("NULL", str(number), str(-number)))
    match chance.randrange(6):
        case 0:
            return f"DELETE dbo.Orders WHERE Id = {key}"
        case 1:
            return f"UPDATE dbo.Orders SET IsTest = 1 - IsTest WHERE Id = {key}"
        case 2:
            return f"UPDATE dbo.Orders SET Id = {number + 10} WHERE Id = {key}"
        case 3 | 4:
            return f"UPDATE dbo.Orders SET Amount = {amount} WHERE Id = {key}"
    values = f"{key}, {amount}, N'{number}', {number % 2}"
    return f"INSERT INTO dbo.Orders SELECT {values} WHERE NOT EXISTS (SELECT 1 FROM dbo.Orders WHERE Id = {key})"


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
