"""A fleet of devices whose programs write until they are killed, a warehouse, and commands to kill."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from command_line import warehouse_environment
from compact_tracking import ChangeTracking
from torture_rig import PER_SECOND, KillableRig
from torture_troubles import OF_EVERY_SOURCE

DEVICES = 12
TABLES = {
    "orders": "id INTEGER PRIMARY KEY NOT NULL, amount DECIMAL(9,2), note TEXT",
    "visits": "place TEXT PRIMARY KEY, n int",
}


# The pairs of the time before go in one transaction.
_STRANGE_ROWS = """
DELETE FROM orders WHERE abs(id) IN (SELECT -id FROM orders WHERE id < 0);
INSERT OR IGNORE INTO orders (id, amount, note) SELECT -id, amount, note FROM orders WHERE id > 0 LIMIT 5
"""


class FleetTortureRig(KillableRig):
    """Each device has a file. One program writes to all of them, and dies with open transactions."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool) -> None:
        targets = {f"main.{name}": f"shop.{name}" for name in TABLES}
        super().__init__(folder, targets, {"run": 6, "reload": 3}, with_spark=with_spark)
        # Rows of devices cannot be released.
        del self.commands["release"]
        self.has_devices = True
        self._keys_of_pipelines = {}
        self.ruled = ("main.orders", "id")
        self.troubles = (*OF_EVERY_SOURCE, "source restored")
        self._devices = folder / "devices"
        self._seed = seed
        self._program: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._devices.mkdir(parents=True)
        for number in range(DEVICES):
            with closing(sqlite3.connect(self._devices / f"van-{number}.db", isolation_level=None)) as file:
                file.execute("PRAGMA journal_mode = WAL")
                for name, columns in TABLES.items():
                    file.execute(f"CREATE TABLE {name} ({columns})")
                    ChangeTracking(file).enable_tracking(name)
        self.configure({})
        with self.warehouse:
            self.restart_source()
            try:
                yield
            finally:
                self.end_workload()

    def end_workload(self) -> None:
        self.kill_source()
        self._program = None

    def run_at_source(self, statement: str) -> NoReturn:
        raise NotImplementedError(statement)

    def kill_source(self) -> None:
        """kill -9 of the program: SQLite recovers each file when it is opened next."""
        if self._program is not None:
            self._program.kill()
            self._program.wait()

    def restart_source(self) -> None:
        self._seed += 1
        program = [sys.executable, str(Path(__file__).with_name("device_program.py"))]
        self._program = subprocess.Popen([*program, str(self._devices), str(self._seed), str(PER_SECOND * 4)])

    def write_strange_rows(self) -> None:
        self._write(_STRANGE_ROWS)

    def remove_short_lived_rows(self) -> None:
        self._write("DELETE FROM orders WHERE id < 0")

    def _write(self, statements: str) -> None:
        for path in sorted(self._devices.glob("*.db"))[:3]:
            with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as file:
                file.executescript(f"BEGIN IMMEDIATE; {statements}; COMMIT")

    def back_up_source(self) -> None:
        self.kill_source()
        self._copy = self._devices.with_name("copied devices")
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._devices, self._copy)
        self.restart_source()

    def restore_source(self) -> None:
        """Bring back half of the devices."""
        self.kill_source()
        for number in range(0, DEVICES, 2):
            for file in self._devices.glob(f"van-{number}.db*"):
                file.unlink()
            for file in self._copy.glob(f"van-{number}.db*"):
                shutil.copy2(file, self._devices)
        self.restart_source()

    @property
    def source_keys(self) -> dict[str, object]:
        return {"conn_id": "devices", "kind": "compact"}

    def _connections(self) -> dict[str, str]:
        devices = {"conn_type": "fs", "extra": {"path": str(self._devices)}}
        return {"AIRFLOW_CONN_DEVICES": json.dumps(devices), **warehouse_environment(self.warehouse, self._config)}
