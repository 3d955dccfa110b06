"""The ledger's tables: their creation, the claims on windows and targets, and the records about members of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from floodmark.core.definition import NAMING_KEY, has_other_filter, list_changed
from floodmark.core.doctor import ENCODING, NEW_DATABASE
from floodmark.core.errors import (
    ConfigError,
    DefinitionChangedError,
    OperatorError,
    TargetLostError,
    WarehouseAdminError,
    WatermarkConflictError,
    WindowBusyError,
    command_line,
)
from floodmark.core.plan import (
    LoadKind,
    MemberRead,
    QuarantinedMessages,
    TablePlan,
    WindowPlan,
    WindowState,
    is_load_lane,
    is_replay_lane,
    member_name,
)
from floodmark.core.plan_json import plan_from_json
from floodmark.core.position import Position, read_position
from floodmark.core.recovery import WaitingRows
from floodmark.core.schema import WINDOW_COLUMN, TableName, quote, quote_table
from floodmark.core.snapshot import FeedIdentity, MemberMark, Validity, Verdict
from floodmark.core.verdicts import LEFT_OUT
from floodmark.postgres.session import (
    SUBJECT,
    encoding_of,
    open_transaction,
    query,
    refuse_shared_servers,
    source_arrays,
    source_parameters,
    translated,
)
from floodmark.postgres.sql import read_sql
from floodmark.sync.records import OpenedWindow

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

# --------------------------------------------------------------------------------------------------------------------
# The creation of the ledger's tables, once, also when several processes start it at the same time.


VERSION = 18
# CREATE ... IF NOT EXISTS still fails when two sessions run it at once, so they queue up. An arbitrary, fixed number.
_ADVISORY_LOCK = 0x_F100_D3A2


def ensure_schema(at: WarehouseConnection) -> None:
    """Create the ledger's tables, or upgrade those of an earlier version.

    A ledger of this version is not touched, so that daily runs need no right to create objects.
    Raises ConfigError when a newer Floodmark created the ledger, and WarehouseAdminError for a database that cannot
    store every text, or where the connection leads through a pooler in transaction mode.
    """
    with open_transaction(at) as connection:
        refuse_shared_servers(at, connection)
        if (encoding := encoding_of(connection)) != ENCODING:
            raise WarehouseAdminError(
                SUBJECT, f"its database has the encoding {encoding}, not {ENCODING}.", NEW_DATABASE
            )
        if _version(connection) == VERSION:
            return
    # In a new session: the one above may have cached that there is no ledger.
    with open_transaction(at) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_ADVISORY_LOCK])
        found = _version(connection)
        if found > VERSION:
            raise ConfigError(
                SUBJECT, f"its ledger has version {found}, but this Floodmark supports {VERSION}.", "Upgrade Floodmark."
            )
        if found < VERSION:
            connection.execute(read_sql("ensure_schema"))
            connection.execute("INSERT INTO floodmark.ledger_version (version) VALUES (%s)", [VERSION])


def _version(connection: psycopg.Connection) -> int:
    """Return the version of the ledger; 0 where there is no ledger."""
    exists = connection.execute("SELECT to_regclass('floodmark.ledger_version') IS NOT NULL").fetchone()
    if exists is None or not exists[0]:
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) FROM floodmark.ledger_version").fetchone()
    return int(row[0]) if row else 0


# --------------------------------------------------------------------------------------------------------------------
# The window of a row of the ledger.


def one_window(session: psycopg.Connection, statement: str, window_id: int) -> OpenedWindow:
    """Return the window of a statement of ``postgres/sql``. Raises OperatorError where the ledger does not have it."""
    row = session.cursor(row_factory=dict_row).execute(read_sql(statement), {"window_id": window_id}).fetchone()
    if row is None:
        raise OperatorError(f"window {window_id}", "the ledger has no such window.")
    return opened_window(row)


def opened_window(row: DictRow) -> OpenedWindow:
    """Return the window of a row of ``floodmark.windows``."""
    plan = dataclasses.replace(
        plan_from_json(row["plan"]),
        window_id=row["window_id"],
        attempt=row["attempt"],
        lane=row["lane"],
        to_at=row["to_lsn_at"],
    )
    state = WindowState(row["state"])
    return OpenedWindow(plan, state, is_refused=state is WindowState.MERGED and row["checked_at"] is not None)


# --------------------------------------------------------------------------------------------------------------------
# The claim of tables whose watermarks are to move: their rows are locked, and nothing else moves them.
#
# All runs lock tables in the same order, that of ``TableName``, so that two runs queue up instead of deadlocking. What
# follows the locks is asked once for all tables.


def claim_table(session: psycopg.Connection, pipeline: str, table: TablePlan) -> None:
    """Lock the table's row, which may be new, and check that its watermark is still the one of the plan."""
    named = {"pipeline": pipeline, **source_parameters(table.source)}
    target = {"target_schema": table.target.schema, "target_name": table.target.name}
    try:
        with session.transaction():
            query(session, "register_table", **named, **target)
    except psycopg.errors.UniqueViolation:
        # Of two runs that register the same table at once, one may get this error for the target instead.
        if not any(row.items() >= target.items() for row in query(session, "lock_table", **named)):
            raise _target_taken(pipeline, table, query(session, "find_target", **target)) from None
    row = query(session, "lock_table", **named)[0]
    if row["watermark"] != (table.watermark.value if table.watermark else None):
        raise WatermarkConflictError(
            str(table.source),
            f"its watermark is {describe_watermark(row['watermark'])}, not {table.watermark or 'unset'}.",
            "Another run moved it; run again.",
        )
    if (known := TableName(row["target_schema"], row["target_name"])) != table.target:
        raise ConfigError(
            str(table.source),
            f"its target was {known} and is now {table.target}.",
            "Restore the name; or rename the target in the warehouse too, then: "
            f"{command_line('rename-target', pipeline, table.source)}.",
        )


