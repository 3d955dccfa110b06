"""Functions of Change Tracking: the current version, the oldest valid one, and columns in a mask.

Those that take a number take no other type, as the server does; a constant NULL has none.
"""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.emission import quote_text
from sqlserver_emulator.engine.translate.expressions.functions.registry import Function, argument
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import BIGINT, BIT


def _current_version(self: Expressions, _nodes: list[exp.Expression]) -> Value:
    self.emission.read_only = False
    return Value(f"tsql.change_tracking_current_version({quote_text(self.emission.database)})", BIGINT)


def _min_valid_version(self: Expressions, nodes: list[exp.Expression]) -> Value:
    self.emission.read_only = False
    relation = _number(self, nodes[0], "change_tracking_min_valid_version")
    database = quote_text(self.emission.database)
    return Value(f"tsql.change_tracking_min_valid_version({relation}, {database})", BIGINT)


def _is_column_in_mask(self: Expressions, nodes: list[exp.Expression]) -> Value:
    column = _number(self, nodes[0], "CHANGE_TRACKING_IS_COLUMN_IN_MASK")
    mask = argument(self, nodes[1], "x")
    return Value(f"tsql.change_tracking_is_column_in_mask({column}, {mask})", BIT)


def _number(self: Expressions, node: exp.Expression, function: str) -> str:
    """The SQL of an int. Raises 8116 for any other type."""
    value = self.value(node)
    if value.is_null or value.type is None or value.type.name != "int":
        name = "NULL" if value.is_null else value.type.name if value.type is not None else "sql_variant"
        raise SqlServerError(8116, f"Argument data type {name} is invalid for argument 1 of {function} function.")
    return value.sql


FUNCTIONS: dict[str, Function] = {
    "change_tracking_current_version": Function(_current_version, 0, 0),
    "change_tracking_is_column_in_mask": Function(_is_column_in_mask, 2, 2),
    "change_tracking_min_valid_version": Function(_min_valid_version, 1, 1),
}
