"""The result of comparing a source table with its target."""

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
    """The columns that differ, for "different"."""

    def __str__(self) -> str:
        key = ", ".join(map(str, self.key))
        return f"key ({key}) is {self.kind}" + (f" in {', '.join(self.columns)}" if self.columns else "")


@dataclass(frozen=True, slots=True)
class TableVerification:
    """The comparison of one table. Rows of the target that are marked as deleted do not count."""

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
        """Return the number of keys whose rows are not the same."""
        return self.missing_rows + self.extra_rows + self.different_rows

    @property
    def equal(self) -> bool:
        """Return whether all rows are the same."""
        return self.different_keys == 0

    @property
    def equal_rows(self) -> int:
        """Return the number of source rows that the target has as they are."""
        return self.source_rows - self.missing_rows - self.different_rows

    def __str__(self) -> str:
        if self.equal:
            return f"{self.source}: equal, {self.source_rows} rows"
        return (
            f"{self.source}: DIFFERENT: {self.missing_rows} missing, {self.extra_rows} extra,"
            f" {self.different_rows} different of {self.source_rows} rows in the source"
        )