def _target_taken(pipeline: str, table: TablePlan, holders: Sequence[Mapping[str, object]]) -> ConfigError:
    """Return the error that names the table whose target it is, and the way out."""
    subject, what = str(table.source), f"another table already uses the target {table.target}"
    if not holders:  # It was released meanwhile.
        return ConfigError(subject, f"{what}.", "Run again, or choose another target.")
    (holder,) = holders
    source = TableName(str(holder["source_schema"]), str(holder["source_name"]))
    if holder["pipeline"] == pipeline:
        return ConfigError(subject, f"{what}: {source} of the same pipeline.", "Choose another target.")
    hint, former = "Choose another target.", holder["pipeline"]
    if source == table.source:
        hint += f" If {former} is the former name of this pipeline: {command_line('rename', former, pipeline)}."
    return ConfigError(subject, f"{what}: {source} of pipeline {former}.", hint)


def lock_watermarks(session: psycopg.Connection, pipeline: str, watermarks: Mapping[TableName, Position]) -> None:
    """Lock the rows of tables. Raises WatermarkConflictError where a watermark is not the given one."""
    rows = query(session, "lock_tables", pipeline=pipeline, **source_arrays(watermarks))
    found = {TableName(row["source_schema"], row["source_name"]): row["watermark"] for row in rows}
    for source, watermark in sorted(watermarks.items()):
        if found.get(source) != watermark.value:
            raise WatermarkConflictError(
                str(source), f"its watermark is no longer {watermark}.", "Another run moved it; run again."
            )


def refuse_left_instances(
    session: psycopg.Connection, pipeline: str, instances: Mapping[TableName, FeedIdentity]
) -> None:
    """Raise WatermarkConflictError if the pipeline has switched away from one of the instances. The tables' rows are
    locked."""
    left = {
        FeedIdentity(row["old_name"], row["old_object_id"], row["old_created_at"]): row["new_name"]
        for row in query(session, "list_left_instances", pipeline=pipeline)
    }
    for source, identity in sorted(instances.items()):
        if identity in left:
            raise WatermarkConflictError(
                str(source),
                f"it is read from capture instance {left[identity]} now, not {identity.name}.",
                "The pipeline switched meanwhile; run again.",
            )


