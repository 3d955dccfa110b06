"""The alerts of a configuration: its ledger and its channels put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.sync.alerts import AlertDesk, Alerts
from floodmark.wiring import warehouse_connection

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.alerts import AlertLedger


def alerts_of(config: Config) -> Alerts:
    """For every alert about its sources and pipelines. Nothing is connected to before there is something to say."""

    def ledger() -> AlertLedger:
        from floodmark.ledger.alerts import PostgresAlertLedger  # noqa: PLC0415

        return PostgresAlertLedger(warehouse_connection(config.warehouse.conn_id))

    return AlertDesk(ledger, ())
