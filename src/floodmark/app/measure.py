"""The lag of each table after a run: as metrics and, beyond the pipeline's ``max_lag``, as an alert.

The source is queried once more, so this is done only where something receives the result. It never fails the run that
it follows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.core.alerts.runs import LAG, lag
from floodmark.core.errors import FloodmarkError, NotCapturedYetError, SourceLoginError, SourceUnavailableError
from floodmark.core.status.measures import measure_tables
from floodmark.core.status.progress import SourceProgress
from floodmark.core.upkeep.change_table import table_sizes
from floodmark.wiring.pipelines import wire, wire_ledger

if TYPE_CHECKING:
    from datetime import timedelta

    from floodmark.app.context import AppContext
    from floodmark.core.window.published import AdvanceResult

_LOG = logging.getLogger(__name__)
_NOT_MEASURED = (SourceUnavailableError, SourceLoginError, NotCapturedYetError)
"""After these errors the lag is not measured: the source was unreachable a moment ago, or has captured nothing yet."""


@contextmanager
def measured(app: AppContext, pipeline: str) -> Iterator[None]:
    """Measure the lag when the step of a run in the block fails, because the lag then grows.

    The error of the step is raised, whether or not the measurement succeeds.
    """
    try:
        yield
    except _NOT_MEASURED:
        raise
    except FloodmarkError as error:
        try:
            measure_run(app, pipeline)
        finally:
            raise error


def measure_run(app: AppContext, pipeline: str, result: AdvanceResult | None = None) -> None:
    """Measure the tables of a pipeline. result: the window that the run published, if any."""
    max_lag, sending = app.config.pipeline(pipeline).max_lag, app.metrics.are_on()
    try:
        if sending and result is not None:
            app.metrics.send_window(result, wire_ledger(app.config).read_window_seconds(result.window_id))
        if sending or max_lag is not None:
            _measure(app, pipeline, max_lag, sending=sending)
    except FloodmarkError as error:
        _LOG.warning("Could not measure the lag of pipeline %s: %s", pipeline, error)


def _measure(app: AppContext, pipeline: str, max_lag: timedelta | None, *, sending: bool) -> None:
    wiring = wire(app.config, pipeline)
    marks = wiring.ledger.list_table_marks(pipeline)
    # The positions of the log alone: no table is read.
    snapshot = wiring.source.snapshots().read_snapshot(())
    # While such a source is quiet, only its first change after a watermark shows how late a table is.
    watermarks = {mark.watermark for mark in marks if mark.watermark} if snapshot.is_synchronous else ()
    progress = SourceProgress({}, None)
    if sending or watermarks:
        progress = wiring.source.read_progress(watermarks, wiring.ledger.windows().list_marks(pipeline))
    if sizes := table_sizes([mark.table for mark in marks], progress.sizes):
        wiring.ledger.record_sizes(pipeline, sizes)
    measures = measure_tables(marks, snapshot, progress)
    if sending:
        app.metrics.send_measures(pipeline, measures)
    if max_lag is None:
        return
    limit = max_lag.total_seconds()
    late = [each for each in measures if each.lag_seconds is not None and each.lag_seconds > limit]
    if late:
        app.alerts().raise_alert(lag(pipeline, late, limit, snapshot.taken_at))
    else:
        app.alerts().end_alerts(LAG, pipeline)
