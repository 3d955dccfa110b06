"""The capture job of a source: its status, and the T-SQL about it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.position import Position
from floodmark.core.schema import TableName

# --------------------------------------------------------------------------------------------------------------------
# The editions of SQL Server that behave differently.


AZURE_SQL_DATABASE = frozenset({5, 12})
"""SERVERPROPERTY('EngineEdition') of Azure SQL Database and of SQL database in Fabric: neither has an Agent."""


AZURE = AZURE_SQL_DATABASE | {8}
"""The same with Azure SQL Managed Instance, which has an Agent."""


# --------------------------------------------------------------------------------------------------------------------
# The status of the capture job, and the stop that is planned for it.


REPLICATION = "REPLICATION"
"""The value of ``log_reuse_wait_desc`` while the log is held for uncaptured changes."""
_LOW_LATENCY_SECONDS = 15
_FRESH_SCAN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """A stop of the capture job that the schedule wants, from ``since`` to ``until``; both carry a zone."""

    since: datetime
    until: datetime

    def __str__(self) -> str:
        return f"a stop planned from {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M %Z}"


@dataclass(frozen=True, slots=True)
class LogScan:
    """The newest row of ``sys.dm_cdc_log_scan_sessions``."""

    ended_at: datetime | None
    transactions: int
    errors: int
    latency_seconds: int
    """The time from its last commit to its end."""


@dataclass(frozen=True, slots=True)
class CaptureJobStatus:
    """The status of the job at one moment. None: the login may not see it, or the server does not have it."""

    database: str
    engine_edition: int
    taken_at: datetime
    job: Mapping[str, int] | None
    """The parameters of the job; None: there is no capture job."""
    running: bool | None
    log_reuse_wait: str | None
    log_used_percent: float | None
    newest_entry_at: datetime | None
    """Of cdc.lsn_time_mapping."""
    scan: LogScan | None = None
    error: str | None = None
    """The newest error of sys.dm_cdc_errors."""
    clock_ahead_seconds: float = 0.0
    """By how much the server's clock was set forward in the last two hours; ages seem so much longer."""
    is_replica: bool = False
    """The database is read-only here, and the jobs of this server are not those that capture it."""

    @property
    def has_agent(self) -> bool:
        """Return whether a job can be started and stopped at all."""
        return self.engine_edition not in AZURE_SQL_DATABASE

    @property
    def has_own_schedule(self) -> bool:
        """Return whether a schedule of the Agent starts the job for one scan, and it does not run in between."""
        return (self.job or {}).get("continuous") == 0

    @property
    def seconds_without_entry(self) -> float | None:
        """Return for how long the log has had no new entry, None where it never had one."""
        return None if self.newest_entry_at is None else self.age_seconds(self.newest_entry_at)

    def age_seconds(self, moment: datetime) -> float:
        """Return the age of a moment of the server's local time; a lower bound, where its clock was set in between."""
        return max((self.taken_at - moment).total_seconds() - self.clock_ahead_seconds, 0.0)

    @property
    def caught_up(self) -> bool:
        """Return whether the newest scan reached the end of the log, or was close behind it.

        An empty scan while the log is held proves nothing: the job is being held back.
        """
        scan = self.scan
        if scan is None or scan.errors or scan.ended_at is None:
            return False
        if self.age_seconds(scan.ended_at) > _FRESH_SCAN_SECONDS:
            return False
        if scan.transactions:
            return scan.latency_seconds <= _LOW_LATENCY_SECONDS
        return self.log_reuse_wait != REPLICATION


# --------------------------------------------------------------------------------------------------------------------
# T-SQL for people to read and to run themselves. Floodmark only runs what the operator has approved.


MAX_INSTANCE_LENGTH = 100
"""In characters (docs/reference/sqlserver_cdc.md, "Enabling a table")."""


def bracket(identifier: str) -> str:
    """Return an identifier in brackets."""
    return "[" + identifier.replace("]", "]]") + "]"


def bracket_table(name: TableName) -> str:
    """Return the two-part name in brackets."""
    return f"{bracket(name.schema)}.{bracket(name.name)}"


def literal(text: str) -> str:
    """Return a Unicode string literal."""
    return "N'" + text.replace("'", "''") + "'"


