"""The catalog as sessions see it: what is committed, what a transaction changed, and what is a session's alone.

One cache for the committed catalog, shared by all sessions; a session whose open transaction changed the catalog reads
through its own until the transaction ends. Temp tables are known to their session only, and to no catalog table.

Leaves writing the catalog to ``engine.ddl``.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlserver_emulator.collations import DEFAULT_COLLATION, Collation
from sqlserver_emulator.contract import REQUIRED, Parameter
from sqlserver_emulator.engine.catalog.cache import CatalogCache, DatabaseEntry, Fetch, Relation, UserType
from sqlserver_emulator.engine.catalog.hidden_values import HiddenValues
from sqlserver_emulator.engine.translation import (
    READ_ONLY,
    CatalogColumn,
    CatalogObject,
    InlineFunction,
    ScalarFunction,
    SequenceObject,
    Synonym,
)
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.types import TsqlType

_DEFAULT_SCHEMA = "dbo"
# A name without a schema is searched in the caller's default schema first, then in these.
_IMPLIED_SCHEMAS = (_DEFAULT_SCHEMA, "sys")
_VERSIONS_MAX = 500


def _signature(table: CatalogObject) -> Hashable:
    """Return what a translation takes from a temp table: its id only where it has an identity or a key."""
    has_id = bool(table.key_columns) or any(column.identity for column in table.columns)
    object_id = table.object_id if has_id else 0
    return (table.name, table.kind, table.postgres_name, table.columns, table.key_columns, object_id)


class SharedCatalog:
    """The committed catalog. ``version`` numbers are never used twice, also not by sessions."""

    def __init__(self, fetch: Fetch, numbers: Iterator[int] | None = None) -> None:
        self._lock = threading.RLock()
        self._numbers = numbers or itertools.count(1)
        self.version = next(self._numbers)
        self.fetch = self._locked(fetch)
        self.cache = CatalogCache(self.fetch)

    def changed(self) -> None:
        """A change was committed."""
        # In this order: a session that reads the new number must not get an earlier answer.
        self.cache.clear()
        self.version = next(self._numbers)

    def next_version(self) -> int:
        return next(self._numbers)

    def own_of(self, fetch: Fetch) -> SharedCatalog:
        """Return the catalog as a session with a state of its own reads it."""
        # The same numbers go on: translations of all sessions are kept together.
        return SharedCatalog(fetch, self._numbers)

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
        self.has_made_temporary = False
        """Whether the session has made a #table, which may be gone meanwhile."""
        self._own_names: tuple[Hashable, ...] | None = None
        """What distinguishes the session's own tables from other ones; None: to be made."""
        self._versions: dict[Hashable, int] = {}
        self.default_schema = _DEFAULT_SCHEMA
        self.hidden = HiddenValues(fetch)
        self._scope_depth = 0
        self._images: list[tuple[Relation, ...]] = []

    @property
    def version(self) -> int:
        """The same temp tables, by names and columns, give the same number again: answers need not be compared."""
        # Answers depend on these tables, so the number changes with them.
        shared = self.shared_version
        # What a login without UNMASK may read is known to its session alone.
        is_masked = not self.hidden.is_sysadmin and self._cache.has_masks()
        if not self._temporary and not self._images and not is_masked and self.default_schema == _DEFAULT_SCHEMA:
            return shared
        if self._own_names is None:
            images = self._images[-1] if self._images else ()
            temporary = tuple(_signature(relation.table) for relation in self._temporary.values())
            self._own_names = (temporary, tuple(image.table.postgres_name for image in images))
        key = (shared, self._own_names, is_masked, self.default_schema)
        if key not in self._versions:
            # All numbers are dropped together; each costs no more than one comparison of a translation's answers.
            if len(self._versions) >= _VERSIONS_MAX:
                self._versions.clear()
            self._versions[key] = self._shared.next_version()
        return self._versions[key]

    @property
    def shared_version(self) -> int:
        """The version of the catalog's tables, without a session's own: temp tables and a trigger's images."""
        return self._shared.version if self._own_version is None else self._own_version

    @property
    def has_own_changes(self) -> bool:
        return self._own_version is not None

    def changed_in_transaction(self) -> None:
        """The session changed the catalog and has not committed yet."""
        # Other sessions must not find translations of a catalog that may be rolled back.
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

    def collation(self, database: str) -> Collation:
        entry = self._cache.database(database)
        return entry.collation if entry is not None else DEFAULT_COLLATION

    def table(self, database: str, schema: str | None, name: str) -> CatalogObject | None:
        # Names of temp tables and table variables have no schema and no entry in the catalog's tables.
        if name.startswith(("#", "@")):
            temporary = self._temporary.get(name.lower())
            return temporary.table if temporary else None
        # A trigger's ``inserted`` and ``deleted`` hide tables of these names.
        if self._images and not schema and (image := self._image(name)) is not None:
            return image.table
        schemas = (schema,) if schema else (self.default_schema, *_IMPLIED_SCHEMAS)
        for candidate in schemas:
            if (found := self._cache.table(database, candidate, name)) is not None:
                return self.hidden.table(found.table, self.shared_version) if self._cache.has_masks() else found.table
        return None

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None:
        found = self._cache.inline_function(database, schema, name)
        if found is None and (base := self.synonym(database, schema, name)) is not None:
            found = self._cache.inline_function(base.base_database, base.base_schema or "dbo", base.base_name)
        if found is not None and self._cache.has_masks():
            self.hidden.refuse_function(found, self.shared_version)
        return found

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        return self._cache.scalar_function(database, schema, name)

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        found = self._cache.user_function(database, schema, name)
        if found is None and (base := self.synonym(database, schema, name)) is not None:
            found = self._cache.user_function(base.base_database, base.base_schema or "dbo", base.base_name)
        return found

    def procedure(self, database: str, schema: str, name: str) -> str | None:
        """The text of a user's procedure."""
        found = self._cache.procedure(database, schema, name)
        base = None if found else self.synonym(database, schema, name)
        if base is None:
            return found
        if base.base_database.lower() != database.lower():
            raise NotSupportedByEmulatorError("synonyms of procedures in other databases")
        return self._cache.procedure(base.base_database, base.base_schema or "dbo", base.base_name)

    def function_parameters(self, database: str, schema: str, name: str) -> tuple[Parameter, ...] | None:
        """Return the parameters of a user's scalar function, or None."""
        found = self.user_function(database, schema, name)
        if found is None:
            return None
        defaults = zip(found.parameters, found.defaults, strict=True)
        return tuple(Parameter(n, type_, REQUIRED if d is None else None) for (n, type_), d in defaults)

    def synonym(self, database: str, schema: str | None, name: str) -> Synonym | None:
        return self._cache.synonym(database, schema or self.default_schema, name)

    def user_type(self, database: str, schema: str | None, name: str) -> TsqlType | None:
        found = self.declared_type(database, schema, name)
        return found.declared.type if found and not found.declared.columns else None

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
        # The shared cache reads on a connection of its own; only the transaction's own catalog needs this session's.
        if self._own_version is None or self._own.has_table(object_id):
            return False
        known = (*self._temporary.values(), *(image for images in self._images for image in images))
        return all(relation.table.object_id != object_id for relation in known)

    def add_temporary(self, relation: Relation) -> None:
        self._temporary[relation.table.name.lower()] = relation
        self.has_made_temporary = self.has_made_temporary or relation.table.name.startswith("#")
        # The version is computed again at its next use.
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
        # Temp tables (#) stay visible in inner scopes; table variables (@) do not.
        outside = {name: relation for name, relation in self._temporary.items() if name.startswith("@")}
        self._replace_variables(outside, {})
        self._scope_depth += 1
        try:
            yield
        finally:
            self._scope_depth -= 1
            inside = {name: relation for name, relation in self._temporary.items() if name.startswith("@")}
            self._replace_variables(inside, outside)

    @property
    def scope_depth(self) -> int:
        """How many scopes with table variables of their own are around."""
        return self._scope_depth

    def share(self, name: str, relation: Relation) -> None:
        """Another scope's table variable under this name."""
        # A table-valued parameter is READONLY in the procedure (error 10700).
        self.add_temporary(Relation(replace(relation.table, name=name, kind=READ_ONLY), relation.by_attribute))

    def temporary(self, name: str) -> Relation | None:
        return self._temporary.get(name.lower())

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
