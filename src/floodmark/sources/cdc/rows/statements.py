"""The T-SQL that reads changes: one SELECT per part of a table, with the same text for every window.

Change tables are read directly. This is faster than the functions, but the server never refuses an expired range: the
validity of the window is checked before and after (``sync``). Isolation is READ COMMITTED: uncommitted rows of a first
load could be rolled back, and no change row would ever remove them again.

A part is read by one worker of the server (MAXDOP 1): how many parts are read at once is configured, and a plan that is
parallel itself would multiply it, for a range of a clustered index in no order.
"""

from __future__ import annotations

from floodmark.core.change import Operation, bits_by_byte
from floodmark.core.policies import NetSource
from floodmark.core.schema import SourceTable
from floodmark.core.source.scripts import bracket
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.cdc.rows.feed import instance_of
from floodmark.sources.sqlserver.rows.columns import select_expressions
from floodmark.sources.sqlserver.rows.statements import ONE_WORKER
from floodmark.sources.sqlserver.tsql import change_table, net_changes_function

START_LSN = "__$start_lsn"
COMMAND_ID = "__$command_id"
SEQVAL = "__$seqval"
OPERATION = "__$operation"
UPDATE_MASK = "__$update_mask"

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
        f" AND ({operation} <> {Operation.BEFORE_UPDATE.value} OR {moved}){ONE_WORKER}"
    )


def select_net_changes(plan: TablePlan) -> str:
    """Return the SELECT of net changes. Parameters: from_lsn and to_lsn (both included).

    The mask distinguishes a LOB that was left out from NULL.
    """
    function = net_changes_function(plan.feed.identity.name)
    return f"SELECT {_select_list(plan)} FROM {function}(?, ?, N'all with mask')"  # noqa: S608


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


def _select_list(plan: TablePlan, operation: str = bracket(OPERATION)) -> str:
    """Return the SELECT list. operation: the expression for the column of that name."""
    own = (operation if name == OPERATION else bracket(name) for name in own_columns(plan))
    return ", ".join([*own, *select_expressions(plan.feed.table, plan.temporal)])
