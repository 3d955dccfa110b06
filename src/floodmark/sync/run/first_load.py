"""The read of whole tables, in chunks that are kept after the load that staged them.

The bounds of the chunks are read once per window and kept in the ledger. A load that continues after another was killed
reads only the chunks whose rows are not in staging.
"""

from __future__ import annotations

import logging

from floodmark.core.window.chunks import StoredChunk, plan_chunks, progress_of, select_lost
from floodmark.core.window.plan import LoadKind, WindowPlan
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.stager import StagedRows, Stager
from floodmark.sync.ports.warehouse import Warehouse
from floodmark.sync.run.read_slots import ReadSlots

_LOG = logging.getLogger(__name__)


def slots_of(plan: WindowPlan) -> ReadSlots:
    """Return the slots for the first loads of a window."""
    limits = [table.first_load_parallel_reads for table in plan.tables if table.kind is LoadKind.FIRST_LOAD]
    return ReadSlots(max(limits, default=1))


def stage_first_load(
    plan: WindowPlan, index: int, ledger: Ledger, warehouse: Warehouse, stager: Stager, *, slots: ReadSlots
) -> StagedRows:
    """Stage all chunks of a table. Chunks that are in staging already are not read again."""
    source = plan.tables[index].source
    stored = _stored_chunks(plan, index, ledger, warehouse, stager, slots=slots)
    missing = [each.chunk for each in stored if each.staged_rows is None]
    if len(missing) < len(stored):
        _LOG.info(
            "%s: %s are already staged; %s of %s chunks are left.",
            source,
            progress_of(stored),
            len(missing),
            len(stored),
        )
    if missing:
        with slots.taken(min(plan.tables[index].first_load_parallel_reads, len(missing))) as reads:
            parts = stager.stage_chunks(plan, index, missing, reads, warehouse.sink(plan, index))
        if not warehouse.traits.shares_ledger:
            ledger.record_staged(plan, source, parts)
    rows = progress_of(ledger.list_chunks(plan.window_id, source)).rows
    return StagedRows(rows, rows)


def _stored_chunks(
    plan: WindowPlan, index: int, ledger: Ledger, warehouse: Warehouse, stager: Stager, *, slots: ReadSlots
) -> list[StoredChunk]:
    """Return the chunks of the ledger, after a comparison with staging."""
    source = plan.tables[index].source
    stored = ledger.list_chunks(plan.window_id, source)
    if not stored:
        with slots.taken(1):  # the whole key is read
            bounds = stager.read_chunk_bounds(plan, index)
        stored = ledger.store_chunks(plan, source, plan_chunks(bounds))
    lost = select_lost(stored, warehouse.count_parts(plan, index))
    if lost:
        _LOG.warning("%s: %s chunks are no longer in staging as they were; they are read again.", source, len(lost))
        warehouse.clear_parts(plan, index, lost)
        ledger.reset_chunks(plan, source, lost)
        stored = ledger.list_chunks(plan.window_id, source)
    return list(stored)


def forget_first_loads(plan: WindowPlan, ledger: Ledger, warehouse: Warehouse) -> None:
    """Discard the staged chunks, so that the next attempt reads all chunks again."""
    for index, table in enumerate(plan.tables):
        if table.kind is LoadKind.FIRST_LOAD:
            numbers = [each.chunk.number for each in ledger.list_chunks(plan.window_id, table.source)]
            warehouse.clear_parts(plan, index, numbers)
            ledger.reset_chunks(plan, table.source, numbers)
