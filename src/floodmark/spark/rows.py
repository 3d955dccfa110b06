"""Reads that need no collapsing, in the shape that ``net.collapse_changes`` gives: stored columns, ``__lsn``, ``__op``,
keep flags. A first load has its rows as they are, and the server's own net changes are net already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from floodmark.core.change import Operation
from floodmark.core.errors import ConfigError
from floodmark.core.lsn import Lsn
from floodmark.core.naming import LSN_COLUMN, OPERATION_COLUMN, keep_column, lob_columns
from floodmark.core.window.plan import TablePlan
from floodmark.sources.cdc.columns import supported_columns
from floodmark.sources.cdc.statements import OPERATION, START_LSN
from floodmark.spark.net import has_value

_NEVER_IN_OLD_IMAGES = ("text", "ntext", "image")

Batches = Iterable[pa.RecordBatch]


def stamp_first_load(batches: Batches, plan: TablePlan, to_lsn: Lsn) -> Iterator[pa.RecordBatch]:
    """Rows of the table itself, as inserts at ``to_lsn``."""
    lobs = lob_columns(plan.instance.table)
    for batch in batches:
        arrays = [
            *batch.columns,
            pa.repeat(to_lsn.value, batch.num_rows),
            _operations(Operation.INSERT, batch.num_rows),
        ]
        arrays += [pa.repeat(False, batch.num_rows)] * len(lobs)
        names = [*batch.schema.names, LSN_COLUMN, OPERATION_COLUMN, *(keep_column(name) for name in lobs)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def adapt_net_changes(batches: Batches, plan: TablePlan) -> Iterator[pa.RecordBatch]:
    """Rows of the server's net changes function."""
    columns = supported_columns(plan.instance.table, plan.temporal)
    lobs = [column for column in columns if column.is_lob]
    for batch in batches:
        arrays = [batch.column(column.name) for column in columns]
        arrays += [batch.column(START_LSN), batch.column(OPERATION).cast(pa.int16())]
        arrays += [pa.array(~has_value(batch, column)) for column in lobs]
        names = [*(column.name for column in columns), LSN_COLUMN, OPERATION_COLUMN]
        names += [keep_column(column.name) for column in lobs]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def require_server_net(plan: TablePlan) -> None:
    """Raises ConfigError where the server's net changes cannot tell a value that was left out from NULL."""
    if not plan.instance.supports_net_changes:
        raise ConfigError(
            str(plan.source),
            f"net: server, but capture instance {plan.instance.identity.name} does not support net changes.",
            "Set net: spark, or enable the table with @supports_net_changes = 1.",
        )
    stored = plan.instance.table.stored_columns
    old = ", ".join(column.name for column in stored if column.type_name in _NEVER_IN_OLD_IMAGES)
    if old:
        raise ConfigError(
            str(plan.source),
            f"net: server cannot tell an unchanged value from NULL in text, ntext and image columns ({old}).",
            "Set net: spark.",
        )


def _operations(operation: Operation, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(operation.value, pa.int16()), rows)
