"""The third step of a run: the checks between merge and advance.

A table that fails leaves the window with the verdict ``refused``, and its watermark does not move. The others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from floodmark.core.errors import FloodmarkBugError, FloodmarkError, OperatorError
from floodmark.core.schema import TableName
from floodmark.core.window.lane import MAIN_LANE
from floodmark.core.window.plan import TableCounts, WindowPlan, WindowState
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.quality import Quality
from floodmark.sync.run.refusals import refusal, refused_verdict

_LOG = logging.getLogger(__name__)


def check_window(window_id: int, ledger: Ledger, quality: Quality) -> bool:
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


def _leave_out(plan: WindowPlan, errors: Mapping[TableName, FloodmarkError], ledger: Ledger) -> None:
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
