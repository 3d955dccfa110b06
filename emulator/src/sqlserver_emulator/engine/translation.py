"""The contract between the translator and the engine session: what goes in, what comes out.

The translator turns the text of one T-SQL statement into PostgreSQL SQL with parameters; the engine session binds and
runs it. DDL that changes the catalog is not turned into SQL by the translator: it is handed over as a sqlglot tree
(``Translated.ddl``) to ``engine.ddl``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlglot import exp

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.events import Command
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column as declared. ``postgres_name`` is its name in PostgreSQL (usually the same)."""

    name: str
    column_id: int
    type: TsqlType
    nullable: bool
    identity: bool = False
    computed: bool = False
    has_default: bool = False
    postgres_name: str = ""
    mask: str = ""
    """The masking function, where the caller may not see the values."""
    collation: Collation | None = None
    """Of a character type."""
    rowguidcol: bool = False


FILTERED_ROW = '"~filtered"'
"""The row of a table that a filter predicate is about, in ``CatalogObject.filters``."""
READ_ONLY = "R"
"""The kind of a table that was passed as a parameter."""
SYSTEM = "S"
"""The kind of a system table or view."""


@dataclass(frozen=True, slots=True)
class CatalogObject:
    """A table or view that a name resolved to.

    ``kind`` is 'U' (table), 'V' (view), ``SYSTEM``, or ``READ_ONLY``.
    """

    object_id: int
    database: str
    schema: str
    name: str
    kind: str
    postgres_schema: str
    postgres_name: str
    columns: tuple[CatalogColumn, ...]
    key_columns: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    """PostgreSQL conditions of its enabled filter predicates, over ``FILTERED_ROW``."""
    is_tracked: bool = False
    """Whether Change Tracking is on."""


@dataclass(frozen=True, slots=True)
class InlineFunction:
    """A table-valued function that is expanded in place. ``body`` is a PostgreSQL SELECT with $1..$n for arguments."""

    database: str
    schema: str
    name: str
    parameters: tuple[tuple[str, TsqlType], ...]
    body: str
    columns: tuple[CatalogColumn, ...] = ()
    """As declared or described when it was made; empty where the body alone decides."""
    defaults: tuple[str | None, ...] = ()
    """PostgreSQL SQL of each parameter's default; None: it has none."""


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A user's scalar function. ``postgres_function``: qualified and quoted. ``defaults`` as in InlineFunction."""

    postgres_function: str
    parameters: tuple[tuple[str, TsqlType], ...]
    defaults: tuple[str | None, ...]
    returns: TsqlType
    is_volatile: bool


@dataclass(frozen=True, slots=True)
class SequenceObject:
    """``postgres_name``: qualified and quoted."""

    postgres_name: str
    type: TsqlType


@dataclass(frozen=True, slots=True)
class Synonym:
    """The object that a synonym is for (``base_schema`` '': that of the caller), and its own name."""

    base_database: str
    base_schema: str
    base_name: str
    database: str
    schema: str
    name: str


class CatalogReader(Protocol):
    """Names to objects, case-insensitively with exact matches preferred. Answers from a cache that DDL invalidates."""

    @property
    def version(self) -> int:
        """A number that changes with every committed or own uncommitted change of what the methods answer.

        Two readers have the same number only if they give the same answers.
        """

    def database(self, name: str) -> str | None:
        """The database's real name, or None."""

    def collation(self, database: str) -> Collation:
        """The collation of the database."""

    def table(self, database: str, schema: str | None, name: str) -> CatalogObject | None:
        """``schema`` None: the caller's default schema (dbo), then sys. ``#name`` finds the session's temp table."""

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None: ...

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        """The qualified, quoted PostgreSQL function for `schema.fn(...)` (such as sys.fn_cdc_get_max_lsn), or None."""

    def sequence(self, database: str, schema: str | None, name: str) -> SequenceObject | None:
        """``schema`` None: the caller's default schema."""

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        """A scalar function of the user."""

    def user_type(self, database: str, schema: str | None, name: str) -> TsqlType | None:
        """The system type of an alias type, or None."""

    def synonym(self, database: str, schema: str | None, name: str) -> Synonym | None:
        """``table`` does not follow synonyms; functions are found through them."""


