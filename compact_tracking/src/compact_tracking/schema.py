"""The library's own tables in a file, and the original's system tables as views on them.

Views refuse writes, which the original promises of its system tables. Two spellings of its documentation differ for
the tombstones; the view has the columns of both. ``__sysInsertTxCsn`` is resolved when it is read, as a transaction
that inserts a row and deletes it has no CSN yet.

The sequence table has a row for each transaction whose BSN and CSN differ. All readers rest on this: without a row,
the CSN is the BSN.
"""

import sqlite3
import uuid

from compact_tracking.errors import DamagedFileError, UnsupportedError
from compact_tracking.names import KEY_COLUMNS_LIMIT, NOW, list_keys, resolve_csn

FORMAT = 1
"""The version of these tables."""

_KEYS = ", ".join(list_keys(KEY_COLUMNS_LIMIT))

STATEMENTS = (
    # One row: the counters, and what the triggers stamp. tx_bsn is set only while a transaction of this library writes,
    # epoch_bsn from the first write without the library until the next one with it.
    """CREATE TABLE __ct_state (
        id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, device TEXT NOT NULL,
        next_bsn INTEGER NOT NULL, next_csn INTEGER NOT NULL, sequence_purged_below INTEGER NOT NULL,
        tx_bsn INTEGER, tx_context TEXT, epoch_bsn INTEGER)""",
    "CREATE TABLE __ct_open (bsn INTEGER PRIMARY KEY, process TEXT NOT NULL, begun_at TEXT NOT NULL)",
    "CREATE TABLE __ct_sequence (bsn INTEGER PRIMARY KEY, csn INTEGER NOT NULL UNIQUE, committed_at TEXT NOT NULL)",
    """CREATE TABLE __ct_tables (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, token TEXT NOT NULL,
        key_type INTEGER NOT NULL, options INTEGER NOT NULL, key_ordinal INTEGER NOT NULL, key_columns TEXT NOT NULL,
        purged_below INTEGER NOT NULL)""",
    # Key columns without a type hold every value exactly as the user's table does.
    f"""CREATE TABLE __ct_tombstones (
        id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL, insert_bsn INTEGER, delete_bsn INTEGER NOT NULL,
        context TEXT, deleted_at TEXT, packed_key BLOB, {_KEYS})""",
    "CREATE INDEX __ct_tombstones_deleted ON __ct_tombstones (table_id, delete_bsn)",
    "CREATE INDEX __ct_tombstones_unpacked ON __ct_tombstones (id) WHERE packed_key IS NULL",
    # Rows that the statement in progress may replace; see triggers.py.
    f"CREATE TABLE __ct_replaced (table_id INTEGER NOT NULL, insert_bsn INTEGER, {_KEYS})",
    """CREATE TABLE __ct_receipts (
        consumer TEXT NOT NULL, token TEXT NOT NULL UNIQUE, csn INTEGER NOT NULL, bsn INTEGER NOT NULL,
        written_at TEXT NOT NULL)""",
    # The first write without the library after a sealed epoch opens the next: it takes one BSN and one CSN.
    f"""CREATE TRIGGER __ct_epoch AFTER UPDATE OF epoch_bsn ON __ct_state
        WHEN OLD.epoch_bsn IS NULL AND NEW.epoch_bsn IS NOT NULL BEGIN
        INSERT INTO __ct_sequence (bsn, csn, committed_at)
            SELECT NEW.next_bsn, NEW.next_csn, {NOW} WHERE NEW.next_bsn <> NEW.next_csn;
        UPDATE __ct_state SET next_bsn = next_bsn + 1, next_csn = next_csn + 1;
        END""",
    f"""CREATE VIEW __sysOCSDeletedRows AS SELECT
        t.name AS __sysTN, t.name AS __sysTName, d.insert_bsn AS __sysInsertTxBsn,
        {resolve_csn("d.insert_bsn")} AS __sysInsertTxCsn, d.delete_bsn AS __sysDeleteTxBsn, d.packed_key AS __sysRK,
        d.deleted_at AS __sysDeletedTime, d.context AS __sysTrackingContext
        FROM __ct_tombstones AS d JOIN __ct_tables AS t ON t.id = d.table_id""",
    """CREATE VIEW __sysTxCommitSequence AS SELECT
        bsn AS __sysTxBsn, csn AS __sysTxCsn, committed_at AS __sysCommitTime FROM __ct_sequence""",
    """CREATE VIEW __sysOCSTrackedObjects AS SELECT
        name AS __sysTName, options * 16 AS __sysTrackOpt, key_type AS __sysTrackType, key_ordinal AS __sysTrackColOrd
        FROM __ct_tables""",
)


_OWN_OBJECTS = r"""SELECT name, sql FROM main.sqlite_master
    WHERE type IN ('table', 'view') AND name LIKE '\_\_ct\_%' ESCAPE '\'"""


def is_installed(cursor: sqlite3.Cursor) -> bool:
    """Return whether the file has the library's tables.

    Raises:
        UnsupportedError: a newer version of the library wrote them.
        DamagedFileError: one of them is not a table, or the table of the counters is empty.
    """
    own = cursor.execute(_OWN_OBJECTS).fetchall()
    if "__ct_state" not in [name.lower() for name, _ in own]:
        return False
    # A view or a virtual table would run the file's own SQL under the name of a table.
    for name, statement in own:
        if not statement.upper().startswith("CREATE TABLE"):
            raise DamagedFileError(f"the file's {name} is not a table of the tracking")
    state = cursor.execute("SELECT format FROM main.__ct_state").fetchone()
    if state is None:
        raise DamagedFileError("the file's __ct_state is empty")
    (found,) = state
    if found != FORMAT:
        raise UnsupportedError(
            f"the file's tracking has format {found}, this version of compact_tracking knows {FORMAT}:"
            " update the library"
        )
    return True


def install(cursor: sqlite3.Cursor) -> None:
    """Create the library's tables and views unless they are there, inside the caller's write transaction."""
    if is_installed(cursor):
        return
    for statement in STATEMENTS:
        cursor.execute(statement)
    cursor.execute(
        "INSERT INTO main.__ct_state (id, format, device, next_bsn, next_csn, sequence_purged_below)"
        " VALUES (1, ?, ?, 1, 1, 0)",
        (FORMAT, str(uuid.uuid4())),
    )
