"""The staging of all tables of a window, several at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from floodmark.core.errors import FloodmarkError
from floodmark.core.schema import TableName
from floodmark.core.window.plan import LoadKind, WindowPlan
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.stager import StagedCut, StagedRows, Stager
from floodmark.sync.ports.warehouse import Warehouse
from floodmark.sync.run.first_load import slots_of, stage_first_load
from floodmark.sync.run.refusals import concerns_one_table

_LOG = logging.getLogger(__name__)
TABLES_AT_ONCE = 4
"""The number of tables that are staged in parallel. A small table spends most of its time waiting. The tasks that the
engine runs at once limit rows and memory, not this number."""


def stage_cut(plan: WindowPlan, warehouse: Warehouse, stager: Stager) -> StagedCut | None:
    """Stage the changes of all tables at one moment of the source, where it has such a moment to read.

    A table that had no change when the window was planned may have one at that moment. Raises an error that concerns
    all tables.
    """
    changed = [index for index, table in enumerate(plan.tables) if table.kind is LoadKind.CHANGES]
    cut = stager.stage_cut(plan, {index: warehouse.sink(plan, index) for index in changed}) if changed else None
    if cut is not None:
        _raise_common(cut.tables)
    return cut


def stage_tables(
    plan: WindowPlan,
    ledger: Ledger,
    warehouse: Warehouse,
    stager: Stager,
    staged: Mapping[int, StagedRows | FloodmarkError],
    *,
    on_staged: Callable[[TableName, int], None],
) -> Mapping[TableName, StagedRows | FloodmarkError]:
    """Stage the tables of a window. Return for each its rows, or the error that concerns it alone.

    staged: the tables that are staged already. on_staged: called for each table that was staged, with the rows that
    were read. Raises any other error, when no task is left that writes.
    """
    slots = slots_of(plan)
    changed = [index for index, table in enumerate(plan.tables) if table.kind is LoadKind.CHANGES and not table.quiet]
    left = {index: warehouse.sink(plan, index) for index in changed if index not in staged}
    small = {**staged, **(stager.stage_small(plan, left) if left else {})}
    _raise_common(small)

    def stage(index: int) -> StagedRows | FloodmarkError:
        try:
            if plan.tables[index].kind is LoadKind.FIRST_LOAD:
                rows = stage_first_load(plan, index, ledger, warehouse, stager, slots=slots)
            elif isinstance(found := small.get(index), FloodmarkError):
                raise found
            else:
                rows = found or _stage_changes(plan, index, warehouse, stager)
            _report(plan, index, rows)
            on_staged(plan.tables[index].source, rows.read_rows)
            return rows
        except FloodmarkError as error:
            if concerns_one_table(error):
                return error
            raise

    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="stage") as pool:
        results = pool.map(stage, range(len(plan.tables)))
        try:
            return dict(zip((table.source for table in plan.tables), results, strict=True))
        except BaseException:
            # Wait for running tables: after an error of one, no task of another may continue to write.
            pool.shutdown(cancel_futures=True)
            raise


def _raise_common(results: Mapping[int, StagedRows | FloodmarkError]) -> None:
    for result in results.values():
        if isinstance(result, FloodmarkError) and not concerns_one_table(result):
            raise result


def _stage_changes(plan: WindowPlan, index: int, warehouse: Warehouse, stager: Stager) -> StagedRows:
    if plan.tables[index].quiet:
        return StagedRows(0, 0)
    return stager.stage_table(plan, index, warehouse.sink(plan, index))


def _report(plan: WindowPlan, index: int, rows: StagedRows) -> None:
    table = plan.tables[index]
    if table.quiet and not rows.read_rows:
        _LOG.info("%s: no change in %s.", table.source, table.interval)
    else:
        _LOG.info("%s: %s rows read, %s staged.", table.source, rows.read_rows, rows.staged_rows)
