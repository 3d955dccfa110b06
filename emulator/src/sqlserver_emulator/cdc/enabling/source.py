"""The source table as ``sp_cdc_enable_table`` sees it: found by name, with its columns and indexes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.cdc.metadata import Declared, Run
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column. ``declared`` carries the name, the T-SQL type and the storage type."""

    declared: Declared
    column_id: int
    is_computed: bool

    @property
    def name(self) -> str:
        return self.declared.name


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """An index with its key columns in order; included columns are left out."""

    name: str
    is_unique: bool
    is_primary_key: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a user. ``relation`` is its quoted name in PostgreSQL."""

    object_id: int
    schema: str
    name: str
    relation: str
    is_tracked: bool
    columns: tuple[SourceColumn, ...]
    indexes: tuple[SourceIndex, ...]

    def column(self, name: str) -> SourceColumn | None:
        """Return the column of that name, an exact match first."""
        exact = next((c for c in self.columns if c.name == name), None)
        return exact or next((c for c in self.columns if c.name.lower() == name.lower()), None)

    def index(self, name: str) -> SourceIndex | None:
        return next((i for i in self.indexes if i.name.lower() == name.lower()), None)

    @property
    def primary_key(self) -> SourceIndex | None:
        return next((i for i in self.indexes if i.is_primary_key), None)


def find_table(run: Run, database: str, schema: str, name: str) -> SourceTable | None:
    """Return a user's table by name, case-insensitively with exact matches preferred; None when there is none."""
    rows = run(_TABLE, (database, schema, name))
    if not rows:
        return None
    object_id, real_schema, real_name, relation, is_tracked = rows[0]
    return SourceTable(
        int(str(object_id)),
        str(real_schema),
        str(real_name),
        str(relation),
        bool(is_tracked),
        tuple(_columns(run, object_id)),
        tuple(_indexes(run, object_id)),
    )


def _columns(run: Run, object_id: object) -> list[SourceColumn]:
    found = []
    for name, column_id, type_name, length, precision, scale, nullable, computed, storage, collation in run(
        _COLUMNS, (object_id,)
    ):
        type_ = TsqlType(str(type_name), int(str(length)), int(str(precision)), int(str(scale)))
        declared = Declared(str(name), type_, str(storage), bool(nullable), str(collation) if collation else None)
        found.append(SourceColumn(declared, int(str(column_id)), bool(computed)))
    return found


def _indexes(run: Run, object_id: object) -> list[SourceIndex]:
    columns: dict[tuple[str, bool, bool], list[str]] = {}
    for name, is_unique, is_primary_key, column in run(_INDEXES, (object_id,)):
        columns.setdefault((str(name), bool(is_unique), bool(is_primary_key)), []).append(str(column))
    return [SourceIndex(*key, tuple(names)) for key, names in columns.items()]


_TABLE = """
SELECT o.object_id, s.name::text, o.name::text, o.object_id::oid::regclass::text, o.is_tracked_by_cdc
FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE d.name = $1::varchar AND lower(s.name) = lower($2::varchar) AND lower(o.name) = lower($3::varchar)
  AND o.type = 'U' AND NOT o.is_system
ORDER BY (o.name = $3::varchar) DESC, (s.name = $2::varchar) DESC LIMIT 1
"""
_COLUMNS = """
SELECT c.name::text, c.column_id, c.type_name::text, c.length, c.precision, c.scale, c.is_nullable,
       c.computed_definition IS NOT NULL, format_type(a.atttypid, a.atttypmod),
       CASE WHEN emulator.is_character_type(c.type_name) THEN coalesce(c.collation_name, d.collation_name) END
FROM emulator.columns c JOIN emulator.objects o ON o.object_id = c.object_id
JOIN emulator.databases d ON d.database_id = o.database_id
JOIN pg_attribute a ON a.attrelid = c.object_id::oid AND a.attnum = c.attnum
WHERE c.object_id = $1::int ORDER BY c.column_id
"""
_INDEXES = """
SELECT i.name::text, i.is_unique, k.type IS NOT NULL AND k.type = 'PK', c.name::text
FROM emulator.indexes i
JOIN emulator.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id AND NOT ic.is_included_column
JOIN emulator.columns c ON c.object_id = i.object_id AND c.column_id = ic.column_id
LEFT JOIN emulator.objects k ON k.object_id = i.constraint_object_id
WHERE i.object_id = $1::int ORDER BY i.index_id, ic.key_ordinal
"""
