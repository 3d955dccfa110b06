"""The T-SQL that reads the rows of a table itself: one SELECT per chunk, with the same text for every chunk.

Isolation is READ COMMITTED: uncommitted rows could be rolled back, and no change would ever remove them again. A chunk
is read by one worker of the server (MAXDOP 1): how many are read at once is configured.
"""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.schema import SourceTable
from floodmark.core.source.scripts import bracket, bracket_table
from floodmark.core.window.plan import TablePlan
from floodmark.sources.sqlserver.rows.code_units import string_expression, units_expression, units_of
from floodmark.sources.sqlserver.rows.columns import select_expressions

_ROW_NUMBER = "__$seqval"
"""The alias of a number that is selected with the columns of a key: no column of a tracked table can have this name."""

_TEXT_STYLES = {
    **dict.fromkeys(("time", "datetime2", "datetimeoffset", "datetime", "smalldatetime"), 121),
    **dict.fromkeys(("float", "real"), 3),
}
"""The CONVERT styles for bounds that travel as text without loss: Python has fewer digits than the server."""

ONE_WORKER = " OPTION (MAXDOP 1)"


def select_rows(plan: TablePlan, has_after: bool, has_to: bool) -> str:
    """Return the SELECT of a chunk of the table. Parameters: those of ``key_after``, then those of ``key_up_to``."""
    table = plan.feed.table
    conditions = ([key_after(table)] if has_after else []) + ([key_up_to(table)] if has_to else [])
    conditions += _where(plan)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(select_expressions(table, plan.temporal))
    return f"SELECT {columns} FROM {bracket_table(table.name)}{where}{ONE_WORKER}"  # noqa: S608


def select_next_bound(plan: TablePlan, has_after: bool) -> str:
    """Return the SELECT of the n-th key after a bound in the server's order, in types that survive a round trip.

    Parameters: those of ``key_after``, then n - 1. It takes no locks and waits for none: a bound only divides the keys,
    so that it need not be the key of a committed row.
    """
    table = plan.feed.table
    columns = ", ".join(_bound_expression(table, name) for name in table.key)
    order = ", ".join(bracket(name) for name in table.key)
    conditions = ([key_after(table)] if has_after else []) + _where(plan)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        f"SELECT {columns} FROM {bracket_table(table.name)} WITH (READUNCOMMITTED){where}"  # noqa: S608
        f" ORDER BY {order} OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY{ONE_WORKER}"
    )


def nullable_key(plan: TablePlan) -> tuple[str, ...]:
    """Return the columns of the key that can be NULL, which only a declared key has."""
    table = plan.feed.table
    return tuple(name for name in table.key if table.column(name).nullable)


def count_null_keys(plan: TablePlan) -> str:
    """Return the SELECT of one row: for each column of ``nullable_key``, the number of rows where it is NULL."""
    names = [bracket(name) for name in nullable_key(plan)]
    counts = ", ".join(f"COUNT_BIG(CASE WHEN {name} IS NULL THEN 1 END)" for name in names)
    any_null = " OR ".join(f"{name} IS NULL" for name in names)
    where = " AND ".join([f"({any_null})", *_where(plan)])
    return f"SELECT {counts} FROM {bracket_table(plan.feed.table.name)} WHERE {where}"  # noqa: S608


def select_double_key(plan: TablePlan) -> str:
    """Return the SELECT of a key that several rows have, as a bound, and their number; no row where none has."""
    table = plan.feed.table
    columns = ", ".join(_bound_expression(table, name) for name in table.key)
    key = ", ".join(bracket(name) for name in table.key)
    return (
        f"SELECT TOP (1) {columns}, COUNT_BIG(*) AS [{_ROW_NUMBER}] FROM {bracket_table(table.name)}"  # noqa: S608
        f"{' WHERE '.join(['', *_where(plan)])} GROUP BY {key} HAVING COUNT_BIG(*) > 1"
    )


def count_key(plan: TablePlan) -> str:
    """Return the SELECT of the number of rows that have a key. Parameters: the bound."""
    table = plan.feed.table
    equal = [f"{bracket(name)} = {_bound_parameter(table, name)}" for name in table.key]
    where = " AND ".join([*equal, *_where(plan)])
    return f"SELECT COUNT_BIG(*) FROM {bracket_table(table.name)} WHERE {where}"  # noqa: S608


def key_after(table: SourceTable) -> str:
    """Return the condition that a key is after the bound, in the server's order. Parameters: ``bound_parameters``."""
    return _beyond(table, ">", inclusive=False)


def key_up_to(table: SourceTable) -> str:
    """Return the condition that a key is the bound or before it. Parameters: ``bound_parameters``."""
    return _beyond(table, "<", inclusive=True)


def bound_parameters(table: SourceTable, bound: Sequence[object]) -> tuple[object, ...]:
    """Return the values of a bound in the order of the parameters of ``key_after`` and ``key_up_to``."""
    bound = [units_of(table.column(name), value) for name, value in zip(table.key, bound, strict=True)]
    leading = bound[:1] if len(bound) > 1 else ()
    return (*leading, *_chained(bound))


def _chained(bound: Sequence[object]) -> tuple[object, ...]:
    return tuple(value for length in range(1, len(bound) + 1) for value in bound[:length])


def _beyond(table: SourceTable, comparison: str, *, inclusive: bool) -> str:
    """Return (a, b) > (x, y) as a chain of comparisons: T-SQL cannot compare rows.

    The server does not make one range of an index out of the chain. So a >= x comes before it, which is one.
    """
    branches = []
    for last, name in enumerate(table.key):
        equal = [f"{bracket(before)} = {_bound_parameter(table, before)}" for before in table.key[:last]]
        operator = comparison + ("=" if inclusive and last == len(table.key) - 1 else "")
        branches.append(" AND ".join([*equal, f"{bracket(name)} {operator} {_bound_parameter(table, name)}"]))
    chain = "(" + " OR ".join(f"({branch})" for branch in branches) + ")"
    if len(table.key) == 1:
        return chain
    return f"{bracket(table.key[0])} {comparison}= {_bound_parameter(table, table.key[0])} AND {chain}"


def _where(plan: TablePlan) -> list[str]:
    """Return the condition of a reload of some rows, on its own line and in parentheses (``sqlserver.condition``)."""
    return [f"(\n{plan.where}\n)"] if plan.where else []


def _bound_parameter(table: SourceTable, name: str) -> str:
    # With the type of the column: an untyped text would be compared in the order of another collation.
    column = table.column(name)
    if column.type_name in _TEXT_STYLES:
        return f"CONVERT({column.declared_type}, ?, {_TEXT_STYLES[column.type_name]})"
    declared = "binary(8)" if column.type_name in ("timestamp", "rowversion") else column.declared_type
    return string_expression(column, "?") or f"CAST(? AS {declared})"


def _bound_expression(table: SourceTable, name: str) -> str:
    # Without a name: ORDER BY the column's name means the column then, and a condition may name the table itself.
    column = table.column(name)
    style = _TEXT_STYLES.get(column.type_name)
    if style is not None:
        return f"CONVERT(varchar(34), {bracket(name)}, {style})"
    return units_expression(column, bracket(name)) or bracket(name)
