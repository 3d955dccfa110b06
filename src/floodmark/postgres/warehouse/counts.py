"""The counts of a merge, taken before the merge in the same transaction.

PostgreSQL 15 and 16 cannot report which rows a MERGE touched, and no version below 18 can return a row's old values.
The count reads the same rows as the merge and takes a few hundredths of its time.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from sqlglot import exp

from floodmark.core.naming import DELETED_COLUMN, LSN_COLUMN, keep_column
from floodmark.core.policies import Deletes
from floodmark.postgres.warehouse.merge import (
    Merge,
    is_delete,
    is_not_below,
    join_tombstones,
    not_tombstoned,
    same_key,
    staged,
    table,
    target,
    tombstone_key,
)


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
