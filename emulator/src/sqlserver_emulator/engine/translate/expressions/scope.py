"""Where a name in a query points: the tables of a FROM clause, their columns, and the queries around.

Names are compared as SQL Server's catalog does: an exact match first, then without regard to case.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlserver_emulator.collations import Collated
from sqlserver_emulator.engine.translate.values.type_rules import family
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import TsqlType

DEPTH = '"~depth"'
"""The hidden column of a recursive common table."""


def quote(name: str) -> str:
    """Return a quoted PostgreSQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column that a source offers. ``sql``: its quoted name there. ``direct``: it is a column of a table."""

    name: str
    sql: str
    type: TsqlType | None
    nullable: bool = True
    direct: bool = False
    identity: bool = False
    untyped: bool = False
    """It is the constant NULL, whose type anything else decides."""
    mask: str = ""
    """The masking function that the client sees it through."""
    collated: Collated | None = None
    """Of a string; a conflict of two collations is passed on."""
    rowguidcol: bool = False
    only_nulls: bool = False
    """A column of VALUES in which each row has NULL, so that what it is assigned to decides its type: also through
    derived tables and common table expressions."""


@dataclass(slots=True, eq=False)
class Source:
    """One item of a FROM clause. ``columns`` None: unknown, PostgreSQL will know.

    alias: the quoted PostgreSQL alias. name: what T-SQL calls it (alias, else table name). schema, database: of an
    unaliased table, for references such as `sys.objects.name`.
    """

    alias: str
    name: str
    columns: tuple[SourceColumn, ...] | None
    schema: str = ""
    database: str = ""
    table: CatalogObject | None = None
    optional: bool = False
    """On the side of an outer join that may be missing: every column can be NULL."""
    has_depth: bool = False
    """It is the recursive table itself, within its recursion, or passes on its hidden column."""

    def column(self, name: str) -> SourceColumn | None:
        return named(self.columns or (), name)

    def value(self, column: SourceColumn) -> Value:
        if column.only_nulls:
            return Value(f"{self.alias}.{column.sql}", column.type, kind="", is_null=True)
        return Value(
            f"{self.alias}.{column.sql}",
            column.type,
            kind=family(column.type) if column.type is not None else None,
            direct=column.direct,
            nullable=column.nullable or self.optional,
            mask=column.mask,
            collated=column.collated,
        )


def named(columns: tuple[SourceColumn, ...], name: str) -> SourceColumn | None:
    """Return the column of that name, or None. `$IDENTITY` and `$ROWGUID` are names of what a column is."""
    folded = name.lower()
    if folded == "$identity":
        return next((column for column in columns if column.identity), None)
    if folded == "$rowguid":
        return next((column for column in columns if column.rowguidcol), None)
    # Two columns may differ in case only: the exact one wins.
    found = None
    for column in columns:
        if column.name == name:
            return column
        if found is None and column.name.lower() == folded:
            found = column
    return found


@dataclass(slots=True)
class Scope:
    """The sources of one query, inside another one or none. ``ctes`` are those defined by this query's WITH.

    grouped_texts: the SQL of the strings it groups by; grouped without regard to blanks at their end, they must be
    written in that form wherever else they stand.
    """

    parent: Scope | None = None
    sources: list[Source] = field(default_factory=list)
    ctes: dict[str, CommonTable] = field(default_factory=dict)
    grouped_texts: set[str] = field(default_factory=set)

    @property
    def depth(self) -> str:
        """The hidden column of the recursive table among the sources, or nothing."""
        return next((f"{source.alias}.{DEPTH}" for source in self.sources if source.has_depth), "")

    def cte(self, name: str) -> CommonTable | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.ctes.get(name.lower())
            if found is not None:
                return found
            scope = scope.parent
        return None

    def column_name(self, name: str) -> str:
        """The own name of the column that `$IDENTITY` or `$ROWGUID` means; any other name as it is."""
        if not name.startswith("$"):
            return name
        found = (source.column(name) for source in self.sources)
        return next((column.name for column in found if column is not None), name)

    def resolve(self, parts: tuple[str, ...]) -> Value:
        """The column of a possibly qualified name (outermost part first). Raises 207, 209 or 4104."""
        if len(parts) == 1:
            return self._unqualified(parts[0])
        source = self.source(parts[:-1])
        if source is None:
            raise SqlServerError(4104, f'The multi-part identifier "{".".join(parts)}" could not be bound.')
        # The columns are PostgreSQL's to know, as the source could not be described.
        if source.columns is None:
            return Value(f"{source.alias}.{quote(parts[-1])}", None)
        column = source.column(parts[-1])
        if column is None:
            raise invalid_column(parts[-1])
        value = source.value(column)
        self._refuse_outer_group(value, self._owner(source))
        return value

    def _owner(self, source: Source) -> Scope:
        scope: Scope | None = self
        while scope is not None and source not in scope.sources:
            scope = scope.parent
        return scope or self

    def _refuse_outer_group(self, value: Value, owner: Scope) -> None:
        """PostgreSQL does not find the grouped form of a column in a subquery."""
        if owner is not self and value.sql in owner.grouped_texts:
            raise OuterGroupError(owner)

    def source(self, qualifier: tuple[str, ...]) -> Source | None:
        folded = tuple(part.lower() for part in qualifier)
        scope: Scope | None = self
        while scope is not None:
            for source in scope.sources:
                if _answers_to(source, folded):
                    return source
            # A subquery sees the sources of the queries around it.
            scope = scope.parent
        return None

    def _unqualified(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            matches = [(s, c) for s in scope.sources if (c := s.column(name)) is not None]
            if len(matches) > 1:
                raise SqlServerError(209, f"Ambiguous column name '{name}'.")
            if matches:
                source, column = matches[0]
                value = source.value(column)
                self._refuse_outer_group(value, scope)
                return value
            # The name may be a column of a source without known columns, so PostgreSQL decides.
            if any(source.columns is None for source in scope.sources):
                return Value(quote(name), None)
            scope = scope.parent
        raise invalid_column(name)


class OuterGroupError(Exception):
    """A subquery reads a string by which the query around it groups: that one must group by the plain string."""

    def __init__(self, owner: Scope) -> None:
        super().__init__()
        self.owner = owner


def _answers_to(source: Source, qualifier: tuple[str, ...]) -> bool:
    own = (source.database.lower(), source.schema.lower(), source.name.lower())
    # `t.c`, `s.t.c` and `d.s.t.c`: a qualifier matches from its end.
    return own[-len(qualifier) :] == qualifier


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A CTE in scope. ``depth``: its hidden column where it is read within its own recursion."""

    name: str
    sql_name: str
    columns: tuple[SourceColumn, ...] | None
    depth: str = ""


def invalid_column(name: str) -> SqlServerError:
    """Return error 207."""
    return SqlServerError(207, f"Invalid column name '{name}'.")


def invalid_object(name: str) -> SqlServerError:
    """Return error 208."""
    return SqlServerError(208, f"Invalid object name '{name}'.")
