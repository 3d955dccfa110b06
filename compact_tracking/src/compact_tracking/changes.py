"""Anchors, and the exact enumeration of what changed between two of them.

A window is [after, until): transactions whose CSN is at least ``after.csn`` and below ``until.csn``. Its result is
exact when the rows are read at ``until``: in the transaction that took the anchor, or in a snapshot made then. A key
occurs at most once, so changes may be applied in any order. The BSN of an anchor is the lowest one open: it only
saves reading, as no transaction that commits later has a lower one.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from compact_tracking.enabling import TrackedTable, check_tracked
from compact_tracking.enumerations import Operation
from compact_tracking.names import CHANGE_BSN, CONTEXT, INSERT_BSN, list_keys, quote_name, resolve_csn
from compact_tracking.numbers import read_counters, read_low_water
from compact_tracking.structure import Table, select_key


@dataclass(frozen=True, order=True)
class Anchor:
    """A position between two commits."""

    csn: int
    """The next CSN: every lower one is visible here (original: ECSN, and LCSN at the next sync)."""
    bsn: int
    """The lowest BSN that was open, or the next one (original: EBSN, and LBSN at the next sync)."""


@dataclass(frozen=True)
class Change:
    """The net change of one row within a window."""

    operation: Operation
    """The net operation."""
    key: tuple[Any, ...]
    """The key in key order, each value as SQLite stores it."""
    row: tuple[Any, ...] | None
    """The row at the window's end, in the order of the table's columns; None for a delete."""
    csn: int
    """The CSN of the row's last change in the window."""
    context: UUID | None
    """The tracking context of that change."""


def read_anchor(cursor: sqlite3.Cursor) -> Anchor:
    """Return the position of the file as the caller's transaction sees it."""
    return Anchor(csn=read_counters(cursor)[1], bsn=read_low_water(cursor))


def enumerate_table(
    cursor: sqlite3.Cursor, tracked: TrackedTable, after: Anchor, until: Anchor, *, with_passing: bool = False
) -> Iterator[Change]:
    """Yield the net changes of a table in [after, until), inside the caller's transaction.

    with_passing: also the deletes of rows that came and went in the window.

    Raises:
        TrackingLostError: the table no longer has all of its tracking.
    """
    table = check_tracked(cursor, tracked)
    key = [quote_name(column.name) for column in select_key(table, tracked.key_type)]
    bounds = {"bsn": after.bsn, "after": after.csn, "until": until.csn, "table": tracked.table_id}
    yield from _list_live(cursor, table, key, bounds)
    yield from _list_deleted(cursor, table, key, bounds, with_passing=with_passing)


def _list_live(cursor: sqlite3.Cursor, table: Table, key: list[str], bounds: dict[str, int]) -> Iterator[Change]:
    columns = [quote_name(column.name) for column in table.columns]
    again = " AND ".join(f"d.{k} IS t.{q} COLLATE BINARY" for k, q in zip(list_keys(len(key)), key, strict=True))
    rows = cursor.connection.cursor()
    rows.row_factory = None
    rows.execute(
        f"""WITH gone AS ({_select_gone(len(key))}),
        changed AS (SELECT t.*, {resolve_csn(f"t.{INSERT_BSN}")} AS __ct_inserted,
            {resolve_csn(f"t.{CHANGE_BSN}")} AS __ct_changed
            FROM main.{quote_name(table.name)} AS t WHERE t.{CHANGE_BSN} >= :bsn)
        SELECT coalesce(__ct_inserted >= :after, 0) AND NOT EXISTS (SELECT 1 FROM gone AS d WHERE {again}),
            __ct_changed, {CONTEXT}, {", ".join(key + columns)}
        FROM changed AS t
        WHERE (__ct_inserted >= :after AND __ct_inserted < :until) OR (__ct_changed >= :after AND __ct_changed < :until)
        """,
        bounds,
    )
    for is_new, csn, context, *values in rows:
        operation = Operation.INSERT if is_new else Operation.UPDATE
        yield Change(operation, tuple(values[: len(key)]), tuple(values[len(key) :]), csn, _to_guid(context))


def _list_deleted(
    cursor: sqlite3.Cursor, table: Table, key: list[str], bounds: dict[str, int], *, with_passing: bool
) -> Iterator[Change]:
    stored = list_keys(len(key))
    lives = " AND ".join(
        f"t.{name} = g.{k} AND t.{name} COLLATE BINARY IS g.{k}" for name, k in zip(key, stored, strict=True)
    )
    inserted = f"coalesce({resolve_csn(f't.{INSERT_BSN}')}, 0)"
    rows = cursor.connection.cursor()
    rows.row_factory = None
    rows.execute(
        f"""WITH gone AS ({_select_gone(len(stored), with_passing=with_passing)})
        SELECT g.csn, (SELECT context FROM __ct_tombstones WHERE id = g.last), {", ".join(f"g.{k}" for k in stored)}
        FROM gone AS g
        WHERE NOT EXISTS (SELECT 1 FROM main.{quote_name(table.name)} AS t WHERE {lives} AND {inserted} < :until)
        """,
        bounds,
    )
    for csn, context, *values in rows:
        yield Change(Operation.DELETE, tuple(values), None, csn, _to_guid(context))


def _select_gone(keys: int, *, with_passing: bool = False) -> str:
    """Return a SELECT of the keys that died inside the window, and lived at its start unless ``with_passing``."""
    stored = ", ".join(list_keys(keys))
    inserted, deleted = resolve_csn("t.insert_bsn"), resolve_csn("t.delete_bsn")
    return (
        f"SELECT {stored}, max({deleted}) AS csn, max(id) AS last FROM __ct_tombstones AS t"
        f" WHERE table_id = :table AND delete_bsn >= :bsn AND ({int(with_passing)} OR coalesce({inserted}, 0) < :after)"
        f" AND {deleted} >= :after AND {deleted} < :until GROUP BY {stored}"
    )


def _to_guid(text: str | None) -> UUID | None:
    return UUID(text) if text else None
