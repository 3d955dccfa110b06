"""The upkeep of the tables of a lake: fewer and larger files, and no snapshots that nobody needs.

It works in a catalog of its own, and publishes a table where no window has changed it meanwhile; otherwise its work is
given up. No step deletes a file that a catalog row refers to: snapshots are expired in the metadata alone, and files
that no snapshot has are removed when they are older than any window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from pyspark.sql import SparkSession

from floodmark.core.errors import FloodmarkError
from floodmark.core.schema import VALID_TO_COLUMN, TableName
from floodmark.iceberg.folder import S3, folder_of, plain_location
from floodmark.iceberg.lake import KEPT, PUBLISHED
from floodmark.iceberg.merge import spark_errors
from floodmark.iceberg.metadata import LakeTable, count_of, read_lake, read_table
from floodmark.iceberg.tables import as_timestamp, has_own_folder, lake_name, spark_name
from floodmark.iceberg.warehouse import IcebergWarehouse
from floodmark.postgres.session import open_transaction
from floodmark.postgres.warehouse.history import read_kept_since

_LONGEST_WINDOW = timedelta(days=3)
"""The age from which on a file without a snapshot is of no window that is still being loaded."""
_OPTIONS = "map('delete-file-threshold', '1', 'min-input-files', '5', 'remove-dangling-deletes', 'true')"


_LISTED = ", prefix_listing => true"
"""Lists the files of a bucket by Iceberg itself: Spark has no file system for one."""


class LakeUpkeep:
    """The upkeep of a lake. close: ends the Spark that it has opened. register: lets other catalogs have tables."""

    def __init__(
        self,
        warehouse: IcebergWarehouse,
        close: Callable[[], None],
        register: Callable[[Sequence[TableName]], object] = lambda targets: None,
    ) -> None:
        self._warehouse = warehouse
        self._close = close
        self._register = register

    def list_tables(self, targets: Sequence[TableName]) -> list[LakeTable]:
        """Return the tables that readers see. It starts no Spark."""
        return list(read_lake(self._warehouse.catalog, targets))

    def keep_tables(
        self,
        targets: Sequence[TableName],
        keep: timedelta,
        aged: Mapping[TableName, int] = MappingProxyType({}),
        *,
        rewrites: bool = False,
    ) -> Iterator[tuple[TableName, str]]:
        """Keep tables, one after the other. Yield each with what was done, in words.

        A table is compacted where that is due, its snapshots are expired, and files that no snapshot has are removed.
        keep: how long readers can go back. aged: the days for which tables of ended versions keep them. rewrites:
        compact all tables, also where it is not due. Raises the error about the first table that could not be kept,
        after the others. Before the first load there is none.
        """
        if not self._warehouse.catalog.exists():
            return
        self._warehouse.catalog.ensure_schema()
        errors = []
        try:
            for target in targets:
                try:
                    done = self._keep(target, keep, aged.get(target), rewrites=rewrites)
                except FloodmarkError as error:
                    errors.append(error)
                    done = f"failed: {error.message.rstrip('.')}"
                yield target, done
        finally:
            self._close()
        if errors:
            raise errors[0]

    def _keep(self, target: TableName, keep: timedelta, days: int | None, *, rewrites: bool) -> str:
        catalog = self._warehouse.catalog
        base = catalog.begin_upkeep(target)
        if base is None:
            return "left alone: it does not exist, a window of it is unfinished, or another program has written to it"
        try:
            if (before := read_table(catalog.folder, target, base)) is None:
                return f"left alone: its metadata in {plain_location(base)} is gone, and the next run says what to do"
            session = self._warehouse.session()
            with spark_errors(str(target)):
                deleted = "" if days is None else self._delete_old(session, target, days)
                if rewrites or before.is_due:
                    _compact(session, target)
                _expire(session, target, datetime.now(UTC) - keep)
            if not catalog.publish_upkeep(target, base):
                return "given up: a window began meanwhile, and the next upkeep does it again"
        finally:
            catalog.end_upkeep(target)
        # Before files are removed that readers of another catalog still have.
        self._register([target])
        removed = _remove_orphans(self._warehouse, session, target)
        [after] = read_lake(catalog, [target])
        return f"was {before}; is {after}; {deleted}{removed}"

    def _delete_old(self, session: SparkSession, target: TableName, days: int) -> str:
        """Delete versions that ended longer ago than some days. Return how many, in words before others."""
        with open_transaction(self._warehouse.ledger, str(target)) as transaction:
            since = as_timestamp(read_kept_since(transaction, days))
        rows = f"FROM {lake_name(target, KEPT)} WHERE {VALID_TO_COLUMN} < {since}"
        [(found,)] = session.sql(f"SELECT count(*) {rows}").collect()
        if not found:
            return ""
        session.sql(f"DELETE {rows}")
        return f"{count_of(found, 'old version')} deleted (keep_versions); "


def _in_call(target: TableName) -> str:
    return spark_name(target.schema, target.name)


def _compact(session: SparkSession, target: TableName) -> None:
    session.sql(
        f"CALL {KEPT}.system.rewrite_data_files(table => '{_in_call(target)}', options => {_OPTIONS})"
    ).collect()


def _expire(session: SparkSession, target: TableName, before: datetime) -> None:
    """Expire the snapshots of a table, but for the newest, in its metadata alone.

    Readers and windows have the metadata of before until it is published, and would miss files that are gone.
    """
    jvm = session._jvm
    assert jvm is not None  # noqa: S101  (the session is of a local Spark)
    spark = session._jsparkSession
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark, f"{KEPT}.{_in_call(target)}")
    at = int(before.timestamp() * 1000)
    table.expireSnapshots().expireOlderThan(at).retainLast(1).cleanExpiredFiles(False).commit()


def _remove_orphans(warehouse: IcebergWarehouse, session: SparkSession, target: TableName) -> str:
    location = warehouse.catalog.read_locations([target])[PUBLISHED, target]
    folder = folder_of(location)
    if not has_own_folder(folder):
        return "no file was removed: the name of its folder may be that of several tables"
    if any(plain_location(other).startswith(f"{folder}/") for other in warehouse.catalog.list_other_locations(target)):
        return "no file was removed: another table has files in its folder"
    before = datetime.now(UTC) - _LONGEST_WINDOW
    with spark_errors(str(target)):
        rows = session.sql(
            f"CALL {PUBLISHED}.system.remove_orphan_files(table => '{_in_call(target)}', "
            f"older_than => {as_timestamp(before)}{_LISTED if folder.startswith(S3) else ''})"
        ).collect()
    return f"{count_of(len(rows), 'file')} removed"
