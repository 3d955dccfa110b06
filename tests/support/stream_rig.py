"""A pipeline over an event stream, in this process: steps, reader, ledger and warehouse are real.

The database is the emulator's, and the test writes the events of each change that it makes there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.capture_files import CaptureWriter
from change_log import ChangeLog, spread
from emulator_process import Emulator
from floodmark.core.planning import classify_tables
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.snapshot import Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.event_stream.reader import EventReader
from floodmark.sources.event_stream.source import EventStreamSource, StreamConnection
from floodmark.sources.event_stream.transport import CaptureFolder, KafkaTopic
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync import verify
from floodmark.sync.alerts import find_stopped
from floodmark.sync.columns import MaskKeys
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import LoggedProgress, OpenReader, Stager
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from sql_client import SqlClient

_numbers = itertools.count(1)
PIPELINE = "streamed"
ORDERS = TableName("dbo", "Orders")
TABLE = "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(9,2), Note nvarchar(max))"
COLUMNS = (("Id", "int", 0), ("Amount", "decimal(9,2)", 1), ("Note", "nvarchar(max)", 2))
Row = dict[str, str | None]


@dataclass
class StreamRig:
    """``client`` is a session in the database, ``at`` its connection, ``capture`` the stream."""

    client: SqlClient
    at: SqlServerConnection
    warehouse: WarehouseConnection
    capture: CaptureWriter
    log: ChangeLog
    settings: PipelineSettings
    partitions: int = 2
    stager: Stager | None = None
    """None: one without Spark."""
    mask_keys: MaskKeys = field(default_factory=dict)
    """The secrets of hashes."""
    topic: KafkaTopic | None = None
    """The topic to which a test writes; None for the capture folder."""
    rows: dict[int, Row] = field(default_factory=dict)
    """The rows of the table by key."""

    @property
    def connection(self) -> StreamConnection:
        return StreamConnection(self.at, self.topic or CaptureFolder(str(self.capture.folder)))

    @property
    def source(self) -> EventStreamSource:
        return EventStreamSource(self.connection)

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.warehouse)

    def open_reader(self) -> OpenReader:
        found = self.connection
        return lambda plan, end: EventReader(plan, found.database, end, found.open_stream())

    def change(self, *changes: tuple[int, str | None, str | None] | int) -> list[bytes]:
        """Change rows in one transaction. Return the messages. A number deletes its row; a row is key, amount, note."""
        statements, images = [], []
        for each in changes:
            key = each if isinstance(each, int) else each[0]
            old = self.rows.pop(key, {})
            current: Row = {}
            if old:
                statements.append(f"DELETE dbo.Orders WHERE Id = {key}")
            if not isinstance(each, int):
                _, amount, note = each
                current = {"Id": str(key), "Amount": amount, "Note": note}
                self.rows[key] = current
                text = "NULL" if note is None else "N'" + note.replace("'", "''") + "'"
                statements.append(f"INSERT dbo.Orders VALUES ({key}, {amount or 'NULL'}, {text})")
            images.append((old, current))
        self.client.run(f"BEGIN TRAN; {'; '.join(statements)}; COMMIT")
        return self.log.commit(*images)

    def stream(self, *bodies: bytes) -> None:
        """Write messages to the partitions in turn."""
        for partition, dealt in spread(bodies, self.partitions).items():
            self.capture.write(partition, dealt)

    def open(self) -> OpenResult:
        return open_window(self.settings, self.source, self.ledger)

    def load(self, opened: OpenResult) -> None:
        assert opened.window_id is not None
        stager = self.stager or InProcessStager(self.open_reader(), mask_keys=self.mask_keys)
        load_window(opened.window_id, self.ledger, PostgresWarehouse(self.warehouse), self.source, stager)

    def publish(self, opened: OpenResult) -> None:
        assert opened.window_id is not None
        self.ledger.mark_checked(opened.window_id)
        advance_window(opened.window_id, self.ledger, PostgresWarehouse(self.warehouse))

    def sync(self) -> OpenResult:
        """One run of the pipeline."""
        opened = self.open()
        if opened.window_id is not None:
            self.load(opened)
            self.publish(opened)
        return opened

    def reload(self) -> None:
        """Load the whole table again, as the load DAG does."""
        planner = LoadPlanner(self.settings, self.source, self.ledger, PostgresWarehouse(self.warehouse))
        opened = planner.open_reload(ORDERS)
        self.load(opened)
        self.publish(opened)

    def load_pending(self) -> OpenResult:
        """Run the load that a run has planned for a gap, as the load DAG does."""
        planner = LoadPlanner(self.settings, self.source, self.ledger, PostgresWarehouse(self.warehouse))
        opened = planner.open_pending()
        self.load(opened)
        self.publish(opened)
        return opened

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict of the next run on each table."""
        self.ledger.ensure_schema()
        states, marks = self.ledger.read_tables(PIPELINE), self.ledger.list_marks(PIPELINE)
        snapshot = self.source.read_snapshot(self.settings.sources, None, (), marks)
        return {each.table.name: each.verdict for each in classify_tables(self.settings, snapshot, states)}

    def stopped(self) -> dict[str, Verdict]:
        """Return the verdicts on partitions after a run."""
        found = {each.table.name: each.verdict for _, each in self.ledger.list_stopped_members(PIPELINE)}
        assert bool(found) <= (find_stopped(self.settings, self.ledger) is not None)
        return found

    def differing(self) -> list[TableName]:
        """Return the tables whose living rows are not those of the source, row by row."""
        comparer = PostgresRowComparer(self.warehouse)
        results = verify.verify_tables(
            self.settings,
            self.source,
            self.open_reader(),
            self.ledger,
            comparer,
            progress=LoggedProgress(),
            options=verify.VerifyOptions(patience_seconds=0),
            mask_keys=self.mask_keys,
        )
        return [each.source for each in results if not each.equal]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the warehouse."""
        with open_transaction(self.warehouse) as session:
            return session.execute(sql).fetchall()

    def quarantined(self) -> list[tuple[Any, ...]]:
        return self.query("SELECT member, place, reason, body FROM floodmark.quarantined_messages ORDER BY 1, 2")


@contextmanager
def stream_rig(emulator: Emulator, warehouse: WarehouseConnection, folder: Path, **chosen: Any) -> Iterator[StreamRig]:
    """Create a database with the table, for a pipeline."""
    name = f"Streamed{next(_numbers)}"
    connection = emulator.connect_pymssql("master", autocommit=True)
    try:
        client = SqlClient(connection)
        client.run(f"CREATE DATABASE {name}")
        client.run(f"USE {name}")
        client.run(TABLE)
        at = SqlServerConnection(
            emulator.host, emulator.port, name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        hub = folder / "namespace" / "hub"
        hub.mkdir(parents=True)
        settings = PipelineSettings(PIPELINE, (TableSettings(ORDERS, TableName("shop", "orders"), **chosen),))
        yield StreamRig(client, at, warehouse, CaptureWriter(hub), ChangeLog(name, COLUMNS, "Id"), settings)
        client.run("USE master")
        client.run(f"DROP DATABASE {name}")
    finally:
        connection.close()
