"""The findings of ``doctor`` on a source that is read by CDC, each with the statement or the step that fixes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from floodmark.core.capture import AZURE, AZURE_SQL_DATABASE, bracket, disable_instance, enable_table, grant_select
from floodmark.core.doctor import (
    DiagnosisInput,
    Finding,
    Grade,
    ServerFacts,
    ServerFindings,
    create_user,
    examine_clock,
    examine_key,
    examine_tls,
    examine_types,
    examine_verdict,
    examine_view,
    refused_net,
)
from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, PipelineSettings, TableSettings
from floodmark.core.snapshot import CaptureInstance, SourceSnapshot, TableSnapshot, Validity, Verdict, WiderInstance

if TYPE_CHECKING:
    from floodmark.sources.cdc.operations import SqlServerJobs

# --------------------------------------------------------------------------------------------------------------------
# The facts about a database with CDC. None: the login may not see it.


@dataclass(frozen=True, slots=True)
class Jobs:
    """The capture and cleanup jobs of a database."""

    has_capture: bool
    retention_minutes: int | None
    """Of the cleanup job; None: there is none."""
    is_continuous: bool = True
    """Of the capture job; False: the job scans by a schedule of its own."""


# --------------------------------------------------------------------------------------------------------------------
# Features and objects of a source that conflict with change data capture, and the findings about them.
#
# Sources: SQL Server's documentation of known issues with change data capture (accelerated recovery, the schema
# ``cdc``, sizes of columns, CLR types: errors 22906, 2628, 8115, 913), and of ``sp_cdc_enable_table`` (partitions).


CLR_TYPES = frozenset({"hierarchyid", "geography", "geometry"})


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


# --------------------------------------------------------------------------------------------------------------------
# The checks of ``doctor`` on one table with CDC: its instance, rights, net changes, command ids and columns.


def examine_table(
    settings: TableSettings, validity: Validity, table_snapshot: TableSnapshot, facts: CdcFacts
) -> Iterator[Finding]:
    """Yield the findings on a table. Without a capture instance, only those that need none."""
    subject = str(settings.source)
    instance = table_snapshot.instance
    feed = instance.identity.name if instance else ""
    yield from examine_verdict(settings, validity, feed, _fix_of_verdict(settings, validity, facts))
    if instance is None:
        return
    yield from _role(subject, table_snapshot, facts)
    yield from examine_key(settings, instance)
    yield from _net(settings, instance)
    yield from _instance(settings, instance, table_snapshot.wider)
    yield from _columns(settings, instance, facts)
    yield from examine_types(settings, instance)
    yield from examine_view(settings, table_snapshot, facts.user)
    if not instance.has_command_id:
        yield Finding(
            Grade.RISK,
            "command id",
            subject,
            "its change table has no __$command_id: the order of changes within a transaction is uncertain.",
            "Install a current cumulative update of SQL Server, then in this database: EXEC sys.sp_cdc_vupgrade;",
        )
    else:
        yield Finding(Grade.GOOD, "command id", subject, "changes within a transaction have an order.")


def _fix_of_verdict(settings: TableSettings, validity: Validity, facts: CdcFacts) -> str:
    name = settings.source
    if validity.verdict is Verdict.INSTANCE_MISSING:
        return enable_table(name)
    if validity.verdict is Verdict.NO_PERMISSION:
        change_table = f"{settings.capture_instance or f'{name.schema}_{name.name}'}_CT"
        return f"{grant_select(name.schema, name.name, facts.user)} {grant_select('cdc', change_table, facts.user)}"
    return validity.hint


def _role(subject: str, table_snapshot: TableSnapshot, facts: CdcFacts) -> Iterator[Finding]:
    """Yield the finding on the gating role of the instance.

    A login that can read where an instance begins may read its changes: as a member of its role, or as db_owner
    (docs/reference/sqlserver_cdc.md, "Scalar functions").
    """
    assert table_snapshot.instance is not None  # noqa: S101  (ensured by examine_table)
    name = table_snapshot.instance.identity.name
    role = facts.roles.get(name)
    if role and isinstance(table_snapshot.min_lsn, Position):
        text = f"capture instance {name} is gated by role {role}, and the login may read it."
        yield Finding(Grade.GOOD, "permissions", subject, text)
    elif role:
        text = f"capture instance {name} is gated by role {role}, which the login must be a member of."
        fix = f"ALTER ROLE {bracket(role)} ADD MEMBER {bracket(facts.user)};"
        yield Finding(Grade.NOTE, "permissions", subject, text, fix)


def _net(settings: TableSettings, instance: CaptureInstance) -> Iterator[Finding]:
    subject, name = str(settings.source), instance.identity.name
    if instance.supports_net_changes and (refused := refused_net(settings, instance)):
        yield Finding(Grade.PROBLEM, "net changes", subject, refused.message, refused.hint)
    elif instance.supports_net_changes:
        yield Finding(Grade.GOOD, "net changes", subject, f"{name} supports them; computed by {settings.net.value}.")
    elif settings.net is NetSource.SERVER:
        yield Finding(
            Grade.PROBLEM,
            "net changes",
            subject,
            f"net: server, but {name} does not support net changes.",
            "Set net: spark in pipelines.yaml; or create the instance again, then reload the table: "
            f"{disable_instance(settings.source, name)} {enable_table(settings.source, net_changes=True)}",
        )
    else:
        yield Finding(Grade.GOOD, "net changes", subject, "computed in Spark; the server has no index for them.")


def _instance(settings: TableSettings, instance: CaptureInstance, wider: WiderInstance | None) -> Iterator[Finding]:
    """Yield the finding on an instance that nobody chose, and that has fewer columns than an older one."""
    if wider is not None and settings.capture_instance is None:
        name = instance.identity.name
        yield Finding(Grade.RISK, "captured columns", str(settings.source), wider.describe(name), wider.advise(name))


def _columns(settings: TableSettings, instance: CaptureInstance, facts: CdcFacts) -> Iterator[Finding]:
    subject, columns = str(settings.source), instance.table.columns
    computed = [column.name for column in columns if column.is_computed]
    if computed:
        text = f"computed columns ({', '.join(computed)}) are NULL in the change table; the target does not have them."
        yield Finding(Grade.NOTE, "computed columns", subject, text, "Compute them in the warehouse.")
    others = facts.other_collations.get(settings.source)
    if others:
        yield Finding(
            Grade.RISK,
            "collation",
            subject,
            f"{', '.join(others)}: not the collation of the database, {facts.collation}; characters beyond ASCII may"
            " be wrong in the change table.",
            "Change the columns to nvarchar, or to the collation of the database.",
        )


# --------------------------------------------------------------------------------------------------------------------
# The findings of ``doctor`` on a source that is read by CDC, each with the statement, or the step, that fixes it.
#
# These are pure rules over a snapshot, the verdicts on it and ``CdcFacts``. What a login may not see is reported as
# unknown, and never assumed to be good. Sources of the rules: SQL Server's documentation of change data capture and its
# known issues.


START_CAPTURE = "EXEC sys.sp_cdc_start_job @job_type = N'capture';"


def diagnose(examined: DiagnosisInput, facts: CdcFacts) -> tuple[Finding, ...]:
    """Return the findings: the server first, then the tables in the order of the configuration."""
    database = facts.database
    found = [Finding(grade, check, database, text, fix) for grade, check, text, fix in _examine_server(examined, facts)]
    found.extend(_examine_hazards(examined, facts))
    for table, validity, table_snapshot in zip(
        examined.settings.tables, examined.validities, examined.snapshot.tables, strict=True
    ):
        found.extend(examine_table(table, validity, table_snapshot, facts))
        found.extend(examine_table_hazards(table.source, table_snapshot, facts.hazards))
    return tuple(found)


def _examine_hazards(examined: DiagnosisInput, facts: CdcFacts) -> Iterator[Finding]:
    if not examined.snapshot.cdc_enabled:
        return examine_taken_names(facts.hazards, facts.database)
    return examine_database(
        facts.hazards, facts.database, chooses_recovery=facts.engine_edition not in AZURE, sees_users=facts.is_db_owner
    )


def _examine_server(examined: DiagnosisInput, facts: CdcFacts) -> ServerFindings:
    yield from examine_tls(examined)
    if not examined.snapshot.cdc_enabled:
        yield Grade.PROBLEM, "cdc", "change data capture is not enabled.", "EXEC sys.sp_cdc_enable_db;"
        return
    yield Grade.GOOD, "cdc", f"enabled; SQL Server {facts.product_version}.", ""
    if examined.snapshot.is_replica:
        yield (
            Grade.NOTE,
            "replica",
            "this is a read-only replica: its jobs run on the primary and were not checked.",
            "Run doctor on the primary as well; after a failover it needs jobs of its own: EXEC sys.sp_cdc_add_job"
            " @job_type = N'capture'; EXEC sys.sp_cdc_add_job @job_type = N'cleanup';",
        )
    else:
        yield from _jobs(examined, facts)
        yield from _retention(examined, facts)
    yield from _lob_limit(examined, facts)
    yield from examine_clock(examined, facts, instead=", or use LSNs for a `floodmark replay` of that hour")
    if not facts.may_view_state:
        yield (
            Grade.NOTE,
            "permissions",
            "the login may not see scans and errors of the capture job.",
            f"GRANT VIEW DATABASE STATE TO {bracket(facts.user)};",
        )


def _jobs(examined: DiagnosisInput, facts: CdcFacts) -> ServerFindings:
    running = examined.snapshot.capture_running
    if not facts.has_agent:
        yield Grade.GOOD, "capture job", "the service runs capture and cleanup without an Agent.", ""
        return
    if facts.agent_running is False:
        yield Grade.PROBLEM, "agent", "SQL Server Agent is not running.", "Start the service SQL Server Agent."
    elif facts.agent_running is None:
        yield (
            Grade.NOTE,
            "agent",
            "the login may not see whether SQL Server Agent is running.",
            f"USE master; GRANT VIEW SERVER STATE TO {bracket(facts.user)};",
        )
    else:
        yield Grade.GOOD, "agent", "SQL Server Agent is running.", ""
    if facts.jobs is not None and not facts.jobs.has_capture:
        yield (
            Grade.PROBLEM,
            "capture job",
            "there is no capture job, so nothing is captured.",
            "EXEC sys.sp_cdc_add_job @job_type = N'capture';",
        )
    elif running is False and examined.planned_stop is not None:
        yield Grade.GOOD, "capture job", f"it is not running, because of {examined.planned_stop}.", ""
    elif facts.jobs is not None and not facts.jobs.is_continuous:
        yield (
            Grade.NOTE,
            "capture job",
            "it scans by a schedule of its own (continuous = 0); the newest entry's age shows whether it works.",
            "Make lag_limit in pipelines.yaml longer than the schedule's interval.",
        )
    elif running is False:
        yield Grade.PROBLEM, "capture job", "it is not running.", START_CAPTURE
    elif running is None:
        yield (
            Grade.NOTE,
            "capture job",
            "the login may not see whether it is running; the age of the log's newest entry shows it.",
            f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {bracket(facts.user)};"
            f" GRANT SELECT ON dbo.sysjobactivity TO {bracket(facts.user)};",
        )
    else:
        yield Grade.GOOD, "capture job", "it is running.", ""


def examine_heartbeat(jobs: SqlServerJobs, table: TableName) -> Finding:
    """Return the finding on the heartbeat of the capture job."""
    try:
        found = jobs.read_heartbeat(table)
    except CdcNotEnabledError as error:
        return Finding(Grade.PROBLEM, "heartbeat", str(table), error.message, error.hint)
    except SourcePermissionError as error:
        return Finding(
            Grade.NOTE, "heartbeat", str(table), f"the heartbeat cannot be read: {error.message}", error.hint
        )
    return Finding(Grade.GOOD, "heartbeat", str(table), f"the table exists, with beat {found.beat}.", "")


def _retention(examined: DiagnosisInput, facts: CdcFacts) -> ServerFindings:
    jobs = facts.jobs
    if jobs is None:
        fix = f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {bracket(facts.user)};"
        yield Grade.NOTE, "retention", "the login may not see the retention.", fix
        return
    if jobs.retention_minutes is None:
        yield (
            Grade.RISK,
            "retention",
            "there is no cleanup job: the change tables grow without end.",
            "EXEC sys.sp_cdc_add_job @job_type = N'cleanup';",
        )
        return
    interval, needed = examined.interval, examined.needed_minutes
    kept = str(timedelta(minutes=jobs.retention_minutes)).removesuffix(", 0:00:00")
    if jobs.retention_minutes < needed:
        every = f", and a run starts every {interval}" if interval else ""
        yield (
            Grade.RISK,
            "retention",
            f"changes are kept for {kept}{every}: after few failed runs, changes are lost.",
            f"EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = {max(needed, 4320)};",
        )
    else:
        yield Grade.GOOD, "retention", f"changes are kept for {kept}.", ""


def _lob_limit(examined: DiagnosisInput, facts: CdcFacts) -> ServerFindings:
    limit = facts.lob_limit_bytes
    tables = [
        str(table_snapshot.table)
        for table_snapshot in examined.snapshot.tables
        if table_snapshot.instance and any(column.is_lob for column in table_snapshot.instance.table.columns)
    ]
    if limit is None:
        yield Grade.NOTE, "max text repl size", "the login may not see the option.", "Ask the DBA: EXEC sp_configure;"
    elif limit >= 0 and tables:
        yield (
            Grade.RISK,
            "max text repl size",
            f"it is {limit} bytes: a larger value written to {', '.join(tables)} fails with error 7139.",
            "EXEC sp_configure 'max text repl size', -1; RECONFIGURE;",
        )
    else:
        yield Grade.GOOD, "max text repl size", "no limit." if limit < 0 else "no table has large values.", ""


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
