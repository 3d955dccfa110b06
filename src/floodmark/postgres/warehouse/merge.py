"""The statements that merge a window: the MERGE, its counts, the way for an empty target, and the sweep."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import psycopg
from sqlglot import exp

from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, staging_table
from floodmark.core.position import name_positions
from floodmark.core.schema import (
    CHANGED_COLUMN,
    COMMITTED_COLUMN,
    DELETED_COLUMN,
    LEDGER_SCHEMA,
    LOADED_AT_COLUMN,
    LOG_KEY,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    WINDOW_COLUMN,
    SourceTable,
    TableName,
    keep_column,
    quote,
    quote_table,
)
from floodmark.core.settings import Deletes
from floodmark.postgres.session import source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.staging import kept_columns
from floodmark.postgres.warehouse.targets import MERGE_LOCK_SECONDS

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The merge, built once as a sqlglot tree and rendered per engine.
#
# The guard: a staged row wins if its position is not below that of the target's row, nor that of the key's tombstone.
# So any order, repetition or overlap of windows results in the same table. There is one exception, a LOB that a change
# row left out (``__keep_``): the target keeps its value, so the change with the value must have been merged before. The
# ledger ensures that windows are merged in order for the first time; repetition is harmless there too.


DELETE_OPERATION = 1
TOMBSTONES = TableName(LEDGER_SCHEMA, "tombstones")
_TARGET, _STAGED, _TOMBSTONE = "t", "s", "d"
EXAMPLES = 3
"""The number of rows whose positions an error has."""
# By default sqlglot copies each operand: a third of the time of a small merge. A tree may have a part twice, where no
# one changes it.
_and, _or, _not = (partial(build, copy=False) for build in (exp.and_, exp.or_, exp.not_))


@dataclass(frozen=True, slots=True)
class Merge:
    """The merge of one staging table into its target."""

    target: TableName
    staging: TableName
    key: tuple[str, ...]
    columns: tuple[str, ...]
    """The stored columns of the source, in order."""
    optional: tuple[str, ...]
    """The columns that a change row may leave out."""
    deletes: Deletes
    window_id: int
    has_tombstones: bool = False
    """The tombstone of a hard delete may have a higher position than a staged row."""
    sorted_by_key: bool = True
    """Read the staged rows in key order, so that a B-tree target touches neighbouring index pages. This nearly halves
    the time of a big merge. A lakehouse has no use for it."""
    overwrites: bool = False
    """Every staged row wins (see ``warehouse.warehouse``)."""
    deletes_have_keys_only: bool = False
    """A staged delete has no values: a row that is marked as deleted keeps its last ones."""
    has_commit_times: bool = False
    """Each staged row has the time of its commit."""
    is_log: bool = False
    """The target keeps every staged row, and the key is the place of a change in the log."""
    is_snapshot: bool = False
    """Every staged row is one of the target, and the key is its number in the read."""
    replaces: bool = False
    """The staged rows take the place of all rows of the target."""
    is_history: bool = False
    """Every staged row is a version, the key has its commit, and ``warehouse.history`` merges it."""
    rows_at: bytes = b""
    """The position of the rows of a load of the whole table."""
    not_null: tuple[str, ...] = ()
    """The columns of which NULL in a delete is not the last value: a row that is marked as deleted keeps its own."""


def merge_of(plan: WindowPlan, index: int, has_tombstones: bool) -> Merge:
    """Return the merge of table ``index`` of the plan."""
    table = plan.tables[index]
    source = table.in_target
    return Merge(
        target=table.target,
        staging=staging_table(plan, index),
        key=table.row_key,
        columns=tuple(column.name for column in source.stored_columns),
        # The values that a change of a history leaves out are those of the version before it, not of the target's row.
        optional=() if table.is_history else kept_columns(table),
        has_commit_times=table.has_commit_times,
        is_log=table.is_log,
        is_snapshot=table.is_snapshot,
        replaces=table.is_snapshot and table.kind is LoadKind.FIRST_LOAD,
        is_history=table.is_history,
        rows_at=plan.rows_at(table),
        deletes=table.settings.deletes,
        # The event of a delete may lack its values, which are those of the version before it.
        deletes_have_keys_only=table.feed.delivers_net or (table.is_history and table.feed.has_members),
        not_null=_not_null(source) if table.settings.deletes is Deletes.SOFT else (),
        window_id=plan.window_id,
        has_tombstones=has_tombstones,
        overwrites=table.is_reload,
    )


def _not_null(source: SourceTable) -> tuple[str, ...]:
    return tuple(column.name for column in source.stored_columns if not column.nullable)


def build_merge(merge: Merge) -> exp.Merge:
    """Return the MERGE statement, to be rendered by ``.sql(dialect="postgres")`` or ``.sql(dialect="spark")``."""
    not_below = is_not_below(merge)
    whens = []
    if merge.deletes is Deletes.HARD:
        deleted = _and(is_delete(), not_below.copy())
        whens.append(exp.When(matched=True, condition=deleted, then=exp.var("DELETE")))
    whens.append(exp.When(matched=True, condition=not_below, then=_update(merge)))
    whens.append(exp.When(matched=False, condition=_is_kept(merge), then=_insert(merge)))
    return exp.Merge(
        this=table(merge.target, _TARGET),
        using=_staged_rows(merge),
        on=same_key(merge),
        whens=exp.Whens(expressions=whens),
    )


def build_insert(merge: Merge) -> exp.Insert:
    """Return the statement that does what the merge does where the target has no row and no key a tombstone."""
    values = _inserted(merge)
    rows = exp.select(*values.values()).from_(table(merge.staging, _STAGED)).where(_is_kept(merge))
    return exp.insert(rows, table(merge.target, ""), columns=[exp.to_identifier(name, quoted=True) for name in values])


def execute_merge(session: psycopg.Connection, merge: Merge) -> int:
    """Merge the staged rows into the target. Return the number of rows that were written.

    Readers see the rows from before until the transaction ends, also where all are replaced.
    """
    if merge.replaces:
        session.execute(f"DELETE FROM {quote_table(merge.target)}")  # noqa: S608  (quoted)
    statement = build_append(merge) if merge.is_log or merge.is_snapshot else build_merge(merge)
    return session.execute(statement.sql(dialect="postgres", copy=False)).rowcount


def build_append(merge: Merge) -> exp.Insert:
    """Return the statement that adds the staged rows of a log or a snapshot, but those that the target has.

    The rows of a log are a set: the order and the repetition of windows do not matter.
    """
    insert = build_insert(merge)
    key = [exp.to_identifier(name, quoted=True) for name in merge.key]
    insert.set("conflict", exp.OnConflict(conflict_keys=key, action=exp.var("DO NOTHING")))
    return insert


def staged(column: str) -> exp.Column:
    """Return a column of the staged row."""
    return exp.column(column, _STAGED, quoted=True, copy=False)


def target(column: str) -> exp.Column:
    """Return a column of the target's row."""
    return exp.column(column, _TARGET, quoted=True, copy=False)


