"""``verify_tables``: read every table of a pipeline again and compare it with its target.

The rows take the same way as those of a first load (reader, casts, COPY), without Spark: one stream per table, a batch
in memory at a time. It compares what is there now: while the source is written to, it differs from its target.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from floodmark.core.errors import NotCapturedYetError
from floodmark.core.lsn import Lsn
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.snapshot import Verdict
from floodmark.core.source.verdicts import incident
from floodmark.core.window.plan import TablePlan
from floodmark.core.window.planning import classify_tables, pinned_instances, plan_table
from floodmark.postgres.connection import WarehouseConnection
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.warehouse.verify import DEFAULT_LISTED_KEYS, TableVerification, verify_table
from floodmark.sources.cdc.columns import supported_columns, to_staging
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.cdc.statements import select_rows
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.sources.sqlserver.driver import connect
from floodmark.spark.data_source import arrow_schema, batch_rows, cast_batch

__all__ = ["TableVerification", "verify_tables"]


def verify_tables(
    settings: PipelineSettings,
    source: SqlServerConnection,
    warehouse: WarehouseConnection,
    listed_keys: int = DEFAULT_LISTED_KEYS,
) -> Iterator[TableVerification]:
    """One result after the other, in the order of the configuration. Raises from ``core.errors``."""
    for table in _plan(settings, source, warehouse):
        columns = supported_columns(table.instance.table, table.temporal)
        schema = pa.schema([(column.name, column.staging_type) for column in columns])
        yield verify_table(warehouse, table, schema, _read(source, table, schema), listed_keys)


def _plan(settings: PipelineSettings, source: SqlServerConnection, warehouse: WarehouseConnection) -> list[TablePlan]:
    """Each table as for a first load, with the columns of the capture instance that the pipeline reads: a newer one may
    have more. Where that one is gone, of the newest."""
    ledger = PostgresLedger(warehouse)
    ledger.ensure_schema()
    pinned = pinned_instances(settings, ledger.read_tables(settings.name))
    snapshot = SqlServerSource(source).read_snapshot(settings.sources, pinned)
    if any(table_snapshot.instance is None for table_snapshot in snapshot.tables):
        snapshot = SqlServerSource(source).read_snapshot(settings.sources, pinned_instances(settings, {}))
    validities = classify_tables(settings, snapshot, {})
    # Rows can be read while capture stands still.
    validities = tuple(each for each in validities if each.verdict is not Verdict.CAPTURE_STOPPED)
    if error := incident(settings.name, validities):
        raise error
    if not isinstance(snapshot.max_lsn, Lsn):
        raise NotCapturedYetError(settings.name, "the capture job has not read the log yet.", "Try again later.")
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}
    return [plan_table(table, table_snapshots[table.source], snapshot, None) for table in settings.tables]


def _read(source: SqlServerConnection, table: TablePlan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = supported_columns(table.instance.table, table.temporal)
    schema_of_source = arrow_schema(table)
    text = select_rows(table, has_after=False, has_to=False)
    with connect(source, subject=str(table.source)) as session:
        for batch in session.read_batches(str(table.source), text, (), batch_rows(columns)):
            rows = cast_batch(batch, schema_of_source, columns)
            arrays = [to_staging(rows.column(i), column.type, column.staging_type) for i, column in enumerate(columns)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
