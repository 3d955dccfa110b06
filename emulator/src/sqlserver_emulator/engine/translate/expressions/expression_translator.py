"""Scalar expressions and search conditions: names, literals, variables, CASE, CAST, subqueries, function calls.

Operators are in `operators` and `comparisons`, functions in `functions`, subqueries in `queries`. A node that nobody
here knows is refused by name; nothing is passed through.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlserver_emulator.collations import EXPLICIT, Collated
from sqlserver_emulator.engine.translate.expressions import comparisons, functions
from sqlserver_emulator.engine.translate.expressions.clauses import (
    RowAddress,
    check_arguments,
    is_bare_function,
    unsupported_node,
)
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.for_clauses import options_of, plain_texts
from sqlserver_emulator.engine.translate.expressions.functions.aggregates import window, within_group
from sqlserver_emulator.engine.translate.expressions.functions.dates import at_time_zone
from sqlserver_emulator.engine.translate.expressions.functions.json import JsonValue
from sqlserver_emulator.engine.translate.expressions.functions.sequences import next_value
from sqlserver_emulator.engine.translate.expressions.interfaces import Queries
from sqlserver_emulator.engine.translate.expressions.scope import Scope, invalid_object
from sqlserver_emulator.engine.translate.lexical.dialect import parse_type
from sqlserver_emulator.engine.translate.values import conversion, operators
from sqlserver_emulator.engine.translate.values.choices import choose
from sqlserver_emulator.engine.translate.values.collating import merged_collation
from sqlserver_emulator.engine.translate.values.data_types import read_data_type
from sqlserver_emulator.engine.translate.values.type_rules import TEXT, family
from sqlserver_emulator.engine.translate.values.value import Value, null
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import NVARCHAR_MAX, TsqlType

_FULL_TEXT = ("contains", "freetext")


class ExpressionTranslator:
    """Translates within one scope. ``queries`` translates the subqueries met on the way."""

    def __init__(self, emission: Emission, scope: Scope, queries: Queries) -> None:
        self.emission = emission
        self.scope = scope
        self.queries = queries
        self._met: list[Value] = []
        """The strings met so far within the expression that is translated, of which it has its collation."""

    # -- values ------------------------------------------------------------------------------------------------

    def value(self, node: exp.Expression) -> Value:
        outer, self._met = self._met, []
        try:
            value = self._value(node)
            if value.kind == TEXT and not value.is_null:
                if value.collated is None:
                    value.collated = merged_collation(self._met) or Collated(self.emission.collation)
                outer.append(value)
        finally:
            self._met = outer
        return value

    def _value(self, node: exp.Expression) -> Value:
        check_arguments(node)
        handler = _VALUES.get(type(node))
        if handler is None:
            operator = operators.BINARY_OPERATORS.get(type(node))
            if operator is None:
                raise unsupported_node(node)
            return self._as_grouped(operators.binary(operator, self.value(node.this), self.value(node.expression)))
        return self._as_grouped(handler(self, node))

    def _as_grouped(self, value: Value) -> Value:
        """The value, in the form of GROUP BY where it is one of its strings."""
        grouped = self.scope.grouped_texts
        if not grouped or value.constant or value.sql not in grouped:
            return value
        # PostgreSQL accepts only the expression of GROUP BY itself in the select list, i.e. the padded form.
        return Value(
            comparisons.unpadded(comparisons.padded(value)),
            value.type,
            kind=TEXT,
            nullable=value.nullable,
            mask=value.mask,
            collated=value.collated,
        )

    def apart(self, node: exp.Expression) -> Value:
        """A value that does not become a part of the expression around it."""
        met, self._met = self._met, []
        try:
            return self.value(node)
        finally:
            self._met = met

    def sql(self, node: exp.Expression) -> str:
        return self.value(node).sql

    def converted(self, node: exp.Expression, to: TsqlType, mode: str = conversion.IMPLICIT) -> str:
        return conversion.convert(self.value(node), to, mode).sql

    def text(self, node: exp.Expression) -> str:
        return conversion.as_text(self.value(node))

    # -- conditions --------------------------------------------------------------------------------------------

    def condition(self, node: exp.Expression) -> str:
        """A search condition as a PostgreSQL boolean."""
        check_arguments(node)
        handler = _CONDITIONS.get(type(node))
        if handler is None and isinstance(node, exp.Anonymous) and node.name.lower() in _FULL_TEXT:
            raise NotSupportedByEmulatorError(f"{node.name.upper()} (full text)")
        if handler is None:
            raise SqlServerError(
                4145,
                "An expression of non-boolean type specified in a context where a condition is expected, near"
                f" '{node.sql(dialect='tsql')[:40]}'.",
                severity=15,
            )
        # What is compared in a condition says nothing of the collation of the expression around it.
        met, self._met = self._met, []
        try:
            return handler(self, node)
        finally:
            self._met = met

    def read_type(self, node: exp.DataType, default_length: int = 30) -> TsqlType:
        return read_data_type(
            node,
            lambda name: self.emission.catalog.user_type(self.emission.database, None, name),
            default_length=default_length,
        )


def _literal(self: ExpressionTranslator, node: exp.Expression) -> Value:
    return self.emission.literal(node)


def _column(self: ExpressionTranslator, node: exp.Expression) -> Value:
    if isinstance(node.this, exp.Star):
        raise SqlServerError(102, "Incorrect syntax near '*'.", severity=15)
    # CURRENT_TIMESTAMP and its like are calls without parentheses, which the parser reads as columns.
    if is_bare_function(node):
        return functions.call(self, node.name, [])
    parts: tuple[str, ...] = tuple(part.name for part in node.parts)
    value = self.scope.resolve(parts)
    if value.mask:
        self.emission.masks.is_masked = True
    return value


def _parameter(self: ExpressionTranslator, node: exp.Expression) -> Value:
    return self.emission.variable(variable_name(node))


def variable_name(node: exp.Expression) -> str:
    """The lower-case name, with its @, of an exp.Parameter."""
    return f"@{node.name.lower()}"


def _paren(self: ExpressionTranslator, node: exp.Expression) -> Value:
    return self.value(node.this)


def _negative(self: ExpressionTranslator, node: exp.Expression) -> Value:
    return operators.negative(self.value(node.this))


def _bitwise_not(self: ExpressionTranslator, node: exp.Expression) -> Value:
    return operators.bitwise_not(self.value(node.this))


def _cast(self: ExpressionTranslator, node: exp.Expression) -> Value:
    mode = conversion.TRY if isinstance(node, exp.TryCast) else conversion.EXPLICIT
    return conversion.convert(self.value(node.this), self.read_type(node.args["to"]), mode)


def _convert(self: ExpressionTranslator, node: exp.Expression) -> Value:
    mode = conversion.TRY if node.args.get("safe") else conversion.EXPLICIT
    style_node = node.args.get("style")
    style = None
    if style_node is not None:
        # A style that is a literal is pinned: it decides which PostgreSQL function the conversion is.
        style = self.emission.constant(style_node) if isinstance(style_node, exp.Literal) else self.sql(style_node)
    return conversion.convert(self.value(node.expression), self.read_type(node.this), mode, style)


def _case(self: ExpressionTranslator, node: exp.Expression) -> Value:
    operand = node.this and self.apart(node.this)
    tests: list[str] = []
    results: list[Value] = []
    for branch in node.args["ifs"]:
        if operand is not None:
            tests.append(comparisons.compare("=", operand, self.apart(branch.this)))
        else:
            tests.append(self.condition(branch.this))
        results.append(self.value(branch.args["true"]))
    default = node.args.get("default")
    # CASE without ELSE is NULL, whose type comes from the other branches.
    results.append(self.value(default) if default is not None else null())
    return choose(tests, results)


def _scalar_subquery(self: ExpressionTranslator, node: exp.Expression) -> Value:
    query = self.queries.subquery(node, self.scope)
    if len(query.columns) != 1:
        raise _too_many_columns()
    column = query.columns[0]
    kind = family(column.type) if column.type is not None else None
    made = JsonValue if query.values and isinstance(query.values[0], JsonValue) else Value
    return made(f"({query.sql})", column.type, kind=kind, collated=column.collated)


def _too_many_columns() -> SqlServerError:
    return SqlServerError(
        116,
        "Only one expression can be specified in the select list when the subquery is not introduced with EXISTS.",
    )


def _call(self: ExpressionTranslator, node: exp.Expression) -> Value:
    return functions.call(self, node.name, node.expressions, quoted=isinstance(node.this, exp.Identifier))


def _shifted(function: str) -> Callable[[ExpressionTranslator, exp.Expression], Value]:
    """`a << b` and `a >> b`, which are other words for two functions."""
    return lambda self, node: functions.call(self, function, [node.this, node.expression])


def _qualified_call(self: ExpressionTranslator, node: exp.Expression) -> Value:
    # `(SELECT … FOR XML …).value(…)` parses like a qualified function call.
    if isinstance(node.this, exp.Subquery) and node.this.this.args.get("for_"):
        return _xml_value(self, node)
    return functions.call_qualified(self, node)


_WHOLE_CONTENT = (".", "(.)[1]", "./text()[1]", "(./text())[1]", "text()[1]", "(text())[1]", "string(.)")


def _xml_value(self: ExpressionTranslator, node: exp.Expression) -> Value:
    """`(SELECT … FOR XML PATH(''), TYPE).value('.', 'type')`, with which strings are concatenated."""
    query, call = node.this.this, node.expression
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "value" or len(call.expressions) != 2:
        raise NotSupportedByEmulatorError(f"the xml method {call.name}()")
    path, type = (self.emission.constant(item) for item in call.expressions)
    options = options_of(query.args["for_"])
    element = options.get("PATH")
    # Only an element without a name gives plain text, which is all that this method is used for.
    if path.replace(" ", "") not in _WHOLE_CONTENT or element is None or self.emission.constant(element):
        raise NotSupportedByEmulatorError(f"the xml method value() with {path!r}")
    rows = self.queries.rows_of(query, self.scope)
    text = Value(f"({plain_texts(rows)})", NVARCHAR_MAX, kind=TEXT)
    return conversion.convert(text, self.read_type(parse_type(type)), conversion.EXPLICIT)


def _collate(self: ExpressionTranslator, node: exp.Expression) -> Value:
    value = self.value(node.this)
    if value.kind not in (TEXT, None) and not value.is_null:
        name = value.type.name if value.type is not None else "sql_variant"
        raise SqlServerError(447, f"Expression type {name} is invalid for COLLATE clause.", state=0)
    value.collated = Collated(self.emission.named_collation(node.expression.name), EXPLICIT)
    return value


def _null(_: ExpressionTranslator, __: exp.Expression) -> Value:
    return null()


def _odbc_literal(type: TsqlType) -> Callable[[ExpressionTranslator, exp.Expression], Value]:
    return lambda self, node: conversion.convert(self.value(node.this), type, conversion.IMPLICIT)


def _row_address(self: ExpressionTranslator, node: exp.Expression) -> Value:
    source = self.scope.source((node.this.name,))
    if source is None:
        raise invalid_object(node.this.name)
    return Value(f"{source.alias}.ctid", None, nullable=False)


_VALUES: dict[type, Callable[[ExpressionTranslator, exp.Expression], Value]] = {
    exp.Literal: _literal,
    exp.National: _literal,
    exp.HexString: _literal,
    exp.Null: _null,
    exp.Column: _column,
    exp.Parameter: _parameter,
    exp.Paren: _paren,
    exp.Neg: _negative,
    exp.BitwiseNot: _bitwise_not,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Convert: _convert,
    exp.Case: _case,
    exp.Select: _scalar_subquery,
    exp.Subquery: _scalar_subquery,
    exp.Union: _scalar_subquery,
    exp.Anonymous: _call,
    exp.BitwiseLeftShift: _shifted("LEFT_SHIFT"),
    exp.BitwiseRightShift: _shifted("RIGHT_SHIFT"),
    exp.Dot: _qualified_call,
    exp.NextValueFor: next_value,
    RowAddress: _row_address,
    exp.Window: window,
    exp.WithinGroup: within_group,
    exp.AtTimeZone: at_time_zone,
    exp.Collate: _collate,
    exp.Date: _odbc_literal(TsqlType("date")),
    exp.Time: _odbc_literal(TsqlType("time", scale=7)),
    exp.Timestamp: _odbc_literal(TsqlType("datetime")),
}


def _and(self: ExpressionTranslator, node: exp.Expression) -> str:
    return f"({self.condition(node.this)} AND {self.condition(node.expression)})"


def _or(self: ExpressionTranslator, node: exp.Expression) -> str:
    return f"({self.condition(node.this)} OR {self.condition(node.expression)})"


def _not(self: ExpressionTranslator, node: exp.Expression) -> str:
    return f"(NOT {self.condition(node.this)})"


def _condition_paren(self: ExpressionTranslator, node: exp.Expression) -> str:
    return self.condition(node.this)


def _comparison(operator: str) -> Callable[[ExpressionTranslator, exp.Expression], str]:
    def translate(self: ExpressionTranslator, node: exp.Expression) -> str:
        if isinstance(node.expression, (exp.Any, exp.All)):
            return _quantified(self, operator, node)
        return comparisons.compare(operator, self.value(node.this), self.value(node.expression))

    return translate


def _quantified(self: ExpressionTranslator, operator: str, node: exp.Expression) -> str:
    word = "ALL" if isinstance(node.expression, exp.All) else "ANY"
    query = node.expression.this
    # The parser keeps the parentheses of the subquery as nodes of their own.
    while isinstance(query, exp.Paren):
        query = query.this
    rows = self.queries.subquery(query, self.scope)
    if len(rows.columns) != 1:
        raise _too_many_columns()
    return comparisons.compare_with_rows(operator, self.value(node.this), word, rows.sql, rows.columns[0])


def _is(self: ExpressionTranslator, node: exp.Expression) -> str:
    if not isinstance(node.expression, exp.Null):
        raise unsupported_node(node)
    value = self.value(node.this)
    # An untyped NULL has no type that PostgreSQL could infer for a parameter.
    return "TRUE" if value.is_null else f"({value.sql} IS NULL)"


def _distinct_from(operator: str) -> Callable[[ExpressionTranslator, exp.Expression], str]:
    """IS [NOT] DISTINCT FROM: a comparison to which NULL is a value."""

    def translate(self: ExpressionTranslator, node: exp.Expression) -> str:
        left, right = self.value(node.this), self.value(node.expression)
        if left.is_null and right.is_null:
            return "TRUE" if operator == "=" else "FALSE"
        if left.is_null or right.is_null:
            known = right if left.is_null else left
            return f"({known.sql} IS {'NULL' if operator == '=' else 'NOT NULL'})"
        # IS DISTINCT FROM of PostgreSQL cannot be used: strings are compared without blanks at the end.
        both = f"({left.sql} IS NULL AND {right.sql} IS NULL)"
        # The comparison is NULL where one side is; then both have to be NULL.
        same = f"coalesce({comparisons.compare('=', left, right)}, {both})"
        return same if operator == "=" else f"(NOT {same})"

    return translate


def _between(self: ExpressionTranslator, node: exp.Expression) -> str:
    value = self.value(node.this)
    low = comparisons.compare(">=", value, self.value(node.args["low"]))
    high = comparisons.compare("<=", value, self.value(node.args["high"]))
    return f"({low} AND {high})"


def _in(self: ExpressionTranslator, node: exp.Expression) -> str:
    value = self.value(node.this)
    query = node.args.get("query")
    if query is not None:
        columns = self.queries.subquery(query, self.scope)
        if len(columns.columns) != 1:
            raise _too_many_columns()
        return comparisons.compare_with_rows("=", value, "ANY", columns.sql, columns.columns[0])
    return comparisons.in_list(value, [self.value(item) for item in node.expressions])


def _exists(self: ExpressionTranslator, node: exp.Expression) -> str:
    query = node.this
    # EXISTS evaluates no list, so that GROUP BY allows *.
    if isinstance(query, exp.Select) and query.is_star and (query.args.get("group") or query.args.get("having")):
        query.set("expressions", [exp.Literal.number(1)])
    return f"EXISTS ({self.queries.subquery(query, self.scope).sql})"


def _like(self: ExpressionTranslator, node: exp.Expression) -> str:
    return _maybe_not(node, comparisons.like(self.emission, self.value(node.this), self.value(node.expression), None))


def _maybe_not(like: exp.Expression, sql: str) -> str:
    return f"(NOT {sql})" if like.args.get("negate") else sql


def _like_escape(self: ExpressionTranslator, node: exp.Expression) -> str:
    like = node.this
    if not isinstance(like, exp.Like):
        raise unsupported_node(node)
    check_arguments(like)
    value, pattern = self.value(like.this), self.value(like.expression)
    return _maybe_not(like, comparisons.like(self.emission, value, pattern, self.text(node.expression)))


_CONDITIONS: dict[type, Callable[[ExpressionTranslator, exp.Expression], str]] = {
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.Paren: _condition_paren,
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.Is: _is,
    exp.NullSafeEQ: _distinct_from("="),
    exp.NullSafeNEQ: _distinct_from("<>"),
    exp.Between: _between,
    exp.In: _in,
    exp.Exists: _exists,
    exp.Like: _like,
    exp.Escape: _like_escape,
}
