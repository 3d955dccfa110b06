"""A restore: changes after an LSN are gone, from tracked tables and from change tables, and LSNs are used again.

LSNs are places in PostgreSQL's log, which never goes back; so from here on the database shows them shifted
(``CdcDatabase.lsn_at``). Which rows tables had is ``restored_rows``'.
"""

from __future__ import annotations

from collections.abc import Callable

from psycopg import errors

from sqlserver_emulator.cdc.enabling.enable_table import lock_instances
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.lsn import parse_position, shift_to
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.control.restored_rows import RestoreError, take_rows_back

# Writers have this long to commit; after that the restore reports them.
_WRITERS_SECONDS = 5


def restore_to(
    run: Run, database: CdcDatabase, lsn: bytes, capture_everything: Callable[[], None], *, with_rows: bool
) -> None:
    """In the caller's transaction, during which nobody else writes to a tracked table. Raises RestoreError."""
    run(f"SET LOCAL lock_timeout = '{_WRITERS_SECONDS}s'", ())
    try:
        for (table,) in run(database.sql(_SOURCES), ()):
            # SHARE lets readers go on and keeps writers out until the end of the transaction.
            run(f"LOCK TABLE {table} IN SHARE MODE", ())
    except errors.LockNotAvailable:
        raise RestoreError("a transaction is open that wrote to a tracked table") from None
    # With the tables locked, so that this is everything.
    capture_everything()
    lock_instances(run, database.database_id)
    # The other side of the capture job's lock: no scan runs while LSNs change their meaning.
    run(database.sql("LOCK TABLE :cdc.change_tables IN EXCLUSIVE MODE"), ())
    _check(run, database, lsn)
    if with_rows:
        # Before the changes are deleted from which the rows are computed.
        take_rows_back(run, database, lsn)
    for statement in (_FORGET_ENTRIES, _FORGET_HISTORY):
        run(database.sql(statement), (lsn,))
    for (relation,) in run(database.sql("SELECT object_id::oid::regclass::text FROM :cdc.change_tables"), ()):
        run(f'DELETE FROM {relation} WHERE "__$start_lsn" > $1::bytea', (lsn,))  # noqa: S608 - from the catalog
    _shift_lsns(run, database, lsn)


def _shift_lsns(run: Run, database: CdcDatabase, lsn: bytes) -> None:
    """Shift LSNs so that what is logged from here on comes just after ``lsn``; all before it is captured."""
    ((here,),) = run("SELECT pg_current_wal_insert_lsn()::text", ())
    run(
        "UPDATE emulator.cdc_databases SET lsn_shift = $2::bigint WHERE database_id = $1::int",
        (database.database_id, shift_to(parse_position(here), lsn)),
    )


def _check(run: Run, database: CdcDatabase, lsn: bytes) -> None:
    for name, start_lsn in run(database.sql(_INSTANCES), ()):
        if bytes(start_lsn) > lsn:
            raise RestoreError(f"capture instance '{name}' begins at 0x{bytes(start_lsn).hex().upper()}, after that")
    ((newest,),) = run(database.sql("SELECT max(start_lsn) FROM :cdc.lsn_time_mapping"), ())
    if newest is None or lsn > bytes(newest):
        known = "nothing" if newest is None else f"0x{bytes(newest).hex().upper()}"
        raise RestoreError(f"the newest entry of cdc.lsn_time_mapping is {known}")


_SOURCES = "SELECT DISTINCT source_object_id::oid::regclass::text FROM :cdc.change_tables ORDER BY 1"
_INSTANCES = "SELECT capture_instance::text, start_lsn FROM :cdc.change_tables ORDER BY start_lsn DESC"
_FORGET_ENTRIES = "DELETE FROM :cdc.lsn_time_mapping WHERE start_lsn > $1::bytea"
_FORGET_HISTORY = "DELETE FROM :cdc.ddl_history WHERE ddl_lsn > $1::bytea"
