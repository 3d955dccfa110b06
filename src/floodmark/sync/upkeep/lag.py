"""A capture job that runs and captures nothing: each run of a pipeline then finds nothing to read, and none fails.

The run itself reports it, whether or not the job is managed (``sync.upkeep.capture``).
"""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.alerts.capture import LAGGING, capture_lagging
from floodmark.core.source.snapshot import Validity, Verdict
from floodmark.sync.alerts import Alerts


def report_lag(pipeline: str, validities: Sequence[Validity], alerts: Alerts) -> None:
    """Raise one alert while the capture job lags, and end it in the first run that finds progress in the log."""
    lagging = [validity for validity in validities if validity.verdict is Verdict.CAPTURE_LAGGING]
    if lagging:
        alerts.raise_alert(capture_lagging(pipeline, lagging[0].cause))
    else:
        alerts.end_alerts(LAGGING, pipeline)
