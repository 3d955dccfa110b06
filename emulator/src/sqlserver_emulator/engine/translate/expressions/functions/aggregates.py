"""Aggregates and window functions, with the result types T-SQL gives them."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.clauses import unsupported_node
from sqlserver_emulator.engine.translate.expressions.comparisons import order_key, padded, unpadded
from sqlserver_emulator.engine.translate.expressions.functions.registry import Function
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.collating import grouped_type
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import (
    BINARY,
    DECIMAL,
    FLOAT_TYPE,
    GUID,
    INTEGER,
    TEXT,
    VARIANT,
    averaged,
    concatenated,
    family,
    is_composite,
    storage_type,
    summed,
)
from sqlserver_emulator.engine.translate.values.value import Value, is_column_of_nulls
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import BIGINT, INT, NVARCHAR_4000, TsqlType

_Builder = Callable[[Expressions, str, list[exp.Expression]], "Built"]
Built = tuple[str, Callable[[str], str], "TsqlType | Callable[[], TsqlType | None] | None"]
"""The aggregate call, what is wrapped around it (around its OVER clause too), and its type."""


def _same(sql: str) -> str:
    return sql


def _argument(self: Expressions, node: exp.Expression, name: str) -> tuple[str, Value]:
    """Return DISTINCT, if given, and the argument."""
    distinct = ""
    if isinstance(node, exp.Distinct):
        distinct, node = "DISTINCT ", node.expressions[0]
    value = self.value(node)
    if is_column_of_nulls(value):
        # A column of VALUES that has no type yet is int where nothing assigns it.
        value = Value(value.sql, value.type)
    if name in ("sum", "avg") and value.type is not None and (value.kind in (TEXT, BINARY) or value.type.name == "bit"):
        raise SqlServerError(8117, f"Operand data type {value.type.name} is invalid for {name} operator.")
    return distinct, value


def _count(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    if isinstance(nodes[0], exp.Star):
        call = "count(*)"
    else:
        distinct, value = _argument(self, nodes[0], name)
        # Blanks at the end do not make two values distinct.
        call = f"count({distinct}{order_key(value) if distinct else value.sql})"
    if name == "count_big":
        return call, _same, BIGINT
    # PostgreSQL counts in bigint, SQL Server's COUNT is an int.
    return call, lambda sql: f"{sql}::int4", INT


def _sum(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    distinct, value = _argument(self, nodes[0], name)
    call = f"sum({distinct}{value.sql})"
    if value.kind == INTEGER:
        type = summed(value.type or INT)
        return call, lambda sql: f"{sql}::{storage_type(type)}", type
    if value.kind not in (DECIMAL,):
        return call, lambda sql: f"{sql}::float8", FLOAT_TYPE
    return call, _same, lambda: summed(value.type) if value.type else None


def _avg(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    distinct, value = _argument(self, nodes[0], name)
    call = f"avg({distinct}{value.sql})"
    if value.kind == INTEGER:
        type = averaged(value.type or INT)
        # PostgreSQL's avg of integers is a numeric; SQL Server's is an integer, cut.
        return call, lambda sql: f"trunc({sql})::{storage_type(type)}", type
    if value.kind == DECIMAL and value.type is not None:
        decimal = averaged(value.type)
        # The decimal average is cut to its scale, not rounded.
        return call, lambda sql: f"trunc({sql}, {decimal.scale})", decimal
    return call, lambda sql: f"{sql}::float8", FLOAT_TYPE


def _extreme(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    distinct, value = _argument(self, nodes[0], name)
    type = value.type
    if type is not None and type.name == "bit":
        raise SqlServerError(8117, f"Operand data type bit is invalid for {name} operator.")
    # PostgreSQL's min and max take neither uuid nor rows.
    function = f"tsql.{name}" if type is not None and (family(type) == GUID or is_composite(type)) else name
    if value.kind == TEXT and not value.is_null and grouped_type(value.collated) != "bpchar":
        return f"tsql.{name}({distinct}{padded(value)})", unpadded, lambda: value.type
    return f"{function}({distinct}{value.sql})", _same, lambda: value.type


def _statistic(function: str) -> _Builder:
    def build(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
        distinct, value = _argument(self, nodes[0], name)
        return f"{function}({distinct}{value.sql}::float8)", _same, FLOAT_TYPE

    return build


def _checksum_agg(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    distinct, value = _argument(self, nodes[0], name)
    return f"tsql.checksum_agg({distinct}{value.sql}::int4)", _same, INT


def _string_agg(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    distinct, value = _argument(self, nodes[0], name)

    def type() -> TsqlType:
        own = value.type if value.kind in (TEXT, VARIANT) else None
        # The result has the largest length of its kind, or max; the separator's own length does not matter.
        return concatenated(own, TsqlType(own.name, 8000)) if own is not None else NVARCHAR_4000

    return f"string_agg({distinct}{as_text(value)}, {self.text(nodes[1])})", _same, type


def _approximate(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    return f"count(DISTINCT {order_key(self.value(nodes[0]))})", _same, BIGINT


def _grouping(self: Expressions, _name: str, nodes: list[exp.Expression]) -> Built:
    return f"grouping({', '.join(_group_key(self, node) for node in nodes)})", _same, INT


def _group_key(self: Expressions, node: exp.Expression) -> str:
    """The argument as GROUP BY has it."""
    grouped = self.scope.grouped_texts
    # Cleared for the moment: the argument has to be in the plain form to be found among the keys.
    self.scope.grouped_texts = set()
    value = self.value(node)
    self.scope.grouped_texts = grouped
    return padded(value) if value.sql in grouped else value.sql


def _ranking(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    arguments = ", ".join(self.converted(node, INT) for node in nodes)
    return f"{name}({arguments})", (lambda sql: f"{sql}::int8"), BIGINT


def _share(_self: Expressions, name: str, _nodes: list[exp.Expression]) -> Built:
    return f"{name}()", _same, FLOAT_TYPE


def _neighbour(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    value = self.value(nodes[0])
    offset = self.converted(nodes[1], INT) if len(nodes) > 1 else "1"
    if len(nodes) < 3:
        return f"{name}({value.sql}, {offset})", _same, lambda: value.type
    default = self.value(nodes[2])
    # LAG and LEAD have the type of their first argument; the default is converted to it.
    fitted = convert(default, value.type, IMPLICIT).sql if value.type is not None else default.sql
    return f"{name}({value.sql}, {offset}, {fitted})", _same, lambda: value.type


def _edge(self: Expressions, name: str, nodes: list[exp.Expression]) -> Built:
    value = self.value(nodes[0])
    return f"{name}({value.sql})", _same, lambda: value.type


_AGGREGATES: dict[str, tuple[_Builder, int, int]] = {
    "approx_count_distinct": (_approximate, 1, 1),
    "avg": (_avg, 1, 1),
    "checksum_agg": (_checksum_agg, 1, 1),
    "count": (_count, 1, 1),
    "count_big": (_count, 1, 1),
    "grouping": (_grouping, 1, 1),
    "grouping_id": (_grouping, 1, 32),
    "max": (_extreme, 1, 1),
    "min": (_extreme, 1, 1),
    "stdev": (_statistic("stddev_samp"), 1, 1),
    "stdevp": (_statistic("stddev_pop"), 1, 1),
    "string_agg": (_string_agg, 2, 2),
    "sum": (_sum, 1, 1),
    "var": (_statistic("var_samp"), 1, 1),
    "varp": (_statistic("var_pop"), 1, 1),
}
_WINDOW_ONLY: dict[str, tuple[_Builder, int, int]] = {
    "cume_dist": (_share, 0, 0),
    "percent_rank": (_share, 0, 0),
    "dense_rank": (_ranking, 0, 0),
    "first_value": (_edge, 1, 1),
    "lag": (_neighbour, 1, 3),
    "last_value": (_edge, 1, 1),
    "lead": (_neighbour, 1, 3),
    "ntile": (_ranking, 1, 1),
    "rank": (_ranking, 0, 0),
    "row_number": (_ranking, 0, 0),
}


def _aggregate(name: str, fewest: int, most: int) -> Function:
    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        call, wrap, type = _AGGREGATES[name][0](self, name, nodes)
        return _value(wrap(call), type)

    return Function(handle, fewest, most)


def _value(sql: str, type: TsqlType | Callable[[], TsqlType | None] | None) -> Value:
    known = type() if callable(type) else type
    return Value(sql, known)


def _window_only(name: str) -> Function:
    def handle(_self: Expressions, _nodes: list[exp.Expression]) -> Value:
        raise SqlServerError(10753, f"The function '{name}' must have an OVER clause.", severity=15)

    return Function(handle, 0, 32)


FUNCTIONS: dict[str, Function] = {
    **{name: _aggregate(name, fewest, most) for name, (_, fewest, most) in _AGGREGATES.items()},
    **{name: _window_only(name) for name in _WINDOW_ONLY},
}


def window(self: Expressions, node: exp.Expression) -> Value:
    """`f(…) OVER (…)`."""
    function = node.this
    if not isinstance(function, exp.Anonymous):
        raise unsupported_node(node)
    name = function.name.lower()
    builder = _WINDOW_ONLY.get(name) or _AGGREGATES.get(name)
    if builder is None or node.args.get("alias") or name.startswith("grouping"):
        raise NotSupportedByEmulatorError(f"{name.upper()} with an OVER clause")
    call, wrap, type = builder[0](self, name, function.expressions)
    # The OVER clause belongs to the aggregate call itself, inside of what is wrapped around it.
    return _value(wrap(f"({call} OVER ({_over(self, node)}))"), type)


def _over(self: Expressions, node: exp.Expression) -> str:
    clauses: list[str] = []
    partition = node.args.get("partition_by")
    if partition:
        clauses.append("PARTITION BY " + ", ".join(order_key(self.value(item)) for item in partition))
    order = node.args.get("order")
    if order:
        clauses.append("ORDER BY " + ", ".join(_ranked(self, item) for item in order.expressions))
    spec = node.args.get("spec")
    if spec:
        start = _bound(self, spec, "start")
        end = _bound(self, spec, "end") if spec.args.get("end") else ""
        frame = f"BETWEEN {start} AND {end}" if end else start
        clauses.append(f"{str(spec.args['kind']).upper()} {frame}")
    return " ".join(clauses)


def _bound(self: Expressions, spec: exp.Expression, side: str) -> str:
    bound, word = spec.args.get(side), str(spec.args.get(f"{side}_side") or "").upper()
    text = bound.upper() if isinstance(bound, str) else self.converted(bound, BIGINT)
    return f"{text} {word}".strip()


def _ranked(self: Expressions, node: exp.Expression) -> str:
    """One item of a window's ORDER BY, where what is equal has one rank."""
    value = self.value(node.this)
    return order_item(order_key(value), bool(node.args.get("desc")), nullable=value.nullable or value.is_null)


def ordered(self: Expressions, node: exp.Expression) -> str:
    """One item of ORDER BY. NULLs are the lowest values in SQL Server."""
    value = self.value(node.this)
    return order_item(order_key(value), bool(node.args.get("desc")), nullable=value.nullable or value.is_null)


def order_item(sql: str, descending: bool, *, nullable: bool) -> str:
    """Without `NULLS FIRST` where no NULL can be, so that PostgreSQL can use an index for the order."""
    if descending:
        return f"{sql} DESC" + (" NULLS LAST" if nullable else "")
    return f"{sql}" + (" NULLS FIRST" if nullable else "")


def within_group(self: Expressions, node: exp.Expression) -> Value:
    """STRING_AGG(…) WITHIN GROUP (ORDER BY …)."""
    function = node.this
    if not isinstance(function, exp.Anonymous) or function.name.lower() != "string_agg":
        raise unsupported_node(node)
    # The order goes into the aggregate's own parentheses.
    call, wrap, type = _string_agg(self, "string_agg", function.expressions)
    order = ", ".join(ordered(self, item) for item in node.expression.expressions)
    return _value(wrap(f"{call[:-1]} ORDER BY {order})"), type)
