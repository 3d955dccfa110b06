"""The file of metadata of a table: whether it is still the one that was published last, and which files it has.

Commits of other programs may come after the one that was published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import TargetLostError, command_line
from floodmark.core.plan import TablePlan
from floodmark.core.position import Position, parse_position
from floodmark.core.schema import TableName
from floodmark.core.upkeep import format_bytes
from floodmark.iceberg.folder import plain_location
from floodmark.iceberg.lake import PUBLISHED

if TYPE_CHECKING:
    from floodmark.iceberg.folder import LakeFolder
    from floodmark.iceberg.lake import LakeCatalog

NO_SNAPSHOT = (None, -1)
"""The numbers that writers give to the newest snapshot of a table without one."""


def refuse_lost(folder: LakeFolder, table: TablePlan, published: str | None, found: str | None) -> None:
    """Raise TargetLostError where the changes of a table would not be merged into all that was loaded before.

    folder: of the lake. published: the location that Floodmark published last. found: the one that readers see now;
    None: there is no table.
    """
    if found is None:
        raise _lost(table, "does not exist, and was loaded before")
    if published is None:
        raise _lost(table, "is not the one that was loaded: no window has published it")
    now = _require_metadata(folder, table, found)
    if published == found:
        return
    before = _require_metadata(folder, table, published)
    if before["table-uuid"] != now["table-uuid"]:
        raise _lost(table, "was dropped and made again")
    if not _follows(before, now):
        raise _lost(table, "was set back to an earlier state")
    if gone := sorted(_columns(before) - _columns(now)):
        raise _lost(table, f"has lost columns: {', '.join(name for _, name in gone)}")


def _lost(table: TablePlan, what: str) -> TargetLostError:
    return TargetLostError(
        str(table.source),
        f"the table {table.target} of the lake {what}.",
        "Nothing was merged. Restore the table, by Iceberg's rollback_to_snapshot or from a backup of the catalog. Or "
        f"reload it: {command_line('reload', 'PIPELINE', table.source)}.",
    )


def read_metadata(folder: LakeFolder, location: str | None) -> dict[str, Any] | None:
    """Return the metadata of a table; None where it is gone, or is none: then Iceberg cannot even drop the table.

    location: None for a table that the catalog does not have.
    Raises WarehouseUnavailableError where it cannot be read now.
    """
    found = folder.read(location) if location else None
    try:
        return None if found is None else dict(json.loads(found))
    except ValueError:
        return None


def _require_metadata(folder: LakeFolder, table: TablePlan, location: str) -> dict[str, Any]:
    if (found := read_metadata(folder, location)) is None:
        raise _lost(table, f"has no readable metadata in {plain_location(location)}")
    return found


def _follows(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether the newest snapshot of a table is, or has come after, that of an earlier state of it."""
    wanted = before.get("current-snapshot-id")
    if wanted in NO_SNAPSHOT:
        return True
    snapshots = {each["snapshot-id"]: each for each in now.get("snapshots", ())}
    newest = current = now.get("current-snapshot-id")
    while current in snapshots:
        if current == wanted:
            return True
        current = snapshots[current].get("parent-snapshot-id")
    if current is None or newest not in snapshots:
        return False
    # Its ancestors are expired. What a table is set back to has a lower number.
    [then] = [each for each in before["snapshots"] if each["snapshot-id"] == wanted]
    return bool(snapshots[newest]["sequence-number"] > then["sequence-number"])


def _columns(metadata: Mapping[str, Any]) -> set[tuple[int, str]]:
    """Return the columns of a table. One that is made again has another number."""
    [schema] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    return {(each["id"], each["name"]) for each in schema["fields"]}


# --------------------------------------------------------------------------------------------------------------------
# The files of a table, as its metadata has them.


WINDOW_END, REPLAYED, OF_RELEASE = "floodmark.to", "floodmark.replayed", "floodmark.released"
"""The properties of a snapshot with the position up to which it has all changes, that of a replay, or of a release."""
_MANY_FILES = 20
_DELETED_SHARE = 0.1
"""Delete files, or deleted rows as a share of all, from which on a scan takes a quarter longer: a merge costs that much
again after two more windows."""
_SMALL_BYTES = 32 * 1024 * 1024


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
    snapshot: int | None
    """The number of the newest snapshot."""
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
        files, snapshots = count_of(self.files, "file"), count_of(len(self.snapshots), "snapshot")
        return f"{files}{deletes}, {format_bytes(self.size)}, {snapshots}"


def read_lake(catalog: LakeCatalog, targets: Sequence[TableName]) -> Iterator[LakeTable]:
    """Yield the tables that readers see, in the order of ``targets``; without those that cannot be read."""
    locations = catalog.read_locations(targets) if catalog.exists() else {}
    for target in targets:
        location = locations.get((PUBLISHED, target))
        if location is not None and (found := read_table(catalog.folder, target, location)) is not None:
            yield found


def list_lost(catalog: LakeCatalog, targets: Sequence[TableName]) -> tuple[int, Mapping[TableName, str]]:
    """Return the number of tables that readers see, and where the metadata of those is said to be that lost it.

    The other catalogs may name files that are gone: what was given up is removed one day.
    """
    found = catalog.read_locations(targets) if catalog.exists() else {}
    seen = {target: location for (name, target), location in found.items() if name == PUBLISHED}
    lost = {
        target: plain_location(location)
        for target, location in seen.items()
        if read_metadata(catalog.folder, location) is None
    }
    return len(seen), lost


def read_table(folder: LakeFolder, target: TableName, location: str) -> LakeTable | None:
    """Return the table that a file of metadata describes; None where that is gone."""
    metadata = read_metadata(folder, location)
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
        int(current[0]["snapshot-id"]) if current else None,
        snapshots,
    )


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