def refuse_other_lanes(session: psycopg.Connection, pipeline: str, lane: str, sources: Collection[TableName]) -> None:
    """Raise WindowBusyError if another lane moves the watermark of one of the tables. Their rows are locked.

    Of two windows that move one watermark, the second to finish would fail.
    """
    for row in query(session, "list_other_lanes", pipeline=pipeline, lane=lane):
        source = TableName(row["source_schema"], row["source_name"])
        if source in sources:
            where = f" on lane {row['lane']}" if row["lane"] else ""
            raise WindowBusyError(
                str(source),
                f"window {row['window_id']}{where} is unfinished and holds the table.",
                "The table is free when that window has been published.",
            )


def refuse_loads(session: psycopg.Connection, pipeline: str, lane: str, sources: Collection[TableName]) -> None:
    """Raise WatermarkConflictError if one of the tables is being reloaded, also if that began after the replay was
    planned."""
    for row in query(session, "list_other_lanes", pipeline=pipeline, lane=lane):
        source = TableName(row["source_schema"], row["source_name"])
        if source in sources and is_load_lane(row["lane"]):
            raise WatermarkConflictError(str(source), f"window {row['window_id']} is reloading it.", "Run again.")


def refuse_overtaken(session: psycopg.Connection, plan: WindowPlan) -> None:
    """Raise WatermarkConflictError for a replay that was planned before a load of the whole table, or before a key of
    it was forgotten.

    Its changes may belong to a past that the source no longer has, or be of the key. So for the rows of a snapshot that
    was planned before a later load, which are older.
    """
    is_replay = is_replay_lane(plan.lane)
    forgotten = {
        TableName(row["source_schema"], row["source_name"]): row["lsn"]
        for row in (query(session, "list_forgotten", pipeline=plan.pipeline) if is_replay else ())
    }
    what = "replay" if is_replay else "window"
    for planned in plan.tables if is_replay else [each for each in plan.tables if each.is_snapshot]:
        if planned.interval and planned.interval.after.value < forgotten.get(planned.source, b""):
            raise WatermarkConflictError(
                str(planned.source),
                "a key was forgotten since the replay was planned.",
                "Nothing was merged; replay again.",
            )
        named = {"pipeline": plan.pipeline, **source_parameters(planned.source)}
        for found in query(session, "newer_load", window_id=plan.window_id, **named):
            raise WatermarkConflictError(
                str(planned.source),
                f"the whole table was read since the {what} was planned (window {found['window_id']}).",
                f"Nothing was merged; {'replay' if is_replay else 'run'} again.",
            )


def describe_watermark(value: bytes | None) -> str:
    """Return a watermark of the ledger for a message."""
    return str(read_position(bytes(value))) if value else "unset"


# --------------------------------------------------------------------------------------------------------------------
# Whether the target of a table is the one that its watermark belongs to.
#
# Nothing is written to the target for it: a mark there would need its owner, and a lock that waits for VACUUM. A merge
# records the numbers of the files of ledger and target (``floodmark.target_marks``). As long as they are the same,
# neither was made again, emptied or restored. Where they differ, the rows answer: the highest ``__window_id`` must be
# that of the last window that wrote rows, and no row may be older than its tombstone. A window that only deletes rows
# has left its number in none.


class WrittenTarget(NamedTuple):
    """The target of a table after the merge of a window."""

    table: TablePlan
    has_written: bool
    """Some row of the target has the number of the window now."""
    is_replaced: bool = False
    """No row has another one."""


def record_targets(session: psycopg.Connection, plan: WindowPlan, targets: Sequence[WrittenTarget]) -> None:
    """Record targets as they are after the merge of a window, in the transaction of the merge."""
    # In the order in which others lock them.
    query(session, "lock_tables", pipeline=plan.pipeline, **source_arrays(each.table.source for each in targets))
    found = [
        {
            **source_parameters(each.table.source),
            "columns": [*(column.name for column in each.table.in_target.stored_columns), WINDOW_COLUMN],
            "has_written": each.has_written,
            "is_replaced": each.is_replaced,
        }
        for each in targets
    ]
    query(session, "record_targets", pipeline=plan.pipeline, window_id=plan.window_id, targets=Jsonb(found))
    record_definitions(session, plan, [each.table for each in targets])


