"""Files with tracked tables, the documentation's enumeration queries, and what a consumer makes of changes."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from compact_tracking import Anchor, Change, ChangeTracking, Operation

INSERTS = (
    " select ut.* from "
    "   (select ut0.* from {0} as ut0 where "
    "     ut0.__sysInsertTxBsn IS NOT NULL AND ut0.__sysChangeTxBsn IS NOT NULL AND ut0.__sysChangeTxBsn >= @LBSN "
    "   ) as ut "
    " LEFT OUTER JOIN "
    "   (select txcs0.* from __sysTxCommitSequence as txcs0) as txcs "
    " ON (ut.__sysInsertTxBsn = txcs.__sysTxBsn) WHERE "
    "      (txcs.__sysTxBsn IS NOT NULL and txcs.__sysTxCsn >= @LCSN AND txcs.__sysTxCsn < @ECSN) OR  "
    "      (txcs.__sysTxBsn IS NULL AND ut.__sysInsertTxBsn >= @LCSN AND ut.__sysInsertTxBsn < @ECSN)"
)
UPDATES = (
    " SELECT ut.* FROM "
    "   (select ut0.* from {0} as ut0 where "
    "     (ut0.__sysChangeTxBsn IS NOT NULL AND ut0.__sysChangeTxBsn >= @LBSN) "
    "   ) as ut "
    " LEFT OUTER JOIN"
    "   (select txcs0.* from __sysTxCommitSequence as txcs0) as txcs "
    " ON ut.__sysChangeTxBsn = txcs.__sysTxBsn OR txcs.__sysTxBsn IS NULL WHERE "
    "   (txcs.__sysTxBsn IS NOT NULL AND txcs.__sysTxCsn >= @LCSN AND txcs.__sysTxCsn < @ECSN) OR "
    "   (txcs.__sysTxBsn IS NULL AND ut.__sysChangeTxBsn >= @LCSN AND ut.__sysChangeTxBsn < @ECSN) "
)
DELETES = (
    " SELECT ut.__sysRK  FROM "
    "   (select ut0.* from __sysOcsDeletedRows as ut0 where "
    "     (ut0.__sysInsertTxCsn IS NULL OR ut0.__sysInsertTxCsn < @LCSN) and "
    "     ut0.__sysTName = '{0}'"
    "   ) AS ut "
    " LEFT OUTER JOIN  "
    "   (select txcs0.* from __sysTxCommitSequence as txcs0) as txcs "
    " ON ut.__sysDeleteTxBsn = txcs.__sysTxBsn OR txcs.__sysTxBsn IS NULL WHERE "
    "   (txcs.__sysTxBsn IS NOT NULL AND txcs.__sysTxCsn >= @LCSN AND txcs.__sysTxCsn < @ECSN) OR "
    "   (txcs.__sysTxBsn IS NULL AND ut.__sysDeleteTxBsn >= @LCSN AND ut.__sysDeleteTxBsn < @ECSN) "
)
"""The three queries of the documentation, word for word; comments inside them are left out."""

ITEM = "CREATE TABLE item (k TEXT PRIMARY KEY NOT NULL, code INTEGER UNIQUE, v INTEGER)"


_opened: list[sqlite3.Connection] = []


def open_file(
    path: Path, timeout: float = 10, *, isolation_level: Literal["DEFERRED"] | None = None
) -> sqlite3.Connection:
    """Return a connection, by default without Python's implicit transactions; the fixture of conftest.py closes it."""
    connection = sqlite3.connect(path, isolation_level=isolation_level, timeout=timeout)
    _opened.append(connection)
    return connection


def close_files() -> None:
    """Close all connections of a test: Python 3.13 warns of one that is not."""
    while _opened:
        _opened.pop().close()


def copy_file(file: sqlite3.Connection, path: Path) -> Path:
    """Write a consistent copy of a file."""
    with closing(sqlite3.connect(path)) as target:
        file.backup(target)
    return path


def make_file(path: Path, *statements: str, track: str = "item") -> sqlite3.Connection:
    """Create a file with a table and its rows, and track it."""
    connection = open_file(path)
    connection.execute("PRAGMA journal_mode = WAL")
    for statement in statements or (ITEM, "INSERT INTO item (k, v) VALUES ('a', 0)"):
        connection.execute(statement)
    ChangeTracking(connection).enable_tracking(track)
    return connection


def take_anchor(connection: sqlite3.Connection) -> Anchor:
    return ChangeTracking(connection).take_anchor()


def list_changes(connection: sqlite3.Connection, after: Anchor, table: str = "item") -> tuple[Anchor, list[Change]]:
    """Return the end of the window and its changes."""
    with ChangeTracking(connection).enumerate_changes(table, after) as (until, changes):
        return until, list(changes)


def show(changes: Iterable[Change]) -> list[str]:
    """Return changes as short texts such as ``U a``, in order."""
    return sorted(" ".join([change.operation.value, *map(str, change.key)]) for change in changes)


def show_since(connection: sqlite3.Connection, after: Anchor, table: str = "item") -> list[str]:
    return show(list_changes(connection, after, table)[1])


def show_printed(
    connection: sqlite3.Connection, after: Anchor, until: Anchor, *, lbsn: int | None = None, deletes: str = DELETES
) -> list[str]:
    """Return what the documentation's queries give for the table ``item``, as ``show`` does."""
    bounds = {"LBSN": after.bsn if lbsn is None else lbsn, "LCSN": after.csn, "ECSN": until.csn}
    tracking = ChangeTracking(connection)
    found = [f"I {row[0]}" for row in connection.execute(INSERTS.format("item"), bounds)]
    found += [f"U {row[0]}" for row in connection.execute(UPDATES.format("item"), bounds)]
    packed = connection.execute(deletes.format("item"), bounds).fetchall()
    found += [f"D {tracking.unpack_tombstone_key('item', key)[0]}" for (key,) in packed]
    return sorted(found)


def read_rows(connection: sqlite3.Connection, table: str, columns: str = "*") -> dict[Any, tuple[Any, ...]]:
    """Return the rows of a table by their first column, without the columns of the tracking."""
    cursor = connection.execute(f"SELECT {columns} FROM {table}")
    own = [place for place, column in enumerate(cursor.description) if not column[0].startswith("__sys")]
    return {row[0]: tuple(row[place] for place in own) for row in cursor}


def apply(state: dict[Any, tuple[Any, ...]], changes: Iterable[Change]) -> dict[Any, tuple[Any, ...]]:
    """Return the rows of a consumer, by the first column of the key, after the changes of a window."""
    result = dict(state)
    for change in changes:
        if change.operation is Operation.DELETE:
            del result[change.key[0]]
        else:
            assert change.row is not None
            assert (change.operation is Operation.UPDATE) == (change.key[0] in state)
            result[change.key[0]] = change.row
    return result
