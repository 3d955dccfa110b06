"""The context of a DDL statement: the session, the current database, and the resolution of names and expressions."""

# ruff: noqa: S608  (the expression is T-SQL to be translated)

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sqlglot
from sqlglot import exp

from sqlserver_emulator.collations import DEFAULT_COLLATION, Collation, find_collation
from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.catalog.session_catalog import SessionCatalog
from sqlserver_emulator.engine.connection.errors_map import UNIQUE_VIOLATION
from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.taking import take_name
from sqlserver_emulator.engine.names import bracketed
from sqlserver_emulator.engine.translation import (
    CatalogObject,
    InlineFunction,
    LiteralParameter,
    ScalarFunction,
    SequenceObject,
    StatementTranslator,
    Synonym,
    Translated,
)
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.engine.values.convert import convert
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.known_names import TYPES
from sqlserver_emulator.syntax.lexer import tokenize
from sqlserver_emulator.syntax.parsing import data_types
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.types import TsqlType

_SCHEMA = """
SELECT s.schema_id, s.name, s.postgres_name, d.database_id, d.name FROM emulator.schemas s
JOIN emulator.databases d ON d.database_id = s.database_id
WHERE lower(d.name) = lower($1) AND lower(s.name) = lower($2) ORDER BY (s.name = $2) DESC LIMIT 1
"""
TEMPORARY = "pg_temp"


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema of the catalog, with its PostgreSQL name."""

    schema_id: int
    name: str
    postgres_name: str
    database_id: int
    database: str


class DdlScope:
    """The context of one DDL statement."""

    def __init__(self, access: SessionAccess, translator: StatementTranslator, database: str, statement: str) -> None:
        self.access = access
        self.database = database
        self.statement = statement
        self.changes_catalog = True
        """False when only the session's own temp tables changed: nobody else's names are stale then."""
        self.logged_tables: set[int] = set()
        """Ids of the tables that the log has a message of this statement about."""
        self._translator = translator

    @classmethod
    def like(cls, scope: DdlScope, database: str, statement: str) -> DdlScope:
        """The scope of another statement in the same session and transaction."""
        return cls(scope.access, scope._translator, database, statement)

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return cast(list[tuple[Any, ...]], self.access.fetch(sql, parameters))

    def run(self, sql: str) -> None:
        """PostgreSQL DDL, as the emulator's owner."""
        self.access.fetch(sql)

    def build_key(self, sql: str, table: CatalogObject, name: str) -> None:
        """Make a unique index, or the constraint of that name. Raises 1505 where the rows that are there forbid it."""
        try:
            self.run(sql)
        except StatementFailedError as failure:
            if failure.sqlstate != UNIQUE_VIOLATION:
                raise
            # PostgreSQL words it "is duplicated" when an index is built, and "already exists" when a row is written.
            found = re.search(r"=(\(.*\)) is duplicated", failure.detail)
            value = f" The duplicate key value is {found[1]}." if found else ""
            message = (
                "The CREATE UNIQUE INDEX statement terminated because a duplicate key was found for the object name "
                f"'{table.schema}.{table.name}' and the index name '{name}'.{value}"
            )
            raise SqlServerError(1505, message) from failure

    def check_keys_at_end(self, table: CatalogObject) -> None:
        """After a unique index or a foreign key was made: keys hold at the end of a statement, not at each row."""
        self.fetch("SELECT emulator.check_keys_at_end($1::oid)", [table.object_id])

    def collation(self, name: str, table: CatalogObject) -> Collation:
        """The collation that a column's COLLATE names, or that it has without one. Raises 448."""
        if name and name.lower() != "database_default":
            return find_collation(name)
        # The columns of a temp table have the collation of tempdb, which is the server's, unless they say otherwise.
        if table.name.startswith("#") and not name:
            return DEFAULT_COLLATION
        return self.access.catalog.collation(self.database if table.name.startswith("@") else table.database)

    # -- names ------------------------------------------------------------------------------------------------------

    def schema(self, name: ObjectName) -> SchemaEntry:
        """The schema that ``name`` is in or goes to. Raises 911 for the database, 2760 for the schema."""
        database, schema = name.database or self.database, name.schema or self.access.catalog.default_schema
        rows = self.fetch(_SCHEMA, [database, schema])
        if rows:
            return SchemaEntry(*rows[0])
        if self.access.catalog.database(database) is None:
            message = f"Database '{database}' does not exist. Make sure that the name is entered correctly."
            raise SqlServerError(911, message)
        raise SqlServerError(
            2760, f'The specified schema name "{schema}" either does not exist or you do not have permission to use it.'
        )

    def table(self, name: ObjectName) -> CatalogObject | None:
        return self.access.catalog.table(name.database or self.database, name.schema or None, name.name)

    def existing_table(self, name: ObjectName) -> CatalogObject:
        """Raises 4902 (the error of ALTER TABLE) when there is none."""
        found = self.table(name)
        if found is None:
            message = f'Cannot find the object "{name}" because it does not exist or you do not have permissions.'
            raise SqlServerError(4902, message)
        return found

    def read_type(self, cursor: Cursor) -> tuple[TsqlType, int | None, bool | None]:
        """A system or alias type; with the alias type's id and nullability."""
        start = cursor.at
        try:
            return data_types.take_type(cursor), None, None
        except SqlServerError as error:
            # 2715 is "no such type": the name may be an alias type, which the reader of system types does not know.
            if error.number != 2715:
                raise
            cursor.at = start
            return self._alias_type(cursor, error)

    def _alias_type(self, cursor: Cursor, error: SqlServerError) -> tuple[TsqlType, int | None, bool | None]:
        name = take_name(cursor)
        found = self.access.catalog.declared_type(name.database or self.database, name.schema or None, name.name)
        # A table type is no type of a column.
        if found is None or found.declared.columns:
            if name.name.lower() in TYPES:
                raise NotSupportedByEmulatorError(f"the data type {name.name.lower()}")
            raise error
        return found.declared.type, found.user_type_id, found.nullable

    def real_type(self, type: TsqlType, position: int = 1) -> TsqlType:
        """The system type of a variable or parameter that may have an alias type. Raises 2715."""
        if not data_types.is_user_made(type):
            return type
        schema, _, name = type.name.partition(".")
        found = self.access.catalog.declared_type(self.database, schema or None, name)
        if found is None:
            raise data_types.unknown_type(type.name.lstrip("."), position)
        if found.declared.columns:
            raise NotSupportedByEmulatorError(f"table types in functions ({found.declared.type.name})")
        return found.declared.type

    # -- expressions ------------------------------------------------------------------------------------------------

    def scalar(self, expression: str, as_type: TsqlType | None) -> str:
        """A T-SQL expression without columns (a default) as PostgreSQL SQL."""
        translated = self._translator.translate_expression(
            expression,
            catalog=self.access.catalog,
            database=self.database,
            variable_types={},
            condition=False,
            as_type=as_type,
        )
        # The translator gives a whole SELECT; a DEFAULT clause wants the expression alone.
        return with_literals(translated).removeprefix("SELECT ")

    def expression(
        self,
        text: str,
        variable_types: Mapping[str, TsqlType],
        *,
        as_type: TsqlType | None = None,
        condition: bool = False,
    ) -> Translated:
        """A T-SQL expression, or a search condition as 1 or 0, over variables."""
        return self._translator.translate_expression(
            text,
            catalog=self.access.catalog,
            database=self.database,
            variable_types=variable_types,
            condition=condition,
            as_type=as_type,
        )

    def literal(self, value: object, type: TsqlType) -> str:
        """A constant of a T-SQL type as PostgreSQL SQL."""
        # Converted by T-SQL's rules in Python first: PostgreSQL's cast of the literal would have rules of its own.
        return f"{bind.to_literal(None if value is None else convert(value, type))}::{self.postgres_type(type)}"

    def words(self) -> frozenset[str]:
        """The words of the statement, names and keywords in upper case."""
        return frozenset(token.word for token in tokenize(self.statement))

    def over_table(self, expression: str, table: CatalogObject) -> tuple[str, TsqlType | None, Collation | None]:
        """A T-SQL expression over the columns of one table as PostgreSQL SQL, and its type and collation
        where they are known."""
        # The expression is translated within a SELECT over the table and then cut out of the result.
        select, translated = self._select(f"SELECT {expression} AS x FROM {_from(table)}", table)
        projection = select.expressions[0].unalias()
        type_ = translated.column_types.get(0)
        # A plain column has no type in the translation, as its declared type is found by its origin.
        if type_ is None and isinstance(projection, exp.Column):
            type_ = next((c.type for c in table.columns if c.postgres_name == projection.name), None)
        return _without_qualifiers(projection), type_, translated.column_collations.get(0)

    def condition(self, condition: str, table: CatalogObject) -> str:
        select, _ = self._select(f"SELECT 1 AS x FROM {_from(table)} WHERE {condition}", table)
        return _without_qualifiers(select.args["where"].this)

    def translate(self, statement: str, variable_types: Mapping[str, TsqlType] | None = None) -> Translated:
        return self._translator.translate(
            statement, catalog=self.access.catalog, database=self.database, variable_types=variable_types or {}
        )

    def postgres_type(self, type: TsqlType) -> str:
        return self._translator.postgres_type(type)

    def _select(self, statement: str, table: CatalogObject) -> tuple[exp.Select, Translated]:
        catalog = DeclaredTableCatalog(self.access.catalog, table)
        translated = self._translator.translate(statement, catalog=catalog, database=self.database, variable_types={})
        # PostgreSQL's text is parsed again, so that the expression can be taken from the tree and not from the text.
        tree = sqlglot.parse_one(with_literals(translated), read="postgres")
        if not isinstance(tree, exp.Select):
            raise NotSupportedByEmulatorError(f"this expression in a table: {statement}")
        return tree, translated


