"""Airflow's connections as the values that adapters take.

A password is masked in logs from the moment its connection is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.core.errors import ConfigError
from floodmark.sources.sqlserver.addresses import require_host
from floodmark.sources.sqlserver.connection import SqlServerConnection

if TYPE_CHECKING:
    from floodmark.postgres.connection import WarehouseConnection
    from floodmark.sources.compact.fleet import Fleet
    from floodmark.sources.event_stream.capture_folder import CaptureFolder
    from floodmark.sources.event_stream.connection import StreamConnection
    from floodmark.sources.event_stream.kafka_topic import KafkaTopic
    from floodmark.spark.launch.target import SparkTarget

SQL_SERVER_PORT = 1433
POSTGRES_PORT = 5432


def source_connection(conn_id: str) -> SqlServerConnection:
    """Return an Airflow connection of type mssql; its schema is the database.

    Extras: encrypt (yes, no, strict), trust_server_certificate, ca_file, application_intent (ReadWrite, ReadOnly),
    multi_subnet_failover. Raises ConfigError.
    """
    found = read_connection(conn_id, "mssql")
    extras = found.extra_dejson
    host = required_field(found.host, conn_id, "host")
    require_host(host, f"connection {conn_id}")
    try:
        return SqlServerConnection(
            host=host,
            port=found.port or SQL_SERVER_PORT,
            database=required_field(found.schema, conn_id, "schema (the name of the database)"),
            user=required_field(found.login, conn_id, "login"),
            password=found.password or "",
            encrypt=extras.get("encrypt", "yes"),
            trust_server_certificate=read_flag(extras.get("trust_server_certificate", False), conn_id),
            ca_file=extras.get("ca_file", ""),
            application_intent=extras.get("application_intent", "ReadWrite"),
            multi_subnet_failover=read_flag(
                extras.get("multi_subnet_failover", False), conn_id, "multi_subnet_failover"
            ),
        )
    except ValueError as error:
        raise ConfigError(f"connection {conn_id}", f"{error}.", "Correct its extra.") from None


def fleet_connection(conn_id: str) -> Fleet:
    """Return an Airflow connection of type fs: the folder of the devices' files.

    Extras: path (a folder, or a pattern such as /data/*.db) or paths (a list of them), shipped, consumer,
    purge_after_days. Raises ConfigError.
    """
    from floodmark.sources.compact.fleet import DEFAULT_CONSUMER, Fleet

    extras = read_connection(conn_id, "fs").extra_dejson
    paths = extras.get("paths") or [required_field(extras.get("path"), conn_id, "path in its extra")]
    try:
        return Fleet(
            paths=(paths,) if isinstance(paths, str) else tuple(map(str, paths)),
            is_shipped=read_flag(extras.get("shipped", False), conn_id, "shipped"),
            consumer=str(extras.get("consumer") or DEFAULT_CONSUMER),
            purge_after_days=int(extras.get("purge_after_days", 30)),
        )
    except ValueError as error:
        raise ConfigError(f"connection {conn_id}", f"{error}.", "Correct its extra.") from None


def stream_connection(conn_id: str, stream_conn_id: str) -> StreamConnection:
    """Return a database and its stream: an Airflow connection of type kafka, or of type fs for a capture folder.

    Extra of type fs: path, the folder of the event hub. Extra of type kafka: topic and librdkafka's settings. Raises
    ConfigError.
    """
    from floodmark.sources.event_stream.capture_folder import CaptureFolder
    from floodmark.sources.event_stream.connection import StreamConnection

    found = read_connection(stream_conn_id, "fs", "kafka")
    extras = found.extra_dejson
    try:
        if found.conn_type == "kafka":
            stream: CaptureFolder | KafkaTopic = _kafka_topic(extras, stream_conn_id)
        else:
            stream = CaptureFolder(required_field(extras.get("path"), stream_conn_id, "path in its extra"))
    except ValueError as error:
        raise ConfigError(f"connection {stream_conn_id}", f"{error}.", "Correct its extra.") from None
    return StreamConnection(source_connection(conn_id), stream)


def _kafka_topic(extras: dict[str, Any], conn_id: str) -> KafkaTopic:
    """Return the topic of a connection of type kafka. Its extra has librdkafka's names, as Airflow's provider wants."""
    from floodmark.sources.event_stream.kafka_topic import SETTINGS, KafkaTopic

    left = {name: str(value) for name, value in extras.items() if value not in (None, "")}
    servers = required_field(left.pop("bootstrap.servers", ""), conn_id, "bootstrap.servers in its extra")
    topic = required_field(left.pop("topic", ""), conn_id, "topic in its extra")
    password, ca_file = left.pop("sasl.password", ""), left.pop("ssl.ca.location", "")
    if unknown := sorted(left.keys() - SETTINGS):
        raise ConfigError(
            f"connection {conn_id}",
            f"its extra has {', '.join(unknown)}, which Floodmark does not take.",
            f"It takes bootstrap.servers, topic, sasl.password, ssl.ca.location, {', '.join(sorted(SETTINGS))}.",
        )
    return KafkaTopic(servers, topic, left, password, ca_file)


def warehouse_connection(conn_id: str) -> WarehouseConnection:
    """Return an Airflow connection of type postgres; its schema is the database.

    Extras: sslmode, sslrootcert. Without sslmode, the certificate is verified, except on this machine. Raises
    ConfigError.
    """
    from floodmark.postgres.connection import WarehouseConnection, default_sslmode

    found = read_connection(conn_id, "postgres")
    extras = found.extra_dejson
    host = required_field(found.host, conn_id, "host")
    return WarehouseConnection(
        host=host,
        port=found.port or POSTGRES_PORT,
        database=required_field(found.schema, conn_id, "schema (the name of the database)"),
        user=required_field(found.login, conn_id, "login"),
        password=found.password or "",
        sslmode=extras.get("sslmode") or default_sslmode(host),
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


def read_connection(conn_id: str, *conn_types: str) -> Any:
    """Return an Airflow connection of one of the types. Raises ConfigError."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

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
    """Return a field of a connection that must not be empty. Raises ConfigError."""
    if not value:
        raise ConfigError(f"connection {conn_id}", f"it has no {field}.", "Complete it in Airflow.")
    return value


def read_flag(value: object, conn_id: str, name: str = "trust_server_certificate") -> bool:
    """Return an extra as a truth value: typed into a form it arrives as text. Raises ConfigError."""
    text = str(value).strip().lower()
    if text not in ("true", "false", "yes", "no", "1", "0", ""):
        raise ConfigError(f"connection {conn_id}", f"{name} is {value!r}, expected true or false.")
    return text in ("true", "yes", "1")
