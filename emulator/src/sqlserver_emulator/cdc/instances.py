"""The capture instances of one database as the capture job needs them, read from the metadata tables.

Owns reading; ``enable`` writes the metadata, ``schema_changes`` follows the source table's columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import errors

from sqlserver_emulator.cdc.lsn import RECORD_SLOT, lsn_at, parse_position
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.rows import CapturedColumn
from sqlserver_emulator.engine.names import quote


@dataclass(frozen=True, slots=True)
class ChangeTableColumn:
    """A captured column in the change table: where it is stored and as what."""

    name: str
    attnum: int
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class CaptureInstance:
    """One capture instance. ``enabled_at``: changes of transactions that commit below it are not its own."""

    object_id: int
    name: str
    source_object_id: int
    enabled_at: int
    change_table: str
    columns: tuple[CapturedColumn, ...]
    stored: tuple[ChangeTableColumn, ...]

    def copy_statement(self) -> bytes:
        """Return the COPY that takes rows of the change table."""
        return f"COPY {self.change_table} FROM STDIN (FORMAT binary)".encode()


@dataclass(frozen=True, slots=True)
class TrackedTable:
    """A source table with its instances, oldest first.

    ``key_columns``: of every unique or clustered index of it. ``unique_keys``: the columns of each unique one.
    """

    object_id: int
    instances: tuple[CaptureInstance, ...]
    key_columns: frozenset[str]
    unique_keys: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class CdcDatabase:
    """A CDC-enabled database: its slot (and publication) and the PostgreSQL schema of its cdc objects.

    ``lsn_shift``: how far a restore moved its LSNs back.
    """

    database_id: int
    name: str
    slot: str
    schema: str
    version: int
    lsn_shift: int = 0

    def sql(self, text: str) -> str:
        """Return ``text`` with ``:cdc`` replaced by the database's schema cdc."""
        return text.replace(":cdc.", f"{quote(self.schema)}.")

    def lsn_at(self, position: int, slot: int = RECORD_SLOT) -> bytes:
        """Return the LSN by which the database shows a position of the log."""
        return lsn_at(position - self.lsn_shift, slot)


class CdcDisabledError(Exception):
    """CDC of the database was disabled while its log was read."""


def keep_instances(run: Run, database: CdcDatabase) -> None:
    """Keep instances from being dropped until the caller's transaction ends. Raises CdcDisabledError.

    ``disable`` takes the other side, first of all its locks. So this comes before anything else that is read of them.
    """
    try:
        # Conflicts with the EXCLUSIVE lock of `disable` and not with itself, so scan and cleanup run at the same time.
        run(database.sql("LOCK TABLE :cdc.change_tables IN ROW EXCLUSIVE MODE"), ())
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        # Disabling drops the whole schema cdc.
        raise CdcDisabledError(database.name) from None


def read_database(run: Run, database_id: int) -> CdcDatabase | None:
    """Return the database's CDC entry, or None when CDC is not enabled there."""
    rows = run(
        "SELECT c.database_id, d.name::text, c.slot_name, c.cdc_schema, c.version, c.lsn_shift"
        " FROM emulator.cdc_databases c"
        " JOIN emulator.databases d USING (database_id) WHERE c.database_id = $1::int",
        (database_id,),
    )
    return CdcDatabase(*rows[0]) if rows else None


def read_nulls_in_deletes(run: Run) -> list[tuple[int, int]]:
    """Return the columns that captured deletes have as NULL on demand: table and column."""
    return list(run("SELECT object_id, column_id FROM emulator.nulls_in_deletes ORDER BY 1, 2", ()))


def read_instances(run: Run, database: CdcDatabase) -> dict[int, TrackedTable]:
    """Return the tracked tables with their instances, by the source's object id."""
    columns, keys = _read_columns(run, database), _read_keys(run, database)
    instances: dict[int, list[CaptureInstance]] = {}
    for object_id, name, source_id, enabled_at, relation in run(database.sql(_INSTANCES), ()):
        table, position = f"{quote(database.schema)}.{quote(relation)}", parse_position(enabled_at)
        captured = tuple(column for column, _ in columns.get(object_id, ()))
        stored = tuple(column for _, column in columns.get(object_id, ()))
        instances.setdefault(source_id, []).append(
            CaptureInstance(object_id, name, source_id, position, table, captured, stored)
        )
    return {
        source_id: TrackedTable(
            source_id,
            tuple(made),
            frozenset(name for names, _ in keys.get(source_id, ()) for name in names),
            tuple(tuple(names) for names, is_unique in keys.get(source_id, ()) if is_unique),
        )
        for source_id, made in instances.items()
    }


