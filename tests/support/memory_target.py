"""A target table in memory, with the merge by LSN that every warehouse has. Part of ``memory_warehouse``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.plan import TableCounts, TablePlan
from floodmark.core.schema import OPERATION_COLUMN, POSITION_COLUMN, Operation, keep_column, optional_columns
from floodmark.core.settings import Deletes

Values = Mapping[str, Any]
Key = tuple[Any, ...]


def key_of(table: TablePlan, row: Values) -> Key:
    """Return the key of a staged or stored row."""
    return tuple(row[name] for name in table.in_target.key)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of the target."""

    values: Values
    lsn: bytes
    deleted: bool
    """Whether a soft delete has marked it."""


@dataclass(slots=True)
class MemoryTarget:
    """The rows of a target, and the tombstones of its hard deletes."""

    rows: dict[Key, StoredRow] = field(default_factory=dict)
    tombstones: dict[Key, bytes] = field(default_factory=dict)

    def copy(self) -> MemoryTarget:
        """Return a target with the same rows, which changes on its own."""
        return MemoryTarget(dict(self.rows), dict(self.tombstones))

    def living(self) -> list[Values]:
        """Return the rows that are not marked as deleted."""
        return [row.values for row in self.rows.values() if not row.deleted]

    def merge(self, table: TablePlan, staged: Sequence[Values]) -> TableCounts:
        """Merge staged rows, one per key, and count what became of them."""
        became = Counter(self._merge_row(table, row) for row in staged)
        return TableCounts(
            staged_rows=len(staged),
            inserted_rows=became["inserted"],
            updated_rows=became["updated"],
            deleted_rows=became["deleted"],
            unchanged_rows=became["unchanged"],
        )

    def _merge_row(self, table: TablePlan, row: Values) -> str:
        key, lsn, stored = key_of(table, row), row[POSITION_COLUMN], self.rows.get(key_of(table, row))
        if lsn < self.tombstones.get(key, b"") or (stored is not None and lsn < stored.lsn):
            return "unchanged"
        is_delete = row[OPERATION_COLUMN] == Operation.DELETE.value
        if is_delete and table.settings.deletes is Deletes.HARD:
            self.tombstones[key] = lsn
            self.rows.pop(key, None)
        else:
            self.rows[key] = StoredRow(_merged_values(table, row, stored), lsn, is_delete)
        if stored is None or stored.deleted:
            return "unchanged" if is_delete else "inserted"
        if is_delete:
            return "deleted"
        return "updated" if lsn > stored.lsn else "unchanged"


def _merged_values(table: TablePlan, row: Values, stored: StoredRow | None) -> Values:
    """Return the staged values, with the stored value of each LOB that the change row left out."""
    source = table.in_target
    values = {column.name: row[column.name] for column in source.stored_columns}
    for name in optional_columns(source):
        if row[keep_column(name)] and stored is not None:
            values[name] = stored.values[name]
    return values
