"""Features and objects of a source that conflict with change data capture, and the findings about them.

Sources: SQL Server's documentation of known issues with change data capture (accelerated recovery, the schema ``cdc``,
sizes of columns, CLR types: errors 22906, 2628, 8115, 913), and of ``sp_cdc_enable_table`` (partitions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket, disable_instance, enable_table
from floodmark.core.source.snapshot import TableSnapshot

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
