"""Schema drift: the watch of a source, its events, and the holds that the operator ends."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.sync.drift.events import alert_key
from floodmark.sync.drift.watch import DriftWatch
from floodmark.wiring.pipelines import wire, wire_ledger, wire_source, wire_warehouse

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.drift.words import DriftWords
    from floodmark.sync.ports.drift import DriftEvent

_LOG = logging.getLogger(__name__)


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
