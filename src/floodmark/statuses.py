"""Reading how a pipeline stands, put together from the configuration: for the command line and the page in Airflow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.console.status import Limits, Look, PipelineStatus, StatusReader
from floodmark.core.planning import known_positions, pinned_instances
from floodmark.orchestration.planned_stops import current_stop
from floodmark.wiring import wire

if TYPE_CHECKING:
    from floodmark.config.models import Config


def read_status(config: Config, pipeline: str, *, live: bool) -> PipelineStatus:
    """live: as the source is now, and not as the last run saw it."""
    wiring = wire(config, pipeline)
    now = datetime.now(UTC)
    limits = Limits(
        config.pipeline(pipeline).source, wiring.freshness_seconds, now, current_stop(config, pipeline, now)
    )
    reader = StatusReader(wiring.settings, limits, wiring.ledger(), wiring.warehouse_connection())
    if not live:
        return reader.read_status()
    instances = pinned_instances(wiring.settings, reader.states)
    snapshot = wiring.source().read_snapshot(wiring.settings.sources, instances, known_positions(reader.states))
    return reader.read_status(Look(snapshot, wiring.read_progress(reader.watermarks)))
