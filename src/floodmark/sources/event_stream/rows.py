"""Changes as rows of their tables, for many events at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from floodmark.sources.event_stream.change import ChangeEvent, EventColumn, Image
from floodmark.sources.event_stream.envelope import EventOperation

Values = tuple[str | None, ...]
"""The values of an image in the order of the table's columns."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table as its events describe it. Another set of columns is another form."""

    database: str
    schema: str
    table: str
    columns: tuple[EventColumn, ...]


class EventRow(NamedTuple):
    """A change, as one of the rows of its table. A tuple, because there is one for every event."""

    place: int
    """The place of its message in the batch."""
    committed_at: datetime
    commit_lsn: bytes
    sequence: int
    operation: EventOperation
    key: tuple[tuple[str, str], ...]
    old: Values | None
    """None where the event has no such image."""
    current: Values | None
    """None where the event has no such image."""
    unknown: frozenset[str]
    """The columns of ``old`` whose values the server left out. They are None there, but not NULL."""
    suspected_cuts: frozenset[str]
    absent_values: int
    guid: str
    """The identifier in ``logicalid``."""


def table_form(change: ChangeEvent) -> TableForm:
    """Return the table of a change."""
    return TableForm(change.database, change.schema, change.table, change.columns)


def event_row(place: int, change: ChangeEvent) -> EventRow:
    """Return a change as a row."""
    names = [each.name for each in change.columns]
    return EventRow(
        place,
        change.committed_at,
        change.transaction.commit_lsn.value,
        change.transaction.sequence,
        change.operation,
        tuple(change.key.items()),
        _values(names, change.old),
        _values(names, change.current),
        frozenset(name for name in names if name not in change.old) if change.old else frozenset(),
        change.suspected_cuts,
        change.absent_values,
        change.guid,
    )


def _values(names: list[str], image: Image) -> Values | None:
    return tuple(image.get(name) for name in names) if image else None