def _read_columns(run: Run, database: CdcDatabase) -> dict[int, list[tuple[CapturedColumn, ChangeTableColumn]]]:
    """Return the captured columns of each instance in their order, with the change table's."""
    read: dict[int, list[tuple[CapturedColumn, ChangeTableColumn]]] = {}
    for object_id, name, column_id, ordinal, type_name, computed, dropped, is_max, source_name, is_null, *stored in run(
        database.sql(_COLUMNS), ()
    ):
        # docs/reference/sqlserver_cdc.md, "Types" and "DDL": a computed column is always NULL, a dropped one from the
        # drop on.
        origin = None if computed or dropped else source_name
        column = CapturedColumn(name, column_id, ordinal, type_name, bool(is_max), origin, is_null)
        read.setdefault(object_id, []).append((column, ChangeTableColumn(*stored)))
    return read


def _read_keys(run: Run, database: CdcDatabase) -> dict[int, list[tuple[list[str], bool]]]:
    """Return the columns of each unique or clustered index of tracked tables, and whether it is unique."""
    keys: dict[int, list[tuple[list[str], bool]]] = {}
    for source_id, names, is_unique in run(database.sql(_KEYS), ()):
        keys.setdefault(source_id, []).append((names, is_unique))
    return keys


_INSTANCES = """
SELECT t.object_id, t.capture_instance::text, t.source_object_id, i.enabled_at::text, c.relname::text
FROM :cdc.change_tables t
JOIN emulator.cdc_instances i USING (object_id)
JOIN pg_class c ON c.oid = t.object_id::oid
ORDER BY i.enabled_at
"""
# The captured columns follow the five of CHANGE_TABLE_START, hence the ordinal + 5. OFFSET 0 makes PostgreSQL find each
# by its key; without it, it reads the columns of all tables.
_COLUMNS = """
SELECT k.object_id, k.column_name::text, k.column_id, k.column_ordinal, k.column_type::text, k.is_computed = 1,
       d.column_id IS NOT NULL, own.length = -1, coalesce(source.postgres_name, own.postgres_name),
       EXISTS (SELECT FROM emulator.nulls_in_deletes n
               WHERE n.object_id = t.source_object_id AND n.column_id = k.column_id),
       a.attname::text, a.attnum, a.atttypid::bigint, a.atttypmod
FROM :cdc.captured_columns k
JOIN :cdc.change_tables t USING (object_id)
CROSS JOIN LATERAL (SELECT * FROM emulator.columns c
                    WHERE c.object_id = k.object_id AND c.column_id = k.column_ordinal + 5 OFFSET 0) own
JOIN pg_attribute a ON a.attrelid = k.object_id::oid AND a.attnum = own.attnum
LEFT JOIN emulator.columns source ON source.object_id = t.source_object_id AND source.column_id = k.column_id
LEFT JOIN emulator.cdc_dropped_columns d ON d.object_id = k.object_id AND d.column_id = k.column_id
ORDER BY k.object_id, k.column_ordinal
"""
_KEYS = """
SELECT i.object_id, array_agg(c.postgres_name::text ORDER BY ic.key_ordinal), i.is_unique FROM emulator.indexes i
JOIN emulator.index_columns ic USING (object_id, index_id)
JOIN emulator.columns c ON c.object_id = i.object_id AND c.column_id = ic.column_id
WHERE i.object_id IN (SELECT source_object_id FROM :cdc.change_tables)
  AND (i.is_unique OR i.is_clustered) AND NOT ic.is_included_column
GROUP BY i.object_id, i.index_id, i.is_unique ORDER BY i.object_id, i.index_id
"""
