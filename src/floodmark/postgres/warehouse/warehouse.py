"""``PostgresWarehouse``: targets, staging and the merge, in a PostgreSQL of version 15 or later."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.rows import dict_row

from floodmark.core.errors import (
    DataQualityError,
    DuplicateKeyError,
    FloodmarkError,
    OperatorError,
    TargetRefusedError,
    WarehouseUnavailableError,
    WatermarkConflictError,
    command_line,
)
from floodmark.core.plan import (
    LoadKind,
    TableCounts,
    TablePlan,
    WindowPlan,
    WindowState,
    is_replay_lane,
    staging_table,
)
from floodmark.core.schema import TableName, quote, quote_table
from floodmark.core.settings import Deletes
from floodmark.postgres.ledger.schema import (
    WrittenTarget,
    is_of_this_ledger,
    record_targets,
    refuse_lost_targets,
    refuse_overtaken,
)
from floodmark.postgres.ledger.steps import mark_merged
from floodmark.postgres.session import (
    WarehouseConnection,
    open_statements,
    open_transaction,
    translated,
)
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.gate import (
    Leftovers,
    apply_rules,
    drop_set_aside,
    drop_unknown_deletes,
    find_leftovers,
    key_rules,
    recover_kept_values,
    refuse_keyless_deletes,
    settle_quarantine,
    text_rules,
)
from floodmark.postgres.warehouse.history import (
    match_members,
    merge_history,
    pass_over_deleted,
    pass_over_loaded,
    settle_of_members,
)
from floodmark.postgres.warehouse.merge import (
    BULK_ROWS,
    Merge,
    MergeCounts,
    count_merge,
    execute_merge,
    find_doubled,
    find_incomplete,
    forget_absent,
    has_any_row,
    in_bound,
    insert_into_empty,
    list_positions,
    lower_positions,
    merge_of,
    sweep_members,
    sweep_target,
    table,
    tombstone_key,
)
from floodmark.postgres.warehouse.staging import (
    count_parts,
    count_staged,
    create_staging,
    delete_parts,
    has_rows,
    keep_reported,
    lasting_staging,
    list_staging,
    read_load_ids,
)
from floodmark.postgres.warehouse.targets import (
    LOCK_SECONDS,
    LockLimit,
    column_types,
    list_relations,
    lock_targets,
    read_columns,
)
from floodmark.postgres.warehouse.views import ensure_with_view, read_views
from floodmark.sync.ports import CheckedRows, StagedNow, StagedRows, StagingSink, WarehouseTraits

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The execution of the merge of one table: rows that would make it fail are set aside, and its errors are translated.
#
# The statement itself is built by ``warehouse.merge``. Errors are recognised by SQLSTATE and by the names in the
# catalogue: PostgreSQL shortens the name of a primary key when the table's name is long. No value of a row reaches a
# message or the log, so that a message of PostgreSQL about rows is not shown.


def run_merge(session: psycopg.Connection, planned: TablePlan, merge: Merge, counted: MergeCounts) -> MergeCounts:
    """Merge the staged rows into the target. Return their counts, where all changes are kept those of the merge itself.

    Raises DuplicateKeyError for a duplicate key in staging, TargetRefusedError for a constraint that Floodmark did not
    create, DataQualityError for a key that is NULL.
    """
    try:
        with session.transaction():  # a savepoint: the catalogue is queried after an error
            if merge.is_history:
                return merge_history(session, planned, merge, counted)
            is_bulk = planned.kind is LoadKind.FIRST_LOAD and counted.staged >= BULK_ROWS
            written = counted.staged
            if not (is_bulk and insert_into_empty(session, merge)):
                written = execute_merge(session, merge)
            is_counted = not (merge.is_log or merge.is_snapshot)
            return counted if is_counted else dataclasses.replace(counted, inserted=written, written=written)
    except psycopg.errors.CardinalityViolation as error:
        raise _duplicate_key(session, planned, merge) from error
    except psycopg.errors.NotNullViolation as error:
        raise _null(planned, error) from error
    except psycopg.IntegrityError as error:
        raise _refused(session, planned, merge, error) from error


def drop_duplicates(session: psycopg.Connection, staging: TableName, key: tuple[str, ...]) -> int:
    """Keep one row per key in staging, no matter which. Return the number of removed rows."""
    statement = read_sql("drop_duplicates")
    names = ", ".join(quote(name) for name in key)
    return session.execute(statement.format(staging=quote_table(staging), key=names)).rowcount


def _refused(
    session: psycopg.Connection, planned: TablePlan, merge: Merge, error: psycopg.IntegrityError
) -> FloodmarkError:
    name = error.diag.constraint_name
    keys = [_primary_key(session, relation) for relation in list_relations([planned])]
    if isinstance(error, psycopg.errors.UniqueViolation) and name in keys:
        return _duplicate_key(session, planned, merge)
    place = (error.diag.context or "").partition("\n")[0]
    what, kind = (f"constraint {name}", "constraints") if name else ("a trigger", "triggers")
    code = f" ({place})" if not name and place.startswith("PL/pgSQL function") else ""
    return TargetRefusedError(
        str(planned.source),
        f"{what} of {planned.target} rejected rows{code}.",
        f"Floodmark does not create such {kind}: drop it, or exclude such rows with a rule.",
    )


def _null(planned: TablePlan, error: psycopg.errors.NotNullViolation) -> FloodmarkError:
    column = error.diag.column_name or "of the key"
    if column in planned.in_target.key:
        return DataQualityError(
            str(planned.source),
            f"column {column} of its key is NULL in rows of the window.",
            "Nothing was merged: rows are merged by their key. Fill the column at the source, and reload the table.",
        )
    return TargetRefusedError(
        str(planned.source),
        f"column {column} of {planned.target} is NOT NULL, but rows of the window have no value for it.",
        "Floodmark does not create such constraints: drop it (DROP NOT NULL), or exclude such rows with a rule.",
    )


def _primary_key(session: psycopg.Connection, target: TableName) -> str | None:
    found = session.execute(read_sql("read_primary_key"), {"schema": target.schema, "name": target.name}).fetchone()
    return found[0] if found else None


def _duplicate_key(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> DuplicateKeyError:
    at = list_positions(session, find_doubled(merge))
    return DuplicateKeyError(str(planned.source), "duplicate key in staging.", "", f"such as at {at}")


# --------------------------------------------------------------------------------------------------------------------


_DROPPED_AT_ONCE = 100
"""The staging tables that one transaction drops: a commit for each takes longer, and all may need too many locks."""
# Reset when the transaction ends. Memory enough to sort a million staged rows and to hash their keys. The default cost
# of a random page is that of a disk that turns: PostgreSQL would read all of a large target for a few changes.
_MERGE_SETTINGS = "SET LOCAL work_mem = '64MB'; SET LOCAL random_page_cost = 1.1"


class PostgresWarehouse:
    """``sync.ports.Warehouse``. It holds no session: each method is one transaction of its own."""

    traits = WarehouseTraits(publishes="at_merge", tables_at_once=True, has_primary_key=True, shares_ledger=True)

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def prepare_window(self, plan: WindowPlan) -> None:
        with open_transaction(self._at, plan.pipeline) as session:
            found, views = read_columns(session, list_relations(plan.tables)), read_views(session, plan.tables)
            with LockLimit(session, self._at, plan.lane, LOCK_SECONDS) as limit:
                for planned in plan.tables:
                    with limit.table(planned):
                        # A load that is given up must leave the names as the ledger has them.
                        if planned.renewed or not (planned.renames_columns and planned.target in found):
                            _log_all(ensure_with_view(session, plan, planned, found, views.get(planned.target)))
        # In a separate transaction: a load that was considered dead may still hold one of the tables.
        self._drop_staging(plan.window_id, kept=lasting_staging(plan))
        with open_transaction(self._at, plan.pipeline) as session:
            loads = read_load_ids(session, plan)
            for index, planned in enumerate(plan.tables):
                with translated(str(planned.source)):
                    session.execute(create_staging(plan, index, loads.get(planned.source, 0)))

    def sink(self, plan: WindowPlan, index: int) -> StagingSink:
        # pyarrow, numpy and ADBC take half a second to import, and only a load needs them.
        from floodmark.postgres.warehouse.sink import PostgresChunkSink, PostgresSink  # noqa: PLC0415

        table, staging = plan.tables[index], staging_table(plan, index)
        kind = PostgresChunkSink if table.kind is LoadKind.FIRST_LOAD else PostgresSink
        return kind(table, staging, self._at, dataclasses.replace(plan, tables=()))

    def count_parts(self, plan: WindowPlan, index: int) -> Mapping[int, int]:
        with open_transaction(self._at, str(plan.tables[index].source)) as session:
            return dict(session.execute(count_parts(plan, index)).fetchall())

    def count_staged(self, plan: WindowPlan) -> Mapping[TableName, StagedNow]:
        with open_transaction(self._at, plan.pipeline) as session:
            found = count_staged(session, [staging_table(plan, index) for index in range(len(plan.tables))])
        names = {staging_table(plan, index): table.source for index, table in enumerate(plan.tables)}
        return {names[staging]: StagedNow(*rows) for staging, rows in found.items()}

    def clear_parts(self, plan: WindowPlan, index: int, numbers: Collection[int]) -> None:
        with (
            open_transaction(self._at, str(plan.tables[index].source)) as session,
            suppress(psycopg.errors.UndefinedTable),  # nothing else is in the transaction
        ):
            session.execute(delete_parts(plan, index), {"numbers": list(numbers)})

    def drop_duplicates(self, plan: WindowPlan, index: int) -> int:
        table = plan.tables[index]
        with open_transaction(self._at, str(table.source)) as session:
            return drop_duplicates(session, staging_table(plan, index), table.in_target.key)

    def merge_window(
        self, plan: WindowPlan, staged: Mapping[TableName, StagedRows] | None = None
    ) -> Mapping[TableName, TableCounts]:
        with open_transaction(self._at, plan.pipeline) as session:
            _lock_planned(session, plan)
            lock_targets(session, [planned.target for planned in plan.tables])
            refuse_lost_targets(session, plan)
            refuse_overtaken(session, plan)
            session.execute(_MERGE_SETTINGS)
            with LockLimit(session, self._at, plan.lane) as limit:
                merged = _merge_tables(session, plan, staged or {}, limit)
            record_targets(session, plan, [written for _, written in merged])
            return mark_merged(session, plan, {written.table.source: counts for counts, written in merged})

    def open_rows(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> Sequence[CheckedRows]:
        """Return the rows for the checks; without staging where it is empty or dropped.

        Staging tables are not logged, so a crash of the warehouse after the merge empties them. Another run that
        finished the window has dropped them. The window must be published in both cases.
        """
        opened = []
        with open_transaction(self._at, plan.pipeline) as session:
            for index, planned in enumerate(plan.tables):
                staging, rows = staging_table(plan, index), counts[planned.source]
                is_there = has_rows(session, staging, rows.staged_rows - rows.quarantined_rows)
                opened.append(CheckedRows(planned.target, staging if is_there else None))
        return opened

    def publish_window(self, plan: WindowPlan, transaction: Any = None) -> None:
        """Do nothing: the merge has published the window."""

    def drop_staging(self, window_id: int) -> None:
        self._drop_staging(window_id, kept=())

    def _drop_staging(self, window_id: int, kept: Collection[TableName]) -> None:
        """Drop staging tables. Tables in use are kept; their names belong to an attempt that can no longer merge."""
        with open_statements(self._at, f"window {window_id}") as session:
            session.execute("SET lock_timeout = '2s'")
            names = [name for name in list_staging(session, window_id) if name not in kept]
            for first in range(0, len(names), _DROPPED_AT_ONCE):
                _drop(session, names[first : first + _DROPPED_AT_ONCE])


def _drop(session: psycopg.Connection, names: Sequence[TableName]) -> None:
    """Drop staging tables in one transaction, or those of them that are not in use."""
    in_use = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
    with suppress(*in_use):
        session.execute(f"DROP TABLE IF EXISTS {', '.join(map(quote_table, names))}")
        return
    for name in names:
        try:
            session.execute(f"DROP TABLE IF EXISTS {quote_table(name)}")
        except in_use:
            _LOG.warning("%s was not dropped: another load still uses it", name)


def _lock_planned(session: psycopg.Connection, plan: WindowPlan) -> None:
    """Hold the window's row until the transaction ends, so that no two loads merge the same window."""
    subject = f"{plan.pipeline}, window {plan.window_id}"
    row = (
        session.cursor(row_factory=dict_row).execute(read_sql("lock_window"), {"window_id": plan.window_id}).fetchone()
    )
    if row is None:
        raise OperatorError(subject, "the ledger has no such window.")
    if row["state"] != WindowState.PLANNED.value:
        raise WatermarkConflictError(
            subject, f"another load has already merged this window (state {row['state']}).", "Nothing was merged."
        )
    if row["attempt"] != plan.attempt:
        raise WatermarkConflictError(
            subject,
            f"this load is attempt {plan.attempt}, and attempt {row['attempt']} has begun since.",
            "Nothing was merged; the later attempt merges the window.",
        )


