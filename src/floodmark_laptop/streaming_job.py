"""The event stream of ``make run-sources``: a thread streams what is captured, while pipelines read the database."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymssql

from floodmark_laptop import shop
from floodmark_laptop.capture_files import CaptureWriter
from floodmark_laptop.main_job import Job, wait_for_capture
from floodmark_laptop.processes import LaptopError
from floodmark_laptop.streaming import ChangeStreamer

if TYPE_CHECKING:
    from floodmark_laptop.stack import Stack

CONNECTION_ID = "shop_hub"
PIPELINE = "streamed"
_ROUND_SECONDS = 0.5


class BackgroundStreaming:
    """``folder`` is that of the event hub. The thread begins with ``start`` and ends with ``finish``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._streamer: ChangeStreamer | None = None
        self._error: BaseException | None = None

    def connection(self) -> dict[str, Any]:
        """Return the connection of the stream, for Airflow."""
        return {"conn_type": "fs", "extra": {"path": str(self.folder)}}

    def start(self, stack: Stack) -> None:
        """Begin to stream what the database captures."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        tables, writer = list(shop.TABLES), CaptureWriter(self.folder)
        self._streamer = ChangeStreamer(stack.connect_source, shop.DATABASE, tables, writer)
        self._thread = threading.Thread(target=self._run, name="streaming", daemon=True)
        self._thread.start()
        stack.say(f"event stream: changes go to {self.folder}")

    def finish(self) -> None:
        """Stop, and stream what is left. Raises LaptopError where streaming has failed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
        if self._error is not None or self._streamer is None:
            raise LaptopError(f"the event stream failed: {self._error}") from self._error
        while self._streamer.send():
            continue

    def _run(self) -> None:
        try:
            while not self._stop.wait(_ROUND_SECONDS):
                if self._streamer is not None:
                    self._streamer.send()
        except (pymssql.Error, OSError) as error:
            self._error = error


def sources_job(streaming: BackgroundStreaming) -> Job:
    """Return the job over a database that tracks its changes, and whose changes are streamed too."""

    def enable(stack: Stack, connection: pymssql.Connection) -> None:
        shop.enable_change_tracking(connection)
        # For the stand-in that streams: no pipeline reads what is captured.
        shop.enable_cdc(connection)
        streaming.start(stack)

    def wait(stack: Stack, note: str) -> None:
        wait_for_capture(stack, note)
        streaming.finish()

    return Job("express", "change tracking and an event stream", enable, wait, also=(PIPELINE,))
