"""The merge, built once as a sqlglot tree and rendered per engine.

The guard: a staged row wins if its LSN is not below that of the target's row, nor below that of the key's tombstone.
So any order, repetition or overlap of windows results in the same table. There is one exception, a LOB that a change
row left out (``__keep_``): the target keeps its value, so the change with the value must have been merged before. The
ledger ensures that windows are merged in order for the first time; repetition is harmless there too.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.naming import (
    DELETED_COLUMN,
    LEDGER_SCHEMA,
    LOADED_AT_COLUMN,
    LSN_COLUMN,
    OPERATION_COLUMN,
    WINDOW_COLUMN,
    keep_column,
    optional_columns,
)
from floodmark.core.policies import Deletes
from floodmark.core.schema import SourceTable, TableName
from floodmark.core.window.plan import WindowPlan
from floodmark.core.window.staging_names import staging_table

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
    """Every staged row wins (see ``warehouse.sweep``)."""
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
        deletes=table.deletes,
        deletes_have_keys_only=table.feed.delivers_net,
        not_null=_not_null(source) if table.deletes is Deletes.SOFT else (),
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
