"""Queries before and after the read of a whole table: where to cut it, and whether its key is unique.

The server guarantees that its own keys are unique and never NULL. A declared key must be checked in the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from floodmark.core.errors import ConfigError
from floodmark.core.window.chunks import Bound
from floodmark.core.window.plan import TablePlan
from floodmark.sources.cdc.rows import statements
from floodmark.sources.sqlserver.driver import SourceSession


def read_chunk_bounds(plan: TablePlan, session: SourceSession) -> list[Bound]:
    """Return the keys at which the server cuts the table into chunks, in its own order.

    Raises ConfigError for a key with a NULL: no comparison with a bound is true for NULL, so no chunk would have the
    row, and nothing could be merged by it. The only time limit is that of locks: the whole key is read in order.
    """
    table = plan.feed.table
    if not table.key:
        return []
    _refuse_null_keys(session, plan)
    rows = session.fetch(statements.select_chunk_bounds(plan), (plan.first_load_chunk_rows,))
    return [_portable(row) for row in rows]


def find_double_key(plan: TablePlan, session: SourceSession) -> tuple[Bound, int] | None:
    """Return a key that several rows have at the source, and their number; None where each key is unique.

    The rows are counted twice: a scan of another index may return a row twice that moves meanwhile, but hardly in both
    counts.
    """
    for *key, _ in session.fetch(statements.select_double_key(plan)):
        bound = _portable(key)
        rows = int(session.fetch(statements.count_key(plan), bound)[0][0])
        if rows > 1:
            return bound, rows
    return None


def _refuse_null_keys(session: SourceSession, plan: TablePlan) -> None:
    names = statements.nullable_key(plan)
    if not names:
        return
    counts = dict(zip(names, session.fetch(statements.count_null_keys(plan))[0], strict=True))
    if found := {name: rows for name, rows in counts.items() if rows}:
        counted = ", ".join(f"{name} in {rows} row{'s' if rows > 1 else ''}" for name, rows in found.items())
        raise ConfigError(
            str(plan.source),
            f"the declared key ({', '.join(plan.feed.table.key)}) is NULL: {counted}.",
            "Rows are merged by their key: declare columns that are never NULL, or fill them at the source.",
        )


def _portable(row: Sequence[object]) -> Bound:
    """Return a key that the driver binds as the same value: uuid.UUID is not bound as uniqueidentifier."""
    return tuple(value if isinstance(value, int | str | bytes | Decimal) else str(value) for value in row)
