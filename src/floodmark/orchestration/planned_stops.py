"""Whether a pipeline finds its source's capture job stopped because it was planned so."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from floodmark.config.stops import planned_stop
from floodmark.wiring import warehouse_connection

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.core.capture_job import PlannedStop

_START_TIME = timedelta(minutes=10)
"""After the end of a planned stop: until the DAG that starts the job has had its turn."""


def current_stop(config: Config, pipeline: str, now: datetime) -> PlannedStop | None:
    """None as well for a stop that was ended early: from then on a job that does not run is an incident."""
    stop = scheduled_stop(config, pipeline, now)
    if stop is None:
        return None
    from floodmark.ledger.upkeep import PostgresUpkeepLedger  # noqa: PLC0415

    ledger = PostgresUpkeepLedger(warehouse_connection(config.warehouse.conn_id))
    return None if ledger.read_ended_stop(config.pipeline(pipeline).source, stop.since) else stop


def scheduled_stop(config: Config, pipeline: str, now: datetime) -> PlannedStop | None:
    """By the configuration alone, for who cannot ask the ledger whether it was ended early."""
    capture = config.source_of(pipeline).capture
    if capture is None:
        return None
    return planned_stop(capture, now) or planned_stop(capture, now - _START_TIME)
