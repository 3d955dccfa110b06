"""The last step of a run: move the watermarks by compare-and-set, and drop staging. A replay moves no watermark."""

from __future__ import annotations

import logging

from floodmark.core.window.lane import is_replay_lane
from floodmark.core.window.plan import WindowState
from floodmark.core.window.published import AdvanceResult, PublishedTable
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.warehouse import Warehouse

_LOG = logging.getLogger(__name__)


def advance_window(window_id: int, ledger: Ledger, warehouse: Warehouse) -> AdvanceResult:
    """Publish a checked window and move the watermarks. Repeating it is harmless.

    Raises WatermarkConflictError when another run moved a watermark; then none moves.
    """
    opened = ledger.read_window(window_id)
    if opened.state is WindowState.CHECKED:
        warehouse.publish_window(opened.plan)
    counts = ledger.advance(window_id)
    plan = opened.plan
    warehouse.drop_staging(window_id)
    is_replay = is_replay_lane(plan.lane)
    if is_replay:
        _LOG.info("Window %s, a replay of %s, is finished; no watermark moved.", window_id, plan.pipeline)
    else:
        for table in plan.tables:
            if table.where:
                _LOG.info("%s: rows where %s were loaded; the watermark did not move.", table.target, table.where)
                continue
            _LOG.info("%s: the watermark is %s (was %s).", table.target, plan.to_lsn, table.watermark or "unset")
        complete = [str(table.target) for table in plan.tables if not table.where]
        what = f": complete up to {plan.to_lsn}: {', '.join(complete)}" if complete else ""
        _LOG.info("Window %s is published%s.", window_id, what)
    return AdvanceResult(
        window_id,
        plan.pipeline,
        plan.to_lsn,
        tuple(
            PublishedTable(
                table.source,
                table.target,
                table.kind,
                table.interval.after_lsn if table.interval else None,
                table.interval.to_lsn if table.interval else plan.to_lsn,
                counts[table.source],
            )
            for table in plan.tables
        ),
        is_replay,
    )
