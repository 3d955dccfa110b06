"""Names to databases, schemas, tables and functions: asks ``emulator.*`` and remembers the answers.

Whose answers are whose, and when they are forgotten, is ``catalog``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from sqlserver_emulator.collations import DEFAULT_COLLATION, Collation, find_collation
from sqlserver_emulator.contract import DeclaredType
from sqlserver_emulator.engine.names import postgres_name, qualified
from sqlserver_emulator.engine.translation import (
    SYSTEM,
    CatalogColumn,
    CatalogObject,
    InlineFunction,
    ScalarFunction,
    SequenceObject,
    Synonym,
)
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.types import TsqlType

Fetch = Callable[[str, Sequence[object]], list[tuple[object, ...]]]

_T = TypeVar("_T")

_DATABASE = """
SELECT database_id, name, collation_name, snapshot_isolation_state = 1 FROM emulator.databases
WHERE lower(name) = lower($1) ORDER BY (name = $1) DESC LIMIT 1
"""
_TABLE_BY_NAME = """
SELECT o.object_id, d.name, s.name, o.name, o.type, o.is_system, s.postgres_name, o.postgres_name,
    EXISTS (SELECT FROM emulator.change_tracking_tables t WHERE t.object_id = o.object_id)
FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(o.name) = lower($3) AND o.type IN ('U', 'V')
ORDER BY (o.name = $3) DESC, (s.name = $2) DESC LIMIT 1
"""
_TABLE_BY_ID = """
SELECT o.object_id, d.name, s.name, o.name, o.type, o.is_system, s.postgres_name, o.postgres_name,
    EXISTS (SELECT FROM emulator.change_tracking_tables t WHERE t.object_id = o.object_id)
FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE o.object_id = $1 AND o.type IN ('U', 'V')
"""
_TABLE_BY_POSTGRES_NAME = """
SELECT o.object_id FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE s.postgres_name = $1 AND o.postgres_name = $2 AND o.type IN ('U', 'V')
"""
_COLUMNS = """
SELECT name, column_id, type_name, length, precision, scale, is_nullable, identity_seed IS NOT NULL,
       computed_definition IS NOT NULL, default_object_id <> 0, postgres_name, coalesce(masking_function, ''),
       collation_name, is_rowguidcol, attnum
FROM emulator.columns WHERE object_id = $1 ORDER BY column_id
"""
_KEY = """
SELECT c.name FROM emulator.objects k
JOIN emulator.indexes i ON i.object_id = k.parent_object_id AND i.constraint_object_id = k.object_id
JOIN emulator.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN emulator.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
WHERE k.parent_object_id = $1 AND k.type = 'PK' ORDER BY ic.key_ordinal
"""
_INLINE_FUNCTION = """
SELECT d.name, s.name, o.name, f.parameters, f.body, f.columns
FROM emulator.inline_functions f JOIN emulator.objects o ON o.object_id = f.object_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(o.name) = lower($3)
"""
_SCALAR_FUNCTION = """
SELECT f.postgres_function FROM emulator.scalar_functions f
LEFT JOIN emulator.databases d ON d.database_id = f.database_id
WHERE (f.database_id = 0 OR lower(d.name) = lower($1)) AND lower(f.schema) = lower($2) AND lower(f.name) = lower($3)
ORDER BY f.database_id DESC LIMIT 1
"""
_USER_FUNCTION = """
SELECT f.postgres_function, f.parameters, f.returns, f.is_volatile
FROM emulator.functions f JOIN emulator.objects o ON o.object_id = f.object_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(o.name) = lower($3) AND f.returns IS NOT NULL
"""
_SEQUENCE = """
SELECT q.type_name, q.precision, s.postgres_name, o.postgres_name
FROM emulator.sequences q JOIN emulator.objects o ON o.object_id = q.object_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(o.name) = lower($3)
"""
_PROCEDURE = """
SELECT o.definition FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(o.name) = lower($3) AND o.type = 'P'
"""
_SYNONYM = """
SELECT y.database_name, y.schema_name, y.name, d.name, s.name, o.name
FROM emulator.synonyms y JOIN emulator.objects o ON o.object_id = y.object_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(o.name) = lower($3)
"""
_FILTERS = """
SELECT p.condition FROM emulator.security_predicates p JOIN emulator.security_policies s ON s.object_id = p.object_id
WHERE p.target_object_id = $1 AND s.is_enabled
"""
_MASKS = "SELECT EXISTS (SELECT 1 FROM emulator.columns WHERE masking_function IS NOT NULL)"
_TRIGGERS = "SELECT EXISTS (SELECT 1 FROM emulator.triggers WHERE NOT is_disabled)"
_USER_TYPE = """
SELECT t.type_name, t.length, t.precision, t.scale, t.user_type_id, t.is_nullable, t.table_columns, s.name, t.name
FROM emulator.user_types t
JOIN emulator.databases d ON d.database_id = t.database_id
JOIN emulator.schemas s ON s.database_id = t.database_id AND s.schema_id = t.schema_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(t.name) = lower($3) LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class DatabaseEntry:
    """A database's number and its name as it was created."""

    database_id: int
    name: str
    collation: Collation
    allows_snapshot: bool
    """As ALLOW_SNAPSHOT_ISOLATION says."""


