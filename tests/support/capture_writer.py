"""A topic as files of Event Hubs Capture, written as Azure writes them, and changes of rows as its messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fastavro import writer

from floodmark.sources.event_stream.encoding import MessageForm, OutgoingChange, encode_change

_VALUES = ["long", "double", "string", "bytes"]
EVENT_DATA = {
    "type": "record",
    "name": "EventData",
    "namespace": "Microsoft.ServiceBus.Messaging",
    "fields": [
        {"name": "SequenceNumber", "type": "long"},
        {"name": "Offset", "type": "string"},
        {"name": "EnqueuedTimeUtc", "type": "string"},
        {"name": "SystemProperties", "type": {"type": "map", "values": _VALUES}},
        {"name": "Properties", "type": {"type": "map", "values": [*_VALUES, "null"]}},
        {"name": "Body", "type": ["null", "bytes"]},
    ],
}
"""As the files of Event Hubs Capture declare it (docs/reference/event_stream.md, "Capture folders")."""
GUID = "9c8d4ad2-bf54-4f10-a96f-038af496997f"


@dataclass
class CaptureWriter:
    """Writes files below ``folder``, that of an event hub. Each call of ``write`` is a file that is a minute later."""

    folder: Path
    closed_at: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    next: dict[int, int] = field(default_factory=dict)
    """The number of the next message by partition."""

    def write(self, partition: int, bodies: Sequence[bytes | None]) -> Path:
        self.closed_at += timedelta(minutes=1)
        first = self.next.get(partition, 0)
        self.next[partition] = first + len(bodies)
        path = self.folder / str(partition) / f"{self.closed_at:%Y/%m/%d/%H/%M/%S}.avro"
        path.parent.mkdir(parents=True, exist_ok=True)
        records = [
            {
                "SequenceNumber": number,
                "Offset": str(number * 400),
                "EnqueuedTimeUtc": f"{self.closed_at:%m/%d/%Y %H:%M:%S}",
                "SystemProperties": {},
                "Properties": {},
                "Body": body,
            }
            for number, body in enumerate(bodies, first)
        ]
        with path.with_suffix(".part").open("wb") as opened:
            writer(opened, EVENT_DATA, records, codec="deflate", sync_interval=2000)
        path.with_suffix(".part").rename(path)
        return path


@dataclass
class ChangeLog:
    """The log of a database: gives changes of rows their places, and makes events of them."""

    database: str
    columns: tuple[tuple[str, str, int], ...]
    """Of the table: name, declared type and 0-based place."""
    key: str
    table: str = "Orders"
    guid: str = GUID
    form: MessageForm = field(default_factory=MessageForm)
    commits: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def commit(self, *changes: tuple[Mapping[str, str | None], Mapping[str, str | None]]) -> list[bytes]:
        """Return the messages of a transaction. Each change has the row before and after it, {} for none."""
        number = next(self.commits)
        return [
            body
            for sequence, (old, current) in enumerate(changes, 1)
            for body in self.event(number, sequence, old, current)
        ]

    def event(
        self, commit: int, sequence: int, old: Mapping[str, str | None], current: Mapping[str, str | None]
    ) -> list[bytes]:
        """Return the messages of one change."""
        ids = itertools.count()
        operation = "UPD" if old and current else "DEL" if old else "INS"
        change = OutgoingChange(
            database=self.database,
            schema="dbo",
            table=self.table,
            columns=self.columns,
            key=((self.key, str((current or old)[self.key])),),
            guid=self.guid,
            commit_lsn=(0x2A << 48 | commit << 16 | 1).to_bytes(10),
            begin_lsn=(0x2A << 48 | commit << 16).to_bytes(10),
            sequence=sequence,
            committed_at=datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(milliseconds=commit),
            operation=operation,
            old=old,
            current=current,
        )
        return encode_change(change, self.form, lambda: f"{next(ids):036}")


def spread(bodies: Iterable[bytes], partitions: int) -> dict[int, list[bytes]]:
    """Return messages dealt to partitions in turn, as the server does without a key."""
    dealt: dict[int, list[bytes]] = {}
    for place, body in enumerate(bodies):
        dealt.setdefault(place % partitions, []).append(body)
    return dealt