def _as_reload(session: psycopg.Connection, plan: WindowPlan, table: TablePlan) -> TablePlan:
    """Return a reload in place of a first load whose target has rows, as after the loss of the ledger.

    Rows that the source no longer has are swept. Raises TargetRefusedError where all changes are kept.
    """
    # The first window of a fleet reads all devices as a whole.
    is_first = table.kind is LoadKind.FIRST_LOAD or (bool(table.feed.member_column) and table.watermark is None)
    if (
        not is_first
        or (table.kind is LoadKind.CHANGES and not table.keeps_changes)
        or table.is_reload
        or table.where
        or not has_any_row(session, table.target)
        or is_of_this_ledger(session, plan.pipeline, table)
    ):
        return table
    if table.keeps_changes:
        raise TargetRefusedError(
            str(table.source),
            f"the {table.settings.style.value} {table.target} has rows that no window of the ledger brought, so that "
            "the numbers of its windows would not grow.",
            "Rename or drop the target, and run the pipeline, which creates it again.",
        )
    _LOG.warning(
        "%s: the target %s has rows that no window of the ledger brought: the first load sweeps those that the source "
        "does not have.",
        table.source,
        table.target,
    )
    return dataclasses.replace(table, is_reload=True)


_Merged = tuple[TableCounts, WrittenTarget]