@dataclass(frozen=True, slots=True)
class UserType:
    """An alias type or table type of the catalog."""

    declared: DeclaredType
    user_type_id: int
    nullable: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view, with its columns also by PostgreSQL's attribute number."""

    table: CatalogObject
    by_attribute: dict[int, CatalogColumn]


class CatalogCache:
    """Finds names through ``fetch`` and remembers the answers, also that there is none."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._known: dict[tuple[object, ...], object] = {}

    def clear(self) -> None:
        self._known = {}

    def database(self, name: str) -> DatabaseEntry | None:
        return self._remember(("database", name), self._load_database, name)

    def table(self, database: str, schema: str, name: str) -> Relation | None:
        return self._remember(("table", database, schema, name), self._load_table, database, schema, name)

    def has_table(self, object_id: int) -> bool:
        return ("id", object_id) in self._known

    def table_by_id(self, object_id: int) -> Relation | None:
        return self._remember(("id", object_id), self._load_by_id, object_id)

    def by_postgres_name(self, schema: str, name: str) -> Relation | None:
        return self._remember(("postgres", schema, name), self._load_by_postgres_name, schema, name)

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None:
        return self._remember(("inline", database, schema, name), self._load_inline, database, schema, name)

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        return self._remember(("scalar", database, schema, name), self._load_scalar, database, schema, name)

    def sequence(self, database: str, schema: str, name: str) -> SequenceObject | None:
        return self._remember(("sequence", database, schema, name), self._load_sequence, database, schema, name)

    def synonym(self, database: str, schema: str, name: str) -> Synonym | None:
        return self._remember(("synonym", database, schema, name), self._load_synonym, database, schema, name)

    def has_triggers(self) -> bool:
        return self._remember(("triggers",), self._load_has_triggers)

    def has_masks(self) -> bool:
        """Whether any column of any database is masked."""
        return self._remember(("masks",), self._load_has_masks)

    def procedure(self, database: str, schema: str, name: str) -> str | None:
        return self._remember(("procedure", database, schema, name), self._load_procedure, database, schema, name)

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        return self._remember(("function", database, schema, name), self._load_function, database, schema, name)

    def user_type(self, database: str, schema: str, name: str) -> UserType | None:
        return self._remember(("type", database, schema, name), self._load_type, database, schema, name)

    def _remember(self, key: tuple[object, ...], load: Callable[..., _T], *arguments: object) -> _T:
        known = self._known
        if key in known:
            return cast(_T, known[key])
        # Stored in the dict that was current before the read: an answer older than a clear() is never kept.
        answer = load(*arguments)
        known[key] = answer
        if isinstance(answer, Relation):
            known["id", answer.table.object_id] = answer
        return answer

    def _load_database(self, name: str) -> DatabaseEntry | None:
        rows = self._fetch(_DATABASE, [name])
        if not rows:
            return None
        database_id, real_name, collation, allows_snapshot = cast("tuple[int, str, str, bool]", rows[0])
        return DatabaseEntry(database_id, real_name, find_collation(collation), allows_snapshot)

    def _load_table(self, database: str, schema: str, name: str) -> Relation | None:
        rows = self._fetch(_TABLE_BY_NAME, [database, schema, name])
        return self._relation(rows[0]) if rows else None

    def _load_by_id(self, object_id: int) -> Relation | None:
        rows = self._fetch(_TABLE_BY_ID, [object_id])
        return self._relation(rows[0]) if rows else None

    def _load_by_postgres_name(self, schema: str, name: str) -> Relation | None:
        rows = self._fetch(_TABLE_BY_POSTGRES_NAME, [schema, name])
        return self._load_by_id(cast(int, rows[0][0])) if rows else None

    def _relation(self, row: tuple[Any, ...]) -> Relation:
        object_id, database, schema, name, kind, is_system, postgres_schema, postgres_name, is_tracked = row
        rows = cast(list[tuple[Any, ...]], self._fetch(_COLUMNS, [object_id]))
        entry = self.database(database)
        default = entry.collation if entry is not None else DEFAULT_COLLATION
        columns = [(int(row[-1]), _column(default, *row[:-1])) for row in rows]
        key = tuple(cast(str, k[0]) for k in self._fetch(_KEY, [object_id])) if kind == "U" else ()
        kind = SYSTEM if is_system else kind
        ordered = tuple(column for _, column in columns)
        filters = tuple(cast(str, f[0]) for f in self._fetch(_FILTERS, [object_id])) if kind == "U" else ()
        table = CatalogObject(
            object_id, database, schema, name, kind, postgres_schema, postgres_name, ordered, key, filters, is_tracked
        )
        return Relation(table, dict(columns))

    def _load_inline(self, database: str, schema: str, name: str) -> InlineFunction | None:
        rows = cast(list[tuple[Any, ...]], self._fetch(_INLINE_FUNCTION, [database, schema, name]))
        if not rows:
            return None
        real_database, real_schema, real_name, parameters, body, columns = rows[0]
        described = tuple(
            CatalogColumn(c["name"], i, _described_type(c), c["nullable"], postgres_name=postgres_name(c["name"]))
            for i, c in enumerate(columns, 1)
        )
        typed, defaults = _described_parameters(parameters)
        return InlineFunction(real_database, real_schema, real_name, typed, body, described, defaults)

    def _load_sequence(self, database: str, schema: str, name: str) -> SequenceObject | None:
        rows = cast(list[tuple[Any, ...]], self._fetch(_SEQUENCE, [database, schema, name]))
        if not rows:
            return None
        type_name, precision, postgres_schema, own_name = rows[0]
        return SequenceObject(qualified(postgres_schema, own_name), TsqlType(type_name, precision=precision))

    def _load_procedure(self, database: str, schema: str, name: str) -> str | None:
        rows = self._fetch(_PROCEDURE, [database, schema, name])
        return str(rows[0][0]) if rows else None

    def _load_synonym(self, database: str, schema: str, name: str) -> Synonym | None:
        rows = cast(list[tuple[str, ...]], self._fetch(_SYNONYM, [database, schema, name]))
        return Synonym(*rows[0]) if rows else None

    def _load_has_triggers(self) -> bool:
        return bool(self._fetch(_TRIGGERS, [])[0][0])

    def _load_has_masks(self) -> bool:
        return bool(self._fetch(_MASKS, [])[0][0])

    def _load_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        rows = cast(list[tuple[Any, ...]], self._fetch(_USER_FUNCTION, [database, schema, name]))
        if not rows:
            return None
        postgres_function, parameters, returns, is_volatile = rows[0]
        typed, defaults = _described_parameters(parameters)
        return ScalarFunction(postgres_function, typed, defaults, _described_type(returns), is_volatile)

    def _load_scalar(self, database: str, schema: str, name: str) -> str | None:
        rows = self._fetch(_SCALAR_FUNCTION, [database, schema, name])
        return cast(str, rows[0][0]) if rows else None

    def _load_type(self, database: str, schema: str, name: str) -> UserType | None:
        rows = cast(list[tuple[Any, ...]], self._fetch(_USER_TYPE, [database, schema, name]))
        if not rows:
            return None
        type_, length, precision, scale, type_id, nullable, columns, schema, name = rows[0]
        if columns:
            return UserType(DeclaredType(TsqlType(f"{schema}.{name}"), columns), type_id, nullable)
        return UserType(DeclaredType(TsqlType(type_, length, precision, scale)), type_id, nullable)


def _described_type(described: dict[str, Any]) -> TsqlType:
    facets = (described.get(facet, 0) for facet in ("length", "precision", "scale"))
    return TsqlType(described["type"], *facets)


def _described_parameters(
    parameters: list[dict[str, Any]],
) -> tuple[tuple[tuple[str, TsqlType], ...], tuple[str | None, ...]]:
    typed = tuple((p["name"], _described_type(p)) for p in parameters)
    return typed, tuple(p.get("default_sql") for p in parameters)


def _column(  # noqa: PLR0917  (the order of _COLUMNS)
    default: Collation,
    name: str,
    column_id: int,
    type_name: str,
    length: int,
    precision: int,
    scale: int,
    nullable: bool,
    identity: bool,
    computed: bool,
    has_default: bool,
    postgres_name: str,
    mask: str,
    collation_name: str | None,
    rowguidcol: bool,
) -> CatalogColumn:
    type_ = TsqlType(type_name, length, precision, scale)
    collation = None
    if BY_NAME[type_name].has_collation:
        collation = find_collation(collation_name) if collation_name else default
    return CatalogColumn(
        name,
        column_id,
        type_,
        nullable,
        identity,
        computed,
        has_default,
        postgres_name,
        mask,
        collation,
        rowguidcol,
    )
