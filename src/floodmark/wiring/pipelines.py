"""One pipeline with the adapters of its source, its ledger and its warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.core.job_variables import KIND_VARIABLE, LEDGER_VARIABLE, SOURCE_VARIABLE, WAREHOUSE_VARIABLE
from floodmark.wiring.places import data_docs_dir
from floodmark.wiring.sources import SOURCES, SourceWiring
from floodmark.wiring.warehouses import WAREHOUSES, PostgresLedgerWiring, PostgresWarehouseWiring

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.core.settings import PipelineSettings
    from floodmark.sync.ports.quality import Quality


@dataclass(frozen=True)
class PipelineWiring:
    """A pipeline of the configuration. No connection is opened before an adapter is used."""

    settings: PipelineSettings
    freshness_seconds: float
    """The age of the newest rows above which the pipeline counts as late."""
    source: SourceWiring
    ledger: PostgresLedgerWiring
    warehouse: PostgresWarehouseWiring

    def job_secrets(self) -> Mapping[str, str]:
        """Return the kind of the source, and connections as JSON with their passwords, by the load job's variables."""
        return {
            KIND_VARIABLE: self.source.kind,
            SOURCE_VARIABLE: self.source.connection_json(),
            LEDGER_VARIABLE: self.ledger.connection().to_json(),
            WAREHOUSE_VARIABLE: self.warehouse.connection().to_json(),
        }

    def quality(self) -> Quality:
        from floodmark.quality.great_expectations import GreatExpectationsQuality

        return GreatExpectationsQuality(
            self.warehouse.sql_url(),
            self.warehouse.windows().open_rows,
            data_docs_dir(),
            freshness_seconds=self.freshness_seconds,
        )


def wire(config: Config, pipeline: str) -> PipelineWiring:
    """Return the wiring of a pipeline. Raises ConfigError for a pipeline that is not in the configuration."""
    return PipelineWiring(
        settings=config.settings(pipeline),
        freshness_seconds=config.pipeline(pipeline).freshness.total_seconds(),
        source=wire_source(config, config.pipeline(pipeline).source),
        ledger=wire_ledger(config),
        warehouse=wire_warehouse(config),
    )


def wire_source(config: Config, source: str, conn_id: str | None = None) -> SourceWiring:
    """Return the adapters of a source by its name in the configuration.

    conn_id: the connection for its upkeep, where it is not that of the source.
    """
    found = config.sources[source]
    return SOURCES[found.kind](conn_id or found.conn_id, found.stream_conn_id or "")


def wire_ledger(config: Config) -> PostgresLedgerWiring:
    """Return the adapters of the ledger: by default it is reached by the warehouse's connection."""
    return PostgresLedgerWiring(config.ledger.conn_id if config.ledger else config.warehouse.conn_id)


def wire_warehouse(config: Config) -> PostgresWarehouseWiring:
    """Return the adapters of the warehouse."""
    return WAREHOUSES[config.warehouse.kind](config.warehouse.conn_id, wire_ledger(config))
