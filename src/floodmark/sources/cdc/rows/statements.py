"""The T-SQL that reads rows: one SELECT per part of a table, with the same text for every window.

Change tables are read directly. This is faster than the functions, but the server never refuses an expired range: the
validity of the window is checked before and after (``sync``). Isolation is READ COMMITTED: uncommitted rows of a first
load could be rolled back, and no change row would ever remove them again.

A part is read by one worker of the server (MAXDOP 1): how many parts are read at once is configured, and a plan that is
parallel itself would multiply it, for a range of a clustered index in no order.
"""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.change import Operation, bits_by_byte
from floodmark.core.policies import NetSource
from floodmark.core.schema import SourceTable
from floodmark.core.source.scripts import bracket
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.cdc.rows.code_units import string_expression, units_expression, units_of
from floodmark.sources.cdc.rows.columns import select_expressions
from floodmark.sources.cdc.rows.feed import instance_of
from floodmark.sources.sqlserver.tsql import bracket_table, change_table, net_changes_function

START_LSN = "__$start_lsn"
COMMAND_ID = "__$command_id"
SEQVAL = "__$seqval"
OPERATION = "__$operation"
UPDATE_MASK = "__$update_mask"

_ROW_NUMBER = SEQVAL
"""The alias of a number that is selected with the columns of a key: no column of a tracked table can have this name."""

_TEXT_STYLES = {
    **dict.fromkeys(("time", "datetime2", "datetimeoffset", "datetime", "smalldatetime"), 121),
    **dict.fromkeys(("float", "real"), 3),
}
"""The CONVERT styles for bounds that travel as text without loss: Python has fewer digits than the server."""

_ONE_WORKER = " OPTION (MAXDOP 1)"

OWN_TYPES = {START_LSN: "binary", COMMAND_ID: "int", SEQVAL: "binary", OPERATION: "int", UPDATE_MASK: "binary"}


def order_columns(plan: TablePlan) -> tuple[str, ...]:
    """Return the columns that order the changes of a key. Without command ids the order is not exact (see seqval)."""
    if instance_of(plan).has_command_id:
        return (START_LSN, COMMAND_ID, SEQVAL, OPERATION)
    return (START_LSN, SEQVAL, OPERATION)


def own_columns(plan: TablePlan) -> tuple[str, ...]:
    """Return the metadata columns of the change table that this plan reads; none for a first load."""
    if plan.kind is LoadKind.FIRST_LOAD:
        return ()
    mask = (UPDATE_MASK,) if any(column.is_lob for column in plan.feed.table.stored_columns) else ()
    if plan.net is NetSource.SERVER:
        return (START_LSN, OPERATION, *mask)
    return (*order_columns(plan), *mask)


def select_changes(plan: TablePlan) -> str:
    """Return the SELECT of changes. Parameters: after_lsn (excluded), to_lsn (included).

    The image before an update is read where the update gave the row another key: nothing else shows that the old key no
    longer exists. A change of a primary key is captured as a delete and an insert, but not under trace flag 8207, and
    not for a key that is only declared, which the server does not know.
    """
    moved = _has_new_key(plan.feed.table)
    operation = bracket(OPERATION)
    is_update = f"{operation} = {Operation.UPDATE.value}"
    kind = f"CASE WHEN {is_update} AND {moved} THEN {Operation.MOVED.value} ELSE {operation} END"
    return (
        f"SELECT {_select_list(plan, f'{kind} AS {operation}')} FROM {change_table(plan.feed.identity.name)}"  # noqa: S608
        f" WHERE {bracket(START_LSN)} > ? AND {bracket(START_LSN)} <= ?"
        f" AND ({operation} <> {Operation.BEFORE_UPDATE.value} OR {moved}){_ONE_WORKER}"
    )


def select_net_changes(plan: TablePlan) -> str:
    """Return the SELECT of net changes. Parameters: from_lsn and to_lsn (both included).

    The mask distinguishes a LOB that was left out from NULL.
    """
    function = net_changes_function(plan.feed.identity.name)
    return f"SELECT {_select_list(plan)} FROM {function}(?, ?, N'all with mask')"  # noqa: S608


def select_rows(plan: TablePlan, has_after: bool, has_to: bool) -> str:
    """Return the SELECT of a chunk of the table. Parameters: those of ``key_after``, then those of ``key_up_to``."""
    table = plan.feed.table
    conditions = ([key_after(table)] if has_after else []) + ([key_up_to(table)] if has_to else [])
    conditions += _where(plan)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {_select_list(plan)} FROM {bracket_table(table.name)}{where}{_ONE_WORKER}"  # noqa: S608


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
        f" ORDER BY {order} OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY{_ONE_WORKER}"
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


def select_position() -> str:
    """Return the SELECT of the newest LSN, and of the commit time of exactly one other. Parameter: that LSN."""
    at = "sys.fn_cdc_map_lsn_to_time(CAST(? AS binary(10)))"
    return f"SELECT sys.fn_cdc_get_max_lsn() AS max_lsn, {at} AS committed_at"


def select_cuts() -> str:
    """Return the SELECT of commit LSNs that divide a window into parts with equally many transactions.

    Parameters: parts, after_lsn, to_lsn. It reads the mapping table: on the change table it would read as much as the
    parts themselves.
    """
    return (
        "SELECT MAX(start_lsn) AS cut FROM ("
        "SELECT start_lsn, NTILE(?) OVER (ORDER BY start_lsn) AS part FROM cdc.lsn_time_mapping"
        " WHERE start_lsn > ? AND start_lsn <= ?) AS m GROUP BY part ORDER BY cut"
    )


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


def _has_new_key(table: SourceTable) -> str:
    """Return the condition that the update mask has the bit of a key column.

    ``sys.fn_cdc_is_bit_set`` would be called for each row.
    """
    mask = bracket(UPDATE_MASK)
    tests = [
        f"(CAST(SUBSTRING({mask}, DATALENGTH({mask}) - {place}, 1) AS int) & {bits}) <> 0"
        for place, bits in bits_by_byte(table.column(name).ordinal for name in table.key)
    ]
    return "(" + " OR ".join(tests) + ")"


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


def _select_list(plan: TablePlan, operation: str = bracket(OPERATION)) -> str:
    """Return the SELECT list. operation: the expression for the column of that name."""
    own = (operation if name == OPERATION else bracket(name) for name in own_columns(plan))
    return ", ".join([*own, *select_expressions(plan.feed.table, plan.temporal)])
