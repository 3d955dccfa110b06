"""Names to databases, schemas, tables and functions: reads ``emulator.*`` and remembers what it read.

One cache for the committed catalog, shared by all sessions; a session whose open transaction changed the catalog reads
through its own until the transaction ends. Temp tables are known to their session only, and to no catalog table.

Leaves writing the catalog to ``engine.ddl``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from sqlserver_emulator.engine.names import postgres_name, qualified
from sqlserver_emulator.engine.translation import (
    CatalogColumn,
    CatalogObject,
    InlineFunction,
    ScalarFunction,
    SequenceObject,
)
from sqlserver_emulator.types import TsqlType

Fetch = Callable[[str, Sequence[object]], list[tuple[object, ...]]]

_T = TypeVar("_T")
_IMPLIED_SCHEMAS = ("dbo", "sys")
_VERSIONS_MAX = 500

_DATABASE = """
SELECT database_id, name FROM emulator.databases WHERE lower(name) = lower($1) ORDER BY (name = $1) DESC LIMIT 1
"""
_TABLE_BY_NAME = """
SELECT o.object_id, d.name, s.name, o.name, o.type, o.is_system, s.postgres_name, o.postgres_name
FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(o.name) = lower($3) AND o.type IN ('U', 'V')
ORDER BY (o.name = $3) DESC, (s.name = $2) DESC LIMIT 1
"""
_TABLE_BY_ID = """
SELECT o.object_id, d.name, s.name, o.name, o.type, o.is_system, s.postgres_name, o.postgres_name
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
       computed_definition IS NOT NULL, default_object_id <> 0, postgres_name, attnum
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
_TRIGGERS = "SELECT EXISTS (SELECT 1 FROM emulator.triggers WHERE NOT is_disabled)"
_USER_TYPE = """
SELECT t.type_name, t.length, t.precision, t.scale, t.user_type_id, t.is_nullable FROM emulator.user_types t
JOIN emulator.databases d ON d.database_id = t.database_id
JOIN emulator.schemas s ON s.database_id = t.database_id AND s.schema_id = t.schema_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) AND lower(t.name) = lower($3) LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class DatabaseEntry:
    database_id: int
    name: str


@dataclass(frozen=True, slots=True)
class UserType:
    type: TsqlType
    user_type_id: int
    nullable: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view, with its columns also by PostgreSQL's attribute number."""

    table: CatalogObject
    by_attribute: dict[int, CatalogColumn]


class CatalogCache:
    """Looks up names through ``fetch`` and remembers the answers, also that there is none."""

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

    def has_triggers(self) -> bool:
        return self._remember(("triggers",), self._load_has_triggers)

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
        return DatabaseEntry(cast(int, rows[0][0]), cast(str, rows[0][1])) if rows else None

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
        object_id, database, schema, name, kind, is_system, postgres_schema, postgres_name = row
        rows = cast(list[tuple[Any, ...]], self._fetch(_COLUMNS, [object_id]))
        columns = [(int(row[-1]), _column(*row[:-1])) for row in rows]
        key = tuple(cast(str, k[0]) for k in self._fetch(_KEY, [object_id])) if kind == "U" else ()
        kind = "S" if is_system else kind
        ordered = tuple(column for _, column in columns)
        table = CatalogObject(object_id, database, schema, name, kind, postgres_schema, postgres_name, ordered, key)
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

    def _load_has_triggers(self) -> bool:
        return bool(self._fetch(_TRIGGERS, [])[0][0])

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
        type_, length, precision, scale, type_id, nullable = rows[0]
        return UserType(TsqlType(type_, length, precision, scale), type_id, nullable)


def _signature(table: CatalogObject) -> Hashable:
    """What a translation takes from a temp table: its id only where it has an identity or a key."""
    has_id = bool(table.key_columns) or any(column.identity for column in table.columns)
    return (table.name, table.postgres_name, table.columns, table.key_columns, table.object_id if has_id else 0)


def _described_type(described: dict[str, Any]) -> TsqlType:
    facets = (described.get(facet, 0) for facet in ("length", "precision", "scale"))
    return TsqlType(described["type"], *facets)


