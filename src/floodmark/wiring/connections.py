"""Airflow's connections as the values that adapters take.

A password is masked in logs from the moment its connection is read.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, get_args

from floodmark.core.errors import ConfigError
from floodmark.sources.sqlserver.driver import ApplicationIntent, SqlServerConnection, require_host

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection
    from floodmark.sources.compact.reader import Fleet
    from floodmark.sources.event_stream.source import StreamConnection
    from floodmark.sources.event_stream.transport import CaptureFolder, KafkaTopic
    from floodmark.spark.launch.target import SparkTarget

SQL_SERVER_PORT = 1433
POSTGRES_PORT = 5432

_SOURCE_EXTRAS = (
    "encrypt", "trust_server_certificate", "ca_file", "application_intent", "multi_subnet_failover", "read_only"
)  # fmt: skip
_FLEET_EXTRAS = ("path", "paths", "shipped", "consumer", "purge_after_days")
_WAREHOUSE_EXTRAS = ("sslmode", "sslrootcert")
_SSLMODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_ENCRYPT = {"true": "yes", "mandatory": "yes", "false": "no", "optional": "no"}
"""Words of the driver for ``encrypt``, and those of ``SqlServerConnection``."""

_OF_HOOKS = frozenset({
    "sqlalchemy_scheme", "sqlalchemy_query", "dialect", "placeholder", "insert_statement_format",
    "replace_statement_format", "escape_word_format", "escape_column_names",
})  # fmt: skip
"""Extras by which Airflow's hooks write their own SQL. They change nothing for Floodmark."""
_OF_PYMSSQL = _OF_HOOKS | {
    "dbapi_driver", "timeout", "login_timeout", "charset", "as_dict", "appname", "autocommit", "arraysize",
    "use_datetime2", "tds_version", "conn_properties", "encryption",
}  # fmt: skip
"""Extras for the client of Airflow's hook for SQL Server, which concern nothing but that client."""
_OF_PSYCOPG = _OF_HOOKS | {
    "cursor", "application_name", "connect_timeout", "client_encoding", "keepalives", "keepalives_idle",
    "keepalives_interval", "keepalives_count", "aws_conn_id", "azure_conn_id", "cluster-identifier", "workgroup-name",
}  # fmt: skip
"""Extras for the client of Airflow's hook for PostgreSQL: Floodmark has its own values, or no use for them."""
_LOGINS = frozenset({"iam", "redshift", "redshift-serverless"})
"""Extras by which that hook logs in to a service. Floodmark cannot, and takes only ``false``."""


def source_connection(conn_id: str) -> SqlServerConnection:
    """Return an Airflow connection of type mssql; its schema is the database.

    Extras: encrypt (yes, no, strict), trust_server_certificate, ca_file, application_intent (ReadWrite, ReadOnly),
    multi_subnet_failover. Raises ConfigError.
    """
    found = read_connection(conn_id, "mssql")
    extras = read_extras(found, conn_id, _SOURCE_EXTRAS, _OF_PYMSSQL)
    encrypt = str(extras.get("encrypt", "yes")).lower()
    host = required_field(found.host, conn_id, "host")
    require_host(host, f"connection {conn_id}")
    try:
        return SqlServerConnection(
            host=host,
            port=found.port or SQL_SERVER_PORT,
            database=required_field(found.schema, conn_id, "schema (the name of the database)"),
            user=required_field(found.login, conn_id, "login"),
            password=found.password or "",
            encrypt=_ENCRYPT.get(encrypt, encrypt),  # type: ignore[arg-type]
            trust_server_certificate=read_flag(extras.get("trust_server_certificate", False), conn_id),
            ca_file=extras.get("ca_file", ""),
            application_intent=_application_intent(extras, conn_id),  # type: ignore[arg-type]
            multi_subnet_failover=read_flag(
                extras.get("multi_subnet_failover", False), conn_id, "multi_subnet_failover"
            ),
        )
    except ValueError as error:
        raise ConfigError(f"connection {conn_id}", f"{error}.", "Correct its extra.") from None


def _application_intent(extras: dict[str, Any], conn_id: str) -> str:
    """Return the intent, also where it is named as pymssql names it."""
    named: str | None = extras.get("application_intent")
    if read_flag(extras.get("read_only", False), conn_id, "read_only"):
        if named is not None:
            raise _named_twice(conn_id, "application_intent")
        return "ReadOnly"
    known: dict[str, str] = {choice.lower(): choice for choice in get_args(ApplicationIntent)}
    return known.get(str(named or "ReadWrite").lower(), str(named))


