"""Rules as the author of the configuration writes them, and as the warehouse evaluates them.

A rule is one condition in PostgreSQL's SQL over the columns of its target. Column names are matched without regard to
case, as in SQL Server, because a target may have the source's spelling. A rule cannot hold a subquery or a second
statement: it is evaluated per row of staging.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

DIALECT = "postgres"
EXPRESSION = "an expression"
"""The words for what a derived column has in place of a condition."""


def parse_rule(sql: str, what: str = "a condition") -> exp.Expression:
    """Return the condition, or the expression of a derived column. Raises ValueError with the reason where it is none.

    what: the words for it.
    """
    return _parsed(sql, what).copy()


@lru_cache(maxsize=1024)
def _parsed(sql: str, what: str) -> exp.Expression:
    """Return what a rule is parsed to. The tables of a window have Floodmark's own rules in common."""
    try:
        statements = sqlglot.parse(f"SELECT 1 WHERE {sql}", dialect=DIALECT)
    except SqlglotError as error:
        raise ValueError(f"not {what}: {_first_line(error)}") from None
    select = statements[0]
    extra = {name for name, value in select.args.items() if value} - {"kind", "expressions", "where"} if select else ()
    if len(statements) != 1 or not isinstance(select, exp.Select) or extra:
        raise ValueError(f"not one {what.partition(' ')[2]}")
    condition: exp.Expression = select.args["where"].this
    if condition.find(exp.Query):
        raise ValueError("it is evaluated for one row, and cannot contain a subquery")
    if condition.find(exp.Star, exp.AggFunc, exp.Window, exp.Placeholder, exp.Parameter):
        raise ValueError("it is evaluated for one row, and cannot contain *, aggregates, windows or parameters")
    return condition


def bind_rule(sql: str, columns: Iterable[str], what: str = "a condition") -> exp.Expression:
    """Return the condition, or what it is, with its columns spelt, and quoted, as the target has them.

    Raises ValueError as ``parse_rule`` does, and for an unknown column.
    """
    # A target may have two columns whose names differ in case alone: then a rule means the one that it spells.
    names = list(columns)
    spelling = {name.lower(): name for name in names} | {name: name for name in names}
    condition = parse_rule(sql, what)
    for column in list(condition.find_all(exp.Column)):
        found = spelling.get(column.name) or spelling.get(column.name.lower())
        if found is None or column.table:
            raise ValueError(f"there is no column {column.sql(dialect=DIALECT)}")
        column.set("this", exp.to_identifier(found, quoted=True))
    return condition


def columns_of(condition: exp.Expression) -> frozenset[str]:
    """Return the names of the columns that a condition reads."""
    return frozenset(column.name for column in condition.find_all(exp.Column))


def _first_line(error: SqlglotError) -> str:
    errors = getattr(error, "errors", None)
    words = str(errors[0]["description"]) if errors else str(error).splitlines()[0]
    # The text names a class of the parser, which means nothing to the author of a rule.
    return "it is incomplete" if words.startswith("Required keyword") else words