def _described_parameters(
    parameters: list[dict[str, Any]],
) -> tuple[tuple[tuple[str, TsqlType], ...], tuple[str | None, ...]]:
    typed = tuple((p["name"], _described_type(p)) for p in parameters)
    return typed, tuple(p.get("default_sql") for p in parameters)


def _column(  # noqa: PLR0917  (the order of _COLUMNS)
    name: str, column_id: int, type_name: str, length: int, precision: int, scale: int, nullable: bool, identity: bool,
    computed: bool, has_default: bool, postgres_name: str,
) -> CatalogColumn:  # fmt: skip
    type_ = TsqlType(type_name, length, precision, scale)
    return CatalogColumn(name, column_id, type_, nullable, identity, computed, has_default, postgres_name)


class SharedCatalog:
    """The committed catalog. ``version`` numbers are never used twice, also not by sessions."""

    def __init__(self, fetch: Fetch) -> None:
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.version = next(self._numbers)
        self.cache = CatalogCache(self._locked(fetch))

    def changed(self) -> None:
        """A change was committed."""
        self.version = next(self._numbers)
        self.cache.clear()

    def next_version(self) -> int:
        return next(self._numbers)

    def _locked(self, fetch: Fetch) -> Fetch:
        def fetch_alone(sql: str, parameters: Sequence[object]) -> list[tuple[object, ...]]:
            with self._lock:
                return fetch(sql, parameters)

        return fetch_alone


