"""Queries before and after the read of a whole table: where to cut it, and whether its key is unique.

The server guarantees that its own keys are unique and never NULL. A declared key must be checked in the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal

import pyarrow as pa

from floodmark.core.errors import ConfigError, SourceUnavailableError
from floodmark.core.source.scripts import bracket_table
from floodmark.core.window.chunks import Bound
from floodmark.core.window.plan import TablePlan
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.rows import statements
from floodmark.sources.sqlserver.rows.code_units import text_of
from floodmark.sources.sqlserver.sql_files import read_sql

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3


def read_chunk_bounds(plan: TablePlan, connected: Callable[[], AbstractContextManager[SourceSession]]) -> list[Bound]:
    """Return the keys at which the server cuts the table into chunks, in its own order.

    None for a key without an index: each chunk would be a scan of the whole table, which is read in one stream instead.

    Raises ConfigError for a key with a NULL: no comparison with a bound is true for NULL, so no chunk would have the
    row, and nothing could be merged by it. Each bound is a statement of its own. Where one fails for a moment, the
    search continues, on another connection, after the bounds that were found.
    """
    if not plan.feed.table.key:
        return []
    bounds: list[Bound] = []
    failures, checked = 0, False
    while True:
        found = len(bounds)
        try:
            with connected() as session:
                if not checked:
                    if not _has_index(session, plan):
                        return []
                    _refuse_null_keys(session, plan)
                    checked = True
                _continue_bounds(session, plan, bounds)
                return bounds
        except SourceUnavailableError as error:
            failures = 1 if len(bounds) > found else failures + 1
            if failures == _ATTEMPTS:
                raise
            _LOG.warning("%s; continuing after %s chunk bounds.", error, len(bounds))


def refuse_null_keys(plan: TablePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a whole table. Raises ConfigError after the last one where a key had a NULL."""
    names = statements.nullable_key(plan)
    counts = dict.fromkeys(names, 0)
    for batch in batches:
        for name in names:
            counts[name] += batch.column(name).null_count
        yield batch
    _refuse_nulls(plan, counts)


def find_double_key(plan: TablePlan, session: SourceSession) -> tuple[Bound, int] | None:
    """Return a key that several rows have at the source, and their number; None where each key is unique.

    The rows are counted twice: a scan of another index may return a row twice that moves meanwhile, but hardly in both
    counts.
    """
    for *key, _ in session.fetch(statements.select_double_key(plan)):
        bound = _portable(key)
        rows = int(session.fetch(statements.count_key(plan), bound)[0][0])
        if rows > 1:
            return _readable(plan, bound), rows
    return None


def _readable(plan: TablePlan, bound: Bound) -> Bound:
    """Return a key for a person."""
    table = plan.feed.table
    return tuple(text_of(table.column(name), value) for name, value in zip(table.key, bound, strict=True))


def _has_index(session: SourceSession, plan: TablePlan) -> bool:
    """Return whether an index has the columns of the key first, in their order and all in one direction."""
    key = plan.feed.table.key
    columns: dict[int, list[tuple[str, bool]]] = {}
    for index, name, is_descending in session.fetch(read_sql("read_indexes"), (bracket_table(plan.feed.table.name),)):
        columns.setdefault(index, []).append((name, bool(is_descending)))
    return any(found[: len(key)] in _directions(key) for found in columns.values())


def _directions(key: Sequence[str]) -> tuple[list[tuple[str, bool]], ...]:
    return [(name, False) for name in key], [(name, True) for name in key]


def _continue_bounds(session: SourceSession, plan: TablePlan, bounds: list[Bound]) -> None:
    """Add the bounds after the last one."""
    while True:
        after = statements.bound_parameters(plan.feed.table, bounds[-1]) if bounds else ()
        text = statements.select_next_bound(plan, bool(bounds))
        rows = session.fetch(text, (*after, plan.first_load_chunk_rows - 1))
        if not rows:
            return
        bounds.append(_portable(rows[0]))


def _refuse_null_keys(session: SourceSession, plan: TablePlan) -> None:
    names = statements.nullable_key(plan)
    if names:
        _refuse_nulls(plan, dict(zip(names, session.fetch(statements.count_null_keys(plan))[0], strict=True)))


def _refuse_nulls(plan: TablePlan, counts: Mapping[str, int]) -> None:
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