def _merge_tables(
    session: psycopg.Connection, plan: WindowPlan, staged: Mapping[TableName, StagedRows], limit: LockLimit
) -> Sequence[_Merged]:
    """Merge every table, and evaluate the constraints that would be evaluated at COMMIT.

    They see all tables merged: a foreign key may need rows of a table that is merged later. An error names its table.
    A trigger names none. Then all tables are merged again with constraints that are evaluated after each statement.
    """
    try:
        with session.transaction():  # a savepoint
            merged = _merge_each(session, plan, staged, limit)
            session.execute("SET CONSTRAINTS ALL IMMEDIATE")
            return merged
    except psycopg.Error as error:
        if session.broken:
            raise
        if planned := _constrained(session, plan, error):
            raise constraint_refused(planned, error) from error
    session.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return _merge_each(session, plan, staged, limit)


def _merge_each(
    session: psycopg.Connection, plan: WindowPlan, staged: Mapping[TableName, StagedRows], limit: LockLimit
) -> Sequence[_Merged]:
    merged, left = [], find_leftovers(session, plan)
    for index, planned in enumerate(plan.tables):
        with limit.table(planned):
            merged.append(_merge_table(session, plan, index, left[index], staged.get(planned.source)))
    return merged


def _log_all(changes: Iterable[str]) -> None:
    for change in changes:
        _LOG.info("%s", change)


