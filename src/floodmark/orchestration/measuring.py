"""After a run, a good one or one that failed: how late each table is, as metrics and, beyond the pipeline's
``max_lag``, as an alert.

Asks the source once more, so it does so only where somebody wants to know. It never fails the run that it follows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from floodmark.core.errors import FloodmarkError, NotHarvestedYetError, SourceLoginError, SourceUnavailableError
from floodmark.core.measures import measure_tables
from floodmark.core.planning import pinned_instances
from floodmark.core.run_alerts import LAG, lag
from floodmark.orchestration.alerting import alerts_of
from floodmark.orchestration.metrics import metrics_are_on, send_measures, send_window
from floodmark.wiring import wire

if TYPE_CHECKING:
    from datetime import timedelta

    from floodmark.config.models import Config
    from floodmark.sync.advance import AdvanceResult

_LOG = logging.getLogger(__name__)
_NOT_MEASURED = (SourceUnavailableError, SourceLoginError, NotHarvestedYetError)
"""A source that could not be asked a moment ago is not asked again; what was not harvested yet is as it should be."""


@contextmanager
def measured(config: Config, pipeline: str) -> Iterator[None]:
    """A step of a run. While runs fail the data get later, so that is told when one has failed: whatever comes of it,
    the error of the step is the one that is raised."""
    try:
        yield
    except _NOT_MEASURED:
        raise
    except FloodmarkError as error:
        try:
            measure_run(config, pipeline)
        finally:
            raise error


def measure_run(config: Config, pipeline: str, result: AdvanceResult | None = None) -> None:
    """result: of the window that the run published, if it did."""
    from floodmark.ledger.measures import read_window_seconds  # noqa: PLC0415

    max_lag, sending = config.pipeline(pipeline).max_lag, metrics_are_on()
    try:
        if sending and result is not None:
            at = wire(config, pipeline).warehouse_connection()
            send_window(result, read_window_seconds(at, result.window_id))
        if sending or max_lag is not None:
            _measure(config, pipeline, max_lag, sending=sending)
    except FloodmarkError as error:
        _LOG.warning("How late the tables of %s are is not known: %s", pipeline, error)


def _measure(config: Config, pipeline: str, max_lag: timedelta | None, *, sending: bool) -> None:
    from floodmark.ledger.measures import list_table_marks  # noqa: PLC0415

    wiring = wire(config, pipeline)
    marks = list_table_marks(wiring.warehouse_connection(), pipeline)
    states = wiring.ledger().read_tables(pipeline)
    snapshot = wiring.source().read_snapshot(wiring.settings.sources, pinned_instances(wiring.settings, states))
    measures = measure_tables(marks, snapshot, wiring.read_progress(()))
    if sending:
        send_measures(pipeline, measures)
    if max_lag is None:
        return
    limit = max_lag.total_seconds()
    late = [each for each in measures if each.lag_seconds is not None and each.lag_seconds > limit]
    if late:
        alerts_of(config).raise_alert(lag(pipeline, late, limit, snapshot.taken_at))
    else:
        alerts_of(config).end_alerts(LAG, pipeline)
