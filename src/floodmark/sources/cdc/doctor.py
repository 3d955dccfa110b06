"""The findings of ``doctor`` on a source that is read by CDC, each with the statement or the step that fixes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from floodmark.core.capture import AZURE, AZURE_SQL_DATABASE, bracket, disable_instance, enable_table, grant_select
from floodmark.core.doctor import (
    Answer,
    Answers,
    DiagnosisInput,
    Finding,
    Grade,
    ServerFacts,
    about,
    create_user,
    examine_clock,
    examine_computed,
    examine_key,
    examine_tls,
    examine_types,
    examine_verdict,
    examine_view,
    first_of,
    hidden_policies,
    refused_net,
)
from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, PipelineSettings, TableSettings
from floodmark.core.snapshot import Feed, SourceSnapshot, TableSnapshot, Validity, Verdict

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


CLR_TYPES = frozenset({"hierarchyid", "geography", "geometry"})


@dataclass(frozen=True, slots=True)
class Hazards:
    """The features and objects of a database that conflict with change data capture."""

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


def _examine_table(
    settings: TableSettings, validity: Validity, table_snapshot: TableSnapshot, facts: CdcFacts
) -> Answers:
    """Yield the answers on a table. Without a capture instance, only those that need none."""
    instance = table_snapshot.feed
    feed = instance.identity.name if instance else ""
    yield from examine_verdict(validity, feed, _fix_of_verdict(settings, validity, facts))
    if instance is not None:
        yield from _examine_instance(settings, instance, table_snapshot, facts)
    yield from examine_table_hazards(settings.source, instance, facts.hazards)


def _examine_instance(
    settings: TableSettings, instance: Feed, table_snapshot: TableSnapshot, facts: CdcFacts
) -> Answers:
    name, wider = instance.identity.name, table_snapshot.wider
    yield from _role(name, table_snapshot, facts)
    yield from examine_key(settings, instance)
    yield _net(settings, instance)
    if wider is not None and settings.capture_instance is None:
        # Nobody chose the instance, and it has fewer columns than an older one.
        yield Grade.RISK, "captured columns", wider.describe(name), wider.advise(name)
    yield from examine_computed(instance, "are NULL in the change table")
    if others := facts.other_collations.get(settings.source):
        yield (
            Grade.RISK,
            "collation",
            f"{', '.join(others)}: not the collation of the database, {facts.collation}; characters beyond ASCII may"
            " be wrong in the change table.",
            "Change the columns to nvarchar, or to the collation of the database.",
        )
    yield from examine_types(settings, instance)
    yield from examine_view(settings, table_snapshot, facts.user)
    yield from first_of(
        "command id",
        (instance.has_command_id, Grade.GOOD, "changes within a transaction have an order.", ""),
        (
            True,
            Grade.RISK,
            "its change table has no __$command_id: the order of changes within a transaction is uncertain.",
            "Install a current cumulative update of SQL Server, then in this database: EXEC sys.sp_cdc_vupgrade;",
        ),
    )


def _fix_of_verdict(settings: TableSettings, validity: Validity, facts: CdcFacts) -> str:
    name = settings.source
    if validity.verdict is Verdict.INSTANCE_MISSING:
        return enable_table(name)
    if validity.verdict is Verdict.NO_PERMISSION:
        change_table = f"{settings.capture_instance or f'{name.schema}_{name.name}'}_CT"
        return f"{grant_select(name.schema, name.name, facts.user)} {grant_select('cdc', change_table, facts.user)}"
    return validity.hint


def _role(name: str, table_snapshot: TableSnapshot, facts: CdcFacts) -> Answers:
    """Yield the answer on the gating role of the instance.

    A login that can read where an instance begins may read its changes: as a member of its role, or as db_owner
    (docs/reference/sqlserver_cdc.md, "Scalar functions").
    """
    role = facts.roles.get(name)
    gated = f"capture instance {name} is gated by role {role},"
    if role and isinstance(table_snapshot.oldest, Position):
        yield Grade.GOOD, "permissions", f"{gated} and the login may read it.", ""
    elif role:
        fix = f"ALTER ROLE {bracket(role)} ADD MEMBER {bracket(facts.user)};"
        yield Grade.NOTE, "permissions", f"{gated} which the login must be a member of.", fix


def _net(settings: TableSettings, instance: Feed) -> Answer:
    check, name = "net changes", instance.identity.name
    if instance.supports_net_changes:
        if refused := refused_net(settings, instance):
            return Grade.PROBLEM, check, refused.message, refused.hint
        return Grade.GOOD, check, f"{name} supports them; computed by {settings.net.value}.", ""
    if settings.net is not NetSource.SERVER:
        return Grade.GOOD, check, "computed in Spark; the server has no index for them.", ""
    fix = (
        "Set net: spark in pipelines.yaml; or create the instance again, then reload the table: "
        f"{disable_instance(settings.source, name)} {enable_table(settings.source, net_changes=True)}"
    )
    return Grade.PROBLEM, check, f"net: server, but {name} does not support net changes.", fix


# --------------------------------------------------------------------------------------------------------------------
# The checks of ``doctor`` on features and objects that conflict with change data capture.
#
# Sources: SQL Server's documentation of known issues with change data capture (accelerated recovery, the schema
# ``cdc``, sizes of columns, CLR types: errors 22906, 2628, 8115, 913), and of ``sp_cdc_enable_table`` (partitions).


def examine_taken_names(hazards: Hazards) -> Answers:
    """Yield answers on a database without CDC: names that CDC needs for itself."""
    fails = "cdc that change data capture did not create: enabling fails with error 22906."
    if hazards.has_schema:
        fix = "Move its objects to another schema (ALTER SCHEMA [dbo] TRANSFER [cdc].[...];), then: DROP SCHEMA [cdc];"
        yield Grade.PROBLEM, "cdc schema", f"there is a schema named {fails}", fix
    if hazards.has_user:
        yield Grade.PROBLEM, "cdc user", f"there is a user or role {fails}", "Rename it, or: DROP USER [cdc];"


def examine_database(hazards: Hazards, database: str, *, chooses_recovery: bool, sees_users: bool) -> Answers:
    """Yield answers on a database with CDC.

    chooses_recovery: whether accelerated recovery can be switched off; in Azure it is always on, and designed for CDC.
    sees_users: whether a user that is not visible does not exist.
    """
    if hazards.accelerated_recovery and chooses_recovery:
        yield (
            Grade.RISK,
            "accelerated recovery",
            "accelerated database recovery is on, which is not supported together with change data capture: the log is"
            " no longer truncated early, and fills up.",
            f"ALTER DATABASE {bracket(database)} SET ACCELERATED_DATABASE_RECOVERY = OFF;",
        )
    if not hazards.sees_policies:
        yield hidden_policies()
    join = "ALTER ROLE [db_owner] ADD MEMBER [cdc];"
    create = f"CREATE USER [cdc] WITHOUT LOGIN WITH DEFAULT_SCHEMA = [cdc]; {join}"
    runs = "the user cdc, which runs capture,"
    yield from first_of(
        "cdc user",
        (
            sees_users and not hazards.has_user,
            Grade.PROBLEM,
            f"{runs} does not exist (errors 1202, 15517).",
            create,
        ),
        (
            sees_users and hazards.is_user_owner is False,
            Grade.PROBLEM,
            f"{runs} is no longer in db_owner (error 21050).",
            join,
        ),
    )


def examine_table_hazards(table: TableName, instance: Feed | None, hazards: Hazards) -> Answers:
    """Yield answers on a table. instance: None while its changes are not captured."""
    if modules := hazards.truncating.get(table):
        text = f"{', '.join(modules)} truncates it, which fails while its changes are captured (error 4711)."
        yield Grade.RISK, "truncate", text, "Delete the rows by DELETE without a condition instead."
    if table in hazards.partitioned:
        yield _partitions(table, instance, hazards)
    if instance is None:
        return
    if unlike := hazards.unlike.get(table):
        yield (
            Grade.RISK,
            "column size",
            f"capture has not reached a change of type yet ({', '.join(unlike)}): if captured values do not fit the new"
            " type, it stops with error 2628 or 8115.",
            "Check sys.dm_cdc_errors when capture has continued. If it stopped: read all changes, then create the"
            " instance again, and reload the table (`floodmark reload`):"
            f" {disable_instance(table, instance.identity.name)} {enable_table(table)}",
        )
    if clr := [column.name for column in instance.table.columns if column.type_name in CLR_TYPES]:
        yield (
            Grade.NOTE,
            "clr types",
            f"{', '.join(clr)}: DDL on the table while capture is behind may stop it with error 913.",
            "Before DDL: stop writing to the table, and wait until capture has caught up (or EXEC sys.sp_cdc_scan;)."
            " After DDL: do the same again before you resume writing.",
        )


def _partitions(table: TableName, instance: Feed | None, hazards: Hazards) -> Answer:
    check, enable = "partitions", enable_table(table, partition_switch=False)
    if instance is None:
        text = "it is partitioned; switching in or out is not captured, and is allowed unless the instance forbids it."
        return Grade.NOTE, check, text, enable
    name = instance.identity.name
    if hazards.switchable is None:
        text = "it is partitioned; switching is not captured, and only db_owner sees whether it is allowed."
        fix = "Ask the DBA: SELECT capture_instance, partition_switch FROM cdc.change_tables;"
        return Grade.NOTE, check, text, fix
    if not hazards.switchable.get(name, True):
        return Grade.GOOD, check, "it is partitioned, and no partition can be switched.", ""
    text = f"it is partitioned, and {name} allows switching: rows appear and disappear without a captured change."
    again = "After each switch: `floodmark reload`. Or forbid it by creating the instance again, then reload the table:"
    return Grade.RISK, check, text, f"{again} {disable_instance(table, name)} {enable}"


# --------------------------------------------------------------------------------------------------------------------
# The findings of ``doctor`` on a source that is read by CDC, each with the statement, or the step, that fixes it.
#
# These are pure rules over a snapshot, the verdicts on it and ``CdcFacts``. What a login may not see is reported as
# unknown, and never assumed to be good. Sources of the rules: SQL Server's documentation of change data capture and its
# known issues.


START_CAPTURE = "EXEC sys.sp_cdc_start_job @job_type = N'capture';"


def diagnose(examined: DiagnosisInput, facts: CdcFacts) -> tuple[Finding, ...]:
    """Return the findings: the server first, then the tables in the order of the configuration."""
    found = about(facts.database, _examine_server(examined, facts))
    for settings, validity, seen in examined.tables:
        found += about(settings.source, _examine_table(settings, validity, seen, facts))
    return tuple(found)


def _examine_server(examined: DiagnosisInput, facts: CdcFacts) -> Answers:
    yield from examine_tls(examined)
    if not examined.snapshot.cdc_enabled:
        yield Grade.PROBLEM, "cdc", "change data capture is not enabled.", "EXEC sys.sp_cdc_enable_db;"
        yield from examine_taken_names(facts.hazards)
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
        yield _retention(examined, facts)
    yield from _lob_limit(examined, facts)
    yield from examine_clock(examined, facts, instead=", or use LSNs for a `floodmark replay` of that hour")
    if not facts.may_view_state:
        yield (
            Grade.NOTE,
            "permissions",
            "the login may not see scans and errors of the capture job.",
            f"GRANT VIEW DATABASE STATE TO {bracket(facts.user)};",
        )
    is_azure = facts.engine_edition in AZURE
    yield from examine_database(
        facts.hazards, facts.database, chooses_recovery=not is_azure, sees_users=facts.is_db_owner
    )


def _jobs(examined: DiagnosisInput, facts: CdcFacts) -> Answers:
    if not facts.has_agent:
        yield Grade.GOOD, "capture job", "the service runs capture and cleanup without an Agent.", ""
        return
    jobs, running, user = facts.jobs, examined.snapshot.capture_running, bracket(facts.user)
    yield from first_of(
        "agent",
        (
            facts.agent_running is None,
            Grade.NOTE,
            "the login may not see whether SQL Server Agent is running.",
            f"USE master; GRANT VIEW SERVER STATE TO {user};",
        ),
        (bool(facts.agent_running), Grade.GOOD, "SQL Server Agent is running.", ""),
        (True, Grade.PROBLEM, "SQL Server Agent is not running.", "Start the service SQL Server Agent."),
    )
    yield from first_of(
        "capture job",
        (
            jobs is not None and not jobs.has_capture,
            Grade.PROBLEM,
            "there is no capture job, so nothing is captured.",
            "EXEC sys.sp_cdc_add_job @job_type = N'capture';",
        ),
        (
            running is False and examined.planned_stop is not None,
            Grade.GOOD,
            f"it is not running, because of {examined.planned_stop}.",
            "",
        ),
        (
            jobs is not None and not jobs.is_continuous,
            Grade.NOTE,
            "it scans by a schedule of its own (continuous = 0); the newest entry's age shows whether it works.",
            "Make lag_limit in pipelines.yaml longer than the schedule's interval.",
        ),
        (
            running is None,
            Grade.NOTE,
            "the login may not see whether it is running; the age of the log's newest entry shows it.",
            f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {user}; GRANT SELECT ON dbo.sysjobactivity TO {user};",
        ),
        (running is False, Grade.PROBLEM, "it is not running.", START_CAPTURE),
        (True, Grade.GOOD, "it is running.", ""),
    )


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


def _retention(examined: DiagnosisInput, facts: CdcFacts) -> Answer:
    jobs, check = facts.jobs, "retention"
    if jobs is None:
        fix = f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {bracket(facts.user)};"
        return Grade.NOTE, check, "the login may not see the retention.", fix
    if jobs.retention_minutes is None:
        text = "there is no cleanup job: the change tables grow without end."
        return Grade.RISK, check, text, "EXEC sys.sp_cdc_add_job @job_type = N'cleanup';"
    interval, needed = examined.interval, examined.needed_minutes
    kept = str(timedelta(minutes=jobs.retention_minutes)).removesuffix(", 0:00:00")
    if jobs.retention_minutes >= needed:
        return Grade.GOOD, check, f"changes are kept for {kept}.", ""
    every = f", and a run starts every {interval}" if interval else ""
    text = f"changes are kept for {kept}{every}: after few failed runs, changes are lost."
    fix = f"EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = {max(needed, 4320)};"
    return Grade.RISK, check, text, fix


def _lob_limit(examined: DiagnosisInput, facts: CdcFacts) -> Answers:
    limit = facts.lob_limit_bytes
    tables = [
        str(table_snapshot.table)
        for table_snapshot in examined.snapshot.tables
        if table_snapshot.feed and any(column.is_lob for column in table_snapshot.feed.table.columns)
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
            table_snapshot.feed.identity.name if table_snapshot.feed else table.capture_instance,
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
