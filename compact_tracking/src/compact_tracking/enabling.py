"""Tables become tracked, cease to be, and are checked for what the tracking needs.

A tracked table has three columns, five triggers and an index. A program that rebuilds it (create, copy, drop, rename)
takes them away without a trace in the tracking, and a new unique index opens a way for REPLACE. So before every
enumeration the triggers in the file are compared with those that the table needs now.
"""

import re
import sqlite3
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from compact_tracking.access import check_drop_column
from compact_tracking.enumerations import TrackingKeyType, TrackingOptions
from compact_tracking.errors import (
    AnchorExpiredError,
    DamagedFileError,
    InvalidOperationError,
    TrackingArgumentError,
    TrackingLostError,
    UnsupportedError,
)
from compact_tracking.key_packing import KeyType
from compact_tracking.names import CHANGE_BSN, CONTEXT, INSERT_BSN, SYSTEM_COLUMNS, quote_name
from compact_tracking.numbers import read_counters
from compact_tracking.schema import install, is_installed
from compact_tracking.structure import Table, read_table, select_key
from compact_tracking.tombstones import read_key_type, write_key_type
from compact_tracking.triggers import TriggerBuilder

_UPDATE = re.compile(r"\bupdate\b(?!\s+of\b)", re.IGNORECASE)
_TYPES = {CHANGE_BSN: "INTEGER", INSERT_BSN: "INTEGER", CONTEXT: "TEXT"}


@dataclass(frozen=True)
class TrackedTable:
    """A table as it is registered for tracking."""

    table_id: int
    """Its number in the file."""
    name: str
    """Its name."""
    token: str
    """A random text for this tracking of the table; enabling it again gives another one."""
    key_type: TrackingKeyType
    """The kind of its key."""
    options: TrackingOptions
    """The operations that are tracked."""
    key: KeyType
    """The columns of its key."""
    purged_below: int
    """Changes with a lower CSN may be missing."""


def list_tracked(cursor: sqlite3.Cursor) -> list[TrackedTable]:
    """Return all tracked tables of the file, by name."""
    if not is_installed(cursor):
        return []
    rows = cursor.execute(
        "SELECT t.id, t.name, t.token, t.key_type, t.options, t.key_columns, max(purged_below, sequence_purged_below)"
        " FROM main.__ct_tables AS t, main.__ct_state ORDER BY t.name"
    ).fetchall()
    try:
        return [
            TrackedTable(
                table_id, name, token, TrackingKeyType(kind), TrackingOptions(options), read_key_type(key, kind), below
            )
            for table_id, name, token, kind, options, key, below in rows
        ]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedFileError("the file's __ct_tables has a row that the tracking did not write") from error


def find_tracked(cursor: sqlite3.Cursor, name: str) -> TrackedTable | None:
    """Return a tracked table, its name without regard to case; None for one that is not tracked."""
    return next((table for table in list_tracked(cursor) if table.name.lower() == name.lower()), None)


def check_tracked(cursor: sqlite3.Cursor, tracked: TrackedTable) -> Table:
    """Return the structure of a tracked table after the check that nothing of its tracking is missing.

    Raises:
        TrackingLostError: the table is gone, was rebuilt, or has a unique key that its triggers do not know.
    """
    try:
        table = read_table(cursor, tracked.name)
        key = select_key(table, tracked.key_type)
    except (TrackingArgumentError, UnsupportedError) as error:
        raise TrackingLostError(f"{tracked.name!r} can no longer be tracked: {error}") from error
    needed = TriggerBuilder(tracked.table_id, table, key, tracked.options).build()
    lost = sorted(set(SYSTEM_COLUMNS) - table.system_columns) or _list_missing(cursor, needed, tracked.name)
    if lost:
        raise TrackingLostError(
            f"{tracked.name!r} was changed without its tracking, so changes of rows may be missing ({', '.join(lost)}):"
            " enable its tracking again, and load it again"
        )
    return table


def check_anchor(tracked: TrackedTable, after_csn: int) -> None:
    """Raise AnchorExpiredError when a window from this CSN would be incomplete."""
    if after_csn < tracked.purged_below:
        raise AnchorExpiredError(
            f"changes of {tracked.name!r} below CSN {tracked.purged_below} were purged or not tracked, and the anchor"
            f" is at {after_csn}: load the table again"
        )


