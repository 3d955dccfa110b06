"""The capture job's part in DDL that it finds in the log (docs/reference/sqlserver_cdc.md, "DDL"): history, and
retyped columns.

Runs in the capture job's transaction.

The engine writes a logical message ``ddl`` into the log with every DDL statement on a table; ``enable`` writes ``cdc``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from sqlserver_emulator.cdc.enabling.enumeration import create_view, drop_view
from sqlserver_emulator.cdc.instances import CaptureInstance, CdcDatabase, ChangeTableColumn, TrackedTable
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.scan.scan_errors import ColumnNotAlteredError
from sqlserver_emulator.engine.names import quote

_CHARACTERS = ("character", "text")
# docs/reference/sqlserver_cdc.md, "DDL": sp_rename is not recorded.
_RECORDED = frozenset({"add_column", "drop_column", "alter_column", "other"})


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change that a DDL statement made to a table or one of its columns, as logged. is_first: of that statement."""

    object_id: int
    kind: str
    statement: str
    column_id: int | None
    required_column_update: bool
    is_first: bool = True


def parse_schema_change(content: bytes) -> SchemaChange:
    """Return the change that a logical message ``ddl`` describes."""
    found: Mapping[str, object] = json.loads(content)
    column_id = found.get("column_id")
    return SchemaChange(
        object_id=int(str(found["object_id"])),
        kind=str(found.get("kind", "other")),
        statement=str(found.get("ddl", "")),
        column_id=None if column_id is None else int(str(column_id)),
        required_column_update=bool(found.get("required_column_update", False)),
        is_first=bool(found.get("is_first", True)),
    )


def apply_schema_change(
    run: Run, database: CdcDatabase, table: TrackedTable, change: SchemaChange, *, commit_lsn: bytes, seconds: float
) -> bool:
    """Follow one DDL statement in every instance of ``table``; returns whether it left a trace."""
    if change.kind not in _RECORDED:
        return False
    for instance in table.instances:
        # docs/reference/sqlserver_cdc.md, "DDL": one row for each statement and instance, though a statement may be
        # logged in several messages.
        if change.is_first:
            run(
                database.sql(_HISTORY_ROW),
                (
                    table.object_id,
                    instance.object_id,
                    int(change.required_column_update),
                    change.statement,
                    commit_lsn,
                    seconds,
                ),
            )
        captured = next((c for c in instance.columns if c.column_id == change.column_id), None)
        if captured is None:
            continue
        if change.kind == "drop_column":
            run(
                "INSERT INTO emulator.cdc_dropped_columns VALUES ($1::int, $2::int) ON CONFLICT DO NOTHING",
                (instance.object_id, captured.column_id),
            )
        elif change.kind == "alter_column":
            follow_declared_type(run, database, instance, captured.ordinal, table.object_id)
    return True


def follow_declared_type(run: Run, database: CdcDatabase, instance: CaptureInstance, ordinal: int, source: int) -> None:
    """Give a captured column the type its source column is declared with now. Stored rows are converted."""
    stored = instance.stored[ordinal - 1]
    column = instance.columns[ordinal - 1]
    rows = run(_STORED_TYPE, (source, column.column_id))
    if not rows:
        return  # dropped since; the message that says so is further on in the log
    drop_view(run, database, instance.object_id)
    # The view is gone by then: PostgreSQL refuses to alter the type of a column that a view shows.
    type_text, type_name = (str(value) for value in rows[0])
    set_stored_type(run, instance, stored, type_text, type_name)
    run(_DECLARE_TYPE, (instance.object_id, stored.attnum, source, column.column_id))
    run(database.sql(_SET_COLUMN_TYPE), (instance.object_id, ordinal, source, column.column_id))
    create_view(run, database, instance.object_id)
    run("SELECT emulator.notify_catalog_changed()", ())


def follow_logged_type(
    run: Run, database: CdcDatabase, instance: CaptureInstance, ordinal: int, *, type_oid: int, type_modifier: int
) -> None:
    """Give the change table's column the type that rows have at this place of the log, where the two differ.

    They do when a column was retyped twice before the log was read: rows between have a type that is neither.
    """
    ((type_text,),) = run("SELECT format_type($1::bigint::oid, $2::int)", (type_oid, type_modifier))
    drop_view(run, database, instance.object_id)
    set_stored_type(run, instance, instance.stored[ordinal - 1], str(type_text), str(type_text))
    create_view(run, database, instance.object_id)


def set_stored_type(
    run: Run, instance: CaptureInstance, stored: ChangeTableColumn, type_text: str, type_name: str
) -> None:
    """Alter the change table's column; no view may be on it. Raises ColumnNotAlteredError, naming ``type_name``."""
    name = quote(stored.name)
    # An explicit conversion to characters would cut off what is too long; the implicit one says so.
    using = "" if type_text.startswith(_CHARACTERS) else f" USING {name}::{type_text}"
    try:
        run(f"ALTER TABLE {instance.change_table} ALTER COLUMN {name} TYPE {type_text}{using}", ())
    except psycopg.DataError as error:
        raise ColumnNotAlteredError(instance.name, stored.name, type_name) from error


# docs/reference/sqlserver_cdc.md, "Reports": ddl_time has whole minutes.
_HISTORY_ROW = """
INSERT INTO :cdc.ddl_history VALUES ($1::int, $2::int, $3::smallint, $4::text, $5::bytea,
    date_trunc('minute', to_timestamp($6::float8)::timestamp))
"""
_STORED_TYPE = """
SELECT format_type(a.atttypid, a.atttypmod), c.type_name::text FROM emulator.columns c
JOIN pg_attribute a ON a.attrelid = c.object_id::oid AND a.attnum = c.attnum
WHERE c.object_id = $1::int AND c.column_id = $2::int
"""
_DECLARE_TYPE = """
UPDATE emulator.columns own SET type_name = s.type_name, length = s.length, precision = s.precision, scale = s.scale,
    user_type_id = s.user_type_id, collation_name = s.collation_name
FROM emulator.columns s
WHERE own.object_id = $1::int AND own.column_id = $2::int AND s.object_id = $3::int AND s.column_id = $4::int
"""
_SET_COLUMN_TYPE = """
UPDATE :cdc.captured_columns k SET column_type = s.type_name FROM emulator.columns s
WHERE k.object_id = $1::int AND k.column_ordinal = $2::int AND s.object_id = $3::int AND s.column_id = $4::int
"""