def _merge_table(
    session: psycopg.Connection, plan: WindowPlan, index: int, left: Leftovers, rows: StagedRows | None
) -> _Merged:
    planned = _as_reload(session, plan, plan.tables[index])
    if planned.renames_columns:
        found, views = read_columns(session, list_relations([planned])), read_views(session, [planned])
        _log_all(ensure_with_view(session, plan, planned, found, views.get(planned.target)))
    plan = dataclasses.replace(plan, tables=(*plan.tables[:index], planned, *plan.tables[index + 1 :]))
    if planned.sweeps:
        lower_positions(session, plan, planned)
    return _merge_staged(session, plan, index, left, rows)


def _constrained(session: psycopg.Connection, plan: WindowPlan, error: psycopg.Error) -> TablePlan | None:
    """Return the table with the constraint of an error, or the one that it refers to."""
    if not (isinstance(error, psycopg.IntegrityError) and error.diag.schema_name and error.diag.table_name):
        return None
    owner = TableName(error.diag.schema_name, error.diag.table_name)
    named = {"constraint": error.diag.constraint_name, "table": quote_table(owner)}
    referenced = session.execute(read_sql("read_referenced_table"), named).fetchall()
    targets = {planned.target: planned for planned in plan.tables}
    return next((targets[name] for name in (owner, *(TableName(*row) for row in referenced)) if name in targets), None)


