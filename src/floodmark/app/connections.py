"""The Airflow connections of the warehouse and of Spark as adapters take them, and the survey of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.airflow_connections import OF_HOOKS, read_connection, read_extras, required_field
from floodmark.core.errors import ConfigError

if TYPE_CHECKING:
    from floodmark.core.snapshot import Survey
    from floodmark.postgres.session import WarehouseConnection
    from floodmark.spark.launch.target import SparkTarget

POSTGRES_PORT = 5432

_WAREHOUSE_EXTRAS = ("sslmode", "sslrootcert")
_SSLMODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_OF_PSYCOPG = OF_HOOKS | {
    "cursor", "application_name", "connect_timeout", "client_encoding", "keepalives", "keepalives_idle",
    "keepalives_interval", "keepalives_count", "aws_conn_id", "azure_conn_id", "cluster-identifier", "workgroup-name",
}  # fmt: skip
"""Extras for the client of Airflow's hook for PostgreSQL: Floodmark has its own values, or no use for them."""
_LOGINS = frozenset({"iam", "redshift", "redshift-serverless"})
"""Extras by which that hook logs in to a service. Floodmark cannot, and takes only ``false``."""


def warehouse_connection(conn_id: str) -> WarehouseConnection:
    """Return an Airflow connection of type postgres; its schema is the database.

    Extras: sslmode, sslrootcert. Without sslmode, the certificate is verified, except on this machine. Raises
    ConfigError.
    """
    from floodmark.postgres.session import WarehouseConnection, default_sslmode

    found = read_connection(conn_id, "postgres")
    extras = read_extras(found, conn_id, _WAREHOUSE_EXTRAS, _OF_PSYCOPG, _LOGINS)
    host = required_field(found.host, conn_id, "host")
    sslmode = extras.get("sslmode") or default_sslmode(host)
    if sslmode not in _SSLMODES:
        raise ConfigError(f"connection {conn_id}", f"sslmode is {sslmode!r}, expected one of {', '.join(_SSLMODES)}.")
    return WarehouseConnection(
        host=host,
        port=found.port or POSTGRES_PORT,
        database=required_field(found.schema, conn_id, "schema (the name of the database)"),
        user=required_field(found.login, conn_id, "login"),
        password=found.password or "",
        sslmode=sslmode,
        sslrootcert=extras.get("sslrootcert", ""),
    )


def spark_target(conn_id: str = "spark_default") -> SparkTarget:
    """Return the cluster that an Airflow connection names; this machine where it is not defined. Raises ConfigError."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    from floodmark.spark.launch.target import SparkTarget, target_of

    try:
        found = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return SparkTarget()
    # As Airflow's provider composes it, so that both ways to start a load reach the same cluster.
    is_whole = found.conn_type == "spark" and found.host and ("://" in found.host or not found.port)
    host = found.host if is_whole else f"{found.conn_type}://{found.host or ''}"
    master = f"{host}:{found.port}" if found.port else host
    return target_of(conn_id, master, found.extra_dejson, found.login, found.password)


def survey(conn_id: str) -> Survey:
    """Return the tables of the database behind a connection of type mssql. Raises ConfigError."""
    from floodmark.sources.cdc.kind import CdcKind
    from floodmark.sources.sqlserver.driver import survey_database

    return survey_database(CdcKind(conn_id).database())
