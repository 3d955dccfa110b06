"""The statements that merge a window: the gate of the rules, the MERGE, the way for an empty target, the counts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from sqlglot import exp

from floodmark.core.errors import ConfigError, DataQualityError
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, staging_table
from floodmark.core.schema import (
    DELETED_COLUMN,
    LEDGER_SCHEMA,
    LOADED_AT_COLUMN,
    LSN_COLUMN,
    OPERATION_COLUMN,
    PART_COLUMN,
    UNSTORABLE_COLUMN,
    WINDOW_COLUMN,
    SourceTable,
    TableName,
    keep_column,
    optional_columns,
    quote,
    quote_table,
)
from floodmark.core.settings import Deletes, OnFailure, Rule, UnstorablePolicy
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.targets import MERGE_LOCK_SECONDS
from floodmark.sync.rules import bind_rule, columns_of

_LOG = logging.getLogger(__name__)

# --------------------------------------------------------------------------------------------------------------------
# The merge, built once as a sqlglot tree and rendered per engine.
#
# The guard: a staged row wins if its LSN is not below that of the target's row, nor below that of the key's tombstone.
# So any order, repetition or overlap of windows results in the same table. There is one exception, a LOB that a change
# row left out (``__keep_``): the target keeps its value, so the change with the value must have been merged before. The
# ledger ensures that windows are merged in order for the first time; repetition is harmless there too.


DELETE_OPERATION = 1
TOMBSTONES = TableName(LEDGER_SCHEMA, "tombstones")
_TARGET, _STAGED, _TOMBSTONE = "t", "s", "d"


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
    """The tombstone of a hard delete may have a higher LSN than a staged row."""
    sorted_by_key: bool = True
    """Read the staged rows in key order, so that a B-tree target touches neighbouring index pages. This nearly halves
    the time of a big merge. A lakehouse has no use for it."""
    overwrites: bool = False
    """Every staged row wins (see ``warehouse.warehouse``)."""
    deletes_have_keys_only: bool = False
    """A staged delete has no values: a row that is marked as deleted keeps its last ones."""
    not_null: tuple[str, ...] = ()
    """The columns of which NULL in a delete is not the last value: a row that is marked as deleted keeps its own."""


def merge_of(plan: WindowPlan, index: int, has_tombstones: bool) -> Merge:
    """Return the merge of table ``index`` of the plan."""
    table = plan.tables[index]
    source = table.feed.table
    return Merge(
        target=table.target,
        staging=staging_table(plan, index),
        key=source.key,
        columns=tuple(column.name for column in source.stored_columns),
        optional=optional_columns(source),
        deletes=table.settings.deletes,
        deletes_have_keys_only=table.feed.delivers_net,
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
        deleted = exp.and_(is_delete(), not_below.copy())
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


def staged(column: str) -> exp.Column:
    """Return a column of the staged row."""
    return exp.column(column, _STAGED, quoted=True)


def target(column: str) -> exp.Column:
    """Return a column of the target's row."""
    return exp.column(column, _TARGET, quoted=True)


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
    return exp.GTE(this=staged(LSN_COLUMN), expression=target(LSN_COLUMN))


def same_key(merge: Merge) -> exp.Expression:
    """Return the condition that a staged row and a row of the target have the same key."""
    return exp.and_(*(exp.EQ(this=target(name), expression=staged(name)) for name in merge.key))


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
    return exp.and_(exp.EQ(this=stored_hash, expression=key_hash), exp.EQ(this=stored, expression=key))


def join_tombstones(merge: Merge, rows: exp.Select) -> exp.Select:
    """Return ``rows`` of staging with the tombstone of each row's key, if it has one, as ``d``."""
    names = (exp.Literal.string(merge.target.schema), exp.Literal.string(merge.target.name))
    return rows.join(
        table(TOMBSTONES, _TOMBSTONE),
        on=exp.and_(
            exp.EQ(this=_tombstone("target_schema"), expression=names[0]),
            exp.EQ(this=_tombstone("target_name"), expression=names[1]),
            equal_keys(_tombstone("key"), tombstone_key(merge)),
        ),
        join_type="left",
    )


