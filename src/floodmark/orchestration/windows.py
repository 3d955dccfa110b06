"""The next window of a pipeline, put together from the configuration: for the command line and the DAG ``cdc_…``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.orchestration.alerting import alerts_of
from floodmark.orchestration.drift_watch import drift_watch
from floodmark.orchestration.planned_stops import current_stop
from floodmark.sync.open_window import OpenResult, open_window
from floodmark.wiring import wire

if TYPE_CHECKING:
    from floodmark.config.models import Config


def open_next(config: Config, pipeline: str) -> OpenResult:
    """The unfinished window, or a new one. Raises ConfigError for a pipeline that is not in the configuration, and what
    ``open_window`` raises."""
    wiring = wire(config, pipeline)
    return open_window(
        wiring.settings,
        wiring.source(),
        wiring.ledger(),
        drift_watch(config, config.pipeline(pipeline).source),
        current_stop(config, pipeline, datetime.now(UTC)),
        alerts=alerts_of(config),
    )
