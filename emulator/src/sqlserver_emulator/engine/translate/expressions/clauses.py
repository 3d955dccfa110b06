"""The clauses that a parsed node may hold, and the small readings that every statement needs.

sqlglot reads many dialects: a node can hold a clause or a flag that T-SQL does not have or that is not translated here.
Nothing of it may be lost silently, so every node is checked against what its translator reads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import ClassVar

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn, quote
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

BARE_FUNCTIONS = ("current_timestamp", "system_user", "session_user", "current_user", "user")
"""Functions that are called without parentheses."""

_CLAUSE_NAMES = {
    "for_": "FOR JSON / FOR XML",
    "windows": "WINDOW",
    "match": "MATCH_RECOGNIZE",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "when": "FOR SYSTEM_TIME",
    "version": "FOR SYSTEM_TIME",
}
_QUERIES = (exp.Select, exp.Subquery, exp.Union, exp.Except, exp.Intersect)
_BINARY_ARGUMENTS = frozenset(("this", "expression"))
_ARGUMENTS: dict[type, frozenset[str]] = {
    exp.Literal: frozenset(("this", "is_string")),
    exp.Column: frozenset(("this", "table", "db", "catalog")),
    exp.Cast: frozenset(("this", "to", "_type")),
    exp.TryCast: frozenset(("this", "to", "_type", "safe")),
    exp.Convert: frozenset(("this", "expression", "style", "safe")),
    exp.Case: frozenset(("this", "ifs", "default")),
    exp.NextValueFor: frozenset(("this", "order")),
    exp.Anonymous: frozenset(("this", "expressions")),
    exp.Window: frozenset(("this", "partition_by", "order", "spec", "over")),
    exp.AtTimeZone: frozenset(("this", "zone")),
    exp.Like: frozenset(("this", "expression", "negate")),
    exp.In: frozenset(("this", "expressions", "query")),
    exp.Between: frozenset(("this", "low", "high")),
    exp.Div: frozenset(("this", "expression", "typed", "safe")),
}


class RowAddress(exp.Expression):  # type: ignore[misc]
    """Where a row lies: ``this`` is the T-SQL name of its source. Made by the translator, never parsed."""

    arg_types: ClassVar = {"this": True}


def check_arguments(node: exp.Expression) -> None:
    """Refuse an expression that holds more than its translation reads."""
    if isinstance(node, _QUERIES):
        return
    known = _ARGUMENTS.get(type(node), _BINARY_ARGUMENTS)
    for key, value in node.args.items():
        if value and key not in known:
            raise NotSupportedByEmulatorError(f"{key.strip('_').upper()} in {shown(node)}")


def refuse_clauses(node: exp.Expression, known: Collection[str], where: str) -> None:
    """Refuse a clause outside ``known`` by its name."""
    for key, value in node.args.items():
        if value and key not in known:
            raise NotSupportedByEmulatorError(f"{_CLAUSE_NAMES.get(key, key.strip('_').upper())} in {where}")


def unsupported_node(node: exp.Expression) -> NotSupportedByEmulatorError:
    """Return the refusal of an expression that no translation exists for."""
    return NotSupportedByEmulatorError(f"the expression {shown(node)} ({type(node).__name__})")


def shown(node: exp.Expression) -> str:
    """The beginning of a node's text, for messages."""
    return repr(node.sql(dialect="tsql")[:80])


def is_bare_function(node: exp.Expression) -> bool:
    """CURRENT_TIMESTAMP and the like, which the parser takes for a column."""
    # A quoted [user] is a column.
    return (
        isinstance(node, exp.Column)
        and len(node.parts) == 1
        and not node.this.args.get("quoted")
        and (node.name.lower() in BARE_FUNCTIONS)
    )


def starred(item: exp.Expression) -> tuple[str, ...] | None:
    """The qualifier of `*` or `t.*`, or None."""
    if isinstance(item, exp.Star):
        refuse_clauses(item, (), "*")
        return ()
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return tuple(part.name for part in item.parts[:-1])
    return None


def named_projection(item: exp.Expression) -> tuple[str, exp.Expression]:
    """A select list item's name, as T-SQL gives it, and its expression."""
    if isinstance(item, exp.Alias):
        return item.alias, item.this
    if isinstance(item, exp.EQ) and isinstance(item.this, exp.Literal) and item.this.is_string:
        return item.this.name, item.expression  # 'alias' = expression
    if isinstance(item, exp.Column):
        return "" if is_bare_function(item) else item.name, item
    return "", item


def output_names(names: Sequence[str]) -> list[str]:
    """Return PostgreSQL's names of a select list's columns: all different, so that each can be referred to."""
    taken: set[str] = set()
    result: list[str] = []
    for i, name in enumerate(names):
        # T-SQL allows unnamed and repeated columns in a result; PostgreSQL has no name to refer to them by.
        sql_name = quote(name or f"?column{i + 1}")
        if sql_name in taken:
            sql_name = quote(f"{name}~{i + 1}")
        taken.add(sql_name)
        result.append(sql_name)
    return result


def renamed(columns: Sequence[SourceColumn], aliases: Sequence[str], table: str) -> tuple[SourceColumn, ...]:
    """The columns under the names of a column list, or their own. Raises 8155 for one without a name, 8158, 8159."""
    if aliases and len(aliases) != len(columns):
        number, more = (8158, "more") if len(aliases) < len(columns) else (8159, "fewer")
        raise SqlServerError(number, f"'{table}' has {more} columns than were specified in the column list.")
    result: list[SourceColumn] = []
    taken: set[str] = set()
    for i, column in enumerate(columns):
        name = aliases[i] if aliases else column.name
        if not name:
            raise SqlServerError(8155, f"No column name was specified for column {i + 1} of '{table}'.")
        if name.lower() in taken:
            raise SqlServerError(8156, f"The column '{name}' was specified multiple times for '{table}'.")
        taken.add(name.lower())
        result.append(replace(column, name=name, sql=quote(name)))
    return tuple(result)


def column_list(columns: Sequence[SourceColumn]) -> str:
    """Return the quoted names of the columns, separated by commas."""
    return ", ".join(column.sql for column in columns)


def top_with_ties(limit: exp.Expression) -> bool:
    """Whether TOP is WITH TIES."""
    options = limit.args.get("limit_options")
    return bool(options is not None and options.args.get("with_ties"))


def is_percent(limit: exp.Expression) -> bool:
    """Whether TOP counts in PERCENT of the rows."""
    options = limit.args.get("limit_options")
    return bool(options is not None and options.args.get("percent"))


def is_wrapped_query(node: exp.Expression) -> bool:
    """A whole statement in parentheses."""
    return isinstance(node, (exp.Subquery, exp.Paren)) and not node.args.get("alias") and not node.args.get("joins")


def select_from(items: str, source: str) -> str:
    """The text of a SELECT over one source."""
    return " ".join(("SELECT", items, "FROM", source))


def is_default(node: exp.Expression) -> bool:
    """The keyword DEFAULT in place of a value."""
    return isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"
