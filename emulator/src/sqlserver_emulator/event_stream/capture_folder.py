"""A folder of Event Hubs Capture as the destination (docs/reference/event_stream.md, "Capture folders").

Below the folder of a hub: ``<partition>/YYYY/MM/DD/HH/mm/ss.avro``. The order of paths is the order of numbers.
"""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from fastavro import parse_schema, reader, writer

from sqlserver_emulator.event_stream.destination import Hub, HubMessage
from sqlserver_emulator.event_stream.messages import stream_error

_VALUES = ["long", "double", "string", "bytes"]
_EVENT_DATA = parse_schema(
    {
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
)
_NAME = "%Y/%m/%d/%H/%M/%S.avro"


@dataclass(slots=True)
class _End:
    """The place after the last file of a partition."""

    number: int
    offset: int
    closed_at: datetime | None


class CaptureFolder:
    """The hubs below one folder. ``partitions``: how many each hub has. Not thread-safe."""

    takes_amqp = True

    def __init__(self, folder: Path, partitions: int) -> None:
        self._partitions = partitions
        self._folder = folder
        self._ends: dict[Path, _End] = {}
        self._turns = count()

    def send(self, hub: Hub, messages: Sequence[HubMessage]) -> None:
        """Write one file for each partition. Raises 23679."""
        dealt: dict[int, list[bytes]] = defaultdict(list)
        for key, body in messages:
            dealt[self._partition(key)].append(body)
        for partition, bodies in dealt.items():
            self._append(hub.path, partition, bodies)

    def close(self) -> None:
        """Nothing is open."""

    def _partition(self, key: str | None) -> int:
        number = next(self._turns) if key is None else zlib.crc32(key.encode("utf-8", "surrogatepass"))
        return number % self._partitions

    def _append(self, hub: str, partition: int, bodies: Sequence[bytes]) -> None:
        """Write messages as one file, which gets its name when it is whole."""
        folder = self._folder / hub / str(partition)
        end = self._ends.get(folder) or _read_end(folder)
        now = datetime.now(UTC).replace(microsecond=0)
        # Two files of one second would have one name.
        closed_at = now if end.closed_at is None else max(now, end.closed_at + timedelta(seconds=1))
        records: list[dict[str, object]] = []
        number, offset = end.number, end.offset
        for body in bodies:
            records.append(
                {
                    "SequenceNumber": number,
                    "Offset": str(offset),
                    "EnqueuedTimeUtc": f"{now:%m/%d/%Y %H:%M:%S}",
                    "SystemProperties": {},
                    "Properties": {},
                    "Body": body,
                }
            )
            number, offset = number + 1, offset + len(body)
        path = folder / closed_at.strftime(_NAME)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            with part.open("wb") as opened:
                writer(opened, _EVENT_DATA, records, codec="deflate")
                # The position in the log is stored next: what it covers has to survive a crash of the machine too.
                opened.flush()
                os.fsync(opened.fileno())
            part.rename(path)
        except OSError as error:
            raise stream_error(23679, hub, error.strerror) from error
        self._ends[folder] = _End(number, offset, closed_at)


def _read_end(folder: Path) -> _End:
    """Return where the last file ended, so that numbers go on after a restart."""
    last = max(folder.glob("*/*/*/*/*/*.avro"), default=None)
    if last is None:
        return _End(0, 0, None)
    closed_at = datetime.strptime(last.relative_to(folder).as_posix(), _NAME).replace(tzinfo=UTC)
    with last.open("rb") as opened:
        *_, record = reader(opened)
    if not isinstance(record, dict):
        raise TypeError
    return _End(int(record["SequenceNumber"]) + 1, int(record["Offset"]) + len(record["Body"]), closed_at)
