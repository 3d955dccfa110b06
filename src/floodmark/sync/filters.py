"""The filter of a table (``where``): one condition in T-SQL over its columns, parsed, and written again for the server.

The text for the server is made here, from the parts of the grammar alone: comparisons, IN, BETWEEN, LIKE, IS NULL, AND,
OR and NOT over columns and literals. Nothing of the written text reaches the server that is not one of them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from floodmark.core.capture import bracket
from floodmark.core.schema import SourceColumn
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
        found = sqlglot.tokenize(text, read=DIALECT)
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


# --------------------------------------------------------------------------------------------------------------------
# The evaluation of a filter over the rows of a source that has no server: values are compared as their types are in
# Python, texts by their code points. A comparison with NULL is neither true nor false.


class FilterError(Exception):
    """A filter that cannot be evaluated over columns of these types. The text has no value of a row."""


Row = Mapping[str, Any]
"""The values of a row, by the names of columns that the filter has."""
_Value = Callable[[Row], Any]
_Test = Callable[[Row], bool | None]
_OPERATORS: dict[type[exp.Expression], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_NUMBERS = frozenset({"bigint", "int", "smallint", "tinyint", "bit", "decimal", "float"})
_TEXTS = frozenset({"nchar", "nvarchar"})
"""The first one is compared without the spaces that pad it: the values of a row come without them."""
_UNORDERED = frozenset({"uniqueidentifier"})
"""The types whose order is the server's own."""
_LITERALS: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "datetime2": lambda text: _local(datetime.fromisoformat(text)),
    "float": float,
    "nchar": lambda text: text.rstrip(" "),
    "nvarchar": str,
    "uniqueidentifier": lambda text: str(UUID(text)),
    "varbinary": bytes.fromhex,
    **dict.fromkeys(_NUMBERS - {"float"}, Decimal),
}


def compile_filter(where: Filter, columns: Mapping[str, SourceColumn]) -> Callable[[Row], bool]:
    """Return the function that says whether a row passes. columns: those that the filter has, by their names.

    A column that is not among them is NULL in each row. Raises FilterError.
    """
    test = _Tests(columns).condition(sqlglot.parse_one(where.sql, read=DIALECT, into=exp.Condition))
    return lambda row: test(row) is True


@dataclass(frozen=True)
class _Tests:
    """The conditions of a filter as functions of a row."""

    columns: Mapping[str, SourceColumn]

    def condition(self, node: exp.Expression) -> _Test:
        """Return the test of a condition."""
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And() | exp.Or():
                return _joined([self.condition(each) for each in node.flatten()], ends=isinstance(node, exp.Or))
            case exp.Not():
                return _negated(self.condition(node.this))
        return self._predicate(node)

    def _predicate(self, node: exp.Expression) -> _Test:
        match node:
            case exp.Is(expression=exp.Null()):
                value = self._value(node.this, None)
                return lambda row: value(row) is None
            case exp.In():
                return _joined([self._compared(exp.EQ, node.this, each) for each in node.expressions], ends=True)
            case exp.Between():
                bounds = ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"]))
                return _joined([self._compared(kind, node.this, bound) for kind, bound in bounds], ends=False)
            case exp.Like() | exp.Escape(this=exp.Like()):
                return self._like(node)
        return self._compared(type(node), node.this, node.expression)

    def _compared(self, kind: type[exp.Expression], left: exp.Expression, right: exp.Expression) -> _Test:
        typed = [self._column(each) for each in (left, right) if isinstance(each, exp.Column)]
        types = {column.type_name for column in typed if column is not None}
        if len(types) > 1 and not types <= _NUMBERS:
            raise FilterError(f"the filter compares columns of the types {' and '.join(sorted(types))}")
        if types & _UNORDERED and kind not in (exp.EQ, exp.NEQ):
            raise FilterError(f"the filter compares {' and '.join(sorted(types))} with {_COMPARISONS[kind]}")
        known = next((column for column in typed if column is not None), None)
        first, second = self._value(left, known), self._value(right, known)
        compare = _OPERATORS[kind]

        def test(row: Row) -> bool | None:
            one, other = first(row), second(row)
            return None if one is None or other is None else compare(one, other)

        return test

    def _like(self, node: exp.Expression) -> _Test:
        like, escape = (node.this, node.expression.name) if isinstance(node, exp.Escape) else (node, "")
        value, column = self._value(like.this, None), self._column(like.this)
        if column is not None and column.type_name not in _TEXTS:
            raise FilterError(f"the filter compares {column.name}, which is {column.declared_type}, with LIKE")
        try:
            pattern = re.compile(_regex_of(like.expression.name, escape), re.DOTALL)
        except re.error as error:  # it may only be about a set, such as [z-a]
            raise FilterError(f"the filter has a pattern of LIKE with a wrong set: {error.msg}") from None

        def test(row: Row) -> bool | None:
            text = value(row)
            return None if text is None else pattern.fullmatch(text) is not None

        return _negated(test) if like.args.get("negate") else test

    def _column(self, node: exp.Column) -> SourceColumn | None:
        return self.columns.get(node.name)

    def _value(self, node: exp.Expression, column: SourceColumn | None) -> _Value:
        """Return the value of an operand. column: the one that a literal is compared with; None where it is NULL."""
        if isinstance(node, exp.Column):
            name = node.name
            return lambda row: row.get(name)
        literal = None if column is None else _typed(node, column)
        return lambda _row: literal


def _typed(node: exp.Expression, column: SourceColumn) -> Any:
    text = f"-{node.this.name}" if isinstance(node, exp.Neg) else node.name
    kind = ComparedWith.NUMBER if column.type_name in _NUMBERS else ComparedWith.TEXT
    kind = ComparedWith.BYTES if column.type_name == "varbinary" else kind
    try:
        if _kind(node) is kind:
            return _LITERALS[column.type_name](text)
    except (ValueError, ArithmeticError, LookupError):
        pass
    raise FilterError(f"the filter compares {column.name}, which is {column.declared_type}, with {_text(node)}")


def _local(at: datetime) -> datetime:
    """Return a time without a zone. Raises ValueError for one with a zone, which no time of a column equals."""
    if at.tzinfo is not None:
        raise ValueError(at)
    return at


def _joined(tests: Sequence[_Test], *, ends: bool) -> _Test:
    """Return AND, or OR where one true test ends it."""

    def test(row: Row) -> bool | None:
        found = [each(row) for each in tests]
        return ends if ends in found else None if None in found else not ends

    return test


def _negated(test: _Test) -> _Test:
    def negated(row: Row) -> bool | None:
        found = test(row)
        return None if found is None else not found

    return negated


def _regex_of(pattern: str, escape: str) -> str:
    """Return the regular expression of a pattern of LIKE: %, _, and sets in brackets."""
    parts, at = [], 0
    while at < len(pattern):
        sign, end = pattern[at], pattern.find("]", at + 1)
        if escape and sign == escape and at + 1 < len(pattern):
            at += 1
            parts.append(re.escape(pattern[at]))
        elif sign == "[" and end > 0:
            inside = pattern[at + 1 : end]
            parts.append(_set_of(inside.removeprefix("^"), is_negated=inside.startswith("^")))
            at = end
        else:
            parts.append({"%": ".*", "_": "."}.get(sign) or re.escape(sign))
        at += 1
    return "".join(parts)


def _set_of(inside: str, *, is_negated: bool) -> str:
    if not inside:
        return "." if is_negated else "(?!)"
    return f"[{'^' if is_negated else ''}{re.sub(r'([^-])', lambda found: re.escape(found[1]), inside)}]"
