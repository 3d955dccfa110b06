"""Interfaces of the translators of expressions and of queries, for those that they call: the grammar is recursive.

An expression holds queries and calls functions, and both hold expressions. The classes are in
``expression_translator`` and ``queries.query_translator``; what they call takes these interfaces.
"""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.rows import Query
from sqlserver_emulator.engine.translate.expressions.scope import Scope
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.types import TsqlType


class Queries(Protocol):
    """Implemented by ``queries.query_translator.QueryTranslator``."""

    @property
    def emission(self) -> Emission: ...

    def subquery(self, node: exp.Expression, parent: Scope | None) -> Query:
        """Return the translation of a query inside another statement."""

    def rows_of(self, node: exp.Select, parent: Scope | None) -> Query:
        """Return the translation of a SELECT without its FOR clause."""

    def values(self, node: exp.Values, parent: Scope | None) -> Query:
        """Return the translation of a table value constructor."""


class Expressions(Protocol):
    """Implemented by ``expression_translator.ExpressionTranslator``, which translates within one scope."""

    @property
    def emission(self) -> Emission: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def queries(self) -> Queries: ...

    def value(self, node: exp.Expression) -> Value:
        """Return the value of a scalar expression."""

    def sql(self, node: exp.Expression) -> str:
        """Return the PostgreSQL expression of a value."""

    def converted(self, node: exp.Expression, to: TsqlType, mode: str = ...) -> str:
        """Return the PostgreSQL expression of a value, converted to a type."""

    def text(self, node: exp.Expression) -> str:
        """Return the PostgreSQL expression of a value as text."""

    def condition(self, node: exp.Expression) -> str:
        """Return a search condition as a PostgreSQL boolean."""

    def read_type(self, node: exp.DataType, default_length: int = 30) -> TsqlType:
        """Return the type that a node names, also a user's."""
