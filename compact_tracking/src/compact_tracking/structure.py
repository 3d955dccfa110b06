"""The structure of a user table as far as the tracking needs it: columns, key, unique keys, the name of its rowid."""

import sqlite3
from dataclasses import dataclass

from compact_tracking.enumerations import TrackingKeyType
from compact_tracking.errors import TrackingArgumentError, UnsupportedError
from compact_tracking.names import KEY_COLUMNS_LIMIT, OWN_PREFIXES, SYSTEM_COLUMNS, quote_name


@dataclass(frozen=True)
class Column:
    """A column of a user table."""

    name: str
    """Its name as declared."""
    declared_type: str
    """Its type as declared, "" without one."""
    ordinal: int
    """Its place in the table, from 1."""
    key_position: int
    """Its place in the primary key, from 1; 0 outside of it."""


@dataclass(frozen=True)
class UniqueKey:
    """A primary key, unique constraint or unique index."""

    columns: tuple[str, ...]
    """Its columns."""
    collations: tuple[str, ...]
    """The collation under which each of them is unique."""
    is_partial: bool
    """Whether only some rows are unique by it."""


@dataclass(frozen=True)
class Table:
    """A user table."""

    name: str
    """Its name as declared."""
    columns: tuple[Column, ...]
    """All columns but those of the tracking."""
    system_columns: frozenset[str]
    """The columns of the tracking that it has."""
    unique_keys: tuple[UniqueKey, ...]
    """Every key on which a REPLACE can remove a row."""
    rowid: str | None
    """A name for its rowid that no column hides; None for a table WITHOUT ROWID."""

    @property
    def primary_key(self) -> tuple[Column, ...]:
        """The columns of the primary key, in key order."""
        return tuple(sorted((column for column in self.columns if column.key_position), key=lambda c: c.key_position))


def read_table(cursor: sqlite3.Cursor, name: str) -> Table:
    """Return the structure of a table; its name is matched without regard to case, as SQLite does.

    Raises:
        TrackingArgumentError: there is no such table.
        UnsupportedError: the table is virtual, or one of the library's or of SQLite's own.
    """
    row = cursor.execute(
        "SELECT name, sql FROM main.sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (name,)
    ).fetchone()
    if row is None:
        raise TrackingArgumentError(f"there is no table {name!r} in the file")
    found, sql = row
    if found.lower().startswith(OWN_PREFIXES) or sql.lower().startswith("create virtual"):
        raise UnsupportedError(f"{found!r} is not an ordinary user table: only those can be tracked")
    if found.lower() in ("new", "old"):
        raise UnsupportedError(f"the name {found!r} means a row inside a trigger: give the table another name")
    columns = _read_columns(cursor, found)
    rowid = _find_rowid(cursor, found, {column.name.lower() for column in columns})
    system = frozenset(column.name for column in columns if column.name in SYSTEM_COLUMNS)
    own = tuple(column for column in columns if column.name not in SYSTEM_COLUMNS)
    return Table(found, own, system, _read_unique_keys(cursor, found, own), rowid)


def select_key(table: Table, key_type: TrackingKeyType) -> tuple[Column, ...]:
    """Return the columns that identify a row, in key order.

    Raises:
        TrackingArgumentError: the table has no such key.
        UnsupportedError: the key has too many columns.
    """
    if key_type is TrackingKeyType.GUID:
        return (_select_guid(table),)
    key = table.primary_key
    if not key:
        raise TrackingArgumentError(f"{table.name!r} has no primary key: declare one, or track a ROWGUIDCOL column")
    if len(key) > KEY_COLUMNS_LIMIT:
        raise UnsupportedError(f"the key of {table.name!r} has {len(key)} columns; {KEY_COLUMNS_LIMIT} can be tracked")
    return key


def _select_guid(table: Table) -> Column:
    found = [column for column in table.columns if "rowguidcol" in column.declared_type.lower().split()]
    if len(found) != 1:
        raise TrackingArgumentError(
            f"{table.name!r} has {len(found)} columns declared `uniqueidentifier ROWGUIDCOL`: declare exactly one"
        )
    if (found[0].name,) not in [key.columns for key in table.unique_keys if not key.is_partial]:
        raise TrackingArgumentError(f"the ROWGUIDCOL column of {table.name!r} is not unique: make a unique index on it")
    return found[0]


def _read_columns(cursor: sqlite3.Cursor, name: str) -> tuple[Column, ...]:
    rows = cursor.execute("SELECT cid, name, type, pk FROM pragma_table_xinfo(?, 'main')", (name,)).fetchall()
    return tuple(Column(column, declared, cid + 1, pk) for cid, column, declared, pk in rows)


def _find_rowid(cursor: sqlite3.Cursor, name: str, columns: set[str]) -> str | None:
    free = next((alias for alias in ("rowid", "_rowid_", "oid") if alias not in columns), None)
    if free is None:
        raise UnsupportedError(f"the columns of {name!r} hide every name of its rowid: rename one of them")
    try:
        cursor.execute(f"SELECT {free} FROM main.{quote_name(name)} LIMIT 0")
    except sqlite3.OperationalError:
        return None
    return free


def _read_unique_keys(cursor: sqlite3.Cursor, name: str, columns: tuple[Column, ...]) -> tuple[UniqueKey, ...]:
    indexes = cursor.execute(
        "SELECT name, partial, origin FROM pragma_index_list(?, 'main') WHERE \"unique\" ORDER BY name", (name,)
    ).fetchall()
    keys = [_read_unique_key(cursor, name, index, bool(partial)) for index, partial, _ in indexes]
    integer_key = tuple(column.name for column in columns if column.key_position)
    if integer_key and "pk" not in [origin for _, _, origin in indexes]:
        keys.append(UniqueKey(integer_key, ("BINARY",), is_partial=False))
    return tuple(keys)


def _read_unique_key(cursor: sqlite3.Cursor, table: str, index: str, is_partial: bool) -> UniqueKey:
    rows = cursor.execute(
        "SELECT name, coll FROM pragma_index_xinfo(?, 'main') WHERE key ORDER BY seqno", (index,)
    ).fetchall()
    if any(column is None for column, _ in rows):
        raise UnsupportedError(
            f"{table!r} has a unique index on an expression ({index!r}): what a REPLACE removes through it cannot be"
            " tracked; index a generated column in its place"
        )
    return UniqueKey(tuple(column for column, _ in rows), tuple(collation for _, collation in rows), is_partial)
