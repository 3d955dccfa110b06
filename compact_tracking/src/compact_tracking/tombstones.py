"""Packing of the keys of tombstones that triggers wrote.

A trigger cannot pack: on a connection without this library there is no function for it. It stores the values of the
key. The library packs them when it commits or takes an anchor, so that every reader of ``__sysOCSDeletedRows`` finds
them.
"""

import json
import sqlite3

from compact_tracking.access import any_text
from compact_tracking.enumerations import TrackingKeyType
from compact_tracking.key_packing import KeyType, pack_key
from compact_tracking.names import KEY_COLUMNS_LIMIT, list_keys
from compact_tracking.structure import Column


def write_key_type(columns: tuple[Column, ...]) -> str:
    """Return what ``__ct_tables`` stores about the columns of a key."""
    return json.dumps([[column.name, column.declared_type] for column in columns])


def read_key_type(stored: str, key_type: int) -> KeyType:
    """Return the columns of a key from what ``__ct_tables`` stores."""
    columns = tuple((name, declared) for name, declared in json.loads(stored))
    return KeyType(columns, key_type == TrackingKeyType.GUID)


def pack_tombstones(cursor: sqlite3.Cursor) -> None:
    """Pack the keys of all tombstones that have none, inside the caller's write transaction."""
    keys = ", ".join(f"d.{key}" for key in list_keys(KEY_COLUMNS_LIMIT))
    with any_text(cursor.connection):
        rows = cursor.execute(
            f"SELECT d.id, t.key_columns, t.key_type, {keys} FROM main.__ct_tombstones AS d"
            " JOIN main.__ct_tables AS t ON t.id = d.table_id WHERE d.packed_key IS NULL"
        ).fetchall()
    types = {stored: read_key_type(*stored) for stored in {(row[1], row[2]) for row in rows}}
    packed = []
    for tombstone, stored, key_type, *values in rows:
        key = types[stored, key_type]
        packed.append((pack_key(key, values[: len(key.columns)]), tombstone))
    cursor.executemany("UPDATE main.__ct_tombstones SET packed_key = ? WHERE id = ?", packed)
