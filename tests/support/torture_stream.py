"""An emulator that streams its changes to a folder, and whose deliveries fail at random: some come again."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pymssql

from cdc_database import wait_until
from floodmark_laptop import shop
from torture_command import RunningCommand
from torture_rig import CDC, Recording, TortureRig
from torture_troubles import OF_EVERY_SOURCE

NAMESPACE, HUB = "floods", "shop"
_LEAST_KB = 128


def enable_stream(connection: pymssql.Connection) -> None:
    shop.enable_event_stream(connection, f"{NAMESPACE}.servicebus.windows.net/{HUB}", _LEAST_KB)


STREAM = Recording(
    "event_stream",
    CDC.tables,
    enable_stream,
    {"run": 6, "reload": 3},
    more={"stream_conn_id": "shop_hub"},
    troubles=(*OF_EVERY_SOURCE, "clock set back"),
)
_ROUND_SECONDS = 0.4
_LARGE = """
UPDATE dbo.Customers SET Notes = REPLICATE(CAST(N'"é' AS nvarchar(max)), {characters} / 2)
WHERE CustomerID = (SELECT MAX(CustomerID) FROM dbo.Customers)
"""
_LARGE_PER_COMMAND = 3
"""On a slow machine a command takes minutes. Its captures do not grow with them."""
_FAULTS = ("lost session", "lost session", "unreachable")


class StreamTortureRig(TortureRig):
    """A thread lets deliveries fail. It goes on when the source is there again."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool, recording: Recording = STREAM) -> None:
        self._hubs = folder / "captures"
        self._hub = self._hubs / NAMESPACE / HUB
        self._chance = random.Random(seed)
        self._failing = threading.Event()
        self._catching_up = threading.Event()
        self._large_left = 0
        super().__init__(folder, seed, with_spark=with_spark, recording=recording)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with super().running():
            self._wait_for_hub()
            self._failing.set()
            thread = threading.Thread(target=self._fail_deliveries)
            thread.start()
            try:
                yield
            finally:
                self._failing.clear()
                thread.join()

    def _wait_for_hub(self) -> None:
        """A hub is there before its first message, but its folder is not: a run before that is rightly an error."""
        wait_until(self._hub.is_dir)

    def begin(self, *arguments: str) -> RunningCommand:
        self._large_left = _LARGE_PER_COMMAND
        return super().begin(*arguments)

    def end_workload(self) -> None:
        self._failing.clear()
        super().end_workload()

    def _options(self) -> tuple[str, ...]:
        return "--event-hubs-folder", str(self._hubs)

    def _wait_for_capture(self) -> None:
        """Until everything that is committed now is streamed, in spite of the faults that were asked for.

        No others are asked for meanwhile: on a slow machine they come faster than a delivery ends, and none would.
        """
        self._catching_up.set()
        try:
            wait_until(self._is_streamed)
        finally:
            self._catching_up.clear()

    def _is_streamed(self) -> bool:
        with contextlib.suppress(pymssql.Error):
            self.run_at_source("EXEC emulator.run_event_stream")
            return True
        return False

    def _fail_deliveries(self) -> None:
        while self._failing.is_set():
            if not self._catching_up.is_set():
                with contextlib.suppress(pymssql.Error):
                    self._fail_next_delivery()
            self._ended.wait(_ROUND_SECONDS * self._chance.uniform(1, 4))

    def _fail_next_delivery(self) -> None:
        self.run_at_source(f"EXEC emulator.fail_event_stream N'{self._chance.choice(_FAULTS)}'")
        if self._large_left:
            self._large_left -= 1
            # Events of several messages each, which are dealt to partitions.
            self.run_at_source(_LARGE.format(characters=self._chance.choice([40_000, 200_000])))

    def _connections(self) -> dict[str, str]:
        return super()._connections() | {"AIRFLOW_CONN_SHOP_HUB": self._hub_connection()}

    def _hub_connection(self) -> str:
        return json.dumps({"conn_type": "fs", "extra": {"path": str(self._hub)}})
