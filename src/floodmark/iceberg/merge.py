"""The merge of one table of a lake by Spark: its statements, its counts, and what its snapshot says.

The staged rows are a view of the session, behind the gate.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession, functions

from floodmark.core.errors import (
    FloodmarkBugError,
    LoadKilledError,
    OperatorError,
    TargetRefusedError,
    WarehouseUnavailableError,
    command_line,
)
from floodmark.core.plan import (
    LoadKind,
    TableCounts,
    TablePlan,
    WindowPlan,
    is_replay_lane,
    release_lane,
    staging_table,
)
from floodmark.core.schema import LOAD_COLUMN, POSITION_COLUMN, TableName, keep_column, optional_columns
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED, LakeCatalog
from floodmark.iceberg.metadata import NO_SNAPSHOT, OF_RELEASE, REPLAYED, WINDOW_END, read_metadata
from floodmark.iceberg.quarantine import GatedRows
from floodmark.iceberg.staging import count_rows
from floodmark.iceberg.tables import (
    ASIDE_COLUMN,
    add_sweep,
    build_known,
    build_last_commit,
    build_log_append,
    build_swept,
    in_spark,
    lake_columns,
    lake_name,
    pass_over_aside,
    spark_name,
)
from floodmark.postgres.warehouse.merge import Merge, MergeCounts, build_count, build_insert, build_merge

# ruff: noqa: S608  (names are quoted by ``spark_name``)

_LOG = logging.getLogger(__name__)
_PROPERTY = "spark.sql.iceberg.snapshot-property."
WINDOW, ATTEMPT, COUNTS = "floodmark.window", "floodmark.attempt", "floodmark.counts"
"""The properties of a snapshot with the window that wrote it, its attempt, and its counts as JSON."""
_DATA_EXCEPTION = "SQLSTATE: 22"
_CONDITION = re.compile(r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)*)\]")


@contextmanager
def spark_errors(subject: str) -> Iterator[None]:
    """Raise errors of Spark as errors about ``subject``; their messages as the detail alone, without values of rows."""
    try:
        yield
    except AnalysisException as error:
        raise FloodmarkBugError(subject, "Spark refused a statement.", "See the log of the job.", str(error)) from None
    except (PySparkException, Py4JJavaError) as error:
        what = "Spark could not read or write the lake."
        raise WarehouseUnavailableError(subject, what, "", spark_message(str(error))) from None
    except (Py4JError, ConnectionError):
        # Java gave no answer: what it would have said is lost with it.
        what = "the process of Spark ended: it was killed, or it ran out of memory."
        raise LoadKilledError(subject, what, "Readers see nothing of it; the next try does the same.") from None


def spark_message(message: str) -> str:
    """Return a message of Spark; of a data exception, which quotes a value, the names of the error conditions alone."""
    return ", ".join(dict.fromkeys(_CONDITION.findall(message))) if _DATA_EXCEPTION in message else message


@dataclass(frozen=True, slots=True)
class StagedTable:
    """The staged rows of a table, as a view of the session."""

    index: int
    planned: TablePlan
    merge: Merge
    rows: GatedRows
    newest: Mapping[str, str]
    """The summary of the newest snapshot of the table; {} for a table without rows."""
    merged: TableCounts | None = None
    """The counts, where this attempt has merged the table already."""
    catalog: str = UNPUBLISHED
    """The catalog in which the table is merged."""


def merge_table(session: SparkSession, plan: WindowPlan, table: StagedTable) -> TableCounts:
    """Merge the staged rows of a table, and return what became of them. A table without any is not touched."""
    planned, rows = table.planned, table.rows
    if planned.is_log and rows.files:
        return _append(session, plan, table)
    if planned.is_snapshot:
        return _take_rows(session, plan, table)
    loads_again = _loads_again(planned) and bool(table.newest)
    if not (rows.files or loads_again):
        aside = rows.quarantined
        return TableCounts(staged_rows=aside, quarantined_rows=aside, warned_rows=rows.warned)
    if loads_again:
        _report_again(planned)
        if not rows.files:
            open_empty_view(session, plan, table.index)
    merge = replace(table.merge, overwrites=loads_again)
    counts = _count(session, plan, table, merge)
    # Nothing is there to be merged with.
    statement = build_merge(merge) if table.newest else build_insert(merge)
    if loads_again:
        if rows.aside:
            _open_with_aside(session, merge, rows)
            statement = pass_over_aside(statement)
        swept = 0 if planned.keeps_unread else int(session.sql(in_spark(build_swept(merge))).collect()[0][0])
        counts = replace(counts, swept_rows=swept)
        last = session.sql(in_spark(build_last_commit(merge))).collect()[0][0] if merge.has_commit_times else None
        statement = add_sweep(statement, merge, keeps_unread=planned.keeps_unread, last_commit=last)
    with snapshot_properties(session, plan, counts):
        session.sql(in_spark(statement, table.catalog))
    return counts


def refuse_renewed(planned: TablePlan) -> None:
    """Raise TargetRefusedError where the rows of a table are masked otherwise than those of the plan."""
    if not planned.renewed:
        return
    raise TargetRefusedError(
        str(planned.source),
        f"the table {planned.target} of the lake has rows with other values of {', '.join(planned.renewed)}: those "
        "columns are masked otherwise now.",
        f"Drop the table in both catalogs (DROP TABLE {PUBLISHED}.… and {UNPUBLISHED}.…) and its files, and reload "
        "it, which creates it again.",
    )


def _report_again(planned: TablePlan) -> None:
    """Log that a first load finds rows. Raises TargetRefusedError where they are masked otherwise."""
    refuse_renewed(planned)
    if not planned.is_reload:
        _LOG.warning(
            "%s: the table %s of the lake has rows that no window of the ledger brought: the first load sweeps those "
            "that the source does not have.",
            planned.source,
            planned.target,
        )


def _loads_again(planned: TablePlan) -> bool:
    """Return whether a load brings all rows of a table, so that the others are swept."""
    return planned.kind is LoadKind.FIRST_LOAD and not planned.where and not planned.is_log


def _append(session: SparkSession, plan: WindowPlan, table: StagedTable) -> TableCounts:
    """Add the staged rows to a log, but for those that it has."""
    planned, merge, rows = table.planned, table.merge, table.rows
    if table.newest:
        refuse_renewed(planned)
    view = spark_name(merge.staging.name)
    bounds = f"count(*), max({LOAD_COLUMN}), min({POSITION_COLUMN}), max({POSITION_COLUMN})"
    [(added, load, first, last)] = session.sql(f"SELECT {bounds} FROM {view}").collect()
    known = build_known(merge, int(load), bytes(first), bytes(last)) if table.newest else None
    if known is not None and not session.sql(in_spark(known.limit(1), table.catalog)).collect():
        known = None
    statement = build_log_append(merge, known)
    found = int(added)
    if known is not None:
        [(found,)] = session.sql(f"SELECT count(*) FROM ({in_spark(statement.expression, table.catalog)})").collect()
    counts = TableCounts(
        staged_rows=added + rows.quarantined,
        inserted_rows=found,
        unchanged_rows=added - found,
        quarantined_rows=rows.quarantined,
        warned_rows=rows.warned,
    )
    with snapshot_properties(session, plan, counts):
        session.sql(in_spark(statement, table.catalog))
    return counts


def _take_rows(session: SparkSession, plan: WindowPlan, table: StagedTable) -> TableCounts:
    """Put the staged rows in the place of all rows of a snapshot. Those of a release come to the others."""
    planned, rows = table.planned, table.rows
    taken = count_rows(rows.files)
    counts = TableCounts(
        staged_rows=taken + rows.quarantined,
        inserted_rows=taken,
        quarantined_rows=rows.quarantined,
        warned_rows=rows.warned,
    )
    with snapshot_properties(session, plan, counts):
        if rows.files:
            statement = build_insert(table.merge)
            statement.set("overwrite", table.merge.replaces)
            session.sql(in_spark(statement, table.catalog))
        elif table.merge.replaces and table.newest:
            session.sql(f"DELETE FROM {lake_name(planned.target, table.catalog)}")
    return counts


def open_empty_view(session: SparkSession, plan: WindowPlan, index: int) -> None:
    """Make a view without rows, with the columns that a sweep needs."""
    table = plan.tables[index]
    columns = dict(lake_columns(table)) | {keep_column(name): "boolean" for name in optional_columns(table.in_target)}
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {spark_name(name)}" for name, kind in columns.items())
    session.sql(f"SELECT {nothing} WHERE false").createOrReplaceTempView(staging_table(plan, index).name)


def _open_with_aside(session: SparkSession, merge: Merge, rows: GatedRows) -> None:
    """Let the view have rows that broke a rule too: a load of the whole table has read them, so none is swept."""
    view = session.read.parquet(*map(str, rows.aside)).withColumn(ASIDE_COLUMN, functions.lit(True))
    if rows.files:
        kept = session.read.parquet(*map(str, rows.files)).withColumn(ASIDE_COLUMN, functions.lit(False))
        view = view.unionByName(kept, allowMissingColumns=True)
    view.createOrReplaceTempView(merge.staging.name)


def read_summary(catalog: LakeCatalog, target: TableName, name: str = UNPUBLISHED) -> Mapping[str, str]:
    """Return the summary of the newest snapshot of a table that is being merged; {} for a table without rows.

    name: that of the table's catalog. The summary is in the metadata: a query for it would be a job of Spark. Raises
    WarehouseUnavailableError where the metadata cannot be read: a table without rows is merged otherwise.
    """
    location = catalog.read_locations([target]).get((name, target))
    metadata = read_metadata(catalog.folder, location)
    newest = metadata.get("current-snapshot-id") if metadata else None
    if metadata is not None and newest in NO_SNAPSHOT:
        return {}
    for snapshot in metadata.get("snapshots", ()) if metadata else ():
        if snapshot["snapshot-id"] == newest:
            return dict(snapshot["summary"])
    raise WarehouseUnavailableError(
        str(target), f"the metadata of the table in the catalog {name} of the lake cannot be read.", "", str(location)
    )


def _count(session: SparkSession, plan: WindowPlan, table: StagedTable, merge: Merge) -> TableCounts:
    """Return the effect of a merge, and that of the rules. Raises OperatorError in a replay that lacks LOBs."""
    planned, rows = table.planned, table.rows
    [row] = session.sql(in_spark(build_count(merge), table.catalog)).collect()
    counted = MergeCounts(*(int(value) for value in row))
    if counted.incomplete:
        what = (
            f"{counted.incomplete} rows are missing in {planned.target}, and their changes left out the value of "
            f"{' or '.join(merge.optional)}"
        )
        if is_replay_lane(plan.lane):
            raise OperatorError(
                str(planned.source),
                f"{what}.",
                "Nothing was merged. Load those rows from the source "
                f"({command_line('reload', plan.pipeline, planned.source)} --where ...), or start the replay at an "
                "earlier LSN.",
            )
        _LOG.warning("%s: %s, which is NULL now.", planned.source, what)
    return TableCounts(
        staged_rows=counted.staged + rows.quarantined,
        inserted_rows=counted.inserted,
        updated_rows=counted.updated,
        deleted_rows=counted.deleted,
        unchanged_rows=counted.staged - counted.inserted - counted.updated - counted.deleted,
        quarantined_rows=rows.quarantined,
        warned_rows=rows.warned,
    )


@contextmanager
def snapshot_properties(session: SparkSession, plan: WindowPlan, counts: TableCounts) -> Iterator[None]:
    """Let the snapshots that are written in the block say which window they are of."""
    values: dict[str, Any] = {
        WINDOW: plan.window_id,
        ATTEMPT: plan.attempt,
        COUNTS: json.dumps(asdict(counts)),
        "floodmark.pipeline": plan.pipeline,
        _position_property(plan): str(plan.to),
    }
    for name, value in values.items():
        session.conf.set(_PROPERTY + name, str(value))
    try:
        yield
    finally:
        for name in values:
            session.conf.unset(_PROPERTY + name)


def _position_property(plan: WindowPlan) -> str:
    if plan.lane == release_lane(plan.tables[0].source):
        return OF_RELEASE
    return REPLAYED if is_replay_lane(plan.lane) else WINDOW_END
