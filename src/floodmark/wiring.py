"""The composition root: Airflow's connections and the environment become the adapters that a run needs.

The only place that knows which adapter stands behind which port. Airflow is imported when a connection is read, the
adapters when they are made, so that importing this module costs nothing at DAG parse time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import ConfigError
from floodmark.sqlfiles import home

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.core.lsn import Lsn
    from floodmark.core.progress import SourceProgress
    from floodmark.core.server_facts import ServerFacts
    from floodmark.core.settings import PipelineSettings
    from floodmark.sqlserver.connection import SqlServerConnection
    from floodmark.sync.ports import Ledger, Quality, Source, Warehouse
    from floodmark.sync.replay import ReplayLedger, ReplaySource
    from floodmark.warehouse.connection import WarehouseConnection

CONFIG_VARIABLE = "FLOODMARK_CONFIG"
DATA_DOCS_VARIABLE = "FLOODMARK_DATA_DOCS"
SQL_SERVER_PORT = 1433
POSTGRES_PORT = 5432


def config_path() -> Path:
    """FLOODMARK_CONFIG, else ``include/pipelines.yaml``."""
    return Path(os.environ.get(CONFIG_VARIABLE) or home() / "include" / "pipelines.yaml").resolve()


def data_docs_dir() -> Path:
    """FLOODMARK_DATA_DOCS, else a folder of the user's state."""
    chosen = os.environ.get(DATA_DOCS_VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(chosen).resolve() if chosen else Path(state) / "floodmark" / "data_docs"


@dataclass(frozen=True)
class Wiring:
    """Of one pipeline: how to reach its two ends, and the adapters, each made when it is asked for."""

    settings: PipelineSettings
    source_conn_id: str
    warehouse_conn_id: str
    freshness_seconds: float

    def source_connection(self) -> SqlServerConnection:
        return source_connection(self.source_conn_id)

    def warehouse_connection(self) -> WarehouseConnection:
        return warehouse_connection(self.warehouse_conn_id)

    def job_secrets(self) -> tuple[str, str]:
        """Source and warehouse as JSON with their passwords, for the environment of the load job only."""
        return self.source_connection().to_json(), self.warehouse_connection().to_json()

    def source(self) -> Source:
        from floodmark.sqlserver.source import SqlServerSource  # noqa: PLC0415

        return SqlServerSource(self.source_connection())

    def replay_source(self) -> ReplaySource:
        from floodmark.sqlserver.replay import SqlServerReplaySource  # noqa: PLC0415

        return SqlServerReplaySource(self.source_connection())

    def read_progress(self, watermarks: Iterable[Lsn]) -> SourceProgress:
        """Of the source, beyond the watermarks."""
        from floodmark.sqlserver.progress import read_progress  # noqa: PLC0415

        return read_progress(self.source_connection(), watermarks)

    def read_facts(self) -> ServerFacts:
        """Of the source, for a diagnosis."""
        from floodmark.sqlserver.facts import read_facts  # noqa: PLC0415

        return read_facts(self.source_connection())

    def ledger(self) -> Ledger:
        from floodmark.ledger.postgres import PostgresLedger  # noqa: PLC0415

        return PostgresLedger(self.warehouse_connection())

    def replay_ledger(self) -> ReplayLedger:
        from floodmark.ledger.postgres import PostgresLedger  # noqa: PLC0415

        return PostgresLedger(self.warehouse_connection())

    def warehouse(self) -> Warehouse:
        from floodmark.warehouse.postgres import PostgresWarehouse  # noqa: PLC0415

        return PostgresWarehouse(self.warehouse_connection())

    def quality(self) -> Quality:
        from floodmark.quality.great_expectations import GreatExpectationsQuality  # noqa: PLC0415

        return GreatExpectationsQuality(
            self.warehouse_connection(), data_docs_dir(), freshness_seconds=self.freshness_seconds
        )


def wire(config: Config, pipeline: str) -> Wiring:
    """Raises ConfigError for a pipeline that is not in the configuration."""
    return Wiring(
        settings=config.settings(pipeline),
        source_conn_id=config.source_of(pipeline).conn_id,
        warehouse_conn_id=config.warehouse.conn_id,
        freshness_seconds=config.pipeline(pipeline).freshness.total_seconds(),
    )


def source_connection(conn_id: str) -> SqlServerConnection:
    """An Airflow connection of type mssql; its schema is the database. Extras: encrypt (yes, no, strict),
    trust_server_certificate, ca_file. Raises ConfigError."""
    from floodmark.sqlserver.connection import SqlServerConnection  # noqa: PLC0415

    found = read_connection(conn_id, "mssql")
    extras = found.extra_dejson
    try:
        return SqlServerConnection(
            host=required_field(found.host, conn_id, "host"),
            port=found.port or SQL_SERVER_PORT,
            database=required_field(found.schema, conn_id, "schema (the name of the database)"),
            user=required_field(found.login, conn_id, "login"),
            password=found.password or "",
            encrypt=extras.get("encrypt", "yes"),
            trust_server_certificate=read_flag(extras.get("trust_server_certificate", False), conn_id),
            ca_file=extras.get("ca_file", ""),
        )
    except ValueError as error:
        raise ConfigError(f"connection {conn_id}", f"{error}.", "Correct its extra.") from None


def warehouse_connection(conn_id: str) -> WarehouseConnection:
    """An Airflow connection of type postgres; its schema is the database. Extras: sslmode, sslrootcert."""
    from floodmark.warehouse.connection import WarehouseConnection  # noqa: PLC0415

    found = read_connection(conn_id, "postgres")
    extras = found.extra_dejson
    return WarehouseConnection(
        host=required_field(found.host, conn_id, "host"),
        port=found.port or POSTGRES_PORT,
        database=required_field(found.schema, conn_id, "schema (the name of the database)"),
        user=required_field(found.login, conn_id, "login"),
        password=found.password or "",
        sslmode=extras.get("sslmode", "prefer"),
        sslrootcert=extras.get("sslrootcert", ""),
    )


def spark_master(conn_id: str = "spark_default") -> str | None:
    """The master that an Airflow connection names; None where it is not defined."""
    from airflow.sdk import BaseHook  # noqa: PLC0415
    from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415

    try:
        found = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None
    host = found.host if "://" in (found.host or "") or not found.port else f"spark://{found.host}"
    return f"{host}:{found.port}" if found.port else host


def read_connection(conn_id: str, *conn_types: str) -> Any:
    """An Airflow connection of one of the types; its password is masked in logs from here on. Raises ConfigError."""
    from airflow.sdk import BaseHook  # noqa: PLC0415  (seconds)
    from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415

    expected = " or ".join(conn_types)
    try:
        found = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"connection {conn_id}",
            "Airflow does not know it.",
            f"Add it in Airflow, or set AIRFLOW_CONN_{conn_id.upper()} (type {expected}).",
        ) from None
    if found.conn_type not in conn_types:
        raise ConfigError(f"connection {conn_id}", f"its type is {found.conn_type}, expected {expected}.")
    return found


def required_field(value: str | None, conn_id: str, field: str) -> str:
    """A field of a connection that must not be empty. Raises ConfigError."""
    if not value:
        raise ConfigError(f"connection {conn_id}", f"it has no {field}.", "Complete it in Airflow.")
    return value


def read_flag(value: object, conn_id: str, name: str = "trust_server_certificate") -> bool:
    """Extras typed into a form arrive as text. Raises ConfigError."""
    text = str(value).strip().lower()
    if text not in ("true", "false", "yes", "no", "1", "0", ""):
        raise ConfigError(f"connection {conn_id}", f"{name} is {value!r}, expected true or false.")
    return text in ("true", "yes", "1")