def record_definitions(session: psycopg.Connection, plan: WindowPlan, tables: Iterable[TablePlan]) -> None:
    """Record the names and the settings of the columns of targets that get the rows of a window."""
    found = [
        {
            **source_parameters(table.source),
            # What is left out is NULL.
            **({} if table.recorded_names is None else {"names": table.recorded_names}),
            "definition": table.definition,
            "is_whole": table.kind is LoadKind.FIRST_LOAD and not table.where,
        }
        for table in tables
    ]
    query(session, "record_definitions", pipeline=plan.pipeline, tables=Jsonb(found))


def refuse_lost_targets(session: psycopg.Connection, plan: WindowPlan) -> None:
    """Raise TargetLostError about a table whose target is not the one that its watermark belongs to, or is missing;
    DefinitionChangedError where a load has given it other settings of columns since the window was planned.

    A load of the whole table makes it right, so that its target may be any.
    """
    plans = {table.source: table for table in plan.tables if table.kind is not LoadKind.FIRST_LOAD or table.where}
    merged = plans.keys()
    compared = set()
    for row in query(session, "read_tables", pipeline=plan.pipeline) if merged else ():
        source = TableName(row["source_schema"], row["source_name"])
        if source in merged:
            with translated(str(source)):
                fault = find_fault(session, plan.pipeline, row)
            if fault:
                raise _lost(plan, source, fault)
            # The first window of a fleet is none of a load, and finds no definition yet.
            if row["watermark"] is not None or row["definition"] is not None:
                refuse_older_definition(plans[source], row["definition"] or {}, row["column_names"] or {})
        if row["watermark"] is not None:
            compared.add(source)
    for table in plan.tables:
        if table.source not in merged & compared and not _exists(session, table.target):
            raise _lost(plan, table.source, f"the target {table.target} does not exist: it was dropped meanwhile.")


def refuse_older_definition(
    table: TablePlan, definition: Mapping[str, Mapping[str, str]], names: Collection[str]
) -> None:
    """Raise DefinitionChangedError for a plan whose rows are not as those of its target.

    definition, names: as the ledger has them now. Rows that a load has masked would be seen again.
    """
    compared = {*table.target_names, *definition} - {NAMING_KEY}
    changed = [each.name for each in list_changed(table.settings, definition, sorted(compared), names)]
    other = [f"other settings of columns: {', '.join(changed)}"] if changed else []
    other += ["another filter (where)"] if definition and has_other_filter(table.settings, definition) else []
    if other:
        raise DefinitionChangedError(
            str(table.source),
            f"the window was planned with {', and with '.join(other)}.",
            "Nothing was merged. The next run plans the table again.",
        )


def _lost(plan: WindowPlan, source: TableName, fault: str) -> TargetLostError:
    hint = f"Nothing was merged into it. Reload the table: {command_line('reload', plan.pipeline, source)}."
    return TargetLostError(str(source), fault, hint)


def _exists(session: psycopg.Connection, target: TableName) -> bool:
    found = session.execute("SELECT to_regclass(%s) IS NOT NULL", [quote_table(target)]).fetchone()
    return found == (True,)


def is_of_this_ledger(session: psycopg.Connection, pipeline: str, table: TablePlan) -> bool:
    """Return whether some window of the ledger has written rows to the target."""
    found = query(session, "has_written_target", pipeline=pipeline, **source_parameters(table.source))
    return bool(found)


def find_fault(session: psycopg.Connection, pipeline: str, row: Mapping[str, Any]) -> str:
    """Return why a target is not the one that the ledger means, as a sentence; "" where it is.

    row: of ``read_tables``. A target in another file is compared once: the new file is recorded. Raises
    psycopg.errors.InsufficientPrivilege where the user may not read it.
    """
    if row["watermark"] is None:
        return ""
    target = TableName(row["target_schema"], row["target_name"])
    if row["is_without_target"]:
        return f"the target {target} does not exist, and was loaded before."
    if row["is_other_target"] is not None and (lost := row["lost_columns"]):
        columns = f"column {lost[0]}" if len(lost) == 1 else f"columns {', '.join(sorted(lost))}"
        return f"the target {target} no longer has the {columns}, which earlier windows wrote."
    if not row["is_other_target"]:
        return ""
    # A statement that fails ends its transaction, but for one inside of it.
    with session.transaction():
        fault = _compare_rows(session, pipeline, row, target)
    if fault:
        return fault
    # A user who may only read does without.
    with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction), session.transaction():
        source = TableName(row["source_schema"], row["source_name"])
        query(session, "keep_target_mark", pipeline=pipeline, **source_parameters(source))
    return ""


