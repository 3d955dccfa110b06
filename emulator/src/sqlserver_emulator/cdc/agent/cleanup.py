"""The retention of change tables (docs/reference/sqlserver_cdc.md, "Cleanup", "Capture and cleanup jobs").

First the low end is raised, then changes are deleted, then the time line is trimmed: that order makes a reader's second
check of ``fn_cdc_get_min_lsn`` after its read safe. Deletes go in small batches, each a transaction of its own where
the caller has none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from sqlserver_emulator.cdc.instances import CdcDatabase, CdcDisabledError, keep_instances
from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.cdc.metadata import Run

Atomic = Callable[[], AbstractContextManager[object]]
"""Several statements as one transaction: ``EngineSession.atomic`` or ``Connection.transaction``."""


def check_low_water_mark(run: Run, database: CdcDatabase, instance: str, mark: bytes) -> None:
    """Raise 22964 when the mark is no entry of lsn_time_mapping, 22957 when it is outside the instance's timeline."""
    shown = f"0x{mark.hex().upper()}"
    if not run(database.sql("SELECT 1 FROM :cdc.lsn_time_mapping WHERE start_lsn = $1::bytea"), (mark,)):
        raise cdc_error(22964, shown)
    ((low, high),) = run(database.sql(_TIMELINE), (instance,))
    if not low <= mark <= high:
        raise cdc_error(22957, shown, instance, f"0x{low.hex().upper()}", f"0x{high.hex().upper()}")


def raise_low_end(run: Run, database: CdcDatabase, object_id: int, mark: bytes | None, *, atomic: Atomic) -> bytes:
    """Make ``mark``, an entry of the time line, the low end of an instance; None: leave it. Returns what may go below.

    datetime is coarse: transactions that share its tick are kept or removed together.
    """
    if mark is None:
        # docs/reference/sqlserver_cdc.md, "Cleanup": a NULL mark deletes below the present start.
        low_end = "SELECT start_lsn FROM :cdc.change_tables WHERE object_id = $1::int"
        ((mark,),) = run(database.sql(low_end), (object_id,))
        return bytes(mark or b"")
    with atomic():
        keep_instances(run, database)
        # docs/reference/sqlserver_cdc.md, "Cleanup": the mark is lowered to the lowest entry with the same commit time.
        ((mark,),) = run(database.sql(_FIRST_OF_TICK), (mark,))
        run(database.sql(_RAISE_LOW_END), (object_id, mark))
    return bytes(mark)


def clean_database(run: Run, database: CdcDatabase, retention_minutes: int, *, threshold: int, atomic: Atomic) -> bytes:
    """Run the cleanup job: remove what is older than the newest entry by more than the retention.

    Returns the mark below which changes went, empty where there is none.
    """
    try:
        with atomic():
            mark, ids = _raise_low_ends(run, database, retention_minutes)
    except CdcDisabledError:
        return b""  # with all that there was to clean
    for object_id in ids:
        delete_changes(run, object_id, mark, threshold)
    if ids:
        trim_timeline(run, database, threshold)
    return mark


def _raise_low_ends(run: Run, database: CdcDatabase, retention_minutes: int) -> tuple[bytes, list[int]]:
    """Raise the low end of every instance. Return the mark below which changes may go, and the instances."""
    keep_instances(run, database)
    rows = run(database.sql(_MARK_OF_RETENTION), (retention_minutes,))
    if not rows or rows[0][0] is None:
        return b"", []
    mark = bytes(rows[0][0])
    ids = [i for (i,) in run(database.sql("SELECT object_id FROM :cdc.change_tables ORDER BY object_id"), ())]
    for object_id in ids:
        run(database.sql(_RAISE_LOW_END), (object_id, mark))
    return mark, ids


def delete_changes(run: Run, object_id: int, mark: bytes, threshold: int) -> None:
    """Remove what one instance holds below ``mark``."""
    relation = run("SELECT c.oid::regclass::text FROM pg_class c WHERE c.oid = $1::int::oid", (object_id,))
    if not relation:
        return  # disabled meanwhile
    statement = _DELETE_BATCH.replace(":table", relation[0][0]).replace(":lsn", '"__$start_lsn"')
    _delete_in_batches(run, statement, mark, threshold)


def trim_timeline(run: Run, database: CdcDatabase, threshold: int) -> None:
    """Remove what no instance needs of the time line."""
    ((low,),) = run(database.sql("SELECT min(start_lsn) FROM :cdc.change_tables"), ())
    if low is not None:
        statement = _DELETE_BATCH.replace(":table", ":cdc.lsn_time_mapping").replace(":lsn", "start_lsn")
        _delete_in_batches(run, database.sql(statement), bytes(low), threshold)


def _delete_in_batches(run: Run, statement: str, mark: bytes, threshold: int) -> None:
    # A batch that is not full was the last.
    while len(run(statement, (mark, threshold))) == threshold:
        continue


# PostgreSQL's DELETE has no LIMIT; ctid, a row's place in the table, selects the rows of one batch.
_DELETE_BATCH = """
DELETE FROM :table WHERE ctid = ANY (ARRAY(SELECT ctid FROM :table WHERE :lsn < $1::bytea LIMIT $2::bigint)) RETURNING 1
"""
_TIMELINE = """
SELECT start_lsn, (SELECT max(m.start_lsn) FROM :cdc.lsn_time_mapping m) FROM :cdc.change_tables
WHERE lower(capture_instance) = lower($1::varchar)
"""
_FIRST_OF_TICK = """
SELECT min(m.start_lsn) FROM :cdc.lsn_time_mapping m
WHERE m.tran_end_time = (SELECT g.tran_end_time FROM :cdc.lsn_time_mapping g WHERE g.start_lsn = $1::bytea)
"""
# docs/reference/sqlserver_cdc.md, "Cleanup": the start is never lowered.
_RAISE_LOW_END = (
    "UPDATE :cdc.change_tables SET start_lsn = $2::bytea WHERE object_id = $1::int AND start_lsn < $2::bytea"
)
# docs/reference/sqlserver_cdc.md, "Capture and cleanup jobs": the retention counts from the newest commit time and not
# from the clock, so an idle source keeps its changes.
_MARK_OF_RETENTION = """
SELECT min(m.start_lsn) FROM :cdc.lsn_time_mapping m
WHERE m.tran_end_time = (
    SELECT max(o.tran_end_time) FROM :cdc.lsn_time_mapping o
    WHERE o.tran_end_time <= (SELECT max(tran_end_time) FROM :cdc.lsn_time_mapping) - make_interval(mins => $1::int))
"""
