"""The findings of ``doctor``: their grades, and those that no kind of source has for itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from floodmark.core.capture import PlannedStop, bracket, literal
from floodmark.core.errors import ConfigError, FloodmarkError, NoKeyError, command_line
from floodmark.core.net import check_net
from floodmark.core.patterns import Listed, ListedTable
from floodmark.core.planning import grant_unmask, list_masked, with_key
from floodmark.core.schema import TableName, quote, quote_table
from floodmark.core.settings import PipelineSettings, SecurityFiltered, TableSettings
from floodmark.core.snapshot import Feed, SourceSnapshot, TableSnapshot, Validity, Verdict
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


Answer = tuple[Grade, str, str, str]
"""A finding without its subject: grade, check, text and fix."""
Answers = Iterator[Answer]
Rule = tuple[bool, Grade, str, str]
"""Whether it applies, and the grade, text and fix of its answer."""


def about(subject: object, answers: Iterable[Answer]) -> list[Finding]:
    """Return answers as findings. subject: a table, the database or the like."""
    return [Finding(grade, check, str(subject), text, fix) for grade, check, text, fix in answers]


def first_of(check: str, *rules: Rule) -> Answers:
    """Yield the answer of the first rule that applies. Nothing where none does."""
    for applies, grade, text, fix in rules:
        if applies:
            yield grade, check, text, fix
            return


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


def examine_patterns(listed: Iterable[ListedTable], pipeline: str) -> Iterator[Finding]:
    """Yield the findings on the tables that a pattern matches and the pipeline does not have, and on the others."""
    listed = list(listed)
    taken = sum(each.state is Listed.TAKEN for each in listed)
    if listed:
        yield Finding(
            Grade.GOOD, "patterns", pipeline, f"patterns bring {taken} of {len(listed)} tables that they match."
        )
    for each in listed:
        if each.reason:
            yield Finding(Grade.RISK, "patterns", str(each.table), f"{each.reason}.", each.fix)


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A relation that the user of the warehouse will have to create or to write, and may not."""

    user: str
    database: str
    relation: TableName
    right: str
    """A key of _RIGHTS."""


@dataclass(frozen=True, slots=True)
class WarehouseAccess:
    """The encoding of a database of the warehouse, and the rights that its user lacks there."""

    encoding: str
    missing: tuple[MissingRight, ...]


_RIGHTS = {
    "new schema": (
        Grade.PROBLEM,
        "{user} may not create the schema {schema}, which is not there yet.",
        "CREATE SCHEMA {schema} AUTHORIZATION {user}; or GRANT CREATE ON DATABASE {database} TO {user};",
    ),
    "usage": (
        Grade.PROBLEM,
        "{user} may not use the schema {schema}.",
        "GRANT USAGE, CREATE ON SCHEMA {schema} TO {user};",
    ),
    "new table": (
        Grade.PROBLEM,
        "{user} may not create tables in the schema {schema}.",
        "GRANT USAGE, CREATE ON SCHEMA {schema} TO {user};",
    ),
    "write": (
        Grade.PROBLEM,
        "{user} may not read and write {relation}, which belongs to another user.",
        "ALTER TABLE {relation} OWNER TO {user};",
    ),
    "delete": (
        Grade.PROBLEM,
        "{user} may not delete rows of {relation}, which belongs to another user: the pipeline deletes some.",
        "GRANT DELETE ON {relation} TO {user};",
    ),
    "owner": (
        Grade.RISK,
        "{relation} belongs to another user: {user} may not add columns to it.",
        "ALTER TABLE {relation} OWNER TO {user};",
    ),
}
"""The grade, the text and the fix of each right that may be missing."""


def examine_access(access: WarehouseAccess) -> Iterator[Finding]:
    """Yield the findings on the warehouse's database and the rights of its user there."""
    text = f"the database of the warehouse has the encoding {access.encoding}."
    is_known = access.encoding == ENCODING
    yield Finding(
        Grade.GOOD if is_known else Grade.PROBLEM, "encoding", "warehouse", text, "" if is_known else NEW_DATABASE
    )
    said = set()
    for each in access.missing:
        grade, text, fix = _RIGHTS[each.right]
        names = {
            "user": quote(each.user),
            "database": quote(each.database),
            "schema": quote(each.relation.schema),
            "relation": quote_table(each.relation),
        }
        finding = Finding(grade, "rights", "warehouse", text.format(**names), fix.format(**names))
        if finding not in said:
            said.add(finding)
            yield finding
    if not said:
        yield Finding(Grade.GOOD, "rights", "warehouse", "its user may create and write what the pipeline needs.")


