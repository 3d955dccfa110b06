"""The second step of a run: bring the window's rows to staging, and merge them in one transaction.

It may be killed at any point and run again: nothing is visible before the merge, and the merge happens once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from floodmark.core.errors import (
    ConfigError,
    DataQualityError,
    DuplicateKeyError,
    FloodmarkBugError,
    OtherDatabaseError,
    SourceBehindError,
)
from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, TableCounts, WindowPlan, WindowState
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.stager import StagedRows, Stager
from floodmark.sync.ports.warehouse import Warehouse
from floodmark.sync.run.first_load import forget_first_loads, progress_logged, slots_of, stage_first_load
from floodmark.sync.window.origin import is_followed
from floodmark.sync.window.verify_reads import verify_reads

_LOG = logging.getLogger(__name__)
TABLES_AT_ONCE = 4
"""The number of tables that are staged in parallel. A small table spends most of its time waiting. The tasks that the
engine runs at once limit rows and memory, not this number."""


def load_window(
    window_id: int, ledger: Ledger, warehouse: Warehouse, source: Source, stager: Stager
) -> Mapping[TableName, TableCounts]:
    """Load a window and return the rows per table. For a window that is merged already, return its counts.

    Raises WindowBusyError while another load of the window is running.
    """
    with ledger.hold_load(window_id):
        return _load(window_id, ledger, warehouse, source, stager)


def _load(
    window_id: int, ledger: Ledger, warehouse: Warehouse, source: Source, stager: Stager
) -> Mapping[TableName, TableCounts]:
    opened = ledger.begin_load(window_id)
    if opened.state is not WindowState.PLANNED:
        _LOG.info("Window %s is already %s; there is nothing to load.", window_id, opened.state.value)
        return ledger.read_counts(window_id)
    plan = opened.plan
    _LOG.info("Window %s of %s, attempt %s, up to %s.", window_id, plan.pipeline, plan.attempt, plan.to_lsn)
    warehouse.prepare_window(plan)
    with progress_logged(plan, ledger):
        try:
            staged = _stage_all(plan, ledger, warehouse, stager)
        except SourceBehindError:
            # Where the source itself was restored, its verdict explains more than the copy that has another log.
            verify_reads(plan, source)
            raise
    snapshot = verify_reads(plan, source)
    if not is_followed(ledger.read_database(plan.pipeline), snapshot):
        raise OtherDatabaseError(
            plan.pipeline,
            f"the connection leads to {snapshot.identity}, and the window was planned for another database.",
            "Correct the connection; nothing was merged.",
        )
    _LOG.info("The source still had all changes of the window when the read ended.")
    ledger.record_reads(
        plan,
        {name: rows.read_rows for name, rows in staged.items()},
        snapshot.latest_commit_at,
        snapshot.max_lsn if isinstance(snapshot.max_lsn, Lsn) else None,
        snapshot.max_lsn_at,
    )
    try:
        counts = _merge(plan, staged, ledger, warehouse, stager)
    except (ConfigError, DataQualityError, FloodmarkBugError):
        # The rows may be corrected at the source: the refused ones must not be kept for the next attempt.
        forget_first_loads(plan, ledger, warehouse)
        raise
    for name, rows in counts.items():
        _log_counts(name, rows)
    merged = f"all {len(counts)} tables" if len(counts) > 1 else "its table"
    _LOG.info("Window %s is merged: %s in one transaction.", window_id, merged)
    return counts


def _merge(
    plan: WindowPlan, staged: dict[TableName, StagedRows], ledger: Ledger, warehouse: Warehouse, stager: Stager
) -> Mapping[TableName, TableCounts]:
    counts = _merge_once_each(plan, staged, warehouse, stager)
    return counts if warehouse.traits.shares_ledger else ledger.record_merge(plan, counts)


def _merge_once_each(
    plan: WindowPlan, staged: dict[TableName, StagedRows], warehouse: Warehouse, stager: Stager
) -> Mapping[TableName, TableCounts]:
    """Merge a window; keep one of the rows that a first load has read twice, no matter which.

    A scan returns a row twice that moves while the scan runs. The move is committed after L0, so a later window has the
    change.
    """
    for _ in plan.tables:
        try:
            return warehouse.merge_window(plan, staged)
        except DuplicateKeyError as error:
            index = next(index for index, table in enumerate(plan.tables) if str(table.source) == error.subject)
            if plan.tables[index].kind is not LoadKind.FIRST_LOAD:
                raise
            _refuse_double_key(plan, index, stager)
            duplicates = warehouse.drop_duplicates(plan, index)
            _LOG.info("%s: %s rows were read twice, because they moved meanwhile.", error.subject, duplicates)
            source = plan.tables[index].source
            staged[source] = replace(staged[source], staged_rows=staged[source].staged_rows - duplicates)
    return warehouse.merge_window(plan, staged)


def _refuse_double_key(plan: WindowPlan, index: int, stager: Stager) -> None:
    table = plan.tables[index]
    if found := stager.find_double_key(plan, index):
        key, rows = found
        raise ConfigError(
            str(table.source),
            f"the declared key ({', '.join(table.feed.table.key)}) is not unique: {rows} rows have the same key.",
            "Declare columns that identify each row (key: [..] in pipelines.yaml).",
            f"({', '.join(map(str, key))})",
        )


def _stage_all(plan: WindowPlan, ledger: Ledger, warehouse: Warehouse, stager: Stager) -> dict[TableName, StagedRows]:
    slots = slots_of(plan)

    def stage(index: int) -> StagedRows:
        if plan.tables[index].kind is LoadKind.FIRST_LOAD:
            return _reported(plan, index, stage_first_load(plan, index, ledger, warehouse, stager, slots=slots))
        return _stage_changes(plan, index, warehouse, stager)

    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="stage") as pool:
        rows = pool.map(stage, range(len(plan.tables)))
        try:
            return dict(zip((table.source for table in plan.tables), rows, strict=True))
        except BaseException:
            # Wait for running tables: after an error of one, no task of another may continue to write.
            pool.shutdown(cancel_futures=True)
            raise


def _stage_changes(plan: WindowPlan, index: int, warehouse: Warehouse, stager: Stager) -> StagedRows:
    table = plan.tables[index]
    if table.quiet:
        _LOG.info("%s: no change in %s.", table.source, table.interval)
        return StagedRows(0, 0)
    return _reported(plan, index, stager.stage_table(plan, index, warehouse.sink(plan, index)))


def _reported(plan: WindowPlan, index: int, rows: StagedRows) -> StagedRows:
    _LOG.info("%s: %s rows read, %s staged.", plan.tables[index].source, rows.read_rows, rows.staged_rows)
    return rows


def _log_counts(name: TableName, rows: TableCounts) -> None:
    _LOG.info(
        "%s: %s inserted, %s updated, %s deleted, %s unchanged.",
        name,
        rows.inserted_rows,
        rows.updated_rows,
        rows.deleted_rows,
        rows.unchanged_rows,
    )
    if rows.swept_rows:
        _LOG.info("%s: %s rows that the source no longer has were swept.", name, rows.swept_rows)
    if rows.quarantined_rows:
        _LOG.warning("%s: %s rows broke a rule and are in floodmark.quarantine.", name, rows.quarantined_rows)
    if rows.warned_rows:
        _LOG.warning("%s: %s rows broke a rule that only warns; they were merged.", name, rows.warned_rows)