def find_readable_fault(session: psycopg.Connection, pipeline: str, row: Mapping[str, Any]) -> str:
    """Return the same to a plan or a status: "" also where the user may not read the target.

    Its merge is refused then, alone, and no merge is done without an answer.
    """
    try:
        return find_fault(session, pipeline, row)
    except psycopg.errors.InsufficientPrivilege:
        return ""


def _compare_rows(session: psycopg.Connection, pipeline: str, row: Mapping[str, Any], target: TableName) -> str:
    """Return the sign in the rows of a target that it is another one than the ledger means; "" where there is none."""
    newest = session.execute(f"SELECT max({quote(WINDOW_COLUMN)}) FROM {quote_table(target)}").fetchone()  # noqa: S608
    found, known = newest[0] if newest else None, row["target_window_id"]
    source = TableName(row["source_schema"], row["source_name"])
    named = {"pipeline": pipeline, **source_parameters(source)}
    # A replay or a release may be merged before an older window, which then wrote last.
    is_overtaken = (
        None not in {found, known} and found > known and query(session, "has_merged", window_id=found, **named)
    )
    if found != known and not is_overtaken:
        return (
            f"the target {target} was made again, emptied or restored, or the ledger was: {_difference(found, known)}"
        )
    for plan in query(session, "newest_plan", **named):
        planned = next(table for table in opened_window(plan).plan.tables if table.source == source)
        if _has_deleted_row(session, target, planned.in_target.key):
            return f"the target {target} was restored, or the ledger was: it has rows that a later window deleted."
    return ""


def _has_deleted_row(session: psycopg.Connection, target: TableName, key: Sequence[str]) -> bool:
    """Return whether the target has a row that is older than the tombstone of its key."""
    columns = ", ".join(f"t.{quote(name)}" for name in key)
    placed = {"target": f"{quote_table(target)} AS t", "key": f"jsonb_build_array({columns})"}
    # Where values are bound, a sign of percent in a name is written twice.
    statement = read_sql("has_deleted_row").format(**{name: sql.replace("%", "%%") for name, sql in placed.items()})
    found = session.execute(statement, {"target_schema": target.schema, "target_name": target.name}).fetchone()
    return found == (True,)


def _difference(found: int | None, known: int | None) -> str:
    has = "it has no rows" if found is None else f"its newest rows are of window {found}"
    return f"{has}, and the last window that wrote rows is {known or 'none'} in the ledger."


# --------------------------------------------------------------------------------------------------------------------
# The marks and the verdicts of members. Part of ``PostgresLedger``.
#
# A statement is about all members of a table: there may be thousands.


class MemberRecords:
    """The part of ``PostgresLedger`` for members. It holds no session: each method is one transaction of its own."""

    _at: WarehouseConnection

    def list_stopped_members(self, pipeline: str) -> Sequence[tuple[TableName, Validity]]:
        """Return the verdicts of the last loads that leave a member out, each with the table that it is a member of."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "list_stopped_members", pipeline=pipeline, stops=[each.value for each in LEFT_OUT])
        found = []
        for row in rows:
            table = TableName(row["source_schema"], row["source_name"])
            name = member_name(table, row["member"])
            found.append((table, Validity(name, Verdict(row["verdict"]), row["cause"], row["hint"])))
        return found

    def count_quarantined_messages(self, pipeline: str) -> QuarantinedMessages:
        """Return how many messages of the pipeline are in quarantine, by reason."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "count_quarantined_messages", pipeline=pipeline)
        return QuarantinedMessages(tuple((row["reason"], row["messages"]) for row in rows))

    def count_waiting(self, pipeline: str) -> Sequence[WaitingRows]:
        """Return the rows of each table that wait in quarantine; nothing of a table without any."""
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "count_waiting", pipeline=pipeline)
        return [
            WaitingRows(TableName(row["source_schema"], row["source_name"]), row["rows"], tuple(row["rules"]))
            for row in rows
        ]

    def list_marks(self, pipeline: str) -> Mapping[TableName, Sequence[MemberMark]]:
        """Return the marks of the members of each table that has members."""
        with open_transaction(self._at, pipeline) as session:
            return _list_marks(session, pipeline)

    def seconds_since_change(self, pipeline: str, source: TableName) -> float | None:
        """Return how long ago the newest window that brought a change of a table, or loaded it, was published.

        None while there is no such window.
        """
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "seconds_since_change", pipeline=pipeline, **source_parameters(source))
        return rows[0]["seconds"] if rows else None

    def forget_mark(self, pipeline: str, source: TableName, member: str) -> None:
        """Let the next window read all rows of a member. Raises OperatorError for one that no load has examined."""
        with open_transaction(self._at, pipeline) as session:
            named = {"pipeline": pipeline, **source_parameters(source), "member": member}
            if not session.execute(read_sql("forget_mark"), named).rowcount:
                raise OperatorError(
                    str(member_name(source, member)),
                    f"no run of {pipeline} has seen it.",
                    "Check its name: that of its file without the extension.",
                )


