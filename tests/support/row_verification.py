"""The comparison of source and target as ``floodmark verify`` does it, over connections instead of a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.settings import PipelineSettings
from floodmark.core.status.verification import TableVerification
from floodmark.postgres.connection import WarehouseConnection
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.sources.cdc.rows.change_reader import CdcReader
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sync.ports.progress import LoggedProgress
from floodmark.sync.ports.reader import OpenReader
from floodmark.sync.status import verify


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
    )