def fleet_connection(conn_id: str) -> Fleet:
    """Return an Airflow connection of type fs: the folder of the devices' files.

    Extras: path (a folder, or a pattern such as /data/*.db) or paths (a list of them), shipped, consumer,
    purge_after_days. Raises ConfigError.
    """
    from floodmark.sources.compact.reader import DEFAULT_CONSUMER, Fleet

    extras = read_extras(read_connection(conn_id, "fs"), conn_id, _FLEET_EXTRAS)
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
    from floodmark.sources.event_stream.source import StreamConnection
    from floodmark.sources.event_stream.transport import CaptureFolder

    found = read_connection(stream_conn_id, "fs", "kafka")
    try:
        if found.conn_type == "kafka":
            stream: CaptureFolder | KafkaTopic = _kafka_topic(found, stream_conn_id)
        else:
            extras = read_extras(found, stream_conn_id, ("path",))
            stream = CaptureFolder(required_field(extras.get("path"), stream_conn_id, "path in its extra"))
    except ValueError as error:
        raise ConfigError(f"connection {stream_conn_id}", f"{error}.", "Correct its extra.") from None
    return StreamConnection(source_connection(conn_id), stream)


def _kafka_topic(found: Any, conn_id: str) -> KafkaTopic:
    """Return the topic of a connection of type kafka. Its extra has librdkafka's names, as Airflow's provider wants."""
    from floodmark.sources.event_stream.transport import SETTINGS, KafkaTopic

    known = ("bootstrap.servers", "topic", "sasl.password", "ssl.ca.location", *sorted(SETTINGS))
    left = {name: str(value) for name, value in read_extras(found, conn_id, known).items()}
    servers = required_field(left.pop("bootstrap.servers", ""), conn_id, "bootstrap.servers in its extra")
    topic = required_field(left.pop("topic", ""), conn_id, "topic in its extra")
    password, ca_file = left.pop("sasl.password", ""), left.pop("ssl.ca.location", "")
    return KafkaTopic(servers, topic, left, password, ca_file)


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


def read_extras(
    found: Any,
    conn_id: str,
    known: Sequence[str],
    passed_over: Collection[str] = (),
    only_false: Collection[str] = (),
) -> dict[str, Any]:
    """Return the extras by the names in ``known``, which may be written in other cases and with other signs.

    passed_over: extras of Airflow's own hook that change nothing for Floodmark. only_false: extras that are passed over
    if they are false. Raises ConfigError for all others, and for an extra that is no JSON object.
    """
    folded = {_folded(name): name for name in known}
    extras: dict[str, Any] = {}
    unknown = []
    for written, value in _parse_extra(found, conn_id).items():
        name = folded.get(_folded(written))
        is_over = written in passed_over or (written in only_false and not read_flag(value, conn_id, written))
        if value in (None, "") or is_over:
            continue
        if name is None:
            # Near, but not sslrootcert for sslcert.
            near = difflib.get_close_matches(_folded(written), folded, n=1, cutoff=0.8)
            unknown.append(written + (f" (did you mean {folded[near[0]]}?)" if near else ""))
        elif name in extras:
            raise _named_twice(conn_id, name)
        else:
            extras[name] = value
    if unknown:
        raise ConfigError(
            f"connection {conn_id}",
            f"its extra has {', '.join(sorted(unknown))}, which Floodmark does not take.",
            f"It takes {', '.join(known)}.",
        )
    return extras


def _parse_extra(found: Any, conn_id: str) -> dict[str, Any]:
    """Return the extra. Airflow takes one that is no JSON for an empty one."""
    try:
        parsed = json.loads(found.extra or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigError(f"connection {conn_id}", "its extra is no JSON object.", "Correct its extra.")
    return found.extra_dejson  # type: ignore[no-any-return]


def _folded(name: str) -> str:
    return re.sub(r"[._ -]", "", name).casefold()


def _named_twice(conn_id: str, name: str) -> ConfigError:
    return ConfigError(f"connection {conn_id}", f"its extra has {name} twice, in two spellings.", "Remove one.")


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