def enable_table(table: TableName, *, net_changes: bool = False, partition_switch: bool = True) -> str:
    """Return the statement that creates a capture instance.

    partition_switch: whether partitions may be switched in and out, which is not captured; the server's default.
    """
    switching = "" if partition_switch else ", @allow_partition_switch = 0"
    name = f"{table.schema}_{table.name}"
    named = f" @capture_instance = {literal(_shortened(name))}," if len(name) > MAX_INSTANCE_LENGTH else ""
    return (
        f"EXEC sys.sp_cdc_enable_table @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},"
        f"{named} @role_name = NULL, @supports_net_changes = {int(net_changes)}{switching};"
    )


def _shortened(name: str) -> str:
    """Return a name for an instance whose default name would be too long: it ends in a digest, and stays distinct."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_INSTANCE_LENGTH - 1 - len(digest)]}_{digest}"


def disable_instance(table: TableName, instance: str) -> str:
    """Return the statement that drops a capture instance."""
    return (
        f"EXEC sys.sp_cdc_disable_table @source_schema = {literal(table.schema)}, @source_name = {literal(table.name)},"
        f" @capture_instance = {literal(instance)};"
    )


EVERY_ROW = "1 = 1"
"""A condition that is true for every row."""
TOUCHED = "EXISTS ("
"""The beginning of a condition of ``touched_rows``."""


def filled_rows(columns: Sequence[str]) -> str:
    """Return the condition for the rows that have a value in one of the columns."""
    return " OR ".join(f"{bracket(column)} IS NOT NULL" for column in columns)


def touched_rows(table: TableName, key: Sequence[str], instance: str, since: Position | None) -> str:
    """Return the condition for the rows with a change in a capture instance.

    since: the first LSN that counts; None: all changes of the instance.
    """
    # Inside the subquery, the alias would hide a table of the same name.
    alias = "c" if table.name.casefold() != "c" else "d"
    conditions = [f"{alias}.{bracket(column)} = {bracket(table.name)}.{bracket(column)}" for column in key]
    if since is not None:
        conditions.insert(0, f"{alias}.[__$start_lsn] >= {since}")
    changes = f"[cdc].{bracket(instance + '_CT')} AS {alias}"
    return f"{TOUCHED}SELECT 1 FROM {changes} WHERE {' AND '.join(conditions)})"  # noqa: S608


def grant_select(schema: str, name: str, user: str) -> str:
    """Return the statement that grants SELECT on an object."""
    return f"GRANT SELECT ON {bracket(schema)}.{bracket(name)} TO {bracket(user)};"


FOR_DBA = "USE "
"""The beginning of a proposal that the login may not run."""


@dataclass(frozen=True, slots=True)
class SourceUser:
    """The login that reads a database."""

    database: str
    name: str
    """The name of its user in the database."""
    is_owner: bool
    """Whether it is in db_owner, which may create capture instances and read every change table."""

    def script(self, *statements: str) -> str:
        """Return statements for a DBA: at the database, wherever the DBA is connected to."""
        return "\n".join((f"{FOR_DBA}{bracket(self.database)};", *statements))

    def grant_changes(self, instance: str) -> str:
        """Return the statement that lets the login read the change table of a capture instance."""
        return grant_select("cdc", f"{instance}_CT", self.name)


def make_heartbeat(table: TableName) -> str:
    """Return the statements that create and track the table whose changes prove that capture works."""
    name = bracket_table(table)
    return (
        f"CREATE TABLE {name} (id tinyint NOT NULL PRIMARY KEY, beat bigint NOT NULL, beaten_at datetime NOT NULL,"
        f" waiting_since datetime NOT NULL); {insert_heartbeat(table)} {enable_table(table)}"
    )


def insert_heartbeat(table: TableName) -> str:
    """Return the statement that inserts the only row of the heartbeat table."""
    name = bracket_table(table)
    return f"INSERT INTO {name} (id, beat, beaten_at, waiting_since) VALUES (1, 0, GETDATE(), GETDATE());"  # noqa: S608


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """The heartbeat of an event stream."""

    table: TableName
    limit_seconds: float
    """How long a beat may take to arrive."""
