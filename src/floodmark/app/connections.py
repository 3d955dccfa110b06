"""Airflow's connections as adapters take them, and the survey of a source.

Adapters are imported in the function that needs them, as in ``pipeline``.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.airflow_connections import OF_HOOKS, find_connection, read_connection, read_extras, required_field
from floodmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.core.snapshot import Survey
    from floodmark.iceberg.folder import Bucket, LakeFolder
    from floodmark.iceberg.registry import Registry
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

    Extras: sslmode, sslrootcert. Without sslmode the certificate is verified, but on this machine. Raises ConfigError.
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


_LEAST_SECRET = 16


def read_mask_key(conn_id: str) -> str:
    """Return the secret of ``mask: hash``: the password of an Airflow connection of type generic. Raises ConfigError.

    Hashes by a short secret can be undone by trying secrets.
    """
    found = read_connection(conn_id, "generic")
    secret: str = required_field(found.password, conn_id, "password (the secret of mask: hash)")
    if len(secret) < _LEAST_SECRET:
        raise ConfigError(
            f"connection {conn_id}",
            f"its password is too short for the secret of mask: hash, which has at least {_LEAST_SECRET} characters.",
            "Make one at random: openssl rand -hex 32.",
        )
    return secret


_BUCKET_EXTRAS = ("path", "staging", "endpoint_url", "region_name", "aws_session_token")
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]+[a-z0-9](/[A-Za-z0-9_.=-]+)*")


def lake_folder(conn_id: str) -> LakeFolder:
    """Return the place of a lake: an Airflow connection of type fs, or of type aws for a bucket. Raises ConfigError.

    Extras of fs: path. Extras of aws: path (s3://bucket/prefix), staging (a folder), endpoint_url, region_name,
    aws_session_token; login and password are the access key, or both are empty.
    """
    from floodmark.iceberg.folder import LakeFolder

    found = read_connection(conn_id, "fs", "aws")
    if found.conn_type == "fs":
        return LakeFolder(_folder(read_extras(found, conn_id, ("path",)), conn_id, "path"))
    extras = read_extras(found, conn_id, _BUCKET_EXTRAS)
    return LakeFolder(_folder(extras, conn_id, "staging"), _bucket(found, extras, conn_id))


def _folder(extras: Mapping[str, Any], conn_id: str, name: str) -> str:
    path = Path(required_field(extras.get(name), conn_id, f"{name} in its extra"))
    if not path.is_absolute():
        raise ConfigError(f"connection {conn_id}", f"its {name} {path} is relative.", "Name the whole path.")
    return str(path)


def _bucket(found: Any, extras: Mapping[str, Any], conn_id: str) -> Bucket:
    from floodmark.iceberg.folder import Bucket

    subject = f"connection {conn_id}"
    location = required_field(extras.get("path"), conn_id, "path in its extra").rstrip("/")
    if not _BUCKET.fullmatch(location):
        raise ConfigError(
            subject,
            f"its path {location} is not s3://BUCKET/PREFIX.",
            "The prefix may have letters, digits and _ . = - between its slashes, or be left out.",
        )
    if found.host:
        raise ConfigError(subject, "it has a host.", "Name another store than AWS as endpoint_url in its extra.")
    endpoint = extras.get("endpoint_url", "").rstrip("/")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(subject, f"its endpoint_url {endpoint} has no http:// or https://.")
    if bool(found.login) != bool(found.password):
        raise ConfigError(
            subject,
            "it has one part of an access key.",
            "The login is its ID, the password its secret. Leave both empty for the rules of AWS's clients.",
        )
    return Bucket(
        location,
        endpoint,
        extras.get("region_name", ""),
        found.login or "",
        found.password or "",
        extras.get("aws_session_token", ""),
    )


_CATALOG_PROPERTIES = {"type": "rest", "snapshot-loading-mode": "refs"}
"""Properties that the connection of a REST catalog cannot have otherwise."""


def lake_registry(conn_id: str) -> Registry:
    """Return a REST catalog for readers of a lake: an Airflow connection of type iceberg. Raises ConfigError.

    The host is its URL; login and password are the client's ID and secret, or both are empty. Extras are properties of
    PyIceberg, such as warehouse, token, scope, oauth2-server-uri or header.*, as in the connections of Airflow's hook.
    """
    found = read_connection(conn_id, "iceberg")
    subject = f"connection {conn_id}"
    url = required_field(found.host, conn_id, "host (the URL of the catalog)").rstrip("/")
    if not url.startswith(("http://", "https://")) or found.port:
        raise ConfigError(subject, "its host is no URL with the port.", "As in https://catalog.example:8181/iceberg.")
    if bool(found.login) != bool(found.password):
        raise ConfigError(subject, "it has one part of a login.", "Login and password are the client's ID and secret.")
    try:
        from floodmark.iceberg.registry import Registry
    except ImportError as error:
        raise ConfigError(
            subject, f"a REST catalog needs a package that is missing: {error}.", "Install floodmark[rest]."
        ) from None
    # PyIceberg reads a number or a truth value as text.
    asked = {name: json.dumps(each) if isinstance(each, int) else each for name, each in found.extra_dejson.items()}
    for name, value in _CATALOG_PROPERTIES.items():
        if asked.setdefault(name, value) != value:
            raise ConfigError(subject, f"{name} in its extra is {asked[name]}, expected {value}.")
    if found.login:
        # Without it PyIceberg warns about the default, which is this one.
        asked.setdefault("oauth2-server-uri", f"{url}/v1/oauth/tokens")
        asked["credential"] = f"{found.login}:{found.password}"
    return Registry(conn_id, {**asked, "uri": url})


def spark_target(conn_id: str = "spark_default") -> SparkTarget:
    """Return the cluster that an Airflow connection names; this machine where it is not defined. Raises ConfigError."""
    from floodmark.spark.launch.target import SparkTarget, target_of

    found = find_connection(conn_id)
    if found is None:
        return SparkTarget()
    # As Airflow's provider composes it, so that both ways to start a load reach the same cluster.
    is_whole = found.conn_type == "spark" and found.host and ("://" in found.host or not found.port)
    host = found.host if is_whole else f"{found.conn_type}://{found.host or ''}"
    at = f"{host}:{found.port}" if found.port else host
    return target_of(conn_id, at, found.extra_dejson, found.login, found.password)


def open_source_database(conn_id: str, database: str | None = None) -> Any:
    """Open a DB-API connection to the database behind a connection of type mssql, or to another one of its server.

    Raises ConfigError, SourceUnavailableError, SourceLoginError.
    """
    from floodmark.sources.cdc.kind import CdcKind
    from floodmark.sources.sqlserver import driver

    at = CdcKind(conn_id).database()
    return driver.connect_dbapi(replace(at, database=database) if database else at)


def survey(conn_id: str) -> Survey:
    """Return the tables of the database behind a connection of type mssql. Raises ConfigError."""
    from floodmark.sources.cdc.kind import CdcKind

    return CdcKind(conn_id).survey()
