"""The status of a pipeline, for the command line and for the page in Airflow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.app.upkeep import current_stop
from floodmark.core.window.planning import known_positions, pinned_instances
from floodmark.sync.status.reader import Limits, LiveSource, StatusReader
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.status.report import PipelineStatus


def read_status(app: AppContext, pipeline: str, *, live: bool) -> PipelineStatus:
    """Return the status of a pipeline. live: from the source as it is now, and not as the last run recorded it."""
    wiring = wire(app.config, pipeline)
    now = datetime.now(UTC)
    limits = Limits(
        app.config.pipeline(pipeline).source, wiring.freshness_seconds, now, current_stop(app, pipeline, now)
    )
    reader = StatusReader(wiring.settings, limits, wiring.ledger.windows(), wiring.ledger.status())
    if not live:
        return reader.read_status()
    instances = pinned_instances(wiring.settings, reader.states)
    positions = known_positions(reader.states)
    snapshot = wiring.source.snapshots().read_snapshot(wiring.settings.sources, instances, positions)
    return reader.read_status(LiveSource(snapshot, wiring.source.read_progress(reader.watermarks)))
