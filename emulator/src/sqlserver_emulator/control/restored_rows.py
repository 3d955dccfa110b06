"""The rows of tracked tables as they were at an LSN, computed from what their change tables hold after it.

As bags of rows: rows then = rows now + old images - new images. That needs every column of a table in the change table,
and every value; where one is missing, RestoreError says so. Works in the caller's transaction, during which nobody else
writes to a tracked table; the log marks what is written here as nothing that is captured.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import errors

from sqlserver_emulator.cdc.instances import CaptureInstance, CdcDatabase, TrackedTable, read_instances
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.rows import LEGACY_LOB_TYPES, CapturedColumn
from sqlserver_emulator.engine.names import quote
from sqlserver_emulator.system_types import names_where
from sqlserver_emulator.system_types.wire import Packing

# One origin for all databases: a second restore at the same time is refused by PostgreSQL.
_ORIGIN = "cdc_restore"
_WITH_OFFSET = names_where(lambda type: type.wire.packing is Packing.DATE_TIME_OFFSET)


class RestoreError(ValueError):
    """The message says why the database cannot be restored to that point."""


def take_rows_back(run: Run, database: CdcDatabase, lsn: bytes) -> None:
    """Make every tracked table what it was at ``lsn``. Raises RestoreError."""
    # Before the first write: rows that are written under the origin are not captured.
    _leave_the_log_alone(run)
    # As a restore does: no trigger fires, no key is asked for until all tables are back.
    run("SET LOCAL session_replication_role = replica", ())
    changed = [table.object_id for table in read_instances(run, database).values() if _take_back(run, table, lsn)]
    run("SET LOCAL session_replication_role = origin", ())
    for object_id in changed:
        _check_references(run, object_id)


def _leave_the_log_alone(run: Run) -> None:
    """No capture job reads what has an origin."""
    run(
        "SELECT pg_replication_origin_create($1::text)"
        " WHERE NOT EXISTS (SELECT 1 FROM pg_replication_origin WHERE roname = $1::text)",
        (_ORIGIN,),
    )
    try:
        run("SELECT pg_replication_origin_session_setup($1::text)", (_ORIGIN,))
    except (errors.ObjectInUse, errors.ConfigurationLimitExceeded):
        raise RestoreError("another database is just being restored") from None


def _take_back(run: Run, table: TrackedTable, lsn: bytes) -> bool:
    """One table; whether anything had changed."""
    instance = _complete_instance(run, table)
    columns = [column for column in instance.columns if column.source_name is not None]
    changes = f'{instance.change_table} WHERE "__$start_lsn" > $1::bytea'
    # A table without changes after the LSN is as it was: nothing is locked or written.
    if not run(f"SELECT 1 FROM {changes} LIMIT 1", (lsn,)):  # noqa: S608 - names are from the catalog
        return False
    _check_values(run, instance, columns, lsn)
    ((source,),) = run("SELECT $1::int::oid::regclass::text", (table.object_id,))
    run(_rows_then(instance, columns, str(source)), (lsn,))
    ((now, then),) = run(_COUNTS.replace(":source", str(source)).replace(":changes", changes), (lsn,))
    # A row too many or too few means that the change table does not have the whole history.
    if now != then:
        raise RestoreError(f"the rows of {source} do not agree with its change table")
    names = ", ".join(quote(str(column.source_name)) for column in columns)
    # Everything is replaced: a bag of rows does not say which row is which.
    run(f"DELETE FROM {source}", ())  # noqa: S608
    # Identity values are those of then, too.
    run(f"INSERT INTO {source} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM pg_temp.rows_then", ())  # noqa: S608
    run("DROP TABLE pg_temp.rows_then", ())
    return True


def _complete_instance(run: Run, table: TrackedTable) -> CaptureInstance:
    """The instance that has every column of its table which is not computed."""
    rows = run(_COLUMNS, (table.object_id,))
    missing: list[str] = []
    for instance in reversed(table.instances):
        captured = {column.source_name for column in instance.columns}
        missing = [name for name, postgres_name in rows if postgres_name not in captured]
        if not missing:
            return instance
    raise RestoreError(
        f"column '{missing[0]}' of a table of capture instance '{table.instances[-1].name}' is not captured;"
        " with @rows = 0 the rows stay as they are"
    )


def _check_values(run: Run, instance: CaptureInstance, columns: Sequence[CapturedColumn], lsn: bytes) -> None:
    """Old values of text, ntext and image are not in a change table, unless an update left them alone."""
    for column in columns:
        if column.type_name in LEGACY_LOB_TYPES and run(
            f'SELECT 1 FROM {instance.change_table} AS o WHERE o."__$start_lsn" > $1::bytea AND'  # noqa: S608
            f' (o."__$operation" = 1 OR o."__$operation" = 3 AND {_is_changed(column, instance)}) LIMIT 1',
            (lsn,),
        ):
            raise RestoreError(
                f"the change table of '{instance.name}' has no old values of column '{column.name}';"
                " with @rows = 0 the rows stay as they are"
            )


def _rows_then(instance: CaptureInstance, columns: Sequence[CapturedColumn], source: str) -> str:
    """CREATE TABLE rows_then. Moments are equal whatever their offsets are, so offsets are compared next to them."""
    now, old, new = [], [], []
    for column in columns:
        stored, name = quote(instance.stored[column.ordinal - 1].name), quote(str(column.source_name))
        before = f"o.{stored}"
        if column.is_max or column.type_name in LEGACY_LOB_TYPES:
            # An update that left a large value alone has NULL in its old image; the new image of the same change has
            # the value.
            is_left = f'o."__$operation" = 3 AND NOT {_is_changed(column, instance)}'
            before = f"CASE WHEN {is_left} THEN n.{stored} ELSE o.{stored} END"
        now.append(f"t.{name}")
        old.append(before)
        new.append(f"o.{stored}")
        if column.type_name in _WITH_OFFSET:
            now.append(f"(t.{name}).offset_minutes AS {quote(f'offset {column.ordinal}')}")
            old.append(f"({before}).offset_minutes")
            new.append(f"(o.{stored}).offset_minutes")
    changes = f'FROM {instance.change_table} AS o WHERE o."__$start_lsn" > $1::bytea AND o."__$operation" IN'
    pair = f"""LEFT JOIN {instance.change_table} AS n ON o."__$operation" = 3 AND n."__$operation" = 4
        AND n."__$start_lsn" = o."__$start_lsn" AND n."__$command_id" = o."__$command_id"
        AND n."__$seqval" = o."__$seqval" WHERE"""
    return (
        "CREATE TEMPORARY TABLE rows_then ON COMMIT DROP AS"  # noqa: S608 - names are from the catalog
        f" (SELECT {', '.join(now)} FROM {source} AS t"
        f" UNION ALL SELECT {', '.join(old)} {changes.replace('WHERE', pair)} (1, 3))"
        # EXCEPT ALL and UNION ALL: duplicates of rows count.
        f" EXCEPT ALL SELECT {', '.join(new)} {changes} (2, 4)"
    )


def _is_changed(column: CapturedColumn, instance: CaptureInstance) -> str:
    """Whether the column's bit is set in the mask of change o: from the right, in the last byte first."""
    byte, bit = divmod(column.ordinal - 1, 8)
    # The mask is a big-endian number: the bit of the first column is the lowest one of the last byte.
    width = (len(instance.columns) + 7) // 8
    return f'get_bit(o."__$update_mask", {(width - 1 - byte) * 8 + bit}) = 1'


