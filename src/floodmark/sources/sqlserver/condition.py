"""The condition of a reload of some rows: T-SQL from a person, checked before it becomes part of a statement.

What is sent is written anew from the tree that the parser made of it: nothing reaches the server that was not
understood.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp, tokens
from sqlglot.errors import SqlglotError

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName

_HINT = "Give one condition over the table's own columns, such as: Region = N'north' AND Id > 1000."
_REFUSED: dict[type[exp.Expression], str] = {
    exp.Query: "a query in it is not supported",
    exp.Select: "a query in it is not supported",
    exp.Placeholder: "a placeholder stands in it",
    exp.Parameter: "a variable stands in it",
    exp.SessionParameter: "a variable stands in it",
    exp.Command: "it is a statement",
    exp.DDL: "it is a statement",
    exp.DML: "it is a statement",
    exp.Window: "a window function is no condition of a row",
    exp.AggFunc: "an aggregate is no condition of a row",
}
_CONDITIONS = (exp.Predicate, exp.Connector, exp.Not, exp.Paren, exp.Between, exp.In)


def parse_condition(text: str, table: TableName) -> str:
    """As it is sent to the server. Raises ConfigError, naming the table, for anything but one condition."""
    try:
        found = tokens.Tokenizer(dialect="tsql").tokenize(text)
        if any(token.token_type is tokens.TokenType.SEMICOLON for token in found):
            raise _refused(table, "a semicolon stands in it")
        if any(token.comments for token in found):
            raise _refused(table, "a comment stands in it")
        tree = sqlglot.parse_one(text, read="tsql", into=exp.Condition)
    except SqlglotError as error:
        raise _refused(table, f"it cannot be read as T-SQL ({str(error).splitlines()[0].rstrip('.')})") from None
    for node in tree.walk():
        for kind, why in _REFUSED.items():
            if isinstance(node, kind):
                raise _refused(table, why)
        if isinstance(node, exp.Column) and node.table:
            raise _refused(table, f"{node.sql(dialect='tsql')} has a table's name before the column's")
    if not isinstance(tree, _CONDITIONS):
        raise _refused(table, "it is a value and no condition")
    return str(tree.sql(dialect="tsql", comments=False))


def _refused(table: TableName, why: str) -> ConfigError:
    return ConfigError(str(table), f"the condition is refused: {why}.", _HINT)
