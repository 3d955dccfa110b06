"""A pipeline over the stream that the emulator writes itself: ``StreamRig``, with the emulator in place of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastavro import reader

from benchmarks.capture_files import CaptureWriter
from emulator_process import Emulator
from floodmark.postgres.session import WarehouseConnection
from stream_rig import StreamRig, stream_rig

_SETUP = (
    "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON",
    "CREATE DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'Managed Identity'",
    "EXEC sys.sp_enable_event_stream",
)


@dataclass
class EmulatedStream:
    """``rig`` reads what the emulator delivers; the table and the pipeline are the rig's."""

    rig: StreamRig

    def begin(self, encoding: str = "JSON", scheme: str = "None", *, has_all_columns: bool = True) -> None:
        """Stream the table in the smallest messages, and deliver its first row."""
        self.rig.client.run(
            "EXEC sys.sp_create_event_stream_group N'g', N'AzureEventHubsApacheKafka',"
            f" N'floods.servicebus.windows.net/{self.rig.log.database}', N'c', @max_message_size_kb = 128,"
            f" @partition_key_scheme = N'{scheme}', @encoding = N'{encoding}'"
        )
        self.rig.client.run(
            "EXEC sys.sp_add_object_to_event_stream_group N'g', N'dbo.Orders',"
            f" @include_all_columns = {int(has_all_columns)}"
        )
        self.deliver("INSERT dbo.Orders VALUES (0, 0, N'first')")

    def deliver(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own, and deliver what they change."""
        for statement in (*statements, "EXEC emulator.run_event_stream"):
            self.rig.client.run(statement)

    def bodies(self) -> list[bytes]:
        """Return every message of the stream, by partition."""
        found = []
        for path in sorted(self.rig.capture.folder.rglob("*.avro")):
            with path.open("rb") as opened:
                found += [record["Body"] for record in reader(opened) if isinstance(record, dict)]
        return found


@contextmanager
def emulated_stream(
    emulator: Emulator, hubs: Path, warehouse: WarehouseConnection, folder: Path
) -> Iterator[EmulatedStream]:
    """Create a database with the table and a stream. hubs: the emulator's ``--event-hubs-folder``."""
    with stream_rig(emulator, warehouse, folder) as rig:
        for statement in _SETUP:
            rig.client.run(statement)
        rig.capture = CaptureWriter(hubs / "floods" / rig.log.database)
        yield EmulatedStream(rig)
