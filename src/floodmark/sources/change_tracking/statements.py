"""The T-SQL that reads changes by CHANGETABLE: one SELECT per table, with the same text for every window."""

from __future__ import annotations

from floodmark.core.change import Operation
from floodmark.core.source.scripts import bracket, bracket_table
from floodmark.core.window.plan import TablePlan
from floodmark.sources.sqlserver.rows.columns import select_expressions

POSITION = "__$version"
OPERATION = "__$operation"
MASK = "__$update_mask"
OWN_COLUMNS = ((POSITION, "binary"), (OPERATION, "int"), (MASK, "binary"))


def select_changes(plan: TablePlan) -> str:
    """Return the SELECT of the changes after a version, with the rows as they are now. Parameter: the version.

    The key of a deleted row is that of the change, its other columns are NULL, or those of a row that was inserted
    meanwhile; the merge does not use them. A change whose row no longer exists is left out: its delete was committed
    meanwhile, and the next window reads it. No mask: each row has all its values.
    """
    table = plan.feed.table
    name, key = bracket_table(table.name), [bracket(each) for each in table.key]
    same_key = " AND ".join(f"t.{each} = c.{each}" for each in key)
    is_delete, is_gone = "c.SYS_CHANGE_OPERATION = N'D'", f"t.{key[0]} IS NULL"
    values = [
        # The key as the row spells it now: the server may take another spelling for the same key.
        f"CASE WHEN {is_gone} THEN c.{each} ELSE t.{each} END AS {each}" if each in key else f"t.{each}"
        for each in (bracket(column.name) for column in table.stored_columns)
    ]
    operation = (
        f"CASE c.SYS_CHANGE_OPERATION WHEN N'D' THEN {Operation.DELETE.value}"
        f" WHEN N'I' THEN {Operation.INSERT.value} ELSE {Operation.UPDATE.value} END"
    )
    # The position of a version (core.version): one more, in the low bytes.
    position = "CAST(0x0000 AS binary(2)) + CAST(c.SYS_CHANGE_VERSION + 1 AS binary(8))"
    own = (f"{position} AS [{POSITION}]", f"{operation} AS [{OPERATION}]", f"CAST(NULL AS varbinary(1)) AS [{MASK}]")
    columns = ", ".join([*(f"[{column}]" for column, _ in OWN_COLUMNS), *select_expressions(table, plan.temporal)])
    return (
        f"SELECT {columns} FROM (SELECT {', '.join([*own, *values])}"  # noqa: S608
        f" FROM CHANGETABLE(CHANGES {name}, ?) AS c LEFT JOIN {name} AS t ON {same_key}"
        f" WHERE {is_delete} OR NOT {is_gone}) AS r"
    )


def select_versions(*, with_times: bool) -> str:
    """Return the SELECT of the current version, and of the commit times of it and of another. Parameter: the other."""
    at = "(SELECT commit_time FROM sys.dm_tran_commit_table WHERE commit_ts = {})" if with_times else "NULL"
    return (
        "SELECT v.current_version, "  # noqa: S608
        f"{at.format('v.current_version')} AS current_at, {at.format('v.other_version')} AS other_at"
        " FROM (SELECT CHANGE_TRACKING_CURRENT_VERSION() AS current_version, CAST(? AS bigint) AS other_version) AS v"
    )


def select_tracking() -> str:
    """Return the SELECT of a table's begin_version, oldest valid version and side table. Parameter: object_id."""
    return (
        "SELECT t.begin_version, CHANGE_TRACKING_MIN_VALID_VERSION(t.object_id) AS min_valid_version,"
        " (SELECT MAX(i.object_id) FROM sys.internal_tables AS i"
        " WHERE i.parent_object_id = t.object_id AND i.internal_type = 209) AS side_table_id"
        " FROM sys.change_tracking_tables AS t WHERE t.object_id = ?"
    )


def select_snapshot_state() -> str:
    """Return the SELECT of whether the database allows SNAPSHOT isolation: 1 for ON."""
    return "SELECT CAST(snapshot_isolation_state AS int) AS state FROM sys.databases WHERE database_id = DB_ID()"
