"""The chunks of a first load: ranges of the key with bounds that the server chose, and how many have been read.

Bounds go back to the server as the values they came as and are compared by the server alone: its order of a
uniqueidentifier, or of a text, is not Python's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Bound = tuple[int | str | bytes | Decimal, ...]
"""A value for each column of the key."""


@dataclass(frozen=True, slots=True)
class LoadChunk:
    """The keys after ``after`` up to and including ``to``; None: no bound on that side."""

    number: int
    """0-based, in key order."""
    after: Bound | None
    to: Bound | None


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk in the ledger."""

    chunk: LoadChunk
    staged_rows: int | None = None
    """None: not staged yet."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of a table's chunks."""

    chunks: int
    staged_chunks: int
    rows: int
    """The rows in staging."""

    @property
    def percent(self) -> int:
        """Return the percentage of chunks that are staged, 100 when all are.

        All chunks have the same number of rows, except the last one.
        """
        return 100 * self.staged_chunks // self.chunks if self.chunks else 0

    @property
    def rows_left(self) -> float | None:
        """Return about how many rows are not staged; None before the first chunk."""
        return self.rows / self.staged_chunks * (self.chunks - self.staged_chunks) if self.staged_chunks else None

    def __str__(self) -> str:
        return f"{self.percent} %, {self.rows:,} rows"


def plan_chunks(bounds: Sequence[Bound]) -> tuple[LoadChunk, ...]:
    """Return the chunks of the whole table, cut at ``bounds`` (in the server's order). The first and last are open."""
    ends: list[Bound | None] = [None, *bounds, None]
    return tuple(LoadChunk(number, ends[number], ends[number + 1]) for number in range(len(ends) - 1))


def select_lost(stored: Sequence[StoredChunk], found_rows: Mapping[int, int]) -> tuple[int, ...]:
    """Return the numbers of the chunks whose rows in staging are not those that count as staged.

    A crash of the warehouse empties tables that are not logged. A ledger that was restored gives the number of a lost
    window again, whose staging table may still have chunks. found_rows: rows in staging, by number of the chunk.
    """
    staged = {each.chunk.number: each.staged_rows for each in stored if each.staged_rows is not None}
    return tuple(
        number for number in sorted({*staged, *found_rows}) if staged.get(number, 0) != found_rows.get(number, 0)
    )


def progress_of(stored: Sequence[StoredChunk]) -> LoadProgress:
    """Return the progress of the chunks of a table."""
    staged = [each.staged_rows for each in stored if each.staged_rows is not None]
    return LoadProgress(len(stored), len(staged), sum(staged))


def bound_to_json(bound: Bound | None) -> list[Any] | None:
    """Return a form that JSON can hold and ``bound_from_json`` reads back to the same values."""
    return None if bound is None else [_value_to_json(value) for value in bound]


def bound_from_json(document: Sequence[Any] | None) -> Bound | None:
    """Return the bound of a JSON document."""
    return None if document is None else tuple(_value_from_json(value) for value in document)


def chunk_to_json(chunk: LoadChunk) -> dict[str, Any]:
    """Return a form that JSON can hold and ``chunk_from_json`` reads back."""
    return {"number": chunk.number, "after": bound_to_json(chunk.after), "to": bound_to_json(chunk.to)}


def chunk_from_json(document: Mapping[str, Any]) -> LoadChunk:
    """Return the chunk of a JSON document."""
    return LoadChunk(document["number"], bound_from_json(document["after"]), bound_from_json(document["to"]))


def _value_to_json(value: int | str | bytes | Decimal) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    return value


def _value_from_json(value: Any) -> int | str | bytes | Decimal:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"]) if "bytes" in value else Decimal(value["decimal"])
    found: int | str = value
    return found