def constraint_refused(planned: TablePlan, error: psycopg.Error) -> TargetRefusedError:
    """Return the error about a constraint that was evaluated after the merge."""
    diag = error.diag
    return TargetRefusedError(
        str(planned.source),
        f"constraint {diag.constraint_name} of {diag.schema_name}.{diag.table_name} rejected the rows of the window "
        "when all tables were merged.",
        "Floodmark does not create such constraints: drop it, or bring the rows that it needs. They may be in "
        "quarantine, or of a table that was left out.",
    )


def _merge_staged(
    session: psycopg.Connection, plan: WindowPlan, index: int, left: Leftovers, rows: StagedRows | None
) -> _Merged:
    planned = plan.tables[index]
    if rows is not None and _has_nothing(planned, rows):
        return TableCounts(), WrittenTarget(planned, has_written=False)
    # A load that sweeps has just lowered the tombstones.
    merge = merge_of(plan, index, has_tombstones=left.has_tombstones and not planned.sweeps)
    staging = quote_table(merge.staging)
    if rows is not None and planned.kind is LoadKind.CHANGES:
        keep_reported(session, merge.staging, rows.parts)
    # Statistics of the key alone: without them the planner may loop over the target row by row.
    session.execute(f"ANALYZE {staging} ({', '.join(quote(name) for name in merge.key)})")
    if left.has_quarantine:
        recover_kept_values(session, planned, merge, column_types(planned))
    whole = [read.member for read in (rows.members if rows else ()) if read.is_whole]
    if left.has_waiting:
        settle_of_members(session, plan, planned, merge, whole)
    dropped = drop_unknown_deletes(session, planned, merge)
    if is_replay_lane(plan.lane):
        pass_over_loaded(session, plan, planned, merge)
        dropped += drop_set_aside(session, planned, merge)
    pass_over_deleted(session, planned, merge)
    rules = (*key_rules(planned), *text_rules(planned), *planned.settings.rules)
    gate = apply_rules(session, plan, planned.with_rules(rules), merge)
    counted = count_merge(session, merge)
    staged = counted.staged + gate.quarantined + dropped
    if rows is not None:
        _refuse_lost_rows(planned, rows, staged)
    if counted.without_key:
        refuse_keyless_deletes(session, planned, merge)
    if counted.incomplete:
        _report_incomplete(session, plan, planned, merge, counted.incomplete)
    _write_tombstones(session, planned, merge)
    if gone := match_members(session, plan, planned, merge, whole):
        staged += gone
        counted = dataclasses.replace(counted, staged=counted.staged + gone)
    counted = run_merge(session, planned, merge, counted)
    swept = sweep_target(session, plan, planned, merge) if planned.sweeps else counted.swept
    if whole and not planned.keeps_changes:
        swept += sweep_members(session, plan, planned, merge, whole)
    if left.has_waiting or gate.quarantined:
        settle_quarantine(session, plan, planned, merge)
    if planned.kind is LoadKind.FIRST_LOAD:
        session.execute(f"ANALYZE {quote_table(planned.target)}")
        forget_absent(session, plan, planned, merge)
    marked = swept if planned.settings.deletes is Deletes.SOFT else 0
    counts = TableCounts(
        staged_rows=staged - dropped,
        inserted_rows=counted.inserted,
        updated_rows=counted.updated,
        deleted_rows=counted.deleted,
        unchanged_rows=counted.staged - counted.inserted - counted.updated - counted.deleted,
        quarantined_rows=gate.quarantined,
        warned_rows=gate.warned,
        swept_rows=swept,
    )
    return counts, WrittenTarget(planned, counted.written + marked > 0, merge.replaces)


