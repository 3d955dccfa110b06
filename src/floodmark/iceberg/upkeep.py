"""The upkeep of the tables of a lake: fewer and larger files, and no snapshots that nobody needs.

It works in a catalog of its own, and publishes a table where no window has changed it meanwhile; otherwise its work is
given up. No step deletes a file that a catalog row refers to: snapshots are expired in the metadata alone, and files
that no snapshot has are removed when they are older than any window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from floodmark.core.errors import FloodmarkError
from floodmark.core.position import Position, parse_position
from floodmark.core.schema import TableName
from floodmark.core.upkeep import format_bytes
from floodmark.iceberg.lake import KEPT, PUBLISHED, LakeCatalog, local_path, read_metadata
from floodmark.iceberg.tables import has_own_folder, spark_name
from floodmark.iceberg.warehouse import WINDOW_END, IcebergWarehouse, spark_errors

_MANY_FILES = 20
_DELETED_SHARE = 0.1
"""Delete files, or deleted rows as a share of all, from which on a scan takes a quarter longer: a merge costs that much
again after two more windows."""
_SMALL_BYTES = 32 * 1024 * 1024
_LONGEST_WINDOW = timedelta(days=3)
"""The age from which on a file without a snapshot is of no window that is still being loaded."""
_OPTIONS = "map('delete-file-threshold', '1', 'min-input-files', '5', 'remove-dangling-deletes', 'true')"


@dataclass(frozen=True, slots=True)
class LakeTable:
    """The files of a table, as its metadata has them."""

    target: TableName
    location: str
    """The file of its metadata, which DuckDB reads."""
    rows: int
    """With those that are marked as deleted."""
    deleted_rows: int
    """Rows of data files that delete files remove."""
    files: int
    delete_files: int
    size: int
    """In bytes, of the files of the newest snapshot."""
    snapshots: tuple[Mapping[str, Any], ...]
    """As Iceberg's metadata has them, oldest first."""

    @property
    def is_due(self) -> bool:
        """Return whether its files should be written again as fewer ones."""
        small = self.files >= _MANY_FILES and self.size / self.files < _SMALL_BYTES
        deleted = self.deleted_rows > _DELETED_SHARE * (self.rows + self.deleted_rows)
        return small or deleted or self.delete_files >= _MANY_FILES

    def snapshot_at(self, wanted: Position) -> tuple[int | None, str]:
        """Return the newest snapshot of a window that ends at a position or before it, and that position.

        Snapshots of upkeep and of other programs have no position. None and "" where no snapshot is that old.
        """
        found: tuple[int | None, str] = (None, "")
        for snapshot in self.snapshots:
            to = snapshot["summary"].get(WINDOW_END, "")
            if to and parse_position(to).value <= wanted.value:
                found = int(snapshot["snapshot-id"]), to
        return found

    def __str__(self) -> str:
        """Return its files in words."""
        deletes = f" and {self.delete_files} with deletes" if self.delete_files else ""
        files, snapshots = _count(self.files, "file"), _count(len(self.snapshots), "snapshot")
        return f"{files}{deletes}, {format_bytes(self.size)}, {snapshots}"


def read_lake(catalog: LakeCatalog, targets: Sequence[TableName]) -> Iterator[LakeTable]:
    """Yield the tables that readers see, in the order of ``targets``; without those that cannot be read."""
    locations = catalog.read_locations(targets)
    for target in targets:
        location = locations.get((PUBLISHED, target))
        if location is not None and (found := _read_table(target, location)) is not None:
            yield found


def _read_table(target: TableName, location: str) -> LakeTable | None:
    metadata = read_metadata(location)
    if metadata is None:
        return None
    snapshots = tuple(metadata.get("snapshots", ()))
    current = [each for each in snapshots if each["snapshot-id"] == metadata.get("current-snapshot-id")]
    totals = current[0]["summary"] if current else {}
    deleted = int(totals.get("total-position-deletes", 0))
    return LakeTable(
        target,
        location,
        int(totals.get("total-records", 0)) - deleted,
        deleted,
        int(totals.get("total-data-files", 0)),
        int(totals.get("total-delete-files", 0)),
        int(totals.get("total-files-size", 0)),
        snapshots,
    )


class LakeUpkeep:
    """The upkeep of a lake. close: ends the Spark that it has opened."""

    def __init__(self, warehouse: IcebergWarehouse, close: Callable[[], None]) -> None:
        self._warehouse = warehouse
        self._close = close

    def list_tables(self, targets: Sequence[TableName]) -> list[LakeTable]:
        """Return the tables that readers see. It starts no Spark."""
        self._warehouse.catalog.ensure_schema()
        return list(read_lake(self._warehouse.catalog, targets))

    def keep_tables(
        self, targets: Sequence[TableName], keep: timedelta, *, rewrites: bool = False
    ) -> Iterator[tuple[TableName, str]]:
        """Keep tables, one after the other. Yield each with what was done, in words.

        A table is compacted where that is due, its snapshots are expired, and files that no snapshot has are removed.
        keep: how long readers can go back. rewrites: compact all tables, also where it is not due. Raises the error
        about the first table that could not be kept, after the others.
        """
        self._warehouse.catalog.ensure_schema()
        errors = []
        try:
            for target in targets:
                try:
                    done = _keep(self._warehouse, target, keep, rewrites=rewrites)
                except FloodmarkError as error:
                    errors.append(error)
                    done = f"failed: {error.message.rstrip('.')}"
                yield target, done
        finally:
            self._close()
        if errors:
            raise errors[0]


def _keep(warehouse: IcebergWarehouse, target: TableName, keep: timedelta, *, rewrites: bool) -> str:
    catalog = warehouse.catalog
    base = catalog.begin_upkeep(target)
    if base is None:
        return "left alone: it does not exist, a window of it is unfinished, or another program has written to it"
    try:
        if (before := _read_table(target, base)) is None:
            return f"left alone: its metadata in {local_path(base)} cannot be read, and the next run says what to do"
        session = warehouse.session()
        with spark_errors(str(target)):
            if rewrites or before.is_due:
                _compact(session, target)
            _expire(session, target, datetime.now(UTC) - keep)
        if not catalog.publish_upkeep(target, base):
            return "given up: a window began meanwhile, and the next upkeep does it again"
    finally:
        catalog.end_upkeep(target)
    removed = _remove_orphans(warehouse, session, target)
    [after] = read_lake(catalog, [target])
    return f"was {before}; is {after}; {removed}"


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
    folder = local_path(location).parent.parent
    if not has_own_folder(folder):
        return "no file was removed: the name of its folder may be that of several tables"
    if any(local_path(other).is_relative_to(folder) for other in warehouse.catalog.list_other_locations(target)):
        return "no file was removed: another table has files in its folder"
    before = datetime.now(UTC) - _LONGEST_WINDOW
    with spark_errors(str(target)):
        rows = session.sql(
            f"CALL {PUBLISHED}.system.remove_orphan_files(table => '{_in_call(target)}', "
            f"older_than => TIMESTAMP '{before:%Y-%m-%d %H:%M:%S}+00:00')"
        ).collect()
    return f"{_count(len(rows), 'file')} removed"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
