"""The sizes of the change tables of a source: the rows and bytes of its captured changes until cleanup deletes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from floodmark.core.position import Position
from floodmark.core.schema import TableName

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


@dataclass(frozen=True, slots=True)
class ChangeTableSize:
    """The size of the change table of a capture instance."""

    instance: str
    table: TableName
    """The tracked table, under its current name."""
    rows: int | None
    """None where the login may not see it."""
    size_bytes: int | None
    """None where the login may not see it."""
    low_end: Position | None = None
    """Where its validity begins; None where that is not known yet."""

    def __str__(self) -> str:
        rows = "-" if self.rows is None else f"{self.rows:,}"
        return f"{rows} rows, {format_bytes(self.size_bytes)}"


def format_bytes(size: int | None) -> str:
    """Return a size as text, in powers of 1024."""
    if size is None:
        return "-"
    value, unit = float(size), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size} B"


def largest_first(sizes: Iterable[ChangeTableSize]) -> list[ChangeTableSize]:
    """Return the sizes, largest first."""
    return sorted(sizes, key=lambda size: (-(size.size_bytes or 0), size.instance))


def sizes_of(table: TableName, sizes: Iterable[ChangeTableSize]) -> tuple[ChangeTableSize, ...]:
    """Return the sizes for the capture instances of a table, by their names.

    Tables whose name differs in case alone count where there is none of exactly that name.
    """
    found = [size for size in sizes if size.table.folded == table.folded]
    exact = [size for size in found if size.table == table]
    return tuple(sorted(exact or found, key=lambda size: size.instance))


def table_sizes(
    tables: Iterable[TableName], sizes: Sequence[ChangeTableSize]
) -> dict[TableName, tuple[int | None, int | None]]:
    """Return rows and bytes of all change tables of each table. Tables of which nothing is known are left out."""
    found = {}
    for table in tables:
        own = sizes_of(table, sizes)
        measured = total([size.rows for size in own]), total([size.size_bytes for size in own])
        if measured != (None, None):
            found[table] = measured
    return found


def total(values: Sequence[int | None]) -> int | None:
    """Return the sum, None where a value is unknown or there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