def _refuse_lost_rows(planned: TablePlan, rows: StagedRows, staged: int) -> None:
    """Raise WarehouseUnavailableError where staging has not the rows that were staged."""
    if staged != rows.staged_rows:
        raise WarehouseUnavailableError(
            str(planned.source),
            f"{rows.staged_rows} rows were staged, but {staged} are in staging now.",
            "A restart of the warehouse empties staging tables; the window is loaded again.",
        )


def _has_nothing(planned: TablePlan, rows: StagedRows) -> bool:
    """Return whether no row of the target, nor one in quarantine, can change."""
    return planned.kind is LoadKind.CHANGES and not rows.staged_rows and not any(read.is_whole for read in rows.members)


def _report_incomplete(
    session: psycopg.Connection, plan: WindowPlan, planned: TablePlan, merge: Merge, rows: int
) -> None:
    """Log rows that are not in the target and whose changes left values out.

    The merge would write NULL for them, and NULL is a value to readers. Raises OperatorError in a replay, and for a
    table whose changes may leave out any column.
    """
    at = list_positions(session, find_incomplete(merge))
    what = (
        f"{rows} rows are missing in {planned.target}, and their changes in {planned.interval} left out the value of "
        f"{' or '.join(merge.optional)}."
    )
    reload = f"{command_line('reload', plan.pipeline, planned.source)} --where ..."
    _LOG.warning("%s: %s Such as at %s. Load them from the source: %s", planned.source, what, at, reload)
    if planned.feed.table.is_partial:
        raise OperatorError(
            str(planned.source),
            what,
            f"Nothing was merged. Reload the table ({command_line('reload', plan.pipeline, planned.source)}).",
        )
    if is_replay_lane(plan.lane):
        raise OperatorError(
            str(planned.source),
            what,
            "Nothing was merged. Load those rows from the source (the log says where some were changed, "
            f"{reload}), or start the replay at an earlier LSN.",
        )


def _write_tombstones(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> None:
    """Write them for the deletes of rows that the target no longer has afterwards."""
    if planned.settings.deletes is not Deletes.HARD:
        return
    session.execute(
        read_sql("write_tombstones").format(
            key=in_bound(tombstone_key(merge)), staging=in_bound(table(merge.staging, "s"))
        ),
        {"target_schema": planned.target.schema, "target_name": planned.target.name},
    )
