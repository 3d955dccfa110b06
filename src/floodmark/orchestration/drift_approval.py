"""What ``floodmark drift`` does: list events, and end holds together with their alerts."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.orchestration.alerting import alerts_of
from floodmark.sync.drift_events import alert_key
from floodmark.wiring import warehouse_connection

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.drift_ports import DriftEvent, DriftLedger


def list_drift(config: Config, *, everything: bool) -> list[DriftEvent]:
    """Of the sources of the configuration. everything: also those that somebody has approved."""
    events = [event for event in _ledger(config).list_events() if event.source in config.sources]
    return [event for event in events if everything or event.approved_at is None]


def approve_drift(config: Config, event_id: int) -> DriftEvent:
    """End the holds of an event, and its alert. Raises OperatorError for an unknown one."""
    by = getpass.getuser()
    event = _ledger(config).approve(event_id, by)
    alerts_of(config).end_alert(alert_key(event_id), f"{by} approved it.")
    return event


def release_table(config: Config, pipeline: str, table: str) -> Sequence[int]:
    """End every hold on a table of a pipeline, and the alerts of the events that hold nothing any more.

    Raises ConfigError for an unknown pipeline, OperatorError where the table is not held.
    """
    config.pipeline(pipeline)
    try:
        name = TableName.parse(table)
    except ValueError as error:
        raise ConfigError(pipeline, f"{error}.") from None
    by = getpass.getuser()
    ended = _ledger(config).release(pipeline, name, by)
    for event_id in ended:
        alerts_of(config).end_alert(alert_key(event_id), f"{by} ended every hold on {name} in pipeline {pipeline}.")
    return ended


def _ledger(config: Config) -> DriftLedger:
    from floodmark.ledger.drift import PostgresDriftLedger  # noqa: PLC0415

    return PostgresDriftLedger(warehouse_connection(config.warehouse.conn_id))