class DeclaredTableCatalog:
    """The session's catalog and one table that is being declared or changed, as it will be."""

    def __init__(self, catalog: SessionCatalog, table: CatalogObject) -> None:
        self._catalog = catalog
        self._table = table
        # The table as it will be must not be found in the cache of translations later.
        self.version = catalog.unused_version()

    def database(self, name: str) -> str | None:
        return self._catalog.database(name)

    def collation(self, database: str) -> Collation:
        return self._catalog.collation(database)

    def table(self, database: str, schema: str | None, name: str) -> CatalogObject | None:
        own = self._table
        if name.startswith(("#", "@")):
            # Its home is tempdb, whatever the session's database is.
            return own if name.lower() == own.name.lower() else self._catalog.table(database, schema, name)
        if (database, name) == (own.database, own.name) and schema in (None, own.schema):
            return own
        return self._catalog.table(database, schema, name)

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None:
        return self._catalog.inline_function(database, schema, name)

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        return self._catalog.scalar_function(database, schema, name)

    def sequence(self, database: str, schema: str | None, name: str) -> SequenceObject | None:
        return self._catalog.sequence(database, schema, name)

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        return self._catalog.user_function(database, schema, name)

    def user_type(self, database: str, schema: str | None, name: str) -> TsqlType | None:
        return self._catalog.user_type(database, schema, name)

    def synonym(self, database: str, schema: str | None, name: str) -> Synonym | None:
        return self._catalog.synonym(database, schema, name)


def with_literals(translated: Translated) -> str:
    """The SQL with its lifted literals put back, for statements that are stored."""
    values = [p.value if isinstance(p, LiteralParameter) else None for p in translated.parameters]
    return bind.inline(translated.sql, values)


def _from(table: CatalogObject) -> str:
    if table.name.startswith(("#", "@")):
        return table.name
    return f"{bracketed(table.database)}.{bracketed(table.schema)}.{bracketed(table.name)}"


def _without_qualifiers(tree: exp.Expression) -> str:
    # The alias of the translated SELECT does not exist in DEFAULT, CHECK and computed columns.
    for column in tree.find_all(exp.Column):
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return str(tree.sql(dialect="postgres"))