def is_delete() -> exp.Expression:
    """Return the condition that a staged row is a delete.

    The number is on the left: where the target has the name of the alias of the staged rows, sqlglot takes any equality
    in SET for an assignment to a column of the target, and leaves out the qualifier on its left.
    """
    return exp.EQ(this=exp.Literal.number(DELETE_OPERATION), expression=staged(OPERATION_COLUMN))


def is_not_below(merge: Merge) -> exp.Expression:
    """Return the condition that a staged row wins over that of the target."""
    if merge.overwrites:
        return exp.true()
    return exp.GTE(this=staged(POSITION_COLUMN), expression=target(POSITION_COLUMN))


def same_key(merge: Merge) -> exp.Expression:
    """Return the condition that a staged row and a row of the target have the same key."""
    return _and(*(exp.EQ(this=target(name), expression=staged(name)) for name in merge.key))


def table(name: TableName, alias: str) -> exp.Table:
    """Return a table under an alias."""
    return exp.table_(
        exp.to_identifier(name.name, quoted=True), exp.to_identifier(name.schema, quoted=True), alias=alias
    )


def tombstone_key(merge: Merge) -> exp.Expression:
    """Return the key of a staged row as the tombstone table stores it: a JSON array in key order."""
    return exp.func("JSONB_BUILD_ARRAY", *(staged(name) for name in merge.key))


