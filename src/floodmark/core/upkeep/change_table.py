"""How large the change tables of a source are: what its capture costs in rows and bytes, until cleanup deletes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


@dataclass(frozen=True, slots=True)
class ChangeTableSize:
    """Of one capture instance. table: whose changes it has, under its name of now. rows, size_bytes: None where the
    login may not see them. low_end: where its validity begins, None where that is not known yet."""

    instance: str
    table: TableName
    rows: int | None
    size_bytes: int | None
    low_end: Lsn | None = None

    def __str__(self) -> str:
        rows = "-" if self.rows is None else f"{self.rows:,}"
        return f"{rows} rows, {format_bytes(self.size_bytes)}"


def format_bytes(size: int | None) -> str:
    """For people, in powers of 1024."""
    if size is None:
        return "-"
    value, unit = float(size), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size} B"


def largest_first(sizes: Iterable[ChangeTableSize]) -> list[ChangeTableSize]:
    return sorted(sizes, key=lambda size: (-(size.size_bytes or 0), size.instance))


def sizes_of(table: TableName, sizes: Iterable[ChangeTableSize]) -> tuple[ChangeTableSize, ...]:
    """Of its capture instances, by their names. A table whose name differs in case alone counts where there is none of
    exactly that name."""
    found = [size for size in sizes if size.table.folded == table.folded]
    exact = [size for size in found if size.table == table]
    return tuple(sorted(exact or found, key=lambda size: size.instance))


def total(values: Sequence[int | None]) -> int | None:
    """None where one is not known, or there is none at all."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
