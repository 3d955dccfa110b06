"""What a merge will do, counted before it does it, in the same transaction.

Before, because PostgreSQL 15 and 16 cannot say which rows a MERGE touched, and no version below 18 can say what a row
was before. It reads what the merge is about to read: a few hundredths of the merge's own time.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from sqlglot import exp

from floodmark.core.naming import DELETED_COLUMN, LSN_COLUMN
from floodmark.warehouse.merge import (
    Merge,
    is_delete,
    is_not_below,
    join_tombstones,
    not_buried,
    same_key,
    staged,
    table,
    target,
)


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """In rows of staging."""

    staged: int
    inserted: int
    updated: int
    deleted: int


def count_merge(session: psycopg.Connection, merge: Merge) -> MergeCounts:
    row = session.execute(build_count(merge).sql(dialect="postgres")).fetchone()
    return MergeCounts(*row) if row else MergeCounts(0, 0, 0, 0)


def build_count(merge: Merge) -> exp.Select:
    """One row: staged, inserted, updated, deleted, by the rules of ``core.window.TableCounts``."""
    # __lsn is NOT NULL in a target, so NULL means that no row matched.
    absent = target(LSN_COLUMN).is_(exp.null())
    alive = exp.and_(exp.not_(absent.copy()), exp.not_(target(DELETED_COLUMN)))
    not_below = is_not_below(merge)
    above = exp.true() if merge.overwrites else exp.GT(this=staged(LSN_COLUMN), expression=target(LSN_COLUMN))
    living = exp.not_(is_delete())
    born = exp.and_(living, exp.or_(absent, exp.and_(target(DELETED_COLUMN), not_below)))
    if merge.has_tombstones:
        born = exp.and_(born, not_buried())
    rows = (
        exp.select(exp.Count(this=exp.Star()), _count(born), _count(exp.and_(living, alive, above)),
                   _count(exp.and_(is_delete(), alive, not_below)))
        .from_(table(merge.staging, "s"))
        .join(table(merge.target, "t"), on=same_key(merge), join_type="left")
    )  # fmt: skip
    return join_tombstones(merge, rows) if merge.has_tombstones else rows


def _count(condition: exp.Expression) -> exp.Filter:
    return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=condition.copy()))
