"""The drift watch of a source, put together, and one look of it at all that the pipelines read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from floodmark.orchestration.alerting import alerts_of
from floodmark.sync.drift import DriftWatch
from floodmark.wiring import source_connection, warehouse_connection, wire

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.drift_ports import DriftSource

_LOG = logging.getLogger(__name__)


def pipelines_of(config: Config, source: str) -> list[str]:
    """The names of the pipelines that read a source."""
    return [name for name, pipeline in config.pipelines.items() if pipeline.source == source]


def drift_watch(config: Config, source: str) -> DriftWatch:
    """Nothing is connected to before it looks."""
    from floodmark.ledger.drift import PostgresDriftLedger  # noqa: PLC0415
    from floodmark.warehouse.postgres import PostgresWarehouse  # noqa: PLC0415

    warehouse = warehouse_connection(config.warehouse.conn_id)
    return DriftWatch(
        source,
        [config.settings(name) for name in pipelines_of(config, source)],
        source=lambda: drift_source(config, source),
        ledger=PostgresDriftLedger(warehouse),
        alerts=alerts_of(config),
        drop_staging=PostgresWarehouse(warehouse).drop_staging,
    )


def drift_source(config: Config, source: str) -> DriftSource:
    """The closer look at a source of the configuration."""
    from floodmark.sqlserver.drift import SqlServerDriftSource  # noqa: PLC0415

    return SqlServerDriftSource(source_connection(config.sources[source].conn_id))


def run_watch(config: Config, source: str) -> str:
    """Look closely at every table of the source; what is held, in one sentence."""
    names = pipelines_of(config, source)
    held = []
    if names:
        wiring = wire(config, names[0])
        ledger = wiring.ledger()
        ledger.ensure_schema()
        holds = drift_watch(config, source).watch(wiring.source(), {name: ledger.read_tables(name) for name in names})
        held = [f"{hold.table} in {hold.pipeline}" for hold in holds]
    said = f"held: {', '.join(held)}" if held else "no table is held"
    _LOG.info("Source %s: looked at the tables of %s; %s.", source, ", ".join(names) or "no pipeline", said)
    return said
