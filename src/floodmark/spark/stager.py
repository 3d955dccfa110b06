"""``SparkStager``: read a table of a window, net its changes, stage what is left. No row passes the driver."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.policies import NetSource
from floodmark.core.types import list_losses
from floodmark.core.window.chunks import Bound, LoadChunk, chunk_to_json
from floodmark.core.window.plan import LoadKind, TablePlan, WindowPlan
from floodmark.core.window.plan_json import plan_to_json
from floodmark.core.window.staging_names import staging_table
from floodmark.postgres.connection import WarehouseConnection
from floodmark.sources.cdc.chunk_bounds import find_double_key, read_chunk_bounds
from floodmark.sources.sqlserver.connection import SqlServerConnection
from floodmark.spark import data_source
from floodmark.spark.error_transport import recover
from floodmark.spark.net import describe_order, gather_changes
from floodmark.spark.rows import require_server_net
from floodmark.spark.stage import COUNTS_SCHEMA, StageWriter
from floodmark.spark.stage_chunks import ChunkWriter
from floodmark.sync.ports.run import StagedRows

_LOG = logging.getLogger(__name__)


class SparkStager:
    """``sync.ports.Stager``. The source is that of the environment variable FLOODMARK_SOURCE (see ``data_source``)."""

    def __init__(self, session: SparkSession, warehouse: WarehouseConnection) -> None:
        self._session = session
        self._warehouse = warehouse

    def stage_table(self, plan: WindowPlan, index: int) -> StagedRows:
        """Raises from ``core.errors``. May run for several tables at the same time."""
        table = plan.tables[index]
        for line in (*list_losses(table.instance.table, table.temporal), *describe_order(table)):
            _LOG.info("%s: %s", table.source, line)
        if _has_server_net(table):
            require_server_net(table)
        with _recovered(table):
            return self.stage_rows(self._read(plan, index), plan, index)

    def stage_rows(self, rows: DataFrame, plan: WindowPlan, index: int) -> StagedRows:
        """Net and stage rows as ``sqlserver_cdc`` packs them."""
        table = plan.tables[index]
        if table.kind is LoadKind.CHANGES and not _has_server_net(table):
            rows = gather_changes(rows)
        writer = StageWriter(table, staging_table(plan, index), plan.to_lsn, self._warehouse)
        counts = rows.mapInArrow(writer, COUNTS_SCHEMA).collect()
        return StagedRows(sum(row.read_rows for row in counts), sum(row.staged_rows for row in counts))

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return read_chunk_bounds(plan.tables[index], _source())

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return find_double_key(plan.tables[index], _source())

    def stage_chunks(self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int) -> None:
        """One task for each of the parallel reads, however many cores there are."""
        table = plan.tables[index]
        for line in list_losses(table.instance.table, table.temporal):
            _LOG.info("%s: %s", table.source, line)
        writer = ChunkWriter(
            StageWriter(table, staging_table(plan, index), plan.to_lsn, self._warehouse), replace(plan, tables=())
        )
        with _recovered(table):
            rows = self._read(plan, index, parallel_reads, chunks)
            rows.mapInArrow(writer, COUNTS_SCHEMA).collect()

    def _read(
        self, plan: WindowPlan, index: int, parts: int | None = None, chunks: Sequence[LoadChunk] = ()
    ) -> DataFrame:
        # The table alone: the options of a read go with every one of its tasks.
        narrow = replace(plan, tables=(plan.tables[index],))
        return (
            self._session.read.format(data_source.NAME)
            .option(data_source.PLAN_OPTION, json.dumps(plan_to_json(narrow)))
            .option(data_source.INDEX_OPTION, 0)
            .option(data_source.PACKED_OPTION, "true")
            .option(data_source.PARTS_OPTION, parts or self._session.sparkContext.defaultParallelism)
            .option(data_source.CHUNKS_OPTION, json.dumps([chunk_to_json(chunk) for chunk in chunks]))
            .load()
        )


def _source() -> SqlServerConnection:
    return SqlServerConnection.from_json(os.environ[data_source.SOURCE_VARIABLE])


def _has_server_net(table: TablePlan) -> bool:
    return table.kind is LoadKind.CHANGES and table.net is NetSource.SERVER


@contextmanager
def _recovered(table: TablePlan) -> Iterator[None]:
    """Spark's exception as the error that a worker raised, or as a bug of ours with Spark's words."""
    try:
        yield
    except FloodmarkError:
        raise
    except (PySparkException, Py4JJavaError) as error:
        found = recover(error)
        if found is None:
            raise FloodmarkBugError(
                str(table.source), "Spark failed.", "See the log of the job.", str(error)
            ) from error
        raise found from None
