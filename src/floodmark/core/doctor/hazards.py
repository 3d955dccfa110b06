"""What of a source meets change data capture badly, and what ``doctor`` says of it.

Sources: SQL Server's documentation of known issues with change data capture (accelerated recovery, the schema ``cdc``,
sizes of columns, CLR types: errors 22906, 2628, 8115, 913), and of ``sp_cdc_enable_table`` (partitions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import disable_instance, enable_table, quote
from floodmark.core.source.snapshot import TableSnapshot

CLR_TYPES = frozenset({"hierarchyid", "geography", "geometry"})
_COMMENT = re.compile(r"--[^\r\n]*|/\*.*?\*/", re.DOTALL)
_PART = r"(?:\[(?:[^\]]|\]\])+\]|\"[^\"]+\"|[\w@$#]+)"
_TRUNCATION = re.compile(rf"\bTRUNCATE\s+TABLE\s+({_PART}(?:\s*\.\s*{_PART})*)", re.IGNORECASE)
_EACH_PART = re.compile(_PART)


@dataclass(frozen=True, slots=True)
class Hazards:
    """accelerated_recovery: of the database. has_schema, has_user: whether there is one named cdc, whoever made it;
    is_user_owner: whether that user is in db_owner. None: it cannot be seen.

    truncating: the modules that truncate a table. switchable: whether partitions may be switched, by capture instance,
    None where the login may not see it. unlike: the columns whose change table still has them in another size.
    """

    accelerated_recovery: bool | None = None
    has_schema: bool = False
    has_user: bool = False
    is_user_owner: bool | None = None
    partitioned: frozenset[TableName] = frozenset()
    truncating: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    switchable: Mapping[str, bool] | None = None
    unlike: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)


def find_truncated(definition: str, default_schema: str) -> frozenset[TableName]:
    """The tables that a module truncates, as far as it says so in its own text."""
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
    """Of a database that is not enabled yet: names that CDC wants for itself."""
    if hazards.has_schema:
        yield Finding(
            Grade.PROBLEM, "cdc schema", database,
            "there is a schema named cdc, which change data capture did not make: enabling fails with error 22906.",
            "Move what is in it elsewhere (ALTER SCHEMA [dbo] TRANSFER [cdc].[...];), then: DROP SCHEMA [cdc];",
        )  # fmt: skip
    if hazards.has_user:
        yield Finding(
            Grade.PROBLEM, "cdc user", database,
            "there is a user or role cdc, which change data capture did not make: enabling fails with error 22906.",
            "Give it another name, or: DROP USER [cdc];",
        )  # fmt: skip


def examine_database(
    hazards: Hazards, database: str, *, chooses_recovery: bool, sees_users: bool
) -> Iterator[Finding]:  # fmt: skip
    """Of a database that is enabled. chooses_recovery: whether accelerated recovery is anybody's choice; in Azure it is
    always on, and made for it. sees_users: whether a user that is not seen is not there."""
    if hazards.accelerated_recovery and chooses_recovery:
        yield Finding(
            Grade.RISK, "accelerated recovery", database,
            "accelerated database recovery is on, which is not supported together with change data capture: the log is"
            " not truncated early any more, and fills.",
            f"ALTER DATABASE {quote(database)} SET ACCELERATED_DATABASE_RECOVERY = OFF;",
        )  # fmt: skip
    if not sees_users:
        return
    if not hazards.has_user:
        yield Finding(
            Grade.PROBLEM, "cdc user", database, "the user cdc is gone, as whom capture works (errors 1202, 15517).",
            "CREATE USER [cdc] WITHOUT LOGIN WITH DEFAULT_SCHEMA = [cdc]; ALTER ROLE [db_owner] ADD MEMBER [cdc];",
        )  # fmt: skip
    elif hazards.is_user_owner is False:
        yield Finding(
            Grade.PROBLEM, "cdc user", database,
            "the user cdc, as whom capture works, is not in db_owner any more (error 21050).",
            "ALTER ROLE [db_owner] ADD MEMBER [cdc];",
        )  # fmt: skip


def examine_table_hazards(table: TableName, table_snapshot: TableSnapshot, hazards: Hazards) -> Iterator[Finding]:
    subject = str(table)
    if modules := hazards.truncating.get(table):
        yield Finding(
            Grade.RISK, "truncate", subject,
            f"{', '.join(modules)} truncates it, which is refused while its changes are captured (error 4711).",
            "Have the rows deleted instead, by DELETE without a condition.",
        )  # fmt: skip
    if table in hazards.partitioned:
        yield _partitions(table, table_snapshot, hazards)
    if table_snapshot.instance is None:
        return
    if unlike := hazards.unlike.get(table):
        yield Finding(
            Grade.RISK, "column size", subject,
            f"capture has not come to a change of type yet ({', '.join(unlike)}): if captured values do not fit the new"
            " one, it stops with error 2628 or 8115.",
            "See sys.dm_cdc_errors once capture has gone on. If it stopped: let all changes be read, then make the"
            " instance anew, and load the table again (`floodmark reload`):"
            f" {disable_instance(table, table_snapshot.instance.identity.name)} {enable_table(table)}",
        )  # fmt: skip
    clr = [column.name for column in table_snapshot.instance.table.columns if column.type_name in CLR_TYPES]
    if clr:
        yield Finding(
            Grade.NOTE, "clr types", subject,
            f"{', '.join(clr)}: DDL on the table while capture is behind may stop it with error 913.",
            "Before DDL: stop writing to the table, and wait until capture has caught up (or EXEC sys.sp_cdc_scan;);"
            " after it the same once more, then write on.",
        )  # fmt: skip


def _partitions(table: TableName, table_snapshot: TableSnapshot, hazards: Hazards) -> Finding:
    subject = str(table)
    if table_snapshot.instance is None:
        return Finding(
            Grade.NOTE, "partitions", subject,
            "it is partitioned; what is switched in or out is not captured, and is allowed unless enabling forbids it.",
            enable_table(table, partition_switch=False),
        )  # fmt: skip
    name = table_snapshot.instance.identity.name
    if hazards.switchable is None:
        return Finding(
            Grade.NOTE, "partitions", subject,
            "it is partitioned; whether partitions may be switched, which is not captured, only db_owner sees.",
            "Ask the DBA: SELECT capture_instance, partition_switch FROM cdc.change_tables;",
        )  # fmt: skip
    if not hazards.switchable.get(name, True):
        return Finding(Grade.GOOD, "partitions", subject, "it is partitioned, and no partition can be switched.")
    return Finding(
        Grade.RISK, "partitions", subject,
        f"it is partitioned, and {name} lets partitions be switched in and out: rows come and go without any change.",
        "After each switch: `floodmark reload`. Or forbid it with an instance that is made anew, after which the table"
        f" is loaded again: {disable_instance(table, name)} {enable_table(table, partition_switch=False)}",
    )  # fmt: skip
