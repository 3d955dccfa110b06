"""The findings of ``doctor``: their grades, and those about a server, its grants and its tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum

from floodmark.core.capture import (
    AZURE_SQL_DATABASE,
    PlannedStop,
    bracket,
    disable_instance,
    enable_table,
    grant_select,
    literal,
)
from floodmark.core.errors import ConfigError, FloodmarkError, NoKeyError
from floodmark.core.plan import check_net
from floodmark.core.planning import grant_unmask, list_masked, with_key
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, PipelineSettings, SecurityFiltered, TableSettings
from floodmark.core.snapshot import CaptureInstance, MemberMark, SourceSnapshot, TableSnapshot, Validity, Verdict
from floodmark.core.types import warehouse_type
from floodmark.core.verdicts import INCIDENTS

# --------------------------------------------------------------------------------------------------------------------
# A finding of ``doctor``, and its grade.


class Grade(IntEnum):
    """The severity of a finding: the greater, the worse."""

    GOOD = 0
    NOTE = 1
    """Something to know, or something that cannot be seen."""
    RISK = 2
    """It works now, and will fail or lose something one day."""
    PROBLEM = 3
    """The pipeline cannot run, or not correctly."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check."""

    grade: Grade
    check: str
    """The name of the check."""
    subject: str
    """A table or the database."""
    text: str
    fix: str = ""
    """T-SQL or a step; "" where nothing has to be done."""


def worst(findings: tuple[Finding, ...]) -> Grade:
    """Return the worst grade, GOOD without findings."""
    return max((finding.grade for finding in findings), default=Grade.GOOD)


# --------------------------------------------------------------------------------------------------------------------
# The checks of ``doctor`` on the engine and the warehouse: who can read passwords, and which texts are stored.


ENCODING = "UTF8"
NEW_DATABASE = (
    "Create a database for the warehouse with CREATE DATABASE <name> ENCODING 'UTF8' TEMPLATE template0, and connect "
    "to it. PostgreSQL cannot change the encoding of a database, and any other cannot store every text of SQL Server."
)
_LOCAL = "local"
_ENCRYPTING = ("spark.authenticate", "spark.network.crypto.enabled")


def examine_server(url: str, *, is_loopback: bool, has_tls: bool) -> Iterator[Finding]:
    """Yield the finding on a Spark Connect server. The tasks carry the connections of source and warehouse to it."""
    if is_loopback or has_tls:
        how = "encrypted" if has_tls else "on this machine"
        yield Finding(Grade.GOOD, "spark", url, f"the connection to the server, which carries passwords, is {how}.")
    else:
        yield Finding(
            Grade.NOTE,
            "spark",
            url,
            "the server receives the passwords of source and warehouse with each load, in clear.",
            "Put a proxy with TLS in front of it, and set use_ssl in the Spark connection's extra.",
        )