def equal_keys(stored: exp.Expression, key: exp.Expression) -> exp.Expression:
    """Return the condition that a key in a table of the ledger, where its hash is indexed, is equal to another."""
    hashes = (exp.func("JSONB_HASH_EXTENDED", each.copy(), exp.Literal.number(0)) for each in (stored, key))
    stored_hash, key_hash = hashes
    return _and(exp.EQ(this=stored_hash, expression=key_hash), exp.EQ(this=stored, expression=key))


def in_bound(expression: exp.Expression) -> str:
    """Return the expression for a statement with parameters, where psycopg treats % as a placeholder."""
    return str(expression.sql(dialect="postgres")).replace("%", "%%")


def join_tombstones(merge: Merge, rows: exp.Select) -> exp.Select:
    """Return ``rows`` of staging with the tombstone of each row's key, if it has one, as ``d``."""
    names = (exp.Literal.string(merge.target.schema), exp.Literal.string(merge.target.name))
    of_row = _and(
        exp.EQ(this=_tombstone("target_schema"), expression=names[0]),
        exp.EQ(this=_tombstone("target_name"), expression=names[1]),
        equal_keys(_tombstone("key"), tombstone_key(merge)),
    )
    return left_join(rows, table(TOMBSTONES, _TOMBSTONE), of_row)


def left_join(rows: exp.Select, other: exp.Table, condition: exp.Expression) -> exp.Select:
    """Return ``rows``, which are changed, with those of another table.

    sqlglot would parse the kind of a join from its name: a twentieth of the time of a small merge.
    """
    return rows.join(exp.Join(this=other, side="LEFT", on=condition), copy=False)


def not_tombstoned() -> exp.Expression:
    """Return the condition that the key has no tombstone with a higher position."""
    lsn = _tombstone("lsn")
    return exp.paren(_or(lsn.is_(exp.null()), exp.GTE(this=staged(POSITION_COLUMN), expression=lsn.copy())))


def _tombstone(column: str) -> exp.Column:
    return exp.column(column, _TOMBSTONE, quoted=True)


def _staged_rows(merge: Merge) -> exp.Expression:
    if not (merge.has_tombstones or merge.sorted_by_key):
        return table(merge.staging, _STAGED)
    rows = exp.select(exp.Column(this=exp.Star(), table=exp.to_identifier(_STAGED))).from_(
        table(merge.staging, _STAGED)
    )
    if merge.has_tombstones:
        rows = join_tombstones(merge, rows).where(not_tombstoned())
    if merge.sorted_by_key:
        rows = rows.order_by(*(exp.Ordered(this=staged(name), nulls_first=False) for name in merge.key), copy=False)
    return rows.subquery(_STAGED, copy=False)


def _update(merge: Merge) -> exp.Update:
    values = {name: _kept_or_staged(merge, name) for name in merge.columns if name not in merge.key}
    values |= _own_columns(merge)
    # PostgreSQL refuses a qualified column name in SET.
    return exp.Update(
        expressions=[exp.EQ(this=exp.column(name, quoted=True), expression=value) for name, value in values.items()]
    )


def _kept_or_staged(merge: Merge, name: str) -> exp.Expression:
    kept = [staged(keep_column(name))] if name in merge.optional else []
    if merge.deletes_have_keys_only:
        kept.append(is_delete())
    elif name in merge.not_null:
        kept.append(_and(is_delete(), staged(name).is_(exp.null())))
    if not kept:
        return staged(name)
    return exp.Case(ifs=[exp.If(this=_or(*kept), true=target(name))], default=staged(name))


def _is_kept(merge: Merge) -> exp.Expression | None:
    """Return the condition that a staged row without a row in the target becomes one; None for every row."""
    return _not(is_delete()) if merge.deletes is Deletes.HARD else None


def _insert(merge: Merge) -> exp.Insert:
    values = _inserted(merge)
    return exp.Insert(
        this=exp.Tuple(expressions=[exp.column(name, quoted=True) for name in values]),
        expression=exp.Tuple(expressions=list(values.values())),
    )


def _inserted(merge: Merge) -> dict[str, exp.Expression]:
    return {name: staged(name) for name in merge.columns} | _own_columns(merge)


