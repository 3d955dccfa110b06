"""Finds the T-SQL names behind the PostgreSQL names in an error report; ``errors_map`` asks, the catalog answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sqlserver_emulator.engine.connection.errors_map import ConstraintNames
from sqlserver_emulator.engine.names import BLANKS_PREFIX

_TABLE = """
SELECT s.name, o.name, o.object_id FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE s.postgres_name = $1 AND o.postgres_name = $2 AND o.type = 'U'
"""
_RELATION = """
SELECT s.name, o.name FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE d.name = $1 AND o.postgres_name = $2 AND o.type IN ('U', 'V', 'SO')
ORDER BY (s.name = 'dbo') DESC, o.is_system LIMIT 1
"""
_INDEX = """
SELECT coalesce(k.type, 'IX'), i.name FROM emulator.indexes i
LEFT JOIN emulator.objects k ON k.object_id = i.constraint_object_id
WHERE i.object_id = $1 AND i.postgres_name = $2
"""
_GUARDED = "SELECT relname FROM pg_class WHERE oid = $1::oid"
_TEMPORARY = """
SELECT CASE k.contype WHEN 'p' THEN 'PK' WHEN 'u' THEN 'UQ' ELSE 'C' END FROM pg_constraint k
JOIN pg_class t ON t.oid = k.conrelid WHERE t.relname = $1 AND t.relnamespace = pg_my_temp_schema() AND k.conname = $2
"""
_CHECK = """
SELECT o.name, coalesce(c.name, '') FROM emulator.check_constraints k
JOIN emulator.objects o ON o.object_id = k.object_id
LEFT JOIN emulator.columns c ON c.object_id = k.parent_object_id AND c.column_id = k.parent_column_id
WHERE k.parent_object_id = $1 AND o.postgres_name = $2
"""
_FOREIGN_KEY = """
SELECT o.name, s.name, r.name, ps.name, p.name, rc.name, pc.name, (SELECT count(*) FROM emulator.foreign_key_columns x
       WHERE x.object_id = f.object_id)
FROM emulator.foreign_keys f
JOIN emulator.objects o ON o.object_id = f.object_id
JOIN emulator.objects r ON r.object_id = f.referenced_object_id
JOIN emulator.schemas s ON s.database_id = r.database_id AND s.schema_id = r.schema_id
JOIN emulator.objects p ON p.object_id = f.parent_object_id
JOIN emulator.schemas ps ON ps.database_id = p.database_id AND ps.schema_id = p.schema_id
JOIN emulator.foreign_key_columns c ON c.object_id = f.object_id AND c.ordinal = 1
JOIN emulator.columns rc ON rc.object_id = f.referenced_object_id AND rc.column_id = c.referenced_column_id
JOIN emulator.columns pc ON pc.object_id = f.parent_object_id AND pc.column_id = c.parent_column_id
WHERE f.parent_object_id = $1 AND o.postgres_name = $2
"""


class Fetches(Protocol):
    """The part of SessionAccess that is used."""

    def fetch_committed(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]: ...


@dataclass
class ConstraintLookup:
    """Implements ``errors_map.ErrorContext``."""

    access: Fetches
    database: str = ""

    def within(self, database: str) -> ConstraintLookup:
        self.database = database
        return self

    def table_name(self, postgres_schema: str, table: str) -> tuple[str, str] | None:
        rows = self.access.fetch_committed(_TABLE, [postgres_schema, table])
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def object_name(self, relation: str) -> tuple[str, str] | None:
        rows = self.access.fetch_committed(_RELATION, [self.database, relation])
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def constraint(self, postgres_schema: str, table: str, constraint: str) -> ConstraintNames | None:
        # The guard of a key over strings (``blank_keys``) is named by the OID of the key's own index.
        if constraint.startswith(BLANKS_PREFIX):
            guarded = self.access.fetch_committed(_GUARDED, [constraint.removeprefix(BLANKS_PREFIX)])
            constraint = str(guarded[0][0]) if guarded else constraint
        tables = cast(list[tuple[Any, ...]], self.access.fetch_committed(_TABLE, [postgres_schema, table]))
        if not tables:
            return self._of_temporary(table, constraint)
        schema, name, object_id = tables[0]
        if rows := cast(list[tuple[Any, ...]], self.access.fetch_committed(_INDEX, [object_id, constraint])):
            return ConstraintNames(rows[0][0], rows[0][1], schema, name)
        if rows := cast(list[tuple[Any, ...]], self.access.fetch_committed(_CHECK, [object_id, constraint])):
            return ConstraintNames("C", rows[0][0], schema, name, column=rows[0][1])
        return self._foreign_key(object_id, constraint)

    def _of_temporary(self, table: str, constraint: str) -> ConstraintNames | None:
        """Return the names of a constraint of a temp table or table variable, which the catalog does not know."""
        # The part behind ~ is the depth and checksum of a table variable.
        name = table.partition("~")[0]
        if not name.startswith(("#", "@")):
            return None
        found = self.access.fetch_committed(_TEMPORARY, [table, constraint])
        if found:
            return ConstraintNames(str(found[0][0]), constraint, "dbo", name)
        return ConstraintNames("IX", constraint.partition(".")[2] or constraint, "dbo", name)

    def _foreign_key(self, object_id: int, constraint: str) -> ConstraintNames | None:
        rows = cast(list[tuple[Any, ...]], self.access.fetch_committed(_FOREIGN_KEY, [object_id, constraint]))
        if not rows:
            return None
        name, to_schema, to_table, schema, table, to_column, column, columns = rows[0]
        is_single = columns == 1  # SQL Server names the column only then
        return ConstraintNames(
            kind="F",
            name=name,
            schema=schema,
            table=table,
            column=column if is_single else "",
            referenced_schema=to_schema,
            referenced_table=to_table,
            referenced_column=to_column if is_single else "",
        )
