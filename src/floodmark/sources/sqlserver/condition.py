"""The condition of a reload of some rows: T-SQL from an operator, checked before it becomes part of a statement.

The statement contains the condition as generated from the parsed tree: nothing reaches the server that was not parsed.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlglot
from sqlglot import exp, tokens
from sqlglot.errors import SqlglotError

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName

_HINT = "Give one condition over the table's own columns, such as: Region = N'north' AND Id > 1000."
_REFUSED: dict[type[exp.Expression], str] = {
    exp.Query: "it contains a query, which is not supported",
    exp.Select: "it contains a query, which is not supported",
    exp.Placeholder: "it contains a placeholder",
    exp.Parameter: "it contains a variable",
    exp.SessionParameter: "it contains a variable",
    exp.Command: "it is a statement",
    exp.DDL: "it is a statement",
    exp.DML: "it is a statement",
    exp.Window: "it contains a window function, which is not a condition on a row",
    exp.NextValueFor: "it takes a value from a sequence",
    exp.AggFunc: "it contains an aggregate, which is not a condition on a row",
}
_CONDITIONS = (exp.Predicate, exp.Connector, exp.Not, exp.Paren, exp.Between, exp.In, exp.Escape)
_REAL = "float(24)"
"""The same type as real (docs/reference/sqlserver_cdc.md, "Types"), whose name the parser takes for that of float."""
_CONVERSIONS = frozenset({"CONVERT", "TRY_CONVERT"})


def parse_condition(text: str, table: TableName, hidden: Collection[str] = ()) -> str:
    """Return the condition for the server. Raises ConfigError about the table for anything but one condition.

    hidden: columns whose values must be in no ledger and no log, where the condition will be.
    """
    folded = {name.casefold() for name in hidden}
    try:
        found = sqlglot.tokenize(text, read="tsql")
        if any(token.token_type is tokens.TokenType.SEMICOLON for token in found):
            raise _refused(table, "it contains a semicolon")
        if any(token.comments for token in found):
            raise _refused(table, "it contains a comment")
        tree = sqlglot.parse_one(_keep_real(text, found), read="tsql", into=exp.Condition)
    except SqlglotError as error:
        raise _refused(table, f"it is not valid T-SQL ({str(error).splitlines()[0].rstrip('.')})") from None
    for node in tree.walk():
        for kind, why in _REFUSED.items():
            if isinstance(node, kind):
                raise _refused(table, why)
        if isinstance(node, exp.Column) and node.table:
            raise _refused(table, f"{node.sql(dialect='tsql')} has a table's name before the column's")
        if isinstance(node, exp.Column) and node.name.casefold() in folded:
            raise _refused(table, f"{node.name} is masked or left out, and the ledger and logs would have values of it")
        if isinstance(node, exp.Dot):
            # Functions of users have two-part names, and methods of types may be theirs. They would run with
            # Floodmark's login, for an operator who may not run them.
            raise _refused(table, f"it calls {node.sql(dialect='tsql')}, which is no built-in function")
    if not isinstance(tree, _CONDITIONS):
        raise _refused(table, "it is a value, not a condition")
    return str(tree.sql(dialect="tsql", comments=False))


def _keep_real(text: str, found: list[tokens.Token]) -> str:
    """Return the condition with another name for the type real, where a value is converted to it."""
    for place in range(len(found) - 1, 1, -1):
        token, before, two_before = found[place], found[place - 1], found[place - 2]
        is_type = before.text.upper() == "AS" or (before.text == "(" and two_before.text.upper() in _CONVERSIONS)
        if token.token_type is tokens.TokenType.FLOAT and token.text.upper() == "REAL" and is_type:
            text = text[: token.start] + _REAL + text[token.end + 1 :]
    return text


def _refused(table: TableName, why: str) -> ConfigError:
    return ConfigError(str(table), f"the condition is refused: {why}.", _HINT)
