"""A fleet of devices whose programs write until they are killed, a warehouse, and commands to kill."""

from __future__ import annotations

import contextlib
import json
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

DEVICES = 12
TABLES = {
    "orders": "id INTEGER PRIMARY KEY NOT NULL, amount DECIMAL(9,2), note TEXT",
    "visits": "place TEXT PRIMARY KEY, n int",
}
_CONFIG = """
sources: {shop: {conn_id: devices, kind: compact}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables:
      - {source: main.orders, target: shop.orders, deletes: soft}
      - {source: main.visits, target: shop.visits, deletes: hard}
"""


class FleetTortureRig(KillableRig):
    """Each device has a file. One program writes to all of them, and dies with open transactions."""

    def __init__(self, folder: Path, seed: int, *, with_spark: bool) -> None:
        super().__init__(folder, [f"main.{name}" for name in TABLES], {"run": 6, "reload": 3}, with_spark=with_spark)
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
        self._config.write_text(_CONFIG, encoding="utf-8")
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

    def _connections(self) -> dict[str, str]:
        devices = {"conn_type": "fs", "extra": {"path": str(self._devices)}}
        return {"AIRFLOW_CONN_DEVICES": json.dumps(devices), **warehouse_environment(self.warehouse, self._config)}
