"""Files of Event Hubs Capture, written as Azure writes them (docs/reference/event_stream.md, "Capture folders")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastavro import writer

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
_BYTES_OF_OFFSET = 400


@dataclass
class CaptureWriter:
    """Writes files below ``folder``, that of an event hub. Each call of ``write`` is a file that is a minute later."""

    folder: Path
    closed_at: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    block_bytes: int = 2_000
    """The bytes of a block of a file, before it is compressed."""
    next: dict[int, int] = field(default_factory=dict)
    """The number of the next message by partition."""

    def write(self, partition: int, bodies: Sequence[bytes | None]) -> Path:
        """Write messages as one file. It gets its name when it is whole."""
        self.closed_at += timedelta(minutes=1)
        first = self.next.get(partition, 0)
        self.next[partition] = first + len(bodies)
        path = self.folder / str(partition) / f"{self.closed_at:%Y/%m/%d/%H/%M/%S}.avro"
        path.parent.mkdir(parents=True, exist_ok=True)
        records: list[dict[str, Any]] = [
            {
                "SequenceNumber": number,
                "Offset": str(number * _BYTES_OF_OFFSET),
                "EnqueuedTimeUtc": f"{self.closed_at:%m/%d/%Y %H:%M:%S}",
                "SystemProperties": {},
                "Properties": {},
                "Body": body,
            }
            for number, body in enumerate(bodies, first)
        ]
        with path.with_suffix(".part").open("wb") as opened:
            writer(opened, EVENT_DATA, records, codec="deflate", sync_interval=self.block_bytes)
        path.with_suffix(".part").rename(path)
        return path
