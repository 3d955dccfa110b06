"""``IcebergWarehouse``: tables of Iceberg that a local Spark merges, and that readers see when the ledger advances."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession, functions

from floodmark.core.errors import (
    ConfigError,
    DuplicateKeyError,
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
    staging_table,
    value_columns,
)
from floodmark.core.schema import DELETED_COLUMN, LOAD_COLUMN, POSITION_COLUMN, TableName
from floodmark.iceberg.folder import LakeFolder
from floodmark.iceberg.history import merge_style
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED, LakeCatalog, catalog_settings
from floodmark.iceberg.limits import refuse_replay, refuse_unsupported
from floodmark.iceberg.merge import ATTEMPT, COUNTS, WINDOW, StagedTable, read_summary, spark_errors
from floodmark.iceberg.metadata import read_metadata, read_table, refuse_lost
from floodmark.iceberg.quarantine import GatedRows, LakeGate, publish_held
from floodmark.iceberg.staging import LakeStaging, count_rows
from floodmark.iceberg.tables import (
    create_table,
    evolve_table,
    how_to_make_again,
    spark_name,
)
from floodmark.postgres.ledger.schema import refuse_overtaken
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.warehouse.history import read_load_position
from floodmark.postgres.warehouse.merge import merge_of
from floodmark.postgres.warehouse.staging import read_load_ids
from floodmark.sync.arrow import arrow_type
from floodmark.sync.load import TABLES_AT_ONCE
from floodmark.sync.ports import CheckedRows, StagedNow, StagedRows, StagingSink, WarehouseTraits

# ruff: noqa: S608  (names are quoted by ``spark_name``)

_LOG = logging.getLogger(__name__)
_STAGED_SETTINGS = {
    # pyarrow has written the files: their days are those of the Gregorian calendar.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # pyarrow reads what is written for a comparison. The other type of Spark's ends in the year 2262.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class IcebergWarehouse:
    """``sync.ports.Warehouse``. It opens a session of Spark when a step first needs one."""

    traits = WarehouseTraits(
        publishes="at_advance",
        tables_at_once=True,
        has_primary_key=False,
        shares_ledger=False,
        publishes_in_ledger=True,
    )

    def __init__(self, folder: LakeFolder, ledger: WarehouseConnection, open_spark: Callable[[], SparkSession]) -> None:
        """Prepare the warehouse.

        open_spark: returns the same session each time, of a local Spark that was started with the jars of a lake.
        """
        self.catalog = LakeCatalog(ledger, folder)
        self.ledger = ledger
        self._folder = folder
        self._settings = catalog_settings(ledger, folder) | _STAGED_SETTINGS
        self._open_spark = open_spark
        self._opened: tuple[SparkSession | None, list[SparkSession]] = None, []
        self.staging = LakeStaging(folder.staging(ledger))

    def session(self) -> SparkSession:
        """Return the session with both catalogs. Raises ConfigError for a Spark on other machines."""
        session = self._open_spark()
        master = session.conf.get("spark.master", "") or ""
        if not master.startswith("local") or not hasattr(session, "_jvm"):
            raise ConfigError(
                "the Spark connection",
                f"its Spark is {master or 'a server'}, and a lake is merged by a local Spark so far.",
                "Let the connection spark_default name local[*], or remove it.",
            )
        for name, value in self._settings.items():
            session.conf.set(name, value)
        return session

    def sessions(self, number: int) -> Sequence[SparkSession]:
        """Return further sessions of the same Spark, the same ones each time.

        Each keeps connections to the catalog until Java ends: one for each table would use up those of PostgreSQL.
        """
        first = self.session()
        if self._opened[0] is not first:
            self._opened = first, []
        others = self._opened[1]
        while len(others) < number:
            session = first.newSession()
            for name, value in self._settings.items():
                session.conf.set(name, value)
            others.append(session)
        return others[:number]

    def prepare_window(self, plan: WindowPlan) -> None:
        refuse_unsupported(plan)
        session = self.session()
        self.catalog.ensure_schema()
        # A history is two tables.
        written = [each for table in plan.tables for each in (table, *_ended_versions(table))]
        self.catalog.refuse_namesakes(written)
        with spark_errors(plan.pipeline):
            for schema in sorted({table.target.schema for table in plan.tables}):
                for catalog in (PUBLISHED, UNPUBLISHED):
                    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {spark_name(catalog, schema)}")
        targets = [table.target for table in written]
        known, published = self.catalog.read_locations(targets), self.catalog.list_published(targets)
        new = []
        for table in written:
            found = known.get((PUBLISHED, table.target))
            if table.kind is LoadKind.CHANGES or table.where:
                refuse_lost(self._folder, table, published.get(table.target), found)
                if is_replay_lane(plan.lane):
                    refuse_replay(plan, table, read_metadata(self._folder, found) or {})
            elif read_metadata(self._folder, found) is None:
                new.append(table)
        # What is left of a table that was dropped, or has lost its metadata, cannot be dropped by Iceberg.
        self.catalog.forget([table.target for table in new])
        for table in new:
            self.catalog.refuse_namesakes([table])
            with spark_errors(str(table.source)):
                session.sql(create_table(table, self._folder.tables))
            _LOG.info("%s: created the table %s of the lake.", table.source, table.target)
        self.catalog.begin(plan)
        published = self.catalog.list_published(targets)
        for table in written:
            if table.keeps_changes and published.get(table.target) is None:
                _refuse_foreign_rows(self._folder, table, known.get((PUBLISHED, table.target)))
            with spark_errors(str(table.source)):
                evolve_table(session, table)
        self.staging.prepare(plan, self.catalog.list_unfinished())

    def sink(self, plan: WindowPlan, index: int) -> StagingSink:
        return self.staging.sink(plan, index)

    def count_parts(self, plan: WindowPlan, index: int) -> Mapping[int, int]:
        return self.staging.count_parts(plan, index)

    def count_staged(self, plan: WindowPlan) -> Mapping[TableName, StagedNow]:
        return {
            table.source: StagedNow(sum(self.staging.count_parts(plan, index).values()), 0)
            for index, table in enumerate(plan.tables)
        }

    def clear_parts(self, plan: WindowPlan, index: int, numbers: Collection[int]) -> None:
        self.staging.clear(plan, index, numbers)

    def drop_duplicates(self, plan: WindowPlan, index: int) -> int:
        """Keep the first of the rows with a key. Only files with such a key are written again."""
        planned, session = plan.tables[index], self.session()
        files = self.staging.find_files(plan, index, None)
        view = self._open_view(session, plan, index, files)
        with spark_errors(str(planned.source)):
            twice = session.sql(_select_double_keys(planned, view)).collect()
        left = {tuple(row): False for row in twice}
        return sum(_without_repeated(path, planned.in_target.key, left) for path in files) if left else 0

    def drop_staging(self, window_id: int) -> None:
        self.staging.drop(window_id)

    def merge_window(
        self, plan: WindowPlan, staged: Mapping[TableName, StagedRows] | None = None
    ) -> Mapping[TableName, TableCounts]:
        self.catalog.refuse_overtaken(plan)
        with open_transaction(self.ledger, plan.pipeline) as transaction:
            refuse_overtaken(transaction, plan)
        # A thread has a session of its own: the views and the properties of snapshots are those of a session.
        sessions = self.sessions(min(TABLES_AT_ONCE, len(plan.tables)))
        dealt = [range(first, len(plan.tables), len(sessions)) for first in range(len(sessions))]
        with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="merge") as pool:
            # Every table is examined before the first is merged: one that is refused leaves the window, and all are
            # merged.
            tables = list(pool.map(self._examine_each, sessions, repeat(plan), dealt, repeat(staged)))
            counts = dict(chain.from_iterable(pool.map(self._merge_each, sessions, repeat(plan), tables)))
        return {table.source: counts[index] for index, table in enumerate(plan.tables)}

    def _examine_each(
        self,
        session: SparkSession,
        plan: WindowPlan,
        places: Iterable[int],
        staged: Mapping[TableName, StagedRows] | None,
    ) -> list[StagedTable]:
        return [self._examine(session, plan, index, staged) for index in places]

    def _merge_each(
        self, session: SparkSession, plan: WindowPlan, tables: Iterable[StagedTable]
    ) -> list[tuple[int, TableCounts]]:
        return [(table.index, self._merge(session, plan, table)) for table in tables]

    def open_rows(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> Sequence[CheckedRows]:
        """Return the rows for the checks, of the tables that are not published; without staging where it is gone."""
        session, opened = self.session(), []
        for index, planned in enumerate(plan.tables):
            files = self.staging.find_merged(plan, index)
            rows = counts[planned.source]
            is_there = files is not None and count_rows(files) == rows.staged_rows - rows.quarantined_rows
            if files and is_there:
                self._open_view(session, plan, index, files)
            staged = staging_table(plan, index) if files and is_there else None
            opened.append(CheckedRows(planned.target, staged, has_tombstones=False))
        return opened

    def read_rows(self, table: TablePlan) -> Iterator[pa.RecordBatch] | None:
        """Return the living rows of a table that readers see, in the columns of its plan; None for no table."""
        if (PUBLISHED, table.target) not in self.catalog.read_locations([table.target]):
            return None
        return self._read_rows(table)

    def _read_rows(self, table: TablePlan) -> Iterator[pa.RecordBatch]:
        columns = value_columns(table.in_target, table.settings.temporal)
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
        living = (
            f"SELECT {_quoted(schema.names)} FROM {spark_name(PUBLISHED, table.target.schema, table.target.name)} "
            f"WHERE NOT {DELETED_COLUMN}"
        )
        session = self.session()
        with self.staging.scratch() as folder:
            with spark_errors(str(table.source)):
                session.sql(living).write.parquet(str(folder))
            for path in sorted(folder.glob("*.parquet")):
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches():
                        yield batch.cast(schema)

    def publish_window(self, plan: WindowPlan, transaction: psycopg.Connection | None = None) -> None:
        """Let readers see the window, in the transaction of the ledger that moves the watermarks."""
        assert transaction is not None, "a lake is published in the ledger's transaction"  # noqa: S101  (``traits``)
        self.catalog.publish(plan, transaction)
        publish_held(transaction, plan)

    def _open_view(self, session: SparkSession, plan: WindowPlan, index: int, files: Sequence[Path]) -> str:
        """Let a view of the session have staged rows. Return its name.

        Those of a log and of a history have the number of the newest load, but for events that it has read. Files that
        the gate has written have it, or none where the event is passed over.
        """
        planned, name = plan.tables[index], staging_table(plan, index).name
        with spark_errors(str(planned.source)):
            rows = session.read.parquet(*map(str, files))
            if planned.keeps_changes and LOAD_COLUMN not in rows.columns:
                with open_transaction(self.ledger, str(planned.source)) as transaction:
                    load = functions.lit(read_load_ids(transaction, plan).get(planned.source, 0)).cast("bigint")
                    if planned.is_history and is_replay_lane(plan.lane):
                        read = read_load_position(transaction, plan, planned)
                        load = functions.when(functions.col(POSITION_COLUMN) > functions.lit(read), load)
                rows = rows.withColumn(LOAD_COLUMN, load)
            rows.createOrReplaceTempView(name)
        return spark_name(name)

    def _examine(
        self, session: SparkSession, plan: WindowPlan, index: int, staged: Mapping[TableName, StagedRows] | None
    ) -> StagedTable:
        """Return the staged rows of a table, without those that break a rule.

        Raises the error about rows that are missing, have a key twice, or break a rule that stops the run.
        """
        planned = plan.tables[index]
        merge = replace(merge_of(plan, index, has_tombstones=False), sorted_by_key=False)
        newest = read_summary(self.catalog, planned.target)
        before = [read_summary(self.catalog, each.target) for each in _ended_versions(planned)]
        if (newest.get(WINDOW), newest.get(ATTEMPT)) == (str(plan.window_id), str(plan.attempt)):
            return StagedTable(index, planned, merge, GatedRows(()), newest, TableCounts(**json.loads(newest[COUNTS])))
        if any((each.get(WINDOW), each.get(ATTEMPT)) == (str(plan.window_id), str(plan.attempt)) for each in before):
            # A merge of this attempt has ended between the two tables.
            self.catalog.give_up_merge(planned.ended_versions.target)
        reported = (staged or {}).get(planned.source)
        files = self.staging.find_files(plan, index, reported)
        found = count_rows(files)
        if reported is not None and found != reported.staged_rows:
            raise WarehouseUnavailableError(
                str(planned.source),
                f"{reported.staged_rows} rows were staged, but {found} are in staging now.",
                "Something else has changed the staging folder of the lake; the window is loaded again.",
            )
        rows = GatedRows(files)
        if files:
            view = self._open_view(session, plan, index, files)
            with spark_errors(str(planned.source)):
                _refuse_double_keys(session, planned, view)
                gate = LakeGate(session, self.ledger, plan, planned, merge, self.staging.gate(plan, index))
                rows = gate.apply(gate.pass_over_deleted(files))
                gate.hold(rows)
                rows = gate.drop_empty_deletes(rows)
                if rows.files:
                    _refuse_null_keys(session, planned, view)
        return StagedTable(index, planned, merge, rows, newest)

    def _merge(self, session: SparkSession, plan: WindowPlan, table: StagedTable) -> TableCounts:
        if table.merged is not None:
            return table.merged
        with spark_errors(str(table.planned.source)):
            self.staging.record_merged(plan, table.index, table.rows.files)
            return merge_style(session, plan, table, self.staging.merge(plan, table.index))


# --------------------------------------------------------------------------------------------------------------------
# The steps of one table.


def _ended_versions(planned: TablePlan) -> list[TablePlan]:
    """Return the plan of the ended versions of a history; nothing for another style."""
    return [planned.ended_versions] if planned.is_history else []


def _refuse_foreign_rows(folder: LakeFolder, planned: TablePlan, found: str | None) -> None:
    """Raise TargetRefusedError for a log or a history with rows that no window of this ledger has published.

    found: where its metadata is.
    """
    lake_table = read_table(folder, planned.target, found) if found else None
    if lake_table is not None and lake_table.snapshot is not None:
        raise TargetRefusedError(
            str(planned.source),
            f"the {planned.settings.style.value} {planned.target} of the lake has rows that no window of the ledger "
            "brought, so that the numbers of its windows would not grow.",
            how_to_make_again(planned),
        )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(spark_name, names))


def _refuse_double_keys(session: SparkSession, planned: TablePlan, view: str) -> None:
    """Raise the error about a key that several rows have: no primary key would refuse them."""
    if session.sql(_select_double_keys(planned, view) + " LIMIT 1").collect():
        raise DuplicateKeyError(str(planned.source), "duplicate key in staging.")


def _select_double_keys(planned: TablePlan, view: str) -> str:
    """Return the query for the keys that several rows have. NULL is no key."""
    keys = planned.in_target.key if planned.kind is LoadKind.FIRST_LOAD and planned.is_history else planned.row_key
    known = " AND ".join(f"{spark_name(name)} IS NOT NULL" for name in keys)
    return f"SELECT {_quoted(keys)} FROM {view} WHERE {known} GROUP BY {_quoted(keys)} HAVING count(*) > 1"


def _refuse_null_keys(session: SparkSession, planned: TablePlan, view: str) -> None:
    """Raise the error about NULL in a column of the key that is NOT NULL at the source."""
    key = planned.target_key
    nulls = " OR ".join(f"{spark_name(name)} IS NULL" for name in key)
    if session.sql(f"SELECT 1 FROM {view} WHERE {nulls} LIMIT 1").collect():
        raise TargetRefusedError(
            str(planned.source),
            f"rows of the window have NULL in their key ({', '.join(key)}), which is NOT NULL at the source.",
            f"Nothing was merged. Reload the table: {command_line('reload', 'PIPELINE', planned.source)}.",
        )


def _without_repeated(path: Path, key: Sequence[str], left: dict[tuple[Any, ...], bool]) -> int:
    """Remove the rows of a file whose key was kept before. Return their number. left: whether each key was kept."""
    rows = pq.read_table(path)
    kept = []
    for place, found in enumerate(zip(*(rows.column(name).to_pylist() for name in key), strict=True)):
        if left.get(found) is True:
            continue
        if found in left:
            left[found] = True
        kept.append(place)
    if len(kept) < rows.num_rows:
        partial = path.with_name(f".{path.name}.partial")
        pq.write_table(rows.take(kept), partial)
        partial.replace(path)
    return int(rows.num_rows) - len(kept)