def _own_columns(merge: Merge) -> dict[str, exp.Expression]:
    written = {WINDOW_COLUMN: exp.Literal.number(merge.window_id), LOADED_AT_COLUMN: exp.CurrentTimestamp()}
    if merge.is_snapshot:
        return {name: staged(name) for name in (SEQUENCE_COLUMN, POSITION_COLUMN)} | written
    if merge.is_log:
        return {name: staged(name) for name in (*LOG_KEY, CHANGED_COLUMN, COMMITTED_COLUMN)} | written
    return {
        POSITION_COLUMN: staged(POSITION_COLUMN),
        OPERATION_COLUMN: staged(OPERATION_COLUMN),
        WINDOW_COLUMN: exp.Literal.number(merge.window_id),
        LOADED_AT_COLUMN: exp.CurrentTimestamp(),
        DELETED_COLUMN: exp.paren(is_delete()),
        **({COMMITTED_COLUMN: staged(COMMITTED_COLUMN)} if merge.has_commit_times else {}),
    }


# --------------------------------------------------------------------------------------------------------------------
# The counts of a merge, taken before the merge in the same transaction.
#
# PostgreSQL 15 and 16 cannot report which rows a MERGE touched, and no version below 18 can return a row's old values.
# The count reads the same rows as the merge and takes a few hundredths of its time.


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """The effect of a merge, in rows of staging."""

    staged: int
    inserted: int
    updated: int
    deleted: int
    incomplete: int = 0
    """Inserted rows whose change left a LOB out, and for which the target has no row whose value could be kept."""
    without_key: int = 0
    """Deletes with NULL in a column of the key."""
    written: int = 0
    """Rows of the target that get the number of the window, also where nothing else of them changes."""
    swept: int = 0
    """Rows that are deleted because a load of the whole table did not find them."""


def count_merge(session: psycopg.Connection, merge: Merge) -> MergeCounts:
    """Return the effect that a merge will have. Where all changes are kept it has only the staged rows."""
    row = session.execute(build_count(merge).sql(dialect="postgres", copy=False)).fetchone()
    return MergeCounts(*row) if row else MergeCounts(0, 0, 0, 0)


def list_positions(session: psycopg.Connection, rows: exp.Select) -> str:
    """Return positions of some of the staged rows that a query finds: no log may name them by their keys."""
    position = staged(POSITION_COLUMN)
    some = rows.select(position, append=False).distinct().order_by(position.copy()).limit(EXAMPLES)
    found = session.execute(some.sql(dialect="postgres")).fetchall()
    return name_positions(value for (value,) in found)


def find_doubled(merge: Merge) -> exp.Select:
    """Return the query for the staged rows whose key another one has."""
    other = exp.and_(
        *(exp.EQ(this=staged(name), expression=exp.column(name, "other", quoted=True)) for name in merge.key),
        exp.NEQ(this=exp.column("ctid", "s"), expression=exp.column("ctid", "other")),
    )
    return exp.select().from_(table(merge.staging, "s")).join(table(merge.staging, "other"), on=other)


def find_incomplete(merge: Merge) -> exp.Select:
    """Return the query for the staged rows that would be inserted without a LOB."""
    absent = target(POSITION_COLUMN).is_(exp.null())
    condition = _and(_not(is_delete()), absent, leaves_out(merge))
    if merge.has_tombstones:
        condition = _and(condition, not_tombstoned())
    return _joined(merge, exp.select()).where(condition)


