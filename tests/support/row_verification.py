"""The comparison of source and target as ``floodmark verify`` does it, over connections instead of a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.settings import PipelineSettings
from floodmark.core.status import TableVerification
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync import verify
from floodmark.sync.ports import LoggedProgress, OpenReader


def reading(source: SqlServerConnection) -> OpenReader:
    return lambda plan, end: CdcReader(plan, source, end)


def verify_tables(
    settings: PipelineSettings, source: SqlServerConnection, warehouse: WarehouseConnection
) -> Iterator[TableVerification]:
    return verify.verify_tables(
        settings,
        SqlServerSource(source),
        reading(source),
        PostgresLedger(warehouse),
        PostgresRowComparer(warehouse),
        progress=LoggedProgress(),
        options=verify.VerifyOptions(patience_seconds=0),
    )
