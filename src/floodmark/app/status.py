"""The status of a pipeline, for the command line and for the page in Airflow."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.app.drift import list_drift
from floodmark.app.upkeep import current_stop
from floodmark.core.drift.messages import describe
from floodmark.core.status.history import DriftNote, TableHistory
from floodmark.core.window.planning import known_positions, pinned_instances
from floodmark.sync.status.reader import Limits, LiveSource, StatusReader
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.schema import TableName
    from floodmark.core.status.report import PipelineStatus
    from floodmark.sync.ports.drift import DriftEvent


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
    return reader.read_status(LiveSource(snapshot, wiring.source.read_progress(reader.watermarks, reader.marks)))


def read_history(app: AppContext, pipeline: str, table: TableName, at_most: int) -> TableHistory:
    """Return the history of a table. at_most: of each part."""
    history = wire(app.config, pipeline).ledger.status().read_history(pipeline, table, at_most)
    source = app.config.pipeline(pipeline).source
    events = [
        each for each in list_drift(app, everything=True) if (each.source, each.table.folded) == (source, table.folded)
    ]
    newest = sorted(events, key=lambda each: each.event_id, reverse=True)[:at_most]
    return replace(history, drift=tuple(_drift_note(each) for each in newest))


def _drift_note(event: DriftEvent) -> DriftNote:
    decision = "undecided"
    if event.is_rejected:
        decision = f"rejected by {event.approved_by}" if event.approved_by else "rejected"
    elif event.approved_at is not None:
        decision = f"approved by {event.approved_by}"
    what = describe(event.explained.difference)
    return DriftNote(event.event_id, event.found_at, what, decision, event.proposal)