def _check_references(run: Run, object_id: int) -> None:
    """Rows of tables that are not tracked stay: they may refer to rows that are no longer there."""
    for name, child, parent, columns, keys in run(_FOREIGN_KEYS, (object_id,)):
        given = " AND ".join(f"c.{quote(column)} IS NOT NULL" for column in columns)
        same = " AND ".join(f"p.{quote(k)} = c.{quote(c)}" for c, k in zip(columns, keys, strict=True))
        if run(
            f"SELECT 1 FROM {child} AS c WHERE {given} AND NOT EXISTS"  # noqa: S608 - names are from the catalog
            f" (SELECT 1 FROM {parent} AS p WHERE {same}) LIMIT 1",
            (),
        ):
            raise RestoreError(f"FOREIGN KEY constraint '{name}' would no longer hold; with @rows = 0 the rows stay")


_COLUMNS = """
SELECT c.name::text, c.postgres_name FROM emulator.columns c
WHERE c.object_id = $1::int AND c.computed_definition IS NULL ORDER BY c.column_id
"""
_COUNTS = """
SELECT (SELECT count(*) FROM :source) - (SELECT coalesce(sum(CASE WHEN "__$operation" IN (2, 4) THEN 1 ELSE -1 END), 0)
    FROM :changes), (SELECT count(*) FROM pg_temp.rows_then)
"""
_FOREIGN_KEYS = """
SELECT k.conname::text, k.conrelid::regclass::text, k.confrelid::regclass::text,
    ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS n(number, at)
          JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = n.number ORDER BY n.at),
    ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS n(number, at)
          JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = n.number ORDER BY n.at)
FROM pg_constraint k
WHERE k.contype = 'f' AND k.convalidated AND $1::int::oid IN (k.conrelid, k.confrelid)
"""
