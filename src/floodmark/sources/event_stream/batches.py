"""``BatchDecoder``: many messages at once, as rows by table, without an object per level of each event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from floodmark.sources.event_stream.change import ChangeEvent, parse_change
from floodmark.sources.event_stream.envelope import Envelope, parse_envelope
from floodmark.sources.event_stream.faults import PoisonError, UnknownVersionError
from floodmark.sources.event_stream.joining import is_whole
from floodmark.sources.event_stream.rows import EventRow, TableForm, event_row, table_form
from floodmark.sources.event_stream.usual_form import UNUSUAL, USUAL_BYTES, UsualMessages


@dataclass(slots=True)
class DecodedBatch:
    """The content of some messages."""

    rows: dict[TableForm, list[EventRow]] = field(default_factory=dict)
    """The rows of each table, in the order of their messages."""
    segments: list[tuple[int, Envelope]] = field(default_factory=list)
    """The messages that are parts of events, with their places in the batch."""
    faults: list[tuple[int, PoisonError]] = field(default_factory=list)
    """The messages that cannot be read, with their places in the batch."""
    unknown: list[tuple[int, UnknownVersionError]] = field(default_factory=list)
    """The messages in other versions of the format, with their places in the batch."""

    def add_change(self, place: int, change: ChangeEvent) -> None:
        """Add a change to the rows of its table."""
        self.rows.setdefault(table_form(change), []).append(event_row(place, change))


class BatchDecoder:
    """Decodes messages. It remembers the descriptions of tables between batches."""

    def __init__(self) -> None:
        self._usual = UsualMessages()

    def decode(self, bodies: Sequence[bytes]) -> DecodedBatch:
        """Return the content of messages, with the faults of those that cannot be read."""
        batch = DecodedBatch()
        self._usual.forget_rows()
        read = self._usual.read
        for place, body in enumerate(bodies):
            try:
                if len(body) >= USUAL_BYTES:
                    raise ValueError
                head, row = read(place, body)
            except UNUSUAL:
                self._decode_unusual(batch, place, body)
                continue
            if head.rows is None:
                head.rows = batch.rows.setdefault(head.form, [])
            head.rows.append(row)
        return batch

    def _decode_unusual(self, batch: DecodedBatch, place: int, body: bytes) -> None:
        try:
            envelope = parse_envelope(body)
            if not is_whole(envelope):
                batch.segments.append((place, envelope))
                return
            batch.add_change(place, parse_change(envelope))
        except PoisonError as fault:
            batch.faults.append((place, fault))
        except UnknownVersionError as fault:
            batch.unknown.append((place, fault))
        else:
            self._usual.learn_guid(envelope.logical_id.guid)