def not_tombstoned() -> exp.Expression:
    """Return the condition that the key has no tombstone with a higher LSN."""
    lsn = _tombstone("lsn")
    return exp.paren(exp.or_(lsn.is_(exp.null()), exp.GTE(this=staged(LSN_COLUMN), expression=lsn.copy())))


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
        rows = rows.order_by(*(exp.Ordered(this=staged(name), nulls_first=False) for name in merge.key))
    return rows.subquery(_STAGED)


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
        kept.append(exp.and_(is_delete(), staged(name).is_(exp.null())))
    if not kept:
        return staged(name)
    return exp.Case(ifs=[exp.If(this=exp.or_(*kept), true=target(name))], default=staged(name))


def _is_kept(merge: Merge) -> exp.Expression | None:
    """Return the condition that a staged row without a row in the target becomes one; None for every row."""
    return exp.not_(is_delete()) if merge.deletes is Deletes.HARD else None


def _insert(merge: Merge) -> exp.Insert:
    values = _inserted(merge)
    return exp.Insert(
        this=exp.Tuple(expressions=[exp.column(name, quoted=True) for name in values]),
        expression=exp.Tuple(expressions=list(values.values())),
    )


def _inserted(merge: Merge) -> dict[str, exp.Expression]:
    return {name: staged(name) for name in merge.columns} | _own_columns(merge)


def _own_columns(merge: Merge) -> dict[str, exp.Expression]:
    return {
        LSN_COLUMN: staged(LSN_COLUMN),
        OPERATION_COLUMN: staged(OPERATION_COLUMN),
        WINDOW_COLUMN: exp.Literal.number(merge.window_id),
        LOADED_AT_COLUMN: exp.CurrentTimestamp(),
        DELETED_COLUMN: exp.paren(is_delete()),
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


def count_merge(session: psycopg.Connection, merge: Merge) -> MergeCounts:
    """Return the effect that a merge will have."""
    row = session.execute(build_count(merge).sql(dialect="postgres")).fetchone()
    return MergeCounts(*row) if row else MergeCounts(0, 0, 0, 0)


def list_incomplete(session: psycopg.Connection, merge: Merge, limit: int) -> list[list[object]]:
    """Return keys of rows that would be inserted without a LOB."""
    absent = target(LSN_COLUMN).is_(exp.null())
    condition = exp.and_(exp.not_(is_delete()), absent, _leaves_out(merge))
    if merge.has_tombstones:
        condition = exp.and_(condition, not_tombstoned())
    rows = _joined(merge, exp.select(tombstone_key(merge))).where(condition).limit(limit)
    return [key for (key,) in session.execute(rows.sql(dialect="postgres")).fetchall()]


def build_count(merge: Merge) -> exp.Select:
    """Return the query for the counts, in the order of ``MergeCounts`` and by the rules of ``TableCounts``."""
    # __lsn is NOT NULL in a target, so NULL means that no row matched.
    absent = target(LSN_COLUMN).is_(exp.null())
    alive = exp.and_(exp.not_(absent.copy()), exp.not_(target(DELETED_COLUMN)))
    not_below = is_not_below(merge)
    above = exp.true() if merge.overwrites else exp.GT(this=staged(LSN_COLUMN), expression=target(LSN_COLUMN))
    living = exp.not_(is_delete())
    inserted = exp.and_(living, exp.or_(absent, exp.and_(target(DELETED_COLUMN), not_below)))
    if merge.has_tombstones:
        inserted = exp.and_(inserted, not_tombstoned())
    incomplete = exp.and_(inserted, absent, _leaves_out(merge))
    counted = exp.select(
        exp.Count(this=exp.Star()),
        _count(inserted),
        _count(exp.and_(living, alive, above)),
        _count(exp.and_(is_delete(), alive, not_below)),
        _count(incomplete),
        _count(exp.and_(is_delete(), exp.paren(exp.or_(*(staged(name).is_(exp.null()) for name in merge.key))))),
        _count(_is_written(merge, absent)),
    )
    return _joined(merge, counted)


def _is_written(merge: Merge, absent: exp.Expression) -> exp.Expression:
    """Return the condition that the merge inserts a staged row, or updates that of the target with it."""
    written = exp.paren(exp.or_(absent, is_not_below(merge)))
    if merge.deletes is Deletes.HARD:
        written = exp.and_(exp.not_(is_delete()), written)
    return exp.and_(written, not_tombstoned()) if merge.has_tombstones else written


def _joined(merge: Merge, selected: exp.Select) -> exp.Select:
    """Return staged rows joined to those of the target, and to their tombstones."""
    rows = selected.from_(table(merge.staging, "s")).join(
        table(merge.target, "t"), on=same_key(merge), join_type="left"
    )
    return join_tombstones(merge, rows) if merge.has_tombstones else rows


def _leaves_out(merge: Merge) -> exp.Expression:
    """Return the condition that the change row left a LOB out."""
    kept = [exp.func("COALESCE", staged(keep_column(name)), exp.false()) for name in merge.optional]
    return exp.paren(exp.or_(*kept)) if kept else exp.false()


def _count(condition: exp.Expression) -> exp.Filter:
    return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=condition.copy()))


