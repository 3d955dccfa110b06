"""A pipeline over edge databases, in this process: files, steps, reader, ledger and warehouse are real."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compact_tracking import ChangeTracking
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.snapshot import Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.compact.reader import CompactReader, Fleet
from floodmark.sources.compact.source import CompactSource
from floodmark.sync import verify
from floodmark.sync.alerts import find_stopped
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import LoggedProgress, OpenReader, Stager
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager

PIPELINE = "edge"
ORDERS = TableName("main", "orders")
TARGET = TableName("edge", "orders")
TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY NOT NULL, amount DECIMAL(9,2), note TEXT)"


@dataclass
class FleetRig:
    """``folder`` has the files of the devices."""

    folder: Path
    warehouse: WarehouseConnection
    settings: PipelineSettings
    is_shipped: bool = False
    stager: Stager | None = None
    """None: one without Spark."""

    @property
    def fleet(self) -> Fleet:
        return Fleet((str(self.folder),), self.is_shipped)

    @property
    def source(self) -> CompactSource:
        return CompactSource(self.fleet)

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.warehouse)

    def open_reader(self) -> OpenReader:
        fleet = self.fleet
        return lambda plan, end: CompactReader(plan, fleet, end)

    def path(self, device: str) -> Path:
        return self.folder / f"{device}.db"

    def make(self, device: str, *statements: str, table: str = TABLE, tracked: str = "orders") -> None:
        """Create a device's file with a tracked table, and run statements in it."""
        with closing(sqlite3.connect(self.path(device), isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(table)
            ChangeTracking(connection).enable_tracking(tracked)
        self.run(device, *statements)

    def run(self, device: str, *statements: str) -> None:
        """Run statements in a device's file, as a program does that knows nothing of the tracking."""
        with closing(sqlite3.connect(self.path(device), isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def back_up(self, device: str) -> Path:
        """Return a whole copy of a device's file, for ``put_back``."""
        copy = self.folder.parent / f"{device}.copy"
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path(device))) as connection, closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
        return copy

    def remove(self, device: str) -> None:
        for end in ("", "-wal", "-shm"):
            Path(f"{self.path(device)}{end}").unlink(missing_ok=True)

    def put_back(self, device: str, copy: Path) -> None:
        self.remove(device)
        shutil.copy(copy, self.path(device))

    def open(self) -> OpenResult:
        return open_window(self.settings, self.source, self.ledger)

    def load(self, opened: OpenResult) -> None:
        assert opened.window_id is not None
        stager = self.stager or InProcessStager(self.open_reader())
        load_window(opened.window_id, self.ledger, PostgresWarehouse(self.warehouse), self.source, stager)

    def publish(self, opened: OpenResult) -> None:
        assert opened.window_id is not None
        self.ledger.mark_checked(opened.window_id)
        advance_window(opened.window_id, self.ledger, PostgresWarehouse(self.warehouse))

    def sync(self) -> dict[str, Verdict]:
        """Run the pipeline once. Return the verdicts on devices that were left out."""
        opened = self.open()
        if opened.window_id is not None:
            self.load(opened)
            self.publish(opened)
        stopped = {each.table.name: each.verdict for _, each in self.ledger.list_stopped_members(PIPELINE)}
        assert bool(stopped) == (find_stopped(self.settings, self.ledger) is not None)
        return stopped

    def differing(self) -> list[TableName]:
        """Return the tables whose living rows are not those of the devices, row by row."""
        comparer = PostgresRowComparer(self.warehouse)
        results = verify.verify_tables(
            self.settings,
            self.source,
            self.open_reader(),
            self.ledger,
            comparer,
            progress=LoggedProgress(),
            options=verify.VerifyOptions(patience_seconds=0),
        )
        return [each.source for each in results if not each.equal]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of the warehouse."""
        with open_transaction(self.warehouse) as session:
            return session.execute(sql).fetchall()

    def execute(self, statement: str) -> None:
        """Run a statement in the warehouse."""
        with open_transaction(self.warehouse) as session:
            session.execute(statement)

    def living(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT __device, id, amount, note FROM edge.orders WHERE NOT __deleted ORDER BY 1, 2")


def fleet_settings(**chosen: Any) -> PipelineSettings:
    """The settings of a pipeline with the one table."""
    return PipelineSettings(PIPELINE, (TableSettings(ORDERS, TARGET, **chosen),))