def examine_engine(master: str, conf: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the finding on a Spark master. conf: the properties that the Spark connection sets.

    Reading and staging happen in the executors, with the connections of source and warehouse, which travel inside the
    tasks. What the cluster's own configuration says is not known here.
    """
    if master.startswith(_LOCAL):
        yield Finding(Grade.GOOD, "spark", master, "Spark runs on the machine of the task.")
    elif all(conf.get(name) == "true" for name in _ENCRYPTING):
        yield Finding(Grade.GOOD, "spark", master, "the tasks, which carry passwords, are encrypted on the network.")
    else:
        yield Finding(
            Grade.NOTE,
            "spark",
            master,
            "its executors receive the passwords of source and warehouse with their tasks: in clear, unless the "
            "cluster encrypts its network.",
            "Set spark.authenticate and spark.network.crypto.enabled to true in the Spark connection's conf or in the "
            "cluster's configuration.",
        )


def examine_encoding(encoding: str) -> Finding:
    """Return the finding on the encoding of the warehouse's database."""
    text = f"the database of the warehouse has the encoding {encoding}."
    if encoding == ENCODING:
        return Finding(Grade.GOOD, "encoding", "warehouse", text)
    return Finding(Grade.PROBLEM, "encoding", "warehouse", text, NEW_DATABASE)


# --------------------------------------------------------------------------------------------------------------------
# Features and objects of a source that conflict with change data capture, and the findings about them.
#
# Sources: SQL Server's documentation of known issues with change data capture (accelerated recovery, the schema
# ``cdc``, sizes of columns, CLR types: errors 22906, 2628, 8115, 913), and of ``sp_cdc_enable_table`` (partitions).


CLR_TYPES = frozenset({"hierarchyid", "geography", "geometry"})
_COMMENT = re.compile(r"--[^\r\n]*|/\*.*?\*/", re.DOTALL)
_PART = r"(?:\[(?:[^\]]|\]\])+\]|\"[^\"]+\"|[\w@$#]+)"
_TRUNCATION = re.compile(rf"\bTRUNCATE\s+TABLE\s+({_PART}(?:\s*\.\s*{_PART})*)", re.IGNORECASE)
_EACH_PART = re.compile(_PART)


@dataclass(frozen=True, slots=True)
class Hazards:
    """The facts about a database that the checks need."""

    accelerated_recovery: bool | None = None
    """Whether the database has it on; None: unknown."""
    has_schema: bool = False
    """Whether there is a schema named cdc, also one that CDC did not create."""
    has_user: bool = False
    """Whether there is a user named cdc, also one that CDC did not create."""
    is_user_owner: bool | None = None
    """Whether that user is in db_owner; None: unknown."""
    sees_policies: bool = True
    """Whether security policies that do not appear in the catalog do not exist."""
    partitioned: frozenset[TableName] = frozenset()
    """The tables that are partitioned."""
    truncating: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The modules that truncate a table."""
    switchable: Mapping[str, bool] | None = None
    """Whether partitions may be switched, by capture instance; None where the login may not see it."""
    unlike: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The columns that have another size in the change table."""


def find_truncated(definition: str, default_schema: str) -> frozenset[TableName]:
    """Return the tables that a module truncates, as far as its own text shows it."""
    found = set()
    for match in _TRUNCATION.finditer(_COMMENT.sub(" ", definition)):
        parts = [_unquoted(part) for part in _EACH_PART.findall(match[1])]
        found.add(TableName(parts[-2] if len(parts) > 1 else default_schema, parts[-1]))
    return frozenset(found)


def _unquoted(part: str) -> str:
    if part.startswith("["):
        return part[1:-1].replace("]]", "]")
    return part.strip('"')


def examine_taken_names(hazards: Hazards, database: str) -> Iterator[Finding]:
    """Yield findings on a database without CDC: names that CDC needs for itself."""
    if hazards.has_schema:
        yield Finding(
            Grade.PROBLEM,
            "cdc schema",
            database,
            "there is a schema named cdc that change data capture did not create: enabling fails with error 22906.",
            "Move its objects to another schema (ALTER SCHEMA [dbo] TRANSFER [cdc].[...];), then: DROP SCHEMA [cdc];",
        )
    if hazards.has_user:
        yield Finding(
            Grade.PROBLEM,
            "cdc user",
            database,
            "there is a user or role cdc that change data capture did not create: enabling fails with error 22906.",
            "Rename it, or: DROP USER [cdc];",
        )


def examine_database(hazards: Hazards, database: str, *, chooses_recovery: bool, sees_users: bool) -> Iterator[Finding]:
    """Yield findings on a database with CDC.

    chooses_recovery: whether accelerated recovery can be switched off; in Azure it is always on, and designed for CDC.
    sees_users: whether a user that is not visible does not exist.
    """
    if hazards.accelerated_recovery and chooses_recovery:
        yield Finding(
            Grade.RISK,
            "accelerated recovery",
            database,
            "accelerated database recovery is on, which is not supported together with change data capture: the log is"
            " no longer truncated early, and fills up.",
            f"ALTER DATABASE {bracket(database)} SET ACCELERATED_DATABASE_RECOVERY = OFF;",
        )
    if not hazards.sees_policies:
        yield Finding(
            Grade.NOTE,
            "security policy",
            database,
            "the login may not see whether security policies filter the rows of tables.",
            "Ask the DBA: SELECT * FROM sys.security_policies WHERE is_enabled = 1; or, in this database: GRANT VIEW"
            " DEFINITION to the login.",
        )
    if not sees_users:
        return
    if not hazards.has_user:
        yield Finding(
            Grade.PROBLEM,
            "cdc user",
            database,
            "the user cdc, which runs capture, does not exist (errors 1202, 15517).",
            "CREATE USER [cdc] WITHOUT LOGIN WITH DEFAULT_SCHEMA = [cdc]; ALTER ROLE [db_owner] ADD MEMBER [cdc];",
        )
    elif hazards.is_user_owner is False:
        yield Finding(
            Grade.PROBLEM,
            "cdc user",
            database,
            "the user cdc, which runs capture, is no longer in db_owner (error 21050).",
            "ALTER ROLE [db_owner] ADD MEMBER [cdc];",
        )


def examine_table_hazards(table: TableName, table_snapshot: TableSnapshot, hazards: Hazards) -> Iterator[Finding]:
    """Yield findings on a table."""
    subject = str(table)
    if modules := hazards.truncating.get(table):
        yield Finding(
            Grade.RISK,
            "truncate",
            subject,
            f"{', '.join(modules)} truncates it, which fails while its changes are captured (error 4711).",
            "Delete the rows by DELETE without a condition instead.",
        )
    if table in hazards.partitioned:
        yield _partitions(table, table_snapshot, hazards)
    if table_snapshot.instance is None:
        return
    if unlike := hazards.unlike.get(table):
        yield Finding(
            Grade.RISK,
            "column size",
            subject,
            f"capture has not reached a change of type yet ({', '.join(unlike)}): if captured values do not fit the new"
            " type, it stops with error 2628 or 8115.",
            "Check sys.dm_cdc_errors when capture has continued. If it stopped: read all changes, then create the"
            " instance again, and reload the table (`floodmark reload`):"
            f" {disable_instance(table, table_snapshot.instance.identity.name)} {enable_table(table)}",
        )
    clr = [column.name for column in table_snapshot.instance.table.columns if column.type_name in CLR_TYPES]
    if clr:
        yield Finding(
            Grade.NOTE,
            "clr types",
            subject,
            f"{', '.join(clr)}: DDL on the table while capture is behind may stop it with error 913.",
            "Before DDL: stop writing to the table, and wait until capture has caught up (or EXEC sys.sp_cdc_scan;)."
            " After DDL: do the same again before you resume writing.",
        )


def _partitions(table: TableName, table_snapshot: TableSnapshot, hazards: Hazards) -> Finding:
    subject = str(table)
    if table_snapshot.instance is None:
        return Finding(
            Grade.NOTE,
            "partitions",
            subject,
            "it is partitioned; switching in or out is not captured, and is allowed unless the instance forbids it.",
            enable_table(table, partition_switch=False),
        )
    name = table_snapshot.instance.identity.name
    if hazards.switchable is None:
        return Finding(
            Grade.NOTE,
            "partitions",
            subject,
            "it is partitioned; switching is not captured, and only db_owner sees whether it is allowed.",
            "Ask the DBA: SELECT capture_instance, partition_switch FROM cdc.change_tables;",
        )
    if not hazards.switchable.get(name, True):
        return Finding(Grade.GOOD, "partitions", subject, "it is partitioned, and no partition can be switched.")
    return Finding(
        Grade.RISK,
        "partitions",
        subject,
        f"it is partitioned, and {name} allows switching: rows appear and disappear without a captured change.",
        "After each switch: `floodmark reload`. Or forbid it by creating the instance again, then reload the table:"
        f" {disable_instance(table, name)} {enable_table(table, partition_switch=False)}",
    )


# --------------------------------------------------------------------------------------------------------------------
# The facts about a server that ``doctor`` reads in addition to a snapshot. None: the login may not see it.


@dataclass(frozen=True, slots=True)
class Jobs:
    """The capture and cleanup jobs of a database."""

    has_capture: bool
    retention_minutes: int | None
    """Of the cleanup job; None: there is none."""
    is_continuous: bool = True
    """Of the capture job; False: the job scans by a schedule of its own."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about a server and a database that each kind of source needs."""

    product_version: str
    engine_edition: int
    database: str
    user: str
    is_db_owner: bool
    may_view_state: bool
    taken_at_utc: datetime
    utc_offset_minutes: int


@dataclass(frozen=True, slots=True)
class CdcFacts(ServerFacts):
    """The facts about a database with change data capture."""

    collation: str
    lob_limit_bytes: int | None
    """``max text repl size``, -1 for none."""
    agent_running: bool | None
    jobs: Jobs | None
    other_collations: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The columns of tracked tables whose non-Unicode texts have another collation than the database."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The gating role by capture instance."""
    hazards: Hazards = field(default_factory=Hazards)

    @property
    def has_agent(self) -> bool:
        """Return whether the edition has SQL Server Agent."""
        return self.engine_edition not in AZURE_SQL_DATABASE


SNAPSHOT_ON = 1
"""In ``snapshot_isolation_state``: transactions may use SNAPSHOT. 0 is off, 2 and 3 are on the way to off and to on."""


@dataclass(frozen=True, slots=True)
class TrackingFacts(ServerFacts):
    """The facts about a database with change tracking."""

    retention_minutes: int | None
    """None where change tracking is off."""
    cleans_up: bool
    """AUTO_CLEANUP."""
    allows_snapshot: int
    """``snapshot_isolation_state`` of the database."""
    oldest_seconds: int | None
    """The age of the oldest commit that is still recorded; None where there is none, or the login may not see it."""
    sees_policies: bool = True
    """Whether security policies that do not appear in the catalog do not exist."""
    truncating: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The modules that truncate a table."""


# --------------------------------------------------------------------------------------------------------------------
# The part of a diagnosis that is the same for each kind of SQL Server: encryption and clock of a server.


_SKEW_SECONDS = 60
_ONE_DAY_MINUTES = 24 * 60
_RUNS_WITHIN_RETENTION = 3

ServerFindings = Iterator[tuple[Grade, str, str, str]]
"""Findings about the server or the database: grade, check, text and fix."""


@dataclass(frozen=True, slots=True)
class DiagnosisInput:
    """All that a diagnosis is made from, besides the facts about the server."""

    settings: PipelineSettings
    snapshot: SourceSnapshot
    validities: tuple[Validity, ...]
    encrypt: str
    """Of the connection."""
    trusts_any: bool
    """Whether the connection trusts any certificate."""
    interval: timedelta | None
    """The longest time between two runs; None on demand."""
    now_utc: datetime
    """The time of this machine when the facts were read."""
    planned_stop: PlannedStop | None = None
    """The planned stop of the capture job that is in effect."""
    freshness: timedelta = timedelta(0)
    """How late rows may be in the warehouse."""
    marks: Mapping[TableName, Sequence[MemberMark]] = field(default_factory=dict)
    """Where the members of tables were read to, as far as the ledger shows it."""

    @property
    def needed_minutes(self) -> int:
        """Return the retention that survives a day without runs, and a few failed ones."""
        interval = self.interval or timedelta(0)
        runs_minutes = max(interval, self.freshness).total_seconds() / 60 * _RUNS_WITHIN_RETENTION
        return max(_ONE_DAY_MINUTES, round(runs_minutes))


def examine_tls(examined: DiagnosisInput) -> ServerFindings:
    """Yield the finding on the encryption of the connection."""
    if examined.encrypt == "no":
        yield Grade.RISK, "tls", "the connection is not encrypted.", 'Set "encrypt": "yes" in the connection\'s extra.'
    elif examined.trusts_any:
        yield (
            Grade.RISK,
            "tls",
            "the connection is encrypted, but any certificate is trusted.",
            'Name the authority as "ca_file" and remove "trust_server_certificate" from the connection\'s extra.',
        )
    else:
        yield Grade.GOOD, "tls", f"encrypted ({examined.encrypt}), and the certificate is checked.", ""


def examine_clock(examined: DiagnosisInput, facts: ServerFacts, *, instead: str = "") -> ServerFindings:
    """Yield the findings on the clock of the server. instead: what names a moment where a local time is ambiguous."""
    offset = facts.utc_offset_minutes
    skew = (facts.taken_at_utc - examined.now_utc).total_seconds()
    if abs(skew) > _SKEW_SECONDS:
        yield (
            Grade.RISK,
            "clock",
            f"the server's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's.",
            "Synchronise both by NTP; lag and retention are measured by the server's clock.",
        )
    sign, minutes = ("+" if offset >= 0 else "-"), abs(offset)
    zone = f"UTC{sign}{minutes // 60:02}:{minutes % 60:02}"
    if offset:
        yield (
            Grade.NOTE,
            "time zone",
            f"the server's clock is {zone} now: commit times are local, and one hour a year may repeat.",
            f"Run the server's machine in UTC{instead}.",
        )
    else:
        yield Grade.GOOD, "time zone", f"the server's clock is {zone} now.", ""


# --------------------------------------------------------------------------------------------------------------------
# The minimum rights of a login at a source with CDC, as a script for its DBA.


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table that a pipeline reads."""

    table: TableName
    instance: str | None
    """None: the login cannot see its capture instance."""
    uses_net_function: bool = False
    """Whether net changes are read from the server's function."""

    @property
    def default_instance(self) -> str:
        """Return the name that the capture instance has if no other was chosen."""
        return f"{self.table.schema}_{self.table.name}"


def list_read_tables(settings: PipelineSettings, snapshot: SourceSnapshot) -> list[ReadTable]:
    """Return the tables of a pipeline with the capture instances that a snapshot shows."""
    return [
        ReadTable(
            table.source,
            table_snapshot.instance.identity.name if table_snapshot.instance else table.capture_instance,
            table.net is NetSource.SERVER,
        )
        for table, table_snapshot in zip(settings.tables, snapshot.tables, strict=True)
    ]


def build_grants(database: str, login: str, tables: Iterable[ReadTable], roles: Mapping[str, str]) -> str:
    """Return the script in T-SQL, which may be run repeatedly.

    roles: the gating role by capture instance. SELECT on a table is needed even where only its changes are read: the
    server shows an instance to no other login.
    """
    user = bracket(login)
    lines = [
        f"-- All rights that Floodmark needs with login {login}. To be run by the DBA.",
        f"USE {bracket(database)};",
        create_user(login),
    ]
    for each in sorted(set(tables), key=lambda each: each.table):
        instance = each.instance or each.default_instance
        if each.instance is None:
            lines.append(f"-- {each.table}: its capture instance cannot be seen; {instance} is the name by default.")
        lines.append(grant_select(each.table.schema, each.table.name, login))
        lines.append(grant_select("cdc", f"{instance}_CT", login))
        if each.uses_net_function:
            lines.append(grant_select("cdc", f"fn_cdc_get_net_changes_{instance}", login))
        if role := roles.get(instance):
            lines.append(f"ALTER ROLE {bracket(role)} ADD MEMBER {user};")
    lines += [
        "-- To see whether the capture job runs, and how long changes are kept. Not on Azure SQL Database.",
        "USE msdb;",
        create_user(login),
        grant_select("dbo", "cdc_jobs", login),
        grant_select("dbo", "sysjobactivity", login),
    ]
    return "\n".join(lines) + "\n"


def create_user(login: str) -> str:
    """Return the statement that creates the user of a login where there is none."""
    name = bracket(login)
    return f"IF DATABASE_PRINCIPAL_ID({literal(login)}) IS NULL CREATE USER {name} FOR LOGIN {name};"


# --------------------------------------------------------------------------------------------------------------------
# The checks of ``doctor`` on one table that are the same for each kind of source: key, columns, and the view of the
# login.


def examine_verdict(settings: TableSettings, validity: Validity, feed: str, fix: str) -> Iterator[Finding]:
    """Yield the finding on the verdict.

    feed: what is read, "" where the table has none. fix: the statements that make it readable.
    """
    subject = str(settings.source)
    if validity.verdict in INCIDENTS:
        check = "permissions" if validity.verdict is Verdict.NO_PERMISSION else "instance"
        yield Finding(Grade.PROBLEM, check, subject, validity.cause, fix)
    elif feed:
        # Without the ledger, it is unknown what has been read: every table counts as not started here.
        state = "can be read" if validity.verdict is Verdict.NOT_STARTED else validity.verdict.value
        yield Finding(Grade.GOOD, "instance", subject, f"{feed}: {state}.")


def examine_key(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    """Yield the finding on the columns by which rows are merged."""
    subject = str(settings.source)
    try:
        found = with_key(settings, instance)
    except NoKeyError as error:
        yield Finding(Grade.PROBLEM, "key", subject, error.message, error.hint)
    else:
        yield Finding(Grade.GOOD, "key", subject, f"rows are merged by ({', '.join(found.table.key)}).")


def refused_net(settings: TableSettings, instance: CaptureInstance) -> FloodmarkError | None:
    """Return why the source's net changes cannot be merged, None where they can."""
    try:
        check_net(settings, with_key(settings, instance), instance.table.key)
    except NoKeyError:  # found by examine_key
        return None
    except ConfigError as error:
        return error
    return None


def examine_types(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    """Yield a finding on each column of a type that cannot be carried."""
    subject = str(settings.source)
    for column in instance.table.stored_columns:
        try:
            warehouse_type(instance.table, column, settings.temporal)
        except FloodmarkError as error:
            yield Finding(Grade.PROBLEM, "types", subject, error.message, error.hint)


def examine_view(settings: TableSettings, table_snapshot: TableSnapshot, user: str) -> Iterator[Finding]:
    """Yield the findings on values and rows that the source hides from the login."""
    subject = str(settings.source)
    if masked := list_masked(table_snapshot):
        text = f"the login reads masks in place of the values of {', '.join(masked)}: the table is not loaded."
        fix = grant_unmask(settings.source, bracket(user))
        yield Finding(Grade.PROBLEM, "masked columns", subject, text, fix)
    if not table_snapshot.filters:
        return
    policies = ", ".join(table_snapshot.filters)
    if settings.security_filtered is SecurityFiltered.ACCEPT:
        text = f"security policy {policies} filters its rows, as accepted: loads read what the login may see."
        yield Finding(Grade.NOTE, "security policy", subject, text, "Expect differences from floodmark verify.")
    else:
        text = f"security policy {policies} filters its rows: the table is not loaded."
        fix = "Let the login see all rows in the policy's predicate, or set security_filtered: accept for the table."
        yield Finding(Grade.PROBLEM, "security policy", subject, text, fix)
