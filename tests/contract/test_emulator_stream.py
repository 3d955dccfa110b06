"""Floodmark reads the messages of the emulator's event streams with the values that were written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastavro import reader

from floodmark.sources.event_stream.epochs import BatchDecoder
from sqlserver_emulator.assembly.factory import StreamDestination, open_engine
from sqlserver_emulator.events import ErrorRaised
from sqlserver_emulator.release import SQL_SERVER_2025
from sqlserver_emulator.session import Session

PASSWORD = "a-Password-1"
TABLE = (
    "CREATE TABLE dbo.t (id int PRIMARY KEY, a bigint, b bit, c decimal(9,2), d money, e float, f date, g time(7),"
    " h datetime, i datetime2(7), j datetimeoffset(2), k uniqueidentifier, l varbinary(8), m char(5), n nvarchar(max))"
)
ROW = (
    "INSERT dbo.t VALUES (1, 2, 1, 1.5, 2.5, 0.1, '2026-08-07', '16:25:00.1234567', '2025-03-14 16:45:01',"
    " '2026-08-07 16:25:00.8833333', '2026-08-07 16:25:00.5 -03:30', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 0x0aff,"
    " 'ab', N'Gr\u00fc\u00dfe')"
)


@pytest.fixture(scope="module")
def bodies(open_dir: Path) -> Iterator[list[bytes]]:
    folder = open_dir / "stream-hubs"
    with open_engine(
        open_dir / "stream", ["Shop"], PASSWORD, release=SQL_SERVER_2025, destination=StreamDestination(folder, 1)
    ) as engine:
        session = engine.open_session(login="sa", password=PASSWORD, database="Shop", application="test")
        _run(
            session,
            TABLE,
            "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON",
            "CREATE DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'Managed Identity'",
            "EXEC sys.sp_enable_event_stream",
        )
        for encoding in ("JSON", "Binary"):
            _run(
                session,
                "EXEC sys.sp_create_event_stream_group N'g', N'AzureEventHubsApacheKafka',"
                f" N'floods.servicebus.windows.net/hub', N'c', @encoding = N'{encoding}'",
                "EXEC sys.sp_add_object_to_event_stream_group N'g', N'dbo.t'",
                ROW,
                "UPDATE dbo.t SET a = NULL",
                "DELETE dbo.t",
                "EXEC emulator.run_event_stream",
                "EXEC sys.sp_remove_object_from_event_stream_group N'g', N'dbo.t'",
                "EXEC sys.sp_drop_event_stream_group N'g'",
            )
        session.close()
    found: list[bytes] = []
    for path in sorted(folder.glob("**/*.avro")):
        with path.open("rb") as opened:
            found += [record["Body"] for record in reader(opened) if isinstance(record, dict)]
    yield found


def _run(session: Session, *batches: str) -> None:
    for text in batches:
        for event in session.run_batch(text):
            if isinstance(event, ErrorRaised):
                raise event.error


def test_messages_of_both_encodings_are_read_without_a_fault(bodies: list[bytes]) -> None:
    assert len(bodies) == 6
    batch = BatchDecoder().decode(bodies)
    assert batch.faults == []
    assert batch.segments == []
    assert sum(len(rows) for rows in batch.rows.values()) == len(bodies)