class SessionCatalog:
    """The catalog as one session sees it; implements ``translation.CatalogReader``."""

    def __init__(self, shared: SharedCatalog, fetch: Fetch) -> None:
        self._shared = shared
        self._own = CatalogCache(fetch)
        self._own_version: int | None = None
        self._temporary: dict[str, Relation] = {}
        self._own_names: tuple[Hashable, ...] | None = None
        """What tells the session's own tables apart from other ones; None: to be made."""
        self._versions: dict[Hashable, int] = {}
        self.default_schema = "dbo"
        self._scope_depth = 0
        self._images: list[tuple[Relation, ...]] = []

    @property
    def version(self) -> int:
        """The same temp tables, by names and columns, give the same number again: translations are found again."""
        shared = self.shared_version
        if not self._temporary and not self._images:
            return shared
        if self._own_names is None:
            images = self._images[-1] if self._images else ()
            temporary = tuple(_signature(relation.table) for relation in self._temporary.values())
            self._own_names = (temporary, tuple(image.table.postgres_name for image in images))
        key = (shared, self._own_names)
        if key not in self._versions:
            if len(self._versions) >= _VERSIONS_MAX:
                self._versions.clear()
            self._versions[key] = self._shared.next_version()
        return self._versions[key]

    @property
    def shared_version(self) -> int:
        """Of the catalog's tables, without what is this session's alone: temp tables and a trigger's images."""
        return self._shared.version if self._own_version is None else self._own_version

    @property
    def has_own_changes(self) -> bool:
        return self._own_version is not None

    def changed_in_transaction(self) -> None:
        """The session changed the catalog and has not committed yet."""
        self._own_version = self._shared.next_version()
        self._own.clear()

    def transaction_ended(self, *, committed: bool) -> None:
        if self._own_version is None:
            return
        self._own_version = None
        self._own.clear()
        if committed:
            self._shared.changed()

    # -- CatalogReader ----------------------------------------------------------------------------------------------

    def database(self, name: str) -> str | None:
        entry = self._cache.database(name)
        return entry.name if entry else None

    def table(self, database: str, schema: str | None, name: str) -> CatalogObject | None:
        if name.startswith(("#", "@")):
            temporary = self._temporary.get(name.lower())
            return temporary.table if temporary else None
        if self._images and not schema and (image := self._image(name)) is not None:
            return image.table
        schemas = (schema,) if schema else (self.default_schema, *_IMPLIED_SCHEMAS)
        for candidate in schemas:
            if (found := self._cache.table(database, candidate, name)) is not None:
                return found.table
        return None

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None:
        return self._cache.inline_function(database, schema, name)

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        return self._cache.scalar_function(database, schema, name)

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        return self._cache.user_function(database, schema, name)

    def user_type(self, database: str, schema: str | None, name: str) -> TsqlType | None:
        found = self.declared_type(database, schema, name)
        return found.type if found else None

    def unused_version(self) -> int:
        """A version number of nobody, for a catalog that exists only while a statement is translated."""
        return self._shared.next_version()

    # -- beyond the contract ----------------------------------------------------------------------------------------

    def database_entry(self, name: str) -> DatabaseEntry | None:
        return self._cache.database(name)

    def declared_type(self, database: str, schema: str | None, name: str) -> UserType | None:
        return self._cache.user_type(database, schema or self.default_schema, name)

    def table_by_id(self, object_id: int) -> CatalogObject | None:
        relation = self._relation(object_id)
        return relation.table if relation else None

    def table_by_postgres_name(self, schema: str, name: str) -> CatalogObject | None:
        for temporary in self._temporary.values():
            if (temporary.table.postgres_schema, temporary.table.postgres_name) == (schema, name):
                return temporary.table
        relation = self._cache.by_postgres_name(schema, name)
        return relation.table if relation else None

    def origin(self, object_id: int, attribute: int) -> CatalogColumn | None:
        """The declared column behind a result column."""
        relation = self._relation(object_id)
        return relation.by_attribute.get(attribute) if relation else None

    def needs_reading(self, object_id: int) -> bool:
        """Whether ``origin`` would have to use the session's own connection."""
        if self._own_version is None or self._own.has_table(object_id):
            return False
        known = (*self._temporary.values(), *(image for images in self._images for image in images))
        return all(relation.table.object_id != object_id for relation in known)

    def add_temporary(self, relation: Relation) -> None:
        self._temporary[relation.table.name.lower()] = relation
        self._own_names = None

    def drop_temporary(self, name: str) -> None:
        self._temporary.pop(name.lower(), None)
        self._own_names = None

    def sequence(self, database: str, schema: str | None, name: str) -> SequenceObject | None:
        return self._cache.sequence(database, schema or self.default_schema, name)

    @property
    def has_triggers(self) -> bool:
        return self._cache.has_triggers()

    @contextmanager
    def images(self, images: Sequence[Relation]) -> Iterator[None]:
        """``inserted`` and ``deleted`` while a trigger runs; only the innermost trigger's are seen."""
        self._images.append(tuple(images))
        self._own_names = None
        try:
            yield
        finally:
            self._images.pop()
            self._own_names = None

    def _image(self, name: str) -> Relation | None:
        return next((image for image in self._images[-1] if image.table.name == name.lower()), None)

    @contextmanager
    def table_variables(self) -> Iterator[None]:
        """A scope of its own for table variables: those outside are not seen in it, and those made in it go with it."""
        outside = {name: relation for name, relation in self._temporary.items() if name.startswith("@")}
        self._replace_variables(outside, {})
        self._scope_depth += 1
        try:
            yield
        finally:
            self._scope_depth -= 1
            inside = {name: relation for name, relation in self._temporary.items() if name.startswith("@")}
            self._replace_variables(inside, outside)

    def variable_name(self, name: str) -> str:
        """The PostgreSQL name of a table variable of the running scope."""
        return postgres_name(f"{name}~{self._scope_depth}" if self._scope_depth else name)

    def _replace_variables(self, old: dict[str, Relation], new: dict[str, Relation]) -> None:
        if not old and not new:
            return
        self._temporary = {name: kept for name, kept in self._temporary.items() if name not in old} | new
        self._own_names = None

    @property
    def temporary_tables(self) -> tuple[CatalogObject, ...]:
        return tuple(relation.table for relation in self._temporary.values())

    def _relation(self, object_id: int) -> Relation | None:
        for temporary in (*self._temporary.values(), *(image for images in self._images for image in images)):
            if temporary.table.object_id == object_id:
                return temporary
        return self._cache.table_by_id(object_id)

    @property
    def _cache(self) -> CatalogCache:
        return self._shared.cache if self._own_version is None else self._own
