"""The upkeep of a source: its capture job, its retention, and the watch for schema drift."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from floodmark.config.sections import planned_stop
from floodmark.core.alerts import CAPTURE_RUN_FAILED, RETENTION_RUN_FAILED
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.core.schema import TableName
from floodmark.sync import upkeep
from floodmark.sync.alerts import Alerts, NoNotes
from floodmark.sync.drift_watch import DriftWatch, alert_key
from floodmark.sync.ports import LoggedProgress, Metrics, NoMetrics, Progress
from floodmark.wiring.adapters import wire, wire_alerts, wire_ledger, wire_source, wire_warehouse

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.config.sections import CaptureConfig, RetentionConfig
    from floodmark.core.capture import PlannedStop
    from floodmark.core.drift.proposals import DriftWords
    from floodmark.core.settings import TableSettings
    from floodmark.sync.alerts import AlertNotes
    from floodmark.sync.records import DriftEvent

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The upkeep of a source: its capture job with the planned stops, and its retention.


_START_TIME = timedelta(minutes=10)
"""The time after the end of a planned stop in which the DAG starts the job."""


def keep_capture(app: AppContext, source: str, kept: CaptureConfig, now: datetime) -> str:
    """Bring the capture job to the state that the schedule requires now. Return what was done and why."""
    stop, alerts = planned_stop(kept, now), app.alerts()
    step = upkeep.keep_capture(
        source,
        kept.settings(),
        stop,
        now,
        control=wire_source(app.config, source, kept.conn_id).jobs(),
        ledger=wire_ledger(app.config).stops(),
        alerts=alerts,
    )
    alerts.end_alerts(CAPTURE_RUN_FAILED, source)
    return f"{step.action.value}: {step.reason}"


def keep_retention(app: AppContext, source: str, kept: RetentionConfig) -> str:
    """Bring the retention to the value that is wanted now. Return the forecast and what was done, in one sentence."""
    readers = {
        name: frozenset(table.source for table in app.config.pipeline(name).tables) for name in app.pipelines_of(source)
    }
    alerts = app.alerts()
    step = upkeep.keep_retention(
        source,
        kept.settings(),
        readers,
        control=wire_source(app.config, source, kept.conn_id).retention(),
        ledger=wire_ledger(app.config).marks(),
        alerts=alerts,
    )
    alerts.end_alerts(RETENTION_RUN_FAILED, source)
    return f"{step.forecast or 'no table has a watermark'}: {step.reason}"


def current_stop(app: AppContext, pipeline: str, now: datetime) -> PlannedStop | None:
    """Return the current planned stop of the capture job.

    None also for a stop that was ended early: after that, a job that does not run is an incident.
    """
    stop = scheduled_stop(app, pipeline, now)
    if stop is None:
        return None
    ledger = wire_ledger(app.config).stops()
    return None if ledger.read_ended_stop(app.config.pipeline(pipeline).source, stop.since) else stop


def likely_stop(app: AppContext, pipeline: str, now: datetime) -> PlannedStop | None:
    """Return ``current_stop``, or ``scheduled_stop`` where the ledger cannot be read."""
    try:
        return current_stop(app, pipeline, now)
    except FloodmarkError:
        return scheduled_stop(app, pipeline, now)


def scheduled_stop(app: AppContext, pipeline: str, now: datetime) -> PlannedStop | None:
    """Return the stop according to the configuration alone, whether or not it was ended early."""
    kept = app.config.source_of(pipeline).capture
    if kept is None:
        return None
    return planned_stop(kept, now) or planned_stop(kept, now - _START_TIME)


# --------------------------------------------------------------------------------------------------------------------
# Schema drift: the watch of a source, its events, and the holds that the operator ends.


def drift_watch(app: AppContext, source: str) -> DriftWatch:
    """Return the drift watch of a source. It connects only when it runs."""
    config = app.config
    return DriftWatch(
        source,
        [config.settings(name) for name in app.pipelines_of(source)],
        source=lambda: wire_source(config, source).drift(),
        ledger=wire_ledger(config).drift(),
        alerts=app.alerts(),
        drop_staging=wire_warehouse(config).windows().drop_staging,
        words=wire_source(config, source).drift_words(),
    )


def watch_drift(app: AppContext, source: str) -> str:
    """Compare every table of the source with its recorded shape. Return the held tables, in one sentence."""
    names = app.pipelines_of(source)
    held = []
    if names:
        wiring = wire(app.config, names[0])
        ledger = wiring.ledger.windows()
        ledger.ensure_schema()
        known = {name: ledger.read_tables(name) for name in names}
        holds = drift_watch(app, source).watch(wiring.source.snapshots(), known)
        held = [f"{hold.table} in {hold.pipeline}" for hold in holds]
    outcome = f"held: {', '.join(held)}" if held else "no table is held"
    _LOG.info("Source %s: checked the tables of %s; %s.", source, ", ".join(names) or "no pipeline", outcome)
    return outcome


def list_drift(app: AppContext, *, everything: bool) -> list[DriftEvent]:
    """Return the events of the sources of the configuration. everything: also the decided events."""
    events = [event for event in wire_ledger(app.config).drift().list_events() if event.source in app.config.sources]
    return [event for event in events if everything or event.approved_at is None]


def words_of(app: AppContext, event: DriftEvent) -> DriftWords:
    """Return the sentences about an event, whose source is in the configuration."""
    return wire_source(app.config, event.source).drift_words()


def approve_drift(app: AppContext, event_id: int) -> DriftEvent:
    """End the holds of an event, and its alert. Raises OperatorError for an unknown event."""
    by = getpass.getuser()
    event = wire_ledger(app.config).drift().approve(event_id, by)
    app.alerts().end_alert(alert_key(event_id), f"{by} approved it.")
    return event


def release_table(app: AppContext, pipeline: str, table: str) -> Sequence[int]:
    """End every hold on a table of a pipeline, and the alerts of the events that no longer hold anything.

    Raises ConfigError for an unknown pipeline, OperatorError where the table is not held.
    """
    app.config.pipeline(pipeline)
    try:
        name = TableName.parse(table)
    except ValueError as error:
        raise ConfigError(pipeline, f"{error}.") from None
    by = getpass.getuser()
    ended = wire_ledger(app.config).drift().release(pipeline, name, by)
    for event_id in ended:
        app.alerts().end_alert(alert_key(event_id), f"{by} ended every hold on {name} in pipeline {pipeline}.")
    return ended


# --------------------------------------------------------------------------------------------------------------------
# The tables of a pipeline, by the names that an operator writes.


def find_table_settings(app: AppContext, pipeline: str, table: str) -> TableSettings:
    """Return the settings of a table. table: its name at the source. Raises ConfigError for an unknown one."""
    tables = app.config.settings(pipeline).tables
    name = parse_table(pipeline, table)
    for settings in tables:
        if settings.source.folded == name.folded:
            return settings
    raise ConfigError(
        pipeline, f"it has no table {table}.", f"Its tables: {', '.join(str(each.source) for each in tables)}."
    )


def parse_table(subject: str, table: str) -> TableName:
    """Return a name that an operator wrote. Raises ConfigError about ``subject``."""
    try:
        return TableName.parse(table)
    except ValueError as error:
        raise ConfigError(subject, f"{error}.") from None


# --------------------------------------------------------------------------------------------------------------------
# ``AppContext``: the configuration of a use case, and the services that its caller provides.


@dataclass(frozen=True)
class AppContext:
    """The context of one command or task."""

    config: Config
    notes: AlertNotes = field(default_factory=NoNotes)
    """Records which channels were notified while the ledger cannot be reached."""
    metrics: Metrics = field(default_factory=NoMetrics)
    progress: Progress = field(default_factory=LoggedProgress)
    """Receives the progress of reads that take long."""

    def alerts(self) -> Alerts:
        """Return the alerts of the configuration. It connects only when an alert is raised or ended."""
        return wire_alerts(self.config, self.notes)

    def pipelines_of(self, source: str) -> list[str]:
        """Return the names of the pipelines that read a source."""
        return [name for name, pipeline in self.config.pipelines.items() if pipeline.source == source]