@dataclass(frozen=True, slots=True)
class LiteralParameter:
    """A literal lifted out of the text, bound as text of unknown type unless the SQL casts it."""

    value: object


@dataclass(frozen=True, slots=True)
class VariableParameter:
    """A T-SQL variable; ``name`` lower-case with its @. The SQL casts it to its storage type."""

    name: str


ParameterSource = LiteralParameter | VariableParameter


@dataclass(frozen=True, slots=True)
class Translated:
    """One statement, ready to run.

    sql: PostgreSQL text with $1..$n. parameters: what to bind, in order. returns_rows: SELECT or OUTPUT.
    assigned_variables: for `SELECT @a = …`, one lower-case name per result column. column_types: declared types of
    result columns that the translator knows better than PostgreSQL (CAST, CONVERT, literals…), by index.
    column_names: names as T-SQL gives them ('' for an unnamed expression). read_only: a plain SELECT that may run on
    any connection (no temp tables, no functions with effects). identity_of: the table whose identity an INSERT may
    advance (for SCOPE_IDENTITY). ddl: the tree, for engine.ddl; sql is then ''.
    """

    command: Command
    sql: str = ""
    parameters: tuple[ParameterSource, ...] = ()
    returns_rows: bool = False
    assigned_variables: tuple[str, ...] = ()
    column_types: Mapping[int, TsqlType] = field(default_factory=dict)
    column_names: tuple[str, ...] | None = None
    read_only: bool = False
    identity_of: CatalogObject | None = None
    deferred_update_of: CatalogObject | None = None
    """An UPDATE or MERGE whose SET list assigns a key column of this table: SQL Server logs it as delete + insert."""
    ddl: exp.Expression | None = None
    assigned_columns: frozenset[str] = frozenset()
    """Lower-case names of the columns that the SET list of an UPDATE or MERGE assigns, for UPDATE() in triggers."""
    max_recursion: int | None = None
    """OPTION (MAXRECURSION), 0 for none; None: it does not say."""
    of_catalog: bool = False
    """A SELECT that reads system views and no table."""
    column_collations: Mapping[int, Collation] = field(default_factory=dict)
    """Of the result columns that are strings, by index."""
    sent_sql: str = ""
    """The same query with texts in ``unit_columns``; '' where it has none."""
    unit_columns: frozenset[int] = frozenset()
    """The result columns that are the code units of a text (``engine.values.units``), by index."""

    tracking_context: ParameterSource | None = None
    """What WITH CHANGE_TRACKING_CONTEXT names; None: there is no such clause."""

    assigned_ids: tuple[int, ...] = ()
    """The columns that an UPDATE or MERGE of a tracked table assigns, in the order of the SET list."""
    databases: frozenset[str] = frozenset()
    """The databases whose tables and views it names."""

    def as_sent(self) -> Translated:
        """Return the query in the form in which its rows are read for a client."""
        return replace(self, sql=self.sent_sql) if self.unit_columns else self


class StatementTranslator(Protocol):
    """Implemented by ``engine.translate``; one per engine, shared by all sessions, thread-safe, with a cache."""

    def translate(
        self, statement: str, *, catalog: CatalogReader, database: str, variable_types: Mapping[str, TsqlType]
    ) -> Translated:
        """Raises SqlServerError 102/156 (syntax), 208 (object), 207 (column), 137 (variable), or
        NotSupportedByEmulatorError naming the clause."""

    def translate_expression(
        self,
        expression: str,
        *,
        catalog: CatalogReader,
        database: str,
        variable_types: Mapping[str, TsqlType],
        condition: bool,
        as_type: TsqlType | None,
    ) -> Translated:
        """A scalar expression (or a search condition, giving 1 or 0) as a one-row SELECT."""

    def undeclared_types(
        self, statement: str, *, catalog: CatalogReader, database: str, variable_types: Mapping[str, TsqlType]
    ) -> dict[str, TsqlType | None]:
        """Return the types of parameters that ``variable_types`` lacks, by lower-case name; None: nothing shows it."""

    def postgres_type(self, type: TsqlType) -> str:
        """The storage type: nvarchar(20) -> varchar(20), money -> numeric(19,4), …"""
