"""A capture job that runs and brings nothing: each run of a pipeline then finds nothing to read, and none fails.

It is told by the run itself, whether or not anybody keeps the job (``sync.keep_capture``).
"""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.alerts.capture import LAGGING, capture_lagging
from floodmark.core.source.snapshot import Validity, Verdict
from floodmark.sync.alerts import Alerts


def report_lag(pipeline: str, validities: Sequence[Validity], alerts: Alerts) -> None:
    """Once while it lasts; it is over with the first run that finds the log going on."""
    lagging = [validity for validity in validities if validity.verdict is Verdict.CAPTURE_LAGGING]
    if lagging:
        alerts.raise_alert(capture_lagging(pipeline, lagging[0].cause))
    else:
        alerts.end_alerts(LAGGING, pipeline)
