"""Pipelines of one table whose capture instance is switched: source, warehouse and steps as they are, but no Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cdc_database import CdcDatabase
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import Backfill, FirstLoad, PipelineSettings, TableSettings
from floodmark.core.snapshot import FeedIdentity
from floodmark.postgres.ledger.drift import PostgresDriftLedger
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.warehouse.views import PostgresTargets
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.cdc.operations import SqlServerDriftSource
from floodmark.sources.cdc.source import SqlServerInstances, SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.drift_watch import DriftWatch, WatchedSource
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import Warehouse
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.switch import Switches
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from open_alerts import OpenAlerts
from row_verification import reading, verify_tables

ORDERS = TableName("dbo", "Orders")


class SwitchRig:
    """names: of the pipelines, each with a target of its own; spelled: how they spell the table, where not as the
    source does. dba: who makes and drops capture instances."""

    def __init__(
        self,
        emulator: Emulator,
        database: CdcDatabase,
        warehouse: WarehouseConnection,
        *names: str,
        backfill: Backfill = Backfill.ALL,
        spelled: Mapping[str, TableName] | None = None,
        source_name: str = "shop",
        elsewhere: Collection[str] = (),
    ) -> None:
        self.at = SqlServerConnection(
            emulator.host,
            emulator.port,
            database.name,
            emulator.user,
            emulator.password,
            ca_file=str(emulator.ca_file),
        )
        self.database = database
        self.connection = warehouse
        self.warehouse: Warehouse = PostgresWarehouse(warehouse)
        self.check_target = PostgresTargets(warehouse).check_target
        self.ledger = PostgresLedger(warehouse)
        self.drift = PostgresDriftLedger(warehouse)
        self.alerts = OpenAlerts()
        self.source_name = source_name
        self.elsewhere = elsewhere
        self.dba = self.at
        self.tables = {name: (spelled or {}).get(name, ORDERS) for name in names or ("shop",)}
        self.pipelines = [
            PipelineSettings(
                name,
                (
                    TableSettings(
                        table, TableName(name, "orders"), backfill=backfill, first_load=FirstLoad(chunk_rows=50)
                    ),
                ),
            )
            for name, table in self.tables.items()
        ]

    @property
    def source(self) -> WatchedSource:
        return WatchedSource(
            self.source_name, self.pipelines, lambda: SqlServerDriftSource(self.at), self.drift, self.alerts
        )

    @property
    def watch(self) -> DriftWatch:
        return DriftWatch(self.source, self.warehouse.drop_staging, details_seconds=0)

    @property
    def switches(self) -> Switches:
        return Switches(
            source=self.source,
            snapshots=lambda: SqlServerSource(self.at),
            control=lambda: SqlServerInstances(self.dba, lock_wait_seconds=1),
            check_target=self.check_target,
            windows=self.ledger,
            open_load=self.open_load,
            elsewhere=self.elsewhere,
        )

    def change(self, *statements: str) -> None:
        """Run the statements of a user at the source, and capture their changes."""
        self.database.run(*statements)
        self.database.scan()

    def open(self, name: str = "shop") -> OpenResult:
        return open_window(self._settings(name), SqlServerSource(self.at), self.ledger, self.watch)

    def finish(self, opened: OpenResult) -> OpenResult:
        if opened.window_id is not None:
            stager = InProcessStager(reading(self.at))
            load_window(opened.window_id, self.ledger, self.warehouse, SqlServerSource(self.at), stager)
            self.check(opened.window_id)
            advance_window(opened.window_id, self.ledger, self.warehouse)
        return opened

    def check(self, window_id: int) -> None:
        """Record that the checks of a window have passed."""
        self.ledger.mark_checked(window_id)

    def watch_closely(self) -> None:
        """Watch for drift as the drift DAG does."""
        self.ledger.ensure_schema()
        self.watch.watch(SqlServerSource(self.at), {name: self.ledger.read_tables(name) for name in self.tables})

    def run(self, name: str = "shop") -> OpenResult:
        return self.finish(self.open(name))

    def open_load(self, name: str, table: TableName, where: str) -> int:
        window_id = self.load_planner(name).open_reload(table, where).window_id
        assert window_id is not None
        return window_id

    def load_planner(self, name: str = "shop") -> LoadPlanner:
        return LoadPlanner(
            self._settings(name), SqlServerSource(self.at), self.ledger, self.warehouse, self.watch, self.alerts
        )

    def approve(self) -> None:
        ((event, _),) = self.switches.list_proposed()
        self.switches.approve(event.event_id, "operator")

    def pinned(self, name: str = "shop") -> FeedIdentity | None:
        return self.ledger.read_tables(name)[self.tables[name]].identity

    def instances(self) -> list[str]:
        rows = self.database.query("EXEC sys.sp_cdc_help_change_data_capture")
        return sorted(row["capture_instance"] for row in rows)

    def differing(self) -> list[TableName]:
        return [
            each.target
            for settings in self.pipelines
            for each in verify_tables(settings, self.at, self.connection)
            if not each.equal
        ]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with open_transaction(self.connection) as session:
            return session.execute(sql).fetchall()

    def _settings(self, name: str) -> PipelineSettings:
        return next(each for each in self.pipelines if each.name == name)
