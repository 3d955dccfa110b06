"""``GuardedPipeline`` over the files of two devices. The rows that tests write are those of the first one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from guarded_pipeline import PIPELINE, GuardedPipeline
from guarded_servers import Elsewhere

from compact_tracking import ChangeTracking
from emulator_process import Emulator
from fleet_rig import FleetRig, fleet_settings
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.ports import OpenReader

_DEVICE = "van-1"
_TABLES = (
    "CREATE TABLE Orders (Id INTEGER PRIMARY KEY NOT NULL, Amount DECIMAL(9,2), Note TEXT)",
    "CREATE TABLE Others (Id INTEGER PRIMARY KEY NOT NULL)",
)


class FleetPipeline(GuardedPipeline):
    kind = "compact"
    elsewhere: ClassVar = {"instance_replaced"}
    began_again: ClassVar = {"instance_replaced"}
    restored: ClassVar = {"ahead_of_source"}
    schema = "main"

    def __init__(self, warehouse: WarehouseConnection, folder: Path) -> None:
        super().__init__(warehouse)
        devices = folder / "devices"
        devices.mkdir()
        self.rig = FleetRig(devices, warehouse, fleet_settings())
        for device in (_DEVICE, "van-2"):
            self._make(device)

    @property
    def source(self) -> Any:
        return self.rig.source

    def open_reader(self) -> OpenReader:
        return self.rig.open_reader()

    def reload(self) -> None:
        """Let the next run read again the devices that are left out, or else load the tables."""
        stopped = self.ledger.list_stopped_members(PIPELINE)
        for table, each in stopped:
            self.ledger.forget_mark(PIPELINE, table, each.table.name)
        if not stopped:
            super().reload()

    def put(self, *rows: tuple[int, str]) -> None:
        statements = [
            f"INSERT OR REPLACE INTO Orders (Id, Amount, Note) VALUES ({key}, {key}, '{note}')" for key, note in rows
        ]
        self.rig.run(_DEVICE, "BEGIN", *statements, "COMMIT")

    def remove(self, key: int) -> None:
        self.rig.run(_DEVICE, f"DELETE FROM Orders WHERE Id = {key}")

    def put_other(self, key: int) -> None:
        self.rig.run(_DEVICE, f"INSERT INTO Others (Id) VALUES ({key})")

    def pass_keys_on(self) -> None:
        moves = [(3, -1), (2, 3), (1, 2), (-1, 1)]
        statements = [f"UPDATE Orders SET Id = {new} WHERE Id = {old}" for old, new in moves]
        self.rig.run(_DEVICE, "BEGIN", *statements, "COMMIT")

    def lag(self) -> Any:
        raise AssertionError("a file has one state")

    @contextmanager
    def lead_elsewhere(self) -> Iterator[None]:
        kept = self.rig.back_up(_DEVICE)
        self.rig.remove(_DEVICE)
        self._make(_DEVICE)
        self.put((2, "of another device"))
        yield
        self.rig.put_back(_DEVICE, kept)

    def begin_again(self) -> None:
        with closing(sqlite3.connect(self.rig.path(_DEVICE), isolation_level=None)) as file:
            ChangeTracking(file).disable_tracking("Orders")
            file.execute("UPDATE Orders SET Note = 'between' WHERE Id = 1")
            ChangeTracking(file).enable_tracking("Orders")

    def back_up(self) -> Path:
        return self.rig.back_up(_DEVICE)

    def restore(self, backup: Any) -> None:
        self.rig.put_back(_DEVICE, backup)
        for number in range(100, 105):
            self.put((number, "since"))

    def spoil(self) -> None:
        self.rig.run(_DEVICE, "INSERT INTO Orders (Id, Amount, Note) VALUES (9, 'a lot', 'spoilt')")

    def correct(self) -> None:
        self.put((9, "corrected"))

    def break_feed(self) -> None:
        with closing(sqlite3.connect(self.rig.path(_DEVICE), isolation_level=None)) as file:
            ChangeTracking(file).disable_tracking("Orders")

    def bring_late(self) -> None:
        """The file of before comes late, as a copy that was shipped on a slower way."""
        self.put((1, "older"))
        copy = self.rig.back_up(_DEVICE)
        self.put((1, "newer"))
        self.run()
        self.rig.put_back(_DEVICE, copy)
        self.run()

    def write_under_another_case(self) -> None:
        """SQLite has no two tables whose names differ only in case."""

    def _make(self, device: str) -> None:
        with closing(sqlite3.connect(self.rig.path(device), isolation_level=None)) as connection:
            for statement in _TABLES:
                connection.execute(statement)
            for table in ("Orders", "Others"):
                ChangeTracking(connection).enable_tracking(table)


@contextmanager
def fleet_pipeline(
    emulator: Emulator, warehouse: WarehouseConnection, folder: Path, elsewhere: Elsewhere
) -> Iterator[FleetPipeline]:
    yield FleetPipeline(warehouse, folder)
