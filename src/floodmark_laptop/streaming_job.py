"""The event stream of ``make run-sources``: the emulator writes it to a capture folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymssql

from floodmark_laptop import shop
from floodmark_laptop.main_job import Job

if TYPE_CHECKING:
    from floodmark_laptop.stack import Stack

CONNECTION_ID = "shop_hub"
PIPELINE = "streamed"
_NAMESPACE, _HUB = "floods", "shop"
_MESSAGE_KB = 128


@dataclass(frozen=True)
class CapturedHub:
    """An event hub whose messages the emulator writes to a capture folder below ``folder``."""

    folder: Path

    @property
    def emulator_options(self) -> tuple[str, ...]:
        """Return the options with which the emulator streams."""
        return "--event-hubs-folder", str(self.folder)

    def connection(self) -> dict[str, Any]:
        """Return the connection of the stream, for Airflow."""
        return {"conn_type": "fs", "extra": {"path": str(self.folder / _NAMESPACE / _HUB)}}

    def clear(self) -> None:
        """Remove what an earlier run has streamed. The emulator streams nothing yet."""
        shutil.rmtree(self.folder, ignore_errors=True)


def sources_job() -> Job:
    """Return the job over a database that tracks its changes, and that streams them too."""

    def enable(stack: Stack, connection: pymssql.Connection) -> None:
        shop.enable_change_tracking(connection)
        shop.enable_event_stream(connection, f"{_NAMESPACE}.servicebus.windows.net/{_HUB}", _MESSAGE_KB)

    return Job("express", "change tracking and an event stream", enable, wait_for_stream, also=(PIPELINE,))


def wait_for_stream(stack: Stack, note: str) -> None:
    """Wait until everything is streamed. Change tracking needs no waiting. The note is not read."""
    with stack.connect_source() as connection:
        connection.cursor().execute("EXEC emulator.run_event_stream")