# --------------------------------------------------------------------------------------------------------------------
# The gate between staging and target: declared rules, evaluated on the values that the target would get.
#
# A row that is read again, by a replay or by another load at the same LSN, is stored in quarantine once. Deletes are
# not evaluated. A LOB that the change row left out is evaluated with the target's value, or, where the change with the
# value is in quarantine, with the value from there.


KEY_RULE = "key_is_not_null"
TEXT_RULE = "text_can_be_stored"
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class GateCounts:
    """The rows of a window that broke rules."""

    quarantined: int = 0
    """Rows that were moved to quarantine."""
    warned: int = 0
    """Violations of rules that only warn."""


def apply_rules(session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge) -> GateCounts:
    """Move broken rows from staging to quarantine, by the rules of the table.

    Raises DataQualityError for a broken rule that stops the run, or a broken row that quarantine cannot hold;
    ConfigError for a rule that cannot be evaluated.
    """
    if not planned.settings.rules:
        return GateCounts()
    broken = {rule: _broken(planned, merge, rule) for rule in planned.settings.rules}
    counts = _count_broken(session, planned, merge, broken)
    for rule, rows in counts.items():
        if rows and rule.on_failure is OnFailure.STOP:
            raise _stopped(session, planned, merge, rule, broken[rule])
    quarantining = [rule for rule, rows in counts.items() if rows and rule.on_failure is OnFailure.QUARANTINE]
    for rule in quarantining:
        if planned.kind is LoadKind.FIRST_LOAD:
            # They are stored again under this window: the sweep finds the rows that the load has read by their window.
            session.execute(_delete_earlier(planned, merge, rule).sql(dialect="postgres"))
        try:
            session.execute(_quarantine(plan, planned, merge, rule, broken[rule]).sql(dialect="postgres"))
        except psycopg.errors.ProgramLimitExceeded as error:
            raise _too_large(planned, rule) from error
    quarantined = 0
    if quarantining:
        rows_in = exp.select(exp.column("ctid", "s")).from_(table(merge.staging, "s"))
        rows_in = _join_target(merge, rows_in).where(exp.or_(*(broken[rule] for rule in quarantining)))
        removed = exp.delete(table(merge.staging, "g")).where(exp.column("ctid", "g").isin(rows_in))
        quarantined = session.execute(removed.sql(dialect="postgres")).rowcount
    warned = sum(rows for rule, rows in counts.items() if rule.on_failure is OnFailure.WARN)
    return GateCounts(quarantined, warned)