@dataclass(frozen=True, slots=True)
class LakeAccess:
    """The files of a lake, as a run finds them."""

    place: str
    """Where the tables are."""
    refused: str
    """Why they cannot be read there, or rows not be staged; "" where nothing speaks against it."""
    jars: FloodmarkError | None
    """The error about a jar that is missing or damaged."""
    known: int
    """The number of the pipeline's tables in the catalog."""
    lost: Mapping[TableName, str]
    """Where the catalog has the metadata of tables that is gone."""
    registry: str = ""
    """The REST catalog of readers; "" for none."""
    behind: Sequence[TableName] | FloodmarkError = ()
    """The tables that it does not have as they are now, or the error about the question."""


def examine_lake(access: LakeAccess, pipeline: str) -> Iterator[Finding]:
    """Yield the findings on the files of a lake."""
    grade = Grade.PROBLEM if access.refused else Grade.GOOD
    yield Finding(grade, "lake", access.place, access.refused or "it is reached.")
    if access.jars is not None:
        yield Finding(Grade.PROBLEM, "lake", access.jars.subject, access.jars.message, access.jars.hint)
    for target, location in access.lost.items():
        yield Finding(
            Grade.PROBLEM,
            "lake",
            str(target),
            f"its metadata is gone: {location}.",
            f"Restore the file, or reload the table of the source: {command_line('reload', pipeline, 'TABLE')}.",
        )
    if access.known and not access.lost:
        yield Finding(Grade.GOOD, "lake", "catalog", f"the metadata of all {access.known} tables is there.")
    if isinstance(access.behind, FloodmarkError):
        yield Finding(Grade.PROBLEM, "lake", access.behind.subject, access.behind.message, access.behind.hint)
    elif access.behind:
        names = ", ".join(map(str, access.behind))
        how = f"Register them: {command_line('lake', 'register')}."
        yield Finding(Grade.PROBLEM, "lake", access.registry, f"it has {names} not as they are now.", how)
    elif access.registry:
        yield Finding(Grade.GOOD, "lake", access.registry, "it has all published tables as they are now.")


# --------------------------------------------------------------------------------------------------------------------
# The facts about a server that ``doctor`` reads in addition to a snapshot. None: the login may not see it.


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


# --------------------------------------------------------------------------------------------------------------------
# The part of a diagnosis that is the same for each kind of SQL Server: encryption and clock of a server.


_SKEW_SECONDS = 60
_ONE_DAY_MINUTES = 24 * 60
_RUNS_WITHIN_RETENTION = 3


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

    @property
    def tables(self) -> Iterable[tuple[TableSettings, Validity, TableSnapshot]]:
        """Return the tables in the order of the configuration."""
        return zip(self.settings.tables, self.validities, self.snapshot.tables, strict=True)

    @property
    def needed_minutes(self) -> int:
        """Return the retention that survives a day without runs, and a few failed ones."""
        interval = self.interval or timedelta(0)
        runs_minutes = max(interval, self.freshness).total_seconds() / 60 * _RUNS_WITHIN_RETENTION
        return max(_ONE_DAY_MINUTES, round(runs_minutes))


def examine_tls(examined: DiagnosisInput) -> Answers:
    """Yield the answer on the encryption of the connection."""
    fix = 'Set "encrypt": "yes" in the connection\'s extra.'
    checked = f"encrypted ({examined.encrypt}), and the certificate is checked."
    authority = 'Name the authority as "ca_file" and remove "trust_server_certificate" from the connection\'s extra.'
    trusting = "the connection is encrypted, but any certificate is trusted."
    return first_of(
        "tls",
        (examined.encrypt == "no", Grade.RISK, "the connection is not encrypted.", fix),
        (examined.trusts_any, Grade.RISK, trusting, authority),
        (True, Grade.GOOD, checked, ""),
    )