def enable(cursor: sqlite3.Cursor, name: str, key_type: TrackingKeyType, options: TrackingOptions) -> None:
    """Track a table from now on, inside the caller's write transaction; nothing happens if it is tracked like this."""
    install(cursor)
    table = read_table(cursor, name)
    key = select_key(table, key_type)
    found = find_tracked(cursor, table.name)
    if found:
        if _is_intact(cursor, found):
            if (found.key_type, found.options) != (key_type, options):
                raise InvalidOperationError(f"{table.name!r} is tracked in another way: disable its tracking first")
            return
        _forget(cursor, found)
    _refuse_triggers(cursor, table.name)
    _refuse_nulls(cursor, table, [column.name for column in key])
    for column in SYSTEM_COLUMNS:
        if column not in table.system_columns:
            cursor.execute(f"ALTER TABLE main.{quote_name(table.name)} ADD COLUMN {column} {_TYPES[column]}")
    _register(cursor, table, key_type, options)


def disable(cursor: sqlite3.Cursor, name: str) -> None:
    """End the tracking of a table and drop its three columns, inside the caller's write transaction."""
    found = find_tracked(cursor, name)
    if found is None:
        raise InvalidOperationError(f"{name!r} is not tracked")
    check_drop_column()
    _forget(cursor, found)
    row = cursor.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (name,)
    )
    if row.fetchone():
        for column in sorted(read_table(cursor, name).system_columns):
            cursor.execute(f"ALTER TABLE main.{quote_name(found.name)} DROP COLUMN {column}")


def _register(cursor: sqlite3.Cursor, table: Table, key_type: TrackingKeyType, options: TrackingOptions) -> None:
    key = select_key(table, key_type)
    cursor.execute(
        "INSERT INTO main.__ct_tables (name, token, key_type, options, key_ordinal, key_columns, purged_below)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            table.name,
            str(uuid.uuid4()),
            int(key_type),
            int(options),
            key[0].ordinal,
            write_key_type(key),
            read_counters(cursor)[1],
        ),
    )
    table_id = cursor.lastrowid or 0
    for statement in TriggerBuilder(table_id, table, key, options).build().values():
        cursor.execute(statement)


def _forget(cursor: sqlite3.Cursor, tracked: TrackedTable) -> None:
    """Remove triggers, index and tombstones of a table, also those that moved to a renamed table."""
    prefix = f"__ct_{tracked.table_id}_"
    rows = cursor.execute(
        "SELECT type, name FROM main.sqlite_master WHERE type IN ('trigger', 'index') AND substr(name, 1, ?) = ?",
        (len(prefix), prefix),
    ).fetchall()
    for kind, name in rows:
        cursor.execute(f"DROP {kind} main.{quote_name(name)}")
    for table in ("__ct_tombstones", "__ct_replaced"):
        cursor.execute(f"DELETE FROM main.{table} WHERE table_id = ?", (tracked.table_id,))
    cursor.execute("DELETE FROM main.__ct_tables WHERE id = ?", (tracked.table_id,))


def _is_intact(cursor: sqlite3.Cursor, tracked: TrackedTable) -> bool:
    try:
        check_tracked(cursor, tracked)
    except TrackingLostError:
        return False
    return True


def _list_missing(cursor: sqlite3.Cursor, needed: dict[str, str], name: str) -> list[str]:
    rows: Iterable[tuple[str, str]] = cursor.execute(
        "SELECT name, sql FROM main.sqlite_master WHERE type IN ('trigger', 'index') AND tbl_name = ? COLLATE NOCASE",
        (name,),
    )
    found = dict(rows)
    return sorted(trigger for trigger, sql in needed.items() if found.get(trigger) != sql)


def _refuse_triggers(cursor: sqlite3.Cursor, name: str) -> None:
    """Refuse a table on which each stamp would fire a trigger of the user's."""
    rows = cursor.execute(
        "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE", (name,)
    ).fetchall()
    found = [trigger for trigger, sql in rows if _fires_on_every_update(sql)]
    if found:
        raise InvalidOperationError(
            f"{name!r} has a trigger on every UPDATE ({', '.join(found)}), which the tracking would fire for each row:"
            " name its columns, as in AFTER UPDATE OF a, b"
        )


def _fires_on_every_update(sql: str) -> bool:
    """Return whether the head of a CREATE TRIGGER, up to its ON, has an UPDATE without columns; also when in doubt."""
    head = re.split(r"\bon\b", sql, maxsplit=1, flags=re.IGNORECASE)[0]
    return bool(_UPDATE.search(head))


def _refuse_nulls(cursor: sqlite3.Cursor, table: Table, key: list[str]) -> None:
    nulls = " OR ".join(f"{quote_name(column)} IS NULL" for column in key)
    if cursor.execute(f"SELECT 1 FROM main.{quote_name(table.name)} WHERE {nulls} LIMIT 1").fetchone():
        raise InvalidOperationError(f"{table.name!r} has rows with NULL in the key: give them a key, or delete them")
