"""The adapters of a warehouse and of the ledger, by the kind of the warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.core.dataset import Dataset, table_dataset
from floodmark.core.errors import ConfigError
from floodmark.wiring.connections import warehouse_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import URL

    from floodmark.core.schema import TableName
    from floodmark.core.status.measures import TableMark
    from floodmark.core.types import WarehouseType
    from floodmark.postgres.connection import WarehouseConnection
    from floodmark.sync.alerts import AlertLedger
    from floodmark.sync.ports.adoption import TargetAdoption
    from floodmark.sync.ports.capture import StopLedger
    from floodmark.sync.ports.drift import DriftLedger
    from floodmark.sync.ports.ledger import Ledger
    from floodmark.sync.ports.quarantine import Quarantine
    from floodmark.sync.ports.status import StatusLedger
    from floodmark.sync.ports.switch import SwitchLedger, Targets
    from floodmark.sync.ports.warehouse import RowComparer, Warehouse
    from floodmark.sync.recovery.replay import ReplayLedger
    from floodmark.sync.upkeep.retention import MarkLedger


@dataclass(frozen=True)
class PostgresLedgerWiring:
    """The ledger in PostgreSQL. No connection is opened before an adapter is used."""

    conn_id: str
    """The id of the connection in Airflow."""

    def connection(self) -> WarehouseConnection:
        """Return the connection. Raises ConfigError."""
        return warehouse_connection(self.conn_id)

    def kept_sessions(self) -> AbstractContextManager[None]:
        """Use one session for the transactions of one step, until the block ends."""
        from floodmark.postgres.kept_sessions import kept_sessions

        return kept_sessions()

    def windows(self) -> Ledger:
        from floodmark.postgres.ledger.ledger import PostgresLedger

        return PostgresLedger(self.connection())

    def replays(self) -> ReplayLedger:
        from floodmark.postgres.ledger.ledger import PostgresLedger

        return PostgresLedger(self.connection())

    def alerts(self) -> AlertLedger:
        from floodmark.postgres.ledger.alerts import PostgresAlertLedger

        return PostgresAlertLedger(self.connection())

    def drift(self) -> DriftLedger:
        from floodmark.postgres.ledger.drift import PostgresDriftLedger

        return PostgresDriftLedger(self.connection())

    def switches(self) -> SwitchLedger:
        from floodmark.postgres.ledger.switches import PostgresSwitchLedger

        return PostgresSwitchLedger(self.connection())

    def stops(self) -> StopLedger:
        from floodmark.postgres.ledger.upkeep import PostgresUpkeepLedger

        return PostgresUpkeepLedger(self.connection())

    def marks(self) -> MarkLedger:
        from floodmark.postgres.ledger.retention import PostgresMarkLedger

        return PostgresMarkLedger(self.connection())

    def status(self) -> StatusLedger:
        from floodmark.postgres.ledger.status import PostgresStatusLedger

        return PostgresStatusLedger(self.connection())

    def list_alert_parts(self, kind: str, subject: str) -> Sequence[str]:
        """Return the open parts of all alerts of a kind about a subject."""
        from floodmark.postgres.ledger.alerts import PostgresAlertLedger

        return PostgresAlertLedger(self.connection()).list_parts(kind, subject)

    def list_table_marks(self, pipeline: str) -> Sequence[TableMark]:
        """Return the marks of the tables that a run has included."""
        from floodmark.postgres.ledger.measures import list_table_marks

        return list_table_marks(self.connection(), pipeline)

    def record_sizes(self, pipeline: str, sizes: Mapping[TableName, tuple[int | None, int | None]]) -> None:
        """Record rows and bytes of the change tables in the newest window of each table."""
        from floodmark.postgres.ledger.measures import record_sizes

        record_sizes(self.connection(), pipeline, sizes)

    def read_window_seconds(self, window_id: int) -> float | None:
        """Return the time of a window from planning to publication; None while it is unfinished."""
        from floodmark.postgres.ledger.measures import read_window_seconds

        return read_window_seconds(self.connection(), window_id)


@dataclass(frozen=True)
class PostgresWarehouseWiring:
    """A warehouse of kind ``postgres``. No connection is opened before an adapter is used."""

    conn_id: str
    """The id of the connection in Airflow."""
    ledger: PostgresLedgerWiring
    """A merge and its record are one transaction: it must be in the same database."""

    def connection(self) -> WarehouseConnection:
        """Return the connection. Raises ConfigError."""
        return warehouse_connection(self.conn_id)

    def windows(self) -> Warehouse:
        """Raises ConfigError where the ledger is in another database."""
        from floodmark.postgres.warehouse.warehouse import PostgresWarehouse

        connection, ledger = self.connection(), self.ledger.connection()
        place, ledger_place = (f"{each.host}:{each.port}/{each.database}" for each in (connection, ledger))
        if place != ledger_place:
            raise ConfigError(
                f"connection {self.ledger.conn_id}",
                f"the ledger is in {ledger_place}, and the warehouse in {place}.",
                "A warehouse of kind postgres keeps the ledger in its own database: name that one, or omit ledger.",
            )
        return PostgresWarehouse(connection)

    def name_datasets(self) -> Callable[[TableName], Dataset]:
        """Return the function that names a target. Raises ConfigError."""
        at = self.connection()
        return lambda target: table_dataset("postgres", at.host, at.port, at.database, target)

    def type_name(self, kind: WarehouseType) -> str:
        """Return the warehouse's own name of a type."""
        from floodmark.postgres.warehouse.types import postgres_type

        return postgres_type(kind)

    def sql_url(self) -> URL:
        """Return the address for the SQL of checks, with the password."""
        from floodmark.postgres.url import sqlalchemy_url

        return sqlalchemy_url(self.connection())

    def read_encoding(self) -> str:
        """Return the encoding of the database, such as UTF8. Raises ConfigError, or the error of a connection."""
        from floodmark.postgres.session import read_encoding

        return read_encoding(self.connection())

    def comparer(self) -> RowComparer:
        from floodmark.postgres.warehouse.verify import PostgresRowComparer

        return PostgresRowComparer(self.connection())

    def quarantine(self) -> Quarantine:
        from floodmark.postgres.warehouse.release import PostgresQuarantine

        return PostgresQuarantine(self.connection())

    def adoption(self) -> TargetAdoption:
        from floodmark.postgres.warehouse.adoption import PostgresAdoption

        return PostgresAdoption(self.connection())

    def targets(self) -> Targets:
        from floodmark.postgres.warehouse.targets import PostgresTargets

        return PostgresTargets(self.connection())


WAREHOUSES = {"postgres": PostgresWarehouseWiring}
"""By the kind that the configuration says."""