def recover_kept_values(session: psycopg.Connection, planned: TablePlan, merge: Merge, types: dict[str, str]) -> None:
    """Fill a LOB that was left out from quarantine, where the change with its value is in quarantine.

    Otherwise a row that corrects a quarantined one would keep the LOB from before both. A text that cannot be stored
    still cannot: the row goes to quarantine too.
    """
    names = {"target_schema": planned.target.schema, "target_name": planned.target.name}
    found = session.execute(read_sql("has_quarantine"), names).fetchone()
    if not merge.optional or not found or not found[0]:
        return
    statement = read_sql("recover_kept_value")
    is_replaced = planned.settings.unstorable is UnstorablePolicy.REPLACE
    for name in merge.optional:
        session.execute(
            statement.format(
                staging=in_bound(table(merge.staging, "s")),
                target=in_bound(table(merge.target, "t")),
                key=in_bound(tombstone_key(merge)),
                same_key=in_bound(same_key(merge)),
                column=in_bound(exp.to_identifier(name, quoted=True)),
                type=types[name],
                keep=in_bound(exp.to_identifier(keep_column(name), quoted=True)),
            ),
            {**names, "column": name, "keep": keep_column(name), "is_replaced": is_replaced},
        )


def drop_set_aside(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> int:
    """Remove from the staging of a replay the changes that left a LOB out and whose row is in quarantine as a whole.

    The target lacks such a row, because each of its versions that had the LOB was set aside. A newer version than the
    change is in quarantine, so the change is not needed. Return the number of changes.
    """
    if not merge.optional:
        return 0
    statement = read_sql("drop_set_aside").format(
        staging=in_bound(table(merge.staging, "s")),
        target=in_bound(table(merge.target, "t")),
        key=in_bound(tombstone_key(merge)),
        same_key=in_bound(same_key(merge)),
        leaves_out=in_bound(_leaves_out(merge)),
    )
    named = {"target_schema": planned.target.schema, "target_name": planned.target.name}
    dropped = session.execute(statement, named).rowcount
    if dropped:
        _LOG.info("%s: %s replayed changes are of rows with a newer version in quarantine.", planned.source, dropped)
    return dropped


def _broken(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Expression:
    """Return the condition that a staged row is not a delete and breaks the rule; NULL passes."""
    try:
        condition = bind_rule(rule.sql, (*merge.columns, UNSTORABLE_COLUMN))
    except ValueError as error:
        raise ConfigError(str(planned.source), f"rule {rule.name}: {error}.") from None
    for column in list(condition.find_all(exp.Column)):
        value: exp.Expression = staged(column.name)
        if column.name in merge.optional:
            value = exp.Case(
                ifs=[exp.If(this=staged(keep_column(column.name)), true=target(column.name))], default=value
            )
        if column is condition:
            condition = value
        else:
            column.replace(value)
    return exp.and_(exp.not_(is_delete()), exp.Is(this=exp.paren(condition), expression=exp.false()))


def _join_target(merge: Merge, rows: exp.Select) -> exp.Select:
    return rows.join(table(merge.target, "t"), on=same_key(merge), join_type="left")


def _count_broken(
    session: psycopg.Connection, planned: TablePlan, merge: Merge, broken: dict[Rule, exp.Expression]
) -> dict[Rule, int]:
    counts = [exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=b.copy())) for b in broken.values()]
    rows = exp.select(*counts).from_(table(merge.staging, "s"))
    if any(name in merge.optional for b in broken.values() for name in columns_of(b)):
        rows = _join_target(merge, rows)
    try:
        found = session.execute(rows.sql(dialect="postgres")).fetchone()
    except (psycopg.ProgrammingError, psycopg.DataError) as error:
        raise _not_evaluated(planned, broken, error) from error
    return dict(zip(broken, found or (), strict=True))


def _not_evaluated(planned: TablePlan, rules: Iterable[Rule], error: psycopg.Error) -> ConfigError:
    names = ", ".join(rule.name for rule in rules if rule.name not in (KEY_RULE, TEXT_RULE))
    what = f"one of its rules ({names}) cannot be evaluated"
    words = (error.diag.message_primary or "").rstrip(".")
    if isinstance(error, psycopg.DataError):  # its message may quote the value that could not be converted
        return ConfigError(
            str(planned.source),
            f"{what} on a value of the window ({type(error).__name__}).",
            "The log of the task has the message.",
            words,
        )
    return ConfigError(str(planned.source), f"{what}: {words}.")


