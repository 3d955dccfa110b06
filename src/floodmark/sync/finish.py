"""The last steps of a run: the checks between merge and watermark, and the advance of the watermark."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from floodmark.core.errors import FloodmarkBugError, FloodmarkError, OperatorError
from floodmark.core.plan import (
    MAIN_LANE,
    AdvanceResult,
    PublishedTable,
    TableCounts,
    WindowPlan,
    WindowState,
    is_replay_lane,
)
from floodmark.core.schema import TableName
from floodmark.sync.load import refusal, refused_verdict
from floodmark.sync.ports import Quality, Warehouse

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The third step of a run: the checks between merge and advance.
#
# A table that fails leaves the window with the verdict ``refused``, and its watermark does not move. The others go on.


def check_window(window_id: int, ledger: PostgresLedger, quality: Quality) -> bool:
    """Run the checks of a window. Return False when it has passed them before.

    Raises the error about its tables where none of them passes.
    """
    opened = ledger.read_window(window_id)
    if opened.state is WindowState.PLANNED:
        raise OperatorError(
            opened.plan.pipeline, f"window {window_id} is not merged, so there is nothing to check.", "Run load first."
        )
    if opened.state is not WindowState.MERGED:
        _LOG.info("Window %s is already %s; its checks have passed.", window_id, opened.state.value)
        return False
    errors = _check(opened.plan, ledger.read_counts(window_id), quality)
    if errors:
        _leave_out(opened.plan, errors, ledger)
    ledger.mark_checked(window_id)
    _LOG.info("Window %s: the checks passed%s.", window_id, " for the tables that are left" if errors else "")
    return True


def _check(
    plan: WindowPlan, counts: Mapping[TableName, TableCounts], quality: Quality
) -> Mapping[TableName, FloodmarkError]:
    """Return the errors about tables that fail. An error that no one expects refuses all of them.

    So the window is given up, as one of which every table fails. Otherwise each later run would check it again, with
    the same end, and no run could ever pass it.
    """
    try:
        return quality.check_window(plan, counts)
    except FloodmarkError:
        raise
    except Exception as error:  # noqa: BLE001  (a bug must not keep the pipeline at one window)
        _LOG.error("The checks of window %s ended with an error.", plan.window_id, exc_info=error)
        return {
            table.source: FloodmarkBugError(
                str(table.source),
                f"the checks of window {plan.window_id} ended with an unexpected error ({type(error).__name__}).",
                "The rows are in the target, and the watermark stays at its position. The next run gives up this "
                "window and merges its changes again, with later ones. If that fails too, report the error in the log.",
            )
            for table in plan.tables
        }


def _leave_out(plan: WindowPlan, errors: Mapping[TableName, FloodmarkError], ledger: PostgresLedger) -> None:
    """Remove the tables that failed from a merged window. Raises the error about them where no other table is left.

    As in a load, only windows of the main lane have tables that wait for each other. A window of another lane is
    planned again by the next load or replay: what it has merged would never pass.
    """
    if plan.lane != MAIN_LANE:
        ledger.mark_refused(plan.window_id)
        raise next(iter(errors.values()))
    verdicts = [refused_verdict(table, errors[table.source]) for table in plan.tables if table.source in errors]
    # Before the window may end: the error about several tables has no details.
    for error in errors.values():
        _LOG.error("Left out of window %s: %s", plan.window_id, error.in_full)
    if ledger.refuse_merged(plan.window_id, verdicts) is None:
        raise refusal(plan.pipeline, verdicts, errors)


# --------------------------------------------------------------------------------------------------------------------
# The last step of a run: move the watermarks by compare-and-set, and drop staging. A replay moves no watermark.


def advance_window(window_id: int, ledger: PostgresLedger, warehouse: Warehouse) -> AdvanceResult:
    """Publish a checked window and move the watermarks. Repeating it is harmless.

    Raises WatermarkConflictError when another run moved a watermark; then none moves.
    """
    opened = ledger.read_window(window_id)
    in_ledger = warehouse.traits.publishes_in_ledger
    if opened.state is WindowState.CHECKED and not in_ledger:
        warehouse.publish_window(opened.plan)
    counts = ledger.advance(window_id, warehouse.publish_window if in_ledger else None)
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
            _LOG.info("%s: the watermark is %s (was %s).", table.target, plan.to, table.watermark or "unset")
        complete = [str(table.target) for table in plan.tables if not table.where]
        what = f": complete up to {plan.to}: {', '.join(complete)}" if complete else ""
        _LOG.info("Window %s is published%s.", window_id, what)
    return AdvanceResult(
        window_id,
        plan.pipeline,
        plan.to,
        tuple(
            PublishedTable(
                table.source,
                table.target,
                table.kind,
                table.interval.after if table.interval else None,
                table.interval.to if table.interval else plan.to,
                counts[table.source],
            )
            for table in plan.tables
        ),
        is_replay,
    )
