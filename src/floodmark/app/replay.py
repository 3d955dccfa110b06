"""Replays: an interval of the log is merged again, by the command line or by a run of ``airflow backfill``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from floodmark.app.drift import drift_watch
from floodmark.core.alerts.runs import REPLAY_FAILED, parse_data_interval
from floodmark.core.errors import FloodmarkError
from floodmark.core.interval import Interval
from floodmark.sync.recovery.replay import Replay
from floodmark.wiring.pipelines import wire, wire_ledger, wire_source

if TYPE_CHECKING:
    from floodmark.app.context import AppContext

_LOG = logging.getLogger(__name__)


def can_replay(app: AppContext, pipeline: str) -> bool:
    """Return whether the source of a pipeline has what was changed in a past time; True for a removed pipeline."""
    found = app.config.pipelines.get(pipeline)
    return found is None or wire_source(app.config, found.source).has_history


def replay_of(app: AppContext, pipeline: str) -> Replay:
    """Return the replays of a pipeline.

    Raises ConfigError where the pipeline is not in the configuration, or its source keeps no history of changes.
    """
    wiring = wire(app.config, pipeline)
    log = wiring.source.replays()
    return Replay(
        wiring.settings,
        wiring.source.snapshots(),
        log,
        wiring.ledger.replays(),
        wiring.warehouse.windows(),
        drift=drift_watch(app, app.config.pipeline(pipeline).source),
    )


def end_replay(app: AppContext, pipeline: str, replayed: str) -> None:
    """End the part of the alerts about failed backfills that one backfill caused. The other parts stay open.

    replayed: its data interval.
    """
    app.alerts().end_part(REPLAY_FAILED, pipeline, replayed)


def end_failed_replays(app: AppContext, pipeline: str, replay: Replay, interval: Interval) -> None:
    """End the alerts about runs of ``airflow backfill`` that failed inside an interval that has been replayed.

    An alert stays open where the source can no longer map its data interval to the log, or where it names no interval.
    A failure here does not fail the replay.
    """
    alerts = app.alerts()
    try:
        parts = wire_ledger(app.config).list_alert_parts(REPLAY_FAILED, pipeline)
    except FloodmarkError as error:
        _LOG.warning("Could not check whether this replay covers a failed backfill of %s: %s", pipeline, error)
        return
    for part in parts:
        try:
            failed = replay.find_moments(*parse_data_interval(part))
        except (FloodmarkError, ValueError) as error:
            _LOG.warning("Could not check whether this replay covers the failed backfill of %s: %s", part, error)
            continue
        if isinstance(failed, Interval) and interval.covers(failed):
            _LOG.info("This replay covers the failed backfill of %s.", part)
            alerts.end_part(REPLAY_FAILED, pipeline, part)