def build_count(merge: Merge) -> exp.Select:
    """Return the query for the counts, in the order of ``MergeCounts`` and by the rules of ``TableCounts``."""
    if merge.is_log or merge.is_snapshot or merge.is_history:
        zeros = [exp.Literal.number(0)] * (len(fields(MergeCounts)) - 1)
        return exp.select(exp.Count(this=exp.Star()), *zeros).from_(table(merge.staging, "s"))
    # __lsn is NOT NULL in a target, so NULL means that no row matched.
    absent = target(POSITION_COLUMN).is_(exp.null())
    alive = _and(_not(absent.copy()), _not(target(DELETED_COLUMN)))
    not_below = is_not_below(merge)
    above = exp.true() if merge.overwrites else exp.GT(this=staged(POSITION_COLUMN), expression=target(POSITION_COLUMN))
    living = _not(is_delete())
    inserted = _and(living, _or(absent, _and(target(DELETED_COLUMN), not_below)))
    if merge.has_tombstones:
        inserted = _and(inserted, not_tombstoned())
    incomplete = _and(inserted, absent, leaves_out(merge))
    counted = exp.select(
        exp.Count(this=exp.Star()),
        _count(inserted),
        _count(_and(living, alive, above)),
        _count(_and(is_delete(), alive, not_below)),
        _count(incomplete),
        _count(_and(is_delete(), exp.paren(_or(*(staged(name).is_(exp.null()) for name in merge.key))))),
        _count(_is_written(merge, absent)),
    )
    return _joined(merge, counted)


def _is_written(merge: Merge, absent: exp.Expression) -> exp.Expression:
    """Return the condition that the merge inserts a staged row, or updates that of the target with it."""
    written = exp.paren(_or(absent, is_not_below(merge)))
    if merge.deletes is Deletes.HARD:
        written = _and(_not(is_delete()), written)
    return _and(written, not_tombstoned()) if merge.has_tombstones else written


def _joined(merge: Merge, selected: exp.Select) -> exp.Select:
    """Return staged rows joined to those of the target, and to their tombstones."""
    rows = selected.from_(table(merge.staging, "s"), copy=False)
    rows = left_join(rows, table(merge.target, "t"), same_key(merge))
    return join_tombstones(merge, rows) if merge.has_tombstones else rows


def leaves_out(merge: Merge) -> exp.Expression:
    """Return the condition that the change row left a LOB out."""
    kept = [exp.func("COALESCE", staged(keep_column(name)), exp.false()) for name in merge.optional]
    return exp.paren(_or(*kept)) if kept else exp.false()


def _count(condition: exp.Expression) -> exp.Filter:
    return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=condition))


# --------------------------------------------------------------------------------------------------------------------
# The merge into a target without rows: an INSERT, and the primary key's index is built after it (ADR 58).
#
# The key is dropped and added in the merge's transaction, under an exclusive lock. Where that is not possible, the
# caller merges as usual: a key that others depend on, a table that others read, a role that does not own it.


BULK_ROWS = 10_000
"""The rows from which on this is worth its statements and its lock."""
_LOCK_TIMEOUT = "1s"
"""The time that readers of the target, which has no rows, can hold up the load. Others wait behind this lock."""
_NOT_POSSIBLE = (
    psycopg.errors.LockNotAvailable,
    # The merge of several tables has the locks of those before: a reader of both may wait for one of them.
    psycopg.errors.DeadlockDetected,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.DependentObjectsStillExist,
)


def insert_into_empty(session: psycopg.Connection, merge: Merge) -> bool:
    """Insert the staged rows, where the target has none and its key can be built after them. Return whether it was so.

    Raises psycopg.IntegrityError as the merge does: UniqueViolation for a duplicate key, with the key's name.
    """
    if merge.has_tombstones or has_any_row(session, merge.target):
        return False
    key = _drop_key(session, merge.target)
    if key is None:
        return False
    name, definition = key
    session.execute(build_insert(merge).sql(dialect="postgres"))
    session.execute(f"ALTER TABLE {quote_table(merge.target)} ADD CONSTRAINT {quote(name)} {definition}")
    return True


def has_any_row(session: psycopg.Connection, target: TableName) -> bool:
    """Return whether a target has a row, also one that is marked as deleted."""
    found = session.execute(f"SELECT EXISTS (SELECT FROM {quote_table(target)})").fetchone()  # noqa: S608  (quoted)
    return bool(found and found[0])


def _drop_key(session: psycopg.Connection, target: TableName) -> tuple[str, str] | None:
    """Lock the target and drop its primary key. Return name and definition; None where the target is to keep it."""
    key = None
    with suppress(*_NOT_POSSIBLE), session.transaction():  # a savepoint: what is not possible leaves no trace
        session.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        session.execute(f"LOCK TABLE {quote_table(target)} IN ACCESS EXCLUSIVE MODE")
        found = _plain_key(session, target)
        if found is None:
            raise psycopg.Rollback
        session.execute(f"ALTER TABLE {quote_table(target)} DROP CONSTRAINT {quote(found[0])}")
        session.execute(f"SET LOCAL lock_timeout = {int(MERGE_LOCK_SECONDS * 1000)}")
        key = found
    return key


