"""Whether the target of a table is the one that its watermark belongs to.

Nothing is written to the target for it: a mark there would need its owner, and a lock that waits for VACUUM. A merge
records the numbers of the files of ledger and target (``floodmark.target_marks``). As long as they are the same,
neither was made again, emptied or restored. Where they differ, the rows answer: the highest ``__window_id`` must be
that of the last window that wrote rows, and no row may be older than its tombstone. A window that only deletes rows has
left its number in none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from floodmark.core.errors import TargetLostError
from floodmark.core.naming import WINDOW_COLUMN, quote, quote_table
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, TablePlan, WindowPlan
from floodmark.postgres.ledger.opened import opened_window
from floodmark.postgres.session import translated
from floodmark.postgres.sql import read_sql
from floodmark.postgres.statements import query, source_parameters


def record_target(session: psycopg.Connection, plan: WindowPlan, table: TablePlan, *, has_written: bool) -> None:
    """Record the target as it is after the merge of a window, in the transaction of the merge.

    has_written: some row of the target has the number of the window now.
    """
    query(
        session,
        "record_target",
        pipeline=plan.pipeline,
        **source_parameters(table.source),
        window_id=plan.window_id,
        columns=[*(column.name for column in table.feed.table.stored_columns), WINDOW_COLUMN],
        has_written=has_written,
    )


def refuse_lost_targets(session: psycopg.Connection, plan: WindowPlan) -> None:
    """Raise TargetLostError about a table whose target is not the one that its watermark belongs to, or is missing.

    A load of the whole table makes it right, so that its target may be any.
    """
    merged = {table.source for table in plan.tables if table.kind is not LoadKind.FIRST_LOAD or table.where}
    compared = set()
    for row in query(session, "read_tables", pipeline=plan.pipeline) if merged else ():
        source = TableName(row["source_schema"], row["source_name"])
        if source in merged:
            with translated(str(source)):
                fault = find_fault(session, plan.pipeline, row)
            if fault:
                raise _lost(plan, source, fault)
        if row["watermark"] is not None:
            compared.add(source)
    for table in plan.tables:
        if table.source not in merged & compared and not _exists(session, table.target):
            raise _lost(plan, table.source, f"the target {table.target} does not exist: it was dropped meanwhile.")


def _lost(plan: WindowPlan, source: TableName, fault: str) -> TargetLostError:
    hint = f"Nothing was merged into it. Reload the table: floodmark reload {plan.pipeline} {source}."
    return TargetLostError(str(source), fault, hint)


def _exists(session: psycopg.Connection, target: TableName) -> bool:
    found = session.execute("SELECT to_regclass(%s) IS NOT NULL", [quote_table(target)]).fetchone()
    return found == (True,)


def is_of_this_ledger(session: psycopg.Connection, pipeline: str, table: TablePlan) -> bool:
    """Return whether some window of the ledger has written rows to the target."""
    found = query(session, "has_written_target", pipeline=pipeline, **source_parameters(table.source))
    return bool(found)


def find_fault(session: psycopg.Connection, pipeline: str, row: Mapping[str, Any]) -> str:
    """Return why a target is not the one that the ledger means, as a sentence; "" where it is.

    row: of ``read_tables``. A target in another file is compared once: the new file is recorded. Raises
    psycopg.errors.InsufficientPrivilege where the user may not read it.
    """
    if row["watermark"] is None:
        return ""
    target = TableName(row["target_schema"], row["target_name"])
    if row["is_without_target"]:
        return f"the target {target} does not exist, and was loaded before."
    if row["is_other_target"] is not None and (lost := row["lost_columns"]):
        columns = f"column {lost[0]}" if len(lost) == 1 else f"columns {', '.join(sorted(lost))}"
        return f"the target {target} no longer has the {columns}, which earlier windows wrote."
    if not row["is_other_target"]:
        return ""
    # A statement that fails ends its transaction, but for one inside of it.
    with session.transaction():
        fault = _compare_rows(session, pipeline, row, target)
    if fault:
        return fault
    # A user who may only read does without.
    with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction), session.transaction():
        source = TableName(row["source_schema"], row["source_name"])
        query(session, "keep_target_mark", pipeline=pipeline, **source_parameters(source))
    return ""


def find_readable_fault(session: psycopg.Connection, pipeline: str, row: Mapping[str, Any]) -> str:
    """Return the same to a plan or a status: "" also where the user may not read the target.

    Its merge is refused then, alone, and no merge is done without an answer.
    """
    try:
        return find_fault(session, pipeline, row)
    except psycopg.errors.InsufficientPrivilege:
        return ""


def _compare_rows(session: psycopg.Connection, pipeline: str, row: Mapping[str, Any], target: TableName) -> str:
    """Return the sign in the rows of a target that it is another one than the ledger means; "" where there is none."""
    newest = session.execute(f"SELECT max({quote(WINDOW_COLUMN)}) FROM {quote_table(target)}").fetchone()  # noqa: S608
    found, known = newest[0] if newest else None, row["target_window_id"]
    if found != known:
        return (
            f"the target {target} was made again, emptied or restored, or the ledger was: {_difference(found, known)}"
        )
    source = TableName(row["source_schema"], row["source_name"])
    for plan in query(session, "newest_plan", pipeline=pipeline, **source_parameters(source)):
        planned = next(table for table in opened_window(plan).plan.tables if table.source == source)
        if _has_deleted_row(session, target, planned.feed.table.key):
            return f"the target {target} was restored, or the ledger was: it has rows that a later window deleted."
    return ""


def _has_deleted_row(session: psycopg.Connection, target: TableName, key: Sequence[str]) -> bool:
    """Return whether the target has a row that is older than the tombstone of its key."""
    columns = ", ".join(f"t.{quote(name)}" for name in key)
    placed = {"target": f"{quote_table(target)} AS t", "key": f"jsonb_build_array({columns})"}
    # Where values are bound, a sign of percent in a name is written twice.
    statement = read_sql("has_deleted_row").format(**{name: sql.replace("%", "%%") for name, sql in placed.items()})
    found = session.execute(statement, {"target_schema": target.schema, "target_name": target.name}).fetchone()
    return found == (True,)


def _difference(found: int | None, known: int | None) -> str:
    has = "it has no rows" if found is None else f"its newest rows are of window {found}"
    return f"{has}, and the last window that wrote rows is {known or 'none'} in the ledger."
