"""What the comparison of a source table with its target found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from floodmark.core.schema import TableName


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A key whose row is not the same in source and target."""

    key: tuple[Any, ...]
    kind: str
    """Either "missing" in the target, "extra" in it, or "different"."""
    columns: tuple[str, ...] = ()
    """Those that differ, for "different"."""

    def __str__(self) -> str:
        key = ", ".join(map(str, self.key))
        return f"key ({key}) is {self.kind}" + (f" in {', '.join(self.columns)}" if self.columns else "")


@dataclass(frozen=True, slots=True)
class TableVerification:
    """The comparison of one table, in rows. Those of the target leave out rows that are marked as deleted."""

    source: TableName
    target: TableName
    source_rows: int
    target_rows: int
    missing_rows: int
    extra_rows: int
    different_rows: int
    differences: tuple[RowDifference, ...]
    """The first ones, by key; the counts are complete."""

    @property
    def different_keys(self) -> int:
        return self.missing_rows + self.extra_rows + self.different_rows

    @property
    def equal(self) -> bool:
        return self.different_keys == 0

    @property
    def equal_rows(self) -> int:
        return self.source_rows - self.missing_rows - self.different_rows

    def __str__(self) -> str:
        if self.equal:
            return f"{self.source}: equal, {self.source_rows} rows"
        return (
            f"{self.source}: DIFFERENT: {self.missing_rows} missing, {self.extra_rows} extra,"
            f" {self.different_rows} different of {self.source_rows} rows in the source"
        )