def _plain_key(session: psycopg.Connection, target: TableName) -> tuple[str, str] | None:
    named = {"schema": target.schema, "name": target.name}
    found = session.execute(read_sql("read_plain_primary_key"), named).fetchone()
    return (found[0], found[1]) if found and not has_any_row(session, target) else None


# --------------------------------------------------------------------------------------------------------------------
# The sweep of a load of a whole table: its rows win over all rows of the target, and rows it did not read are deleted.
#
# No other load moves the table forward meanwhile. So the target's rows are older than the load, or they come from a
# past that the source no longer has (after a restore or a failover): rows, tombstones and quarantined changes with an
# LSN above the one at which the load started. Unless their LSN is lowered, they would win over the source's later
# changes.


def lower_positions(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan) -> None:
    """Lower tombstones and quarantined changes above the load to its LSN. Runs before the merge."""
    for statement in ("lower_tombstones", "lower_quarantine"):
        session.execute(read_sql(statement), _sweep_values(plan, planned))


def sweep_target(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> int:
    """Delete rows whose keys the load did not read, in the way that the table sets. Return their number.

    Runs after the merge. A row that broke a rule and went to quarantine was read: the target keeps its row. Nothing is
    deleted where rows may be at the source that were not read.
    """
    values = _sweep_values(plan, planned)
    swept = 0
    if planned.keeps_unread:
        _LOG.warning("%s: the source may have rows that this load does not see, so no row is swept.", planned.source)
    else:
        swept = _sweep(session, planned, merge, values, "TRUE")
    session.execute(_filled_sweep("lower_rows", merge, "TRUE"), values)
    return swept


def sweep_members(
    session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge, members: Sequence[str]
) -> int:
    """Delete rows of members that were read as a whole, and were not found there. Return their number."""
    swept = f"t.{quote(planned.feed.member_column)} = ANY (%(members)s)"
    return _sweep(session, planned, merge, _sweep_values(plan, planned) | {"members": list(members)}, swept)


def forget_absent(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> None:
    """Let devices that a load did not find be read as a whole when they are back."""
    if planned.feed.member_column:
        names = {"staging": quote_table(merge.staging), "member": quote(planned.feed.member_column)}
        named = {"pipeline": plan.pipeline, **source_parameters(planned.source)}
        session.execute(read_sql("forget_marks_of_absent").format(**names), named)


def _sweep(session: psycopg.Connection, planned: TablePlan, merge: Merge, values: Mapping[str, Any], swept: str) -> int:
    """Sweep the rows for which the condition ``swept`` is true. Return their number."""
    if planned.settings.deletes is Deletes.SOFT:
        return session.execute(_filled_sweep("sweep_soft", merge, swept), values).rowcount
    session.execute(_filled_sweep("write_swept_tombstones", merge, swept), values)
    return session.execute(_filled_sweep("sweep_hard", merge, swept), values).rowcount


def _filled_sweep(statement: str, merge: Merge, swept: str) -> str:
    key = exp.func("JSONB_BUILD_ARRAY", *(target(name) for name in merge.key))
    # The rows of a load have the time of the position at which a swept row is deleted.
    committed = f"(SELECT max({COMMITTED_COLUMN}) FROM {in_bound(table(merge.staging, 's'))})"  # noqa: S608  (quoted)
    return read_sql(statement).format(
        swept=swept,
        committed=f", {COMMITTED_COLUMN} = {committed}" if merge.has_commit_times else "",
        target=in_bound(table(merge.target, "t")),
        staging=in_bound(table(merge.staging, "s")),
        same_key=in_bound(same_key(merge)),
        key=in_bound(key),
    )


def _sweep_values(plan: WindowPlan, planned: TablePlan) -> dict[str, Any]:
    return {
        "target_schema": planned.target.schema,
        "target_name": planned.target.name,
        "to_lsn": plan.rows_at(planned),
        "window_id": plan.window_id,
    }