def examine_clock(examined: DiagnosisInput, facts: ServerFacts, *, instead: str = "") -> Answers:
    """Yield the answers on the clock of the server. instead: what names a moment where a local time is ambiguous."""
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
# The checks of ``doctor`` on one table that are the same for each kind of source: key, columns, and the view of the
# login.


def examine_verdict(validity: Validity, feed: str, fix: str) -> Answers:
    """Yield the answer on the verdict.

    feed: what is read, "" where the table has none. fix: the statements that make it readable.
    """
    if validity.verdict in INCIDENTS:
        yield (
            Grade.PROBLEM,
            "permissions" if validity.verdict is Verdict.NO_PERMISSION else "instance",
            validity.cause,
            fix,
        )
    elif feed:
        # Without the ledger, it is unknown what has been read: every table counts as not started here.
        state = "can be read" if validity.verdict is Verdict.NOT_STARTED else validity.verdict.value
        yield Grade.GOOD, "instance", f"{feed}: {state}.", ""


def create_user(login: str) -> str:
    """Return the statement that creates the user of a login where there is none."""
    name = bracket(login)
    return f"IF DATABASE_PRINCIPAL_ID({literal(login)}) IS NULL CREATE USER {name} FOR LOGIN {name};"


def examine_key(settings: TableSettings, instance: Feed) -> Answers:
    """Yield the answer on the columns by which rows are merged."""
    try:
        found = with_key(settings, instance)
    except NoKeyError as error:
        yield Grade.PROBLEM, "key", error.message, error.hint
    else:
        by = f"rows are merged by ({', '.join(found.table.key)})."
        yield Grade.GOOD, "key", by if found.table.key else f"none, and a {settings.style.value} needs none.", ""


def refused_net(settings: TableSettings, instance: Feed) -> FloodmarkError | None:
    """Return why the source's net changes cannot be merged, None where they can."""
    try:
        check_net(settings, with_key(settings, instance), instance.table.key)
    except NoKeyError:  # found by examine_key
        return None
    except ConfigError as error:
        return error
    return None


def examine_types(settings: TableSettings, instance: Feed) -> Answers:
    """Yield an answer on each column of a type that cannot be carried."""
    for column in instance.table.stored_columns:
        try:
            warehouse_type(instance.table, column, settings.temporal)
        except FloodmarkError as error:
            yield Grade.PROBLEM, "types", error.message, error.hint


def examine_view(settings: TableSettings, table_snapshot: TableSnapshot, user: str) -> Answers:
    """Yield the answers on values and rows that the source hides from the login."""
    if masked := list_masked(table_snapshot):
        text = f"the login reads masks in place of the values of {', '.join(masked)}: the table is not loaded."
        yield Grade.PROBLEM, "masked columns", text, grant_unmask(settings.source, bracket(user))
    if not table_snapshot.filters:
        return
    filtered = f"security policy {', '.join(table_snapshot.filters)} filters its rows"
    if settings.security_filtered is SecurityFiltered.ACCEPT:
        text = f"{filtered}, as accepted: loads read what the login may see."
        yield Grade.NOTE, "security policy", text, "Expect differences from floodmark verify."
    else:
        fix = "Let the login see all rows in the policy's predicate, or set security_filtered: accept for the table."
        yield Grade.PROBLEM, "security policy", f"{filtered}: the table is not loaded.", fix


def examine_computed(instance: Feed, how: str) -> Answers:
    """Yield the answer on computed columns. how: what the source has in their place."""
    if computed := [column.name for column in instance.table.columns if column.is_computed]:
        text = f"computed columns ({', '.join(computed)}) {how}; the target does not have them."
        yield Grade.NOTE, "computed columns", text, "Compute them in the warehouse."


def hidden_policies() -> Answer:
    """Return the answer of a login that may not see whether security policies filter rows."""
    return (
        Grade.NOTE,
        "security policy",
        "the login may not see whether security policies filter the rows of tables.",
        "Ask the DBA: SELECT * FROM sys.security_policies WHERE is_enabled = 1; or, in this database: GRANT VIEW"
        " DEFINITION to the login.",
    )
