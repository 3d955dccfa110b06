"""The filter of a table (``where``): one condition in T-SQL over its columns, parsed, and written again for the server.

The text for the server is made here, from the parts of the grammar alone: comparisons, IN, BETWEEN, LIKE, IS NULL, AND,
OR and NOT over columns and literals. Nothing of the written text reaches the server that is not one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp, tokens
from sqlglot.errors import SqlglotError

from floodmark.core.capture import bracket
from floodmark.core.settings import ComparedWith, Filter, FilterColumn

DIALECT = "tsql"
_GRAMMAR = "it has comparisons, IN, BETWEEN, LIKE, IS NULL, AND, OR and NOT, over columns and literals"
_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_CONNECTORS: dict[type[exp.Expression], str] = {exp.And: " AND ", exp.Or: " OR "}


def parse_filter(text: str) -> Filter:
    """Return the filter. Raises ValueError, naming the part that it cannot have."""
    try:
        found = tokens.Tokenizer(dialect=DIALECT).tokenize(text)
        if any(token.comments for token in found):
            raise ValueError("a filter has no comments")
        tree = sqlglot.parse_one(text, read=DIALECT, into=exp.Condition)
    except SqlglotError as error:
        raise ValueError(f"not one condition in T-SQL ({str(error).splitlines()[0].rstrip('.')})") from None
    writer = _Writer()
    sql = writer.condition(tree)
    return Filter(sql, tuple(dict.fromkeys(writer.columns)))


@dataclass
class _Writer:
    """The text of a filter, and the columns that it has met."""

    columns: list[FilterColumn] = field(default_factory=list)

    def condition(self, node: exp.Expression) -> str:
        """Return the T-SQL of a condition."""
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And() | exp.Or():
                return _CONNECTORS[type(node)].join(map(self._grouped, node.flatten()))
            case exp.Not():
                return f"NOT ({self.condition(node.this)})"
        return self._predicate(node)

    def _predicate(self, node: exp.Expression) -> str:
        match node:
            case exp.Is(expression=exp.Null()):
                return f"{self._column(node.this)} IS NULL"
            case exp.In(this=exp.Column()) if set(_given(node)) == {"this", "expressions"}:
                values = self._compared(node.this, *node.expressions)
                return f"{values[0]} IN ({', '.join(values[1:])})"
            case exp.Between(this=exp.Column()) if set(_given(node)) == {"this", "low", "high"}:
                return "{} BETWEEN {} AND {}".format(*self._compared(node.this, node.args["low"], node.args["high"]))
            case exp.Like() | exp.Escape(this=exp.Like()):
                return self._like(node)
            case _ if type(node) in _COMPARISONS:
                values = self._compared(node.this, node.expression)
                return f" {_COMPARISONS[type(node)]} ".join(values)
        raise _refused(node)

    def _grouped(self, node: exp.Expression) -> str:
        text = self.condition(node)
        return f"({text})" if isinstance(node.unnest(), exp.Connector) else text

    def _like(self, node: exp.Expression) -> str:
        like, escape = (node.this, node.expression) if isinstance(node, exp.Escape) else (node, None)
        literals = [like.expression] if escape is None else [like.expression, escape]
        if any(_kind(each) is not ComparedWith.TEXT for each in literals):
            raise _refused(node)
        column = self._column(like.this, ComparedWith.PATTERN)
        ending = f" ESCAPE {_literal(escape)}" if escape is not None else ""
        return f"{column} {'NOT ' if like.args.get('negate') else ''}LIKE {_literal(like.expression)}{ending}"

    def _compared(self, *nodes: exp.Expression) -> list[str]:
        """Return the operands of a comparison. One of them is a column at least."""
        kinds = [_kind(each) for each in nodes if not isinstance(each, exp.Column)]
        if len(kinds) == len(nodes):
            raise ValueError(
                f"a filter cannot compare {' with '.join(map(_text, nodes))}: one of them must be a column"
            )
        return [
            text
            for each in nodes
            for text in ([self._column(each, *kinds)] if isinstance(each, exp.Column) else [_literal(each)])
        ]

    def _column(self, node: exp.Expression, *compared: ComparedWith) -> str:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            raise _refused(node)
        if len(node.parts) > 1:
            raise ValueError(f"a filter cannot have {_text(node)}: write a column without its table")
        self.columns += [FilterColumn(node.name, each) for each in compared or (ComparedWith.NOTHING,)]
        return bracket(node.name)


def _given(node: exp.Expression) -> Iterator[str]:
    """Yield the names of the parts that a node has."""
    return (name for name, value in node.args.items() if value not in (None, False, []))


def _kind(node: exp.Expression) -> ComparedWith:
    """Return the kind of a literal. Raises ValueError for anything else."""
    match node:
        case exp.National() | exp.Literal(is_string=True):
            return ComparedWith.TEXT
        case exp.HexString():
            return ComparedWith.BYTES
        case exp.Literal():
            return ComparedWith.NUMBER
        case exp.Neg(this=exp.Literal(is_string=False)):
            return ComparedWith.NUMBER
    if isinstance(node, exp.Null):
        raise ValueError("nothing is equal to NULL: write IS NULL")
    if isinstance(node, exp.Boolean):
        raise ValueError("a filter has no TRUE and FALSE: write 1 or 0")
    raise _refused(node)


def _literal(node: exp.Expression) -> str:
    _kind(node)
    match node:
        case exp.Neg():
            return f"-{node.this.name}"
        case exp.HexString():
            return f"0x{node.name}"
        case exp.National() | exp.Literal(is_string=True):
            quoted = node.name.replace("'", "''")
            return f"{'N' if isinstance(node, exp.National) else ''}'{quoted}'"
    return str(node.name)


def _text(node: exp.Expression) -> str:
    return str(node.sql(dialect=DIALECT, comments=False))


def _refused(node: exp.Expression) -> ValueError:
    return ValueError(f"a filter cannot have {_text(node)}: {_GRAMMAR}")
