"""The part that all kinds of a SQL Server database share: its connection, datasets and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from floodmark.airflow_connections import (
    OF_HOOKS,
    named_twice,
    read_connection,
    read_extras,
    read_flag,
    required_field,
)
from floodmark.core.errors import ConfigError
from floodmark.core.schema import Dataset, table_dataset
from floodmark.sources.kind import SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from floodmark.core.doctor import Finding
    from floodmark.core.plan import TablePlan
    from floodmark.core.schema import TableName
    from floodmark.core.snapshot import Survey
    from floodmark.sources.kind import PortableConnection
    from floodmark.sources.sqlserver.driver import SqlServerConnection

CONN_TYPES = ("mssql", "floodmark_mssql")
"""Airflow's own type of a connection, and that of ``FloodmarkMsSqlHook``: the same fields and extras."""

_EXTRAS = (
    "encrypt", "trust_server_certificate", "ca_file", "application_intent", "multi_subnet_failover", "read_only",
    "connect_timeout", "authentication", "trusted_connection", "tenant", "certificate", "server_spn",
)  # fmt: skip
_SYNONYMS = {"Connection Timeout": "connect_timeout", "LoginTimeout": "connect_timeout"}
_LONGEST_CONNECT_SECONDS = 600
_ENCRYPT = {"true": "yes", "mandatory": "yes", "false": "no", "optional": "no", "1": "yes", "0": "no"}
"""Words of the driver for ``encrypt``, and those of ``SqlServerConnection``."""
_OF_PYMSSQL = OF_HOOKS | {
    "dbapi_driver", "timeout", "charset", "as_dict", "appname", "autocommit", "arraysize",
    "use_datetime2", "tds_version", "conn_properties", "encryption",
    "driver", "app", "application_name", "workstation_id", "wsid", "mars_connection",
}  # fmt: skip
"""Extras for the client of Airflow's hook for SQL Server, and ODBC's, which concern nothing but that client."""


@dataclass(frozen=True)
class SqlServerKind(SourceKind):
    """A source that is a SQL Server database."""

    def survey(self) -> Survey:
        """Return the tables of the database. Raises ConfigError, SourceUnavailableError, SourceLoginError."""
        from floodmark.sources.sqlserver.driver import survey_database

        return survey_database(self.database())

    def database(self) -> SqlServerConnection:
        """Return an Airflow connection of a type of ``CONN_TYPES``; its schema is the database.

        Extras: encrypt (yes, no, strict), trust_server_certificate, ca_file, application_intent (ReadWrite, ReadOnly),
        multi_subnet_failover, connect_timeout (seconds), and those of ``read_login``. Raises ConfigError.
        """
        from floodmark.sources.sqlserver.driver import SqlServerConnection
        from floodmark.sources.sqlserver.login import read_login
        from floodmark.sources.sqlserver.server_name import parse_server

        conn_id = self.conn_id
        found = read_connection(conn_id, *CONN_TYPES)
        extras = read_extras(found, conn_id, _EXTRAS, _OF_PYMSSQL, synonyms=_SYNONYMS)
        encrypt = str(extras.get("encrypt", "yes")).lower()
        server = parse_server(required_field(found.host, conn_id, "host"), found.port, f"connection {conn_id}")
        try:
            return SqlServerConnection(
                host=server.host,
                port=server.port,
                instance=server.instance,
                database=required_field(found.schema, conn_id, "schema (the name of the database)"),
                **read_login(found, extras, conn_id),
                encrypt=_ENCRYPT.get(encrypt, encrypt),  # type: ignore[arg-type]
                trust_server_certificate=read_flag(extras.get("trust_server_certificate", False), conn_id),
                ca_file=extras.get("ca_file", ""),
                application_intent=_application_intent(extras, conn_id),  # type: ignore[arg-type]
                multi_subnet_failover=read_flag(
                    extras.get("multi_subnet_failover", False), conn_id, "multi_subnet_failover"
                ),
                connect_timeout=_connect_timeout(extras),
            )
        except ValueError as error:
            raise ConfigError(f"connection {conn_id}", f"{error}.", "Correct its extra.") from None

    def connection(self) -> PortableConnection:
        return self.database()

    def encryption(self) -> tuple[str, bool]:
        found = self.database()
        return found.encrypt, found.trust_server_certificate

    def examine_login(self) -> Iterable[Finding]:
        from floodmark.sources.sqlserver.driver import connect
        from floodmark.sources.sqlserver.login import examine_login

        at = self.database()
        return examine_login(at, lambda: connect(at).close())

    def name_datasets(self) -> Callable[[TablePlan], tuple[Dataset, ...]]:
        at = self.database()
        return lambda table: (table_dataset("mssql", at.host, at.port or at.instance, at.database, table.source),)

    def parse_condition(self, where: str, table: TableName, hidden: Collection[str] = ()) -> str:
        from floodmark.sources.sqlserver.condition import parse_condition

        return parse_condition(where, table, hidden)


def _connect_timeout(extras: dict[str, Any]) -> int:
    """Return the seconds, 0 where the connection does not say them. Raises ValueError."""
    written = extras.get("connect_timeout", 0)
    seconds = int(written) if str(written).isdecimal() else -1
    if "connect_timeout" in extras and not 0 < seconds <= _LONGEST_CONNECT_SECONDS:
        raise ValueError(f"connect_timeout is {written!r}, expected seconds from 1 to {_LONGEST_CONNECT_SECONDS}")
    return seconds


def _application_intent(extras: dict[str, Any], conn_id: str) -> str:
    """Return the intent, also where it is named as pymssql names it."""
    from floodmark.sources.sqlserver.driver import ApplicationIntent

    named: str | None = extras.get("application_intent")
    if read_flag(extras.get("read_only", False), conn_id, "read_only"):
        if named is not None:
            raise named_twice(conn_id, "application_intent")
        return "ReadOnly"
    known: dict[str, str] = {choice.lower(): choice for choice in get_args(ApplicationIntent)}
    return known.get(str(named or "ReadWrite").lower(), str(named))
