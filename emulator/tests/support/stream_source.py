"""A database with an event stream, and the messages in its capture folder, read with plain Avro and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from fastavro import reader

from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.events import ErrorRaised, Rows
from sqlserver_emulator.session import Session

PASSWORD = "a-Password-1"
SETUP = (
    "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON",
    "IF NOT EXISTS (SELECT 1 FROM sys.database_scoped_credentials)"
    " CREATE DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'Managed Identity'",
    "EXEC sys.sp_enable_event_stream",
)


class Source:
    """A session in a database with a stream, and what its folder holds."""

    def __init__(self, engine: Engine, session: Session, folder: Path) -> None:
        self.engine, self.session, self.folder = engine, session, folder

    def run(self, *batches: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for text in batches:
            rows = []
            for event in self.session.run_batch(text):
                if isinstance(event, ErrorRaised):
                    raise event.error
                if isinstance(event, Rows):
                    rows.extend(event.rows)
        return rows

    def records(self, hub: str) -> dict[int, list[dict[str, Any]]]:
        """The records of each partition, in the order of paths."""
        found: dict[int, list[dict[str, Any]]] = {}
        for path in sorted((self.folder / "floods" / hub).glob("*/**/*.avro")):
            with path.open("rb") as opened:
                records = cast("Iterable[dict[str, Any]]", reader(opened))
                found.setdefault(int(path.parts[-7]), []).extend(records)
        return found

    def events(self, hub: str) -> list[tuple[str, dict[str, Any]]]:
        """Operation and data of each event, in the order of the log."""
        self.run("EXEC emulator.run_event_stream")
        bodies = [json.loads(each["Body"]) for records in self.records(hub).values() for each in records]
        found = [(body["operation"], json.loads(body["data"])) for body in bodies]
        return sorted(found, key=lambda each: place_of(each[1]))

    def group(self, name: str, *options: str) -> None:
        self.run(
            f"EXEC sys.sp_create_event_stream_group @stream_group_name = N'{name}',"
            " @destination_type = N'AzureEventHubsApacheKafka',"
            f" @destination_location = N'floods.servicebus.windows.net:9093/{name}', @destination_credential = N'c'"
            + "".join(f", {option}" for option in options)
        )

    def add(self, group: str, table: str, *options: str) -> None:
        self.run(f"EXEC sys.sp_add_object_to_event_stream_group N'{group}', N'{table}'" + "".join(options))


def place_of(data: dict[str, Any]) -> tuple[str, int]:
    transaction = data["eventsource"]["transaction"]
    return transaction["commitlsn"], transaction["sequencenumber"]