def _quarantine(plan: WindowPlan, planned: TablePlan, merge: Merge, rule: Rule, broken: exp.Expression) -> exp.Insert:
    # Without the star, the name is that of a column before it is that of a table.
    row = exp.func("TO_JSONB", exp.Column(this=exp.Star(), table=exp.to_identifier("s")))
    values: dict[str, exp.Expression] = {
        "pipeline": exp.Literal.string(plan.pipeline),
        "source_schema": exp.Literal.string(planned.source.schema),
        "source_name": exp.Literal.string(planned.source.name),
        "target_schema": exp.Literal.string(planned.target.schema),
        "target_name": exp.Literal.string(planned.target.name),
        "window_id": exp.Literal.number(plan.window_id),
        "rule": exp.Literal.string(rule.name),
        "key": tombstone_key(merge),
        "lsn": staged(LSN_COLUMN),
        "row_data": exp.Sub(this=row, expression=exp.Literal.string(PART_COLUMN)),
    }
    rows = _join_target(merge, exp.select(*values.values()).from_(table(merge.staging, "s"))).where(broken.copy())
    rows = rows.where(exp.not_(exp.Exists(this=_select_earlier(planned, merge, rule))))
    return exp.insert(rows, exp.table_("quarantine", "floodmark"), columns=list(values))


def _delete_earlier(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Delete:
    """Return the statement that deletes the rows that an earlier load at the same LSN stored for the rule."""
    staged_again = exp.select("1").from_(table(merge.staging, "s")).where(_is_same_change(planned, merge, rule))
    return exp.delete(exp.table_("quarantine", "floodmark", alias="q")).where(exp.Exists(this=staged_again))


def _select_earlier(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Select:
    """Return the query for the row of quarantine that is the same change and rule as the staged row."""
    quarantine = exp.table_("quarantine", "floodmark", alias="q")
    return exp.select("1").from_(quarantine).where(_is_same_change(planned, merge, rule))


def _is_same_change(planned: TablePlan, merge: Merge, rule: Rule) -> exp.Expression:
    equal: dict[str, exp.Expression] = {
        "target_schema": exp.Literal.string(planned.target.schema),
        "target_name": exp.Literal.string(planned.target.name),
        "rule": exp.Literal.string(rule.name),
        "lsn": staged(LSN_COLUMN),
    }
    same = equal_keys(exp.column("key", "q"), tombstone_key(merge))
    return exp.and_(same, *(exp.EQ(this=exp.column(name, "q"), expression=value) for name, value in equal.items()))


def _stopped(
    session: psycopg.Connection, planned: TablePlan, merge: Merge, rule: Rule, broken: exp.Expression
) -> DataQualityError:
    examples = _join_target(merge, exp.select(tombstone_key(merge)).from_(table(merge.staging, "s")))
    found = session.execute(examples.where(broken.copy()).limit(_EXAMPLES).sql(dialect="postgres")).fetchall()
    keys = "; ".join(", ".join(str(part) for part in key) for (key,) in found)  # in the detail: they are values
    return DataQualityError(
        str(planned.source),
        f"rows of the window broke rule {rule.name} ({rule.sql}).",
        "Nothing of the table was merged; the log of the load names some keys. Correct the data at the source, or "
        "change the rule (or its on_failure): the next run reads the rows again, and the correction with them.",
        f"such as key {keys}",
    )


def _too_large(planned: TablePlan, rule: Rule) -> DataQualityError:
    instead = "set unstorable: replace" if rule.name == TEXT_RULE else "let the rule warn (on_failure: warn)"
    return DataQualityError(
        str(planned.source),
        f"a row of the window broke rule {rule.name}, and is too large for quarantine, which holds 255 MB of a row.",
        f"Nothing of the table was merged. Shorten the row at the source, or {instead}: the next run reads it again.",
    )


def in_bound(expression: exp.Expression) -> str:
    """Return the expression for a statement with parameters, where psycopg treats % as a placeholder."""
    return str(expression.sql(dialect="postgres")).replace("%", "%%")


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
