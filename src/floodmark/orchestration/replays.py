"""Replays, put together from the configuration: for the command line, and for runs of ``airflow backfill``."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowSkipException

from floodmark.config.loading import load_config
from floodmark.core.errors import FloodmarkError
from floodmark.core.interval import Interval
from floodmark.core.replay_interval import NoInterval
from floodmark.core.run_alerts import REPLAY_FAILED, parse_data_interval
from floodmark.orchestration.alerting import alerts_of
from floodmark.orchestration.drift_watch import drift_watch
from floodmark.orchestration.failure import explained
from floodmark.wiring import warehouse_connection, wire

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.replay import Replay

_LOG = logging.getLogger(__name__)


def replay_of(config: Config, pipeline: str) -> Replay:
    """Raises ConfigError for a pipeline that is not in the configuration."""
    from floodmark.sync.replay import Replay  # noqa: PLC0415

    wiring = wire(config, pipeline)
    watch = drift_watch(config, config.pipeline(pipeline).source)
    return Replay(
        wiring.settings,
        wiring.source(),
        wiring.replay_source(),
        wiring.replay_ledger(),
        wiring.warehouse(),
        drift=watch,
    )


def end_failed_replays(config: Config, pipeline: str, replay: Replay, interval: Interval) -> None:
    """An interval has been replayed: what was said of runs of ``airflow backfill`` that failed inside it is over. A
    failed run whose data interval the source cannot tell any more stays told of, as does one of a cause that the alerts
    do not name an interval of. The replay is done, whatever comes of this."""
    from floodmark.ledger.alerts import PostgresAlertLedger  # noqa: PLC0415

    alerts = alerts_of(config)
    try:
        parts = PostgresAlertLedger(warehouse_connection(config.warehouse.conn_id)).list_parts(REPLAY_FAILED, pipeline)
    except FloodmarkError as error:
        _LOG.warning("Whether a failed backfill of %s is over with this is not known: %s", pipeline, error)
        return
    for part in parts:
        try:
            failed = replay.find_moments(*parse_data_interval(part))
        except (FloodmarkError, ValueError) as error:
            _LOG.warning("Whether the failed backfill of %s is over with this is not known: %s", part, error)
            continue
        if isinstance(failed, Interval) and interval.covers(failed):
            _LOG.info("The failed backfill of %s is over with this.", part)
            alerts.end_part(REPLAY_FAILED, pipeline, part)


def run_open_replay(config_path: Path, pipeline: str, begin: datetime, end: datetime) -> int:
    """The id of the window that replays a data interval. Skips the run, with the reason, where there is nothing to."""
    with explained():
        replay = replay_of(load_config(config_path), pipeline)
        _LOG.info("A backfill: what was committed from %s to %s is merged once more.", begin, end)
        interval = replay.find_moments(begin, end)
        if isinstance(interval, NoInterval):
            raise AirflowSkipException(interval.reason)
        opened = replay.open(interval)
    if opened.window_id is None:
        raise AirflowSkipException(opened.reason)
    return opened.window_id