def with_marks(session: psycopg.Connection, plan: WindowPlan) -> WindowPlan:
    """Return a plan with the marks of its members."""
    if not any(table.feed.has_members for table in plan.tables):
        return plan
    marks = _list_marks(session, plan.pipeline)
    tables = tuple(
        replace(table, marks=tuple(marks.get(table.source, ()))) if table.feed.has_members else table
        for table in plan.tables
    )
    return replace(plan, tables=tables)


def _list_marks(session: psycopg.Connection, pipeline: str) -> dict[TableName, list[MemberMark]]:
    marks: dict[TableName, list[MemberMark]] = {}
    for row in query(session, "list_marks", pipeline=pipeline):
        name = TableName(row["source_schema"], row["source_name"])
        marks.setdefault(name, []).append(MemberMark(row["member"], row["mark"]))
    return marks


def record_members(
    session: psycopg.Connection, plan: WindowPlan, members: Mapping[TableName, Sequence[MemberRead]]
) -> None:
    """Record the verdicts on members, and the marks for the end of the window. Those of an earlier attempt end."""
    for table in plan.tables:
        if not table.feed.has_members:
            continue
        reads, named = members.get(table.source, ()), source_parameters(table.source)
        query(session, "drop_window_members", window_id=plan.window_id, **named)
        if not reads:
            continue
        names = [read.member for read in reads]
        query(
            session,
            "record_members",
            pipeline=plan.pipeline,
            **named,
            members=names,
            verdicts=[read.verdict and read.verdict.value for read in reads],
            causes=[read.cause for read in reads],
            hints=[read.hint for read in reads],
        )
        _quarantine(session, plan, table.source, reads)
        befores, afters = [read.before for read in reads], [read.after for read in reads]
        query(
            session,
            "store_window_members",
            window_id=plan.window_id,
            **named,
            members=names,
            befores=befores,
            afters=afters,
        )


def _quarantine(session: psycopg.Connection, plan: WindowPlan, source: TableName, reads: Sequence[MemberRead]) -> None:
    """Keep the messages that could not be read. They stay, also where the attempt is repeated."""
    found = [(read.member, each) for read in reads for each in read.quarantined]
    if found:
        query(
            session,
            "quarantine_messages",
            pipeline=plan.pipeline,
            window_id=plan.window_id,
            **source_parameters(source),
            topics=[each.topic for _, each in found],
            members=[member for member, _ in found],
            places=[each.place for _, each in found],
            reasons=[each.reason for _, each in found],
            bodies=[each.body for _, each in found],
        )


def advance_members(session: psycopg.Connection, plan: WindowPlan, table: TablePlan) -> None:
    """Move the marks of a table whose watermark moves in the same transaction."""
    source = source_parameters(table.source)
    named = {"window_id": plan.window_id, **source}
    query(session, "advance_members", pipeline=plan.pipeline, **named)
    query(session, "drop_window_members", **named)
    if table.kind is LoadKind.FIRST_LOAD and table.ends:
        members = [end.member for end in table.ends]
        query(session, "drop_other_members", pipeline=plan.pipeline, **source, members=members)
