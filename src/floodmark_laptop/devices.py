"""A fleet of simulated devices for ``make run-sources``: each has a file, writes while it is away, and syncs copies.

Devices are away now and then, one is put back to an older copy, one is replaced. A device's file is tracked by
``compact_tracking``; what reaches the pipeline is a copy in a folder, as a program on the device would ship it.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from compact_tracking import ChangeTracking, ship_copy

DEVICES = 20
CONSUMER = "floodmark"
_TABLE = "CREATE TABLE readings (id INTEGER PRIMARY KEY NOT NULL, sensor TEXT NOT NULL, value DECIMAL(9,3), note TEXT)"
_FIRST_ROWS = 40
_SENSORS = ("rain", "level", "flow", "wind", "größe", "波")

Rows = dict[int, tuple[str, str | None, str | None]]


@dataclass
class SimulatedFleet:
    """``folder`` has the devices, ``synced`` what has arrived of them."""

    folder: Path
    synced: Path
    away: dict[str, int] = field(default_factory=dict)
    """How many rounds each device was away."""
    notes: dict[str, str] = field(default_factory=dict)
    """What happened to a device."""
    _random: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311  (reproducible on purpose)

    def create(self) -> None:
        """Create the devices with their first rows, and sync them all."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.synced, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.synced.mkdir(parents=True)
        for device in self.names():
            self._begin(device)
            self.sync(device)

    def names(self) -> list[str]:
        """Return the names of the devices."""
        return [f"gauge-{number:02d}" for number in range(1, DEVICES + 1)]

    def go_on(self, most_away: int) -> int:
        """Let every device write, and all sync but some that are away. Return how many are away."""
        away = self._random.sample(self.names(), most_away)
        for device in self.names():
            self._write(device)
            if device in away:
                self.away[device] = self.away.get(device, 0) + 1
            else:
                self.sync(device)
        return len(away)

    def sync(self, device: str) -> None:
        """Ship a copy of a device's file to the synced folder."""
        ship_copy(self._path(device), self.synced / f"{device}.db", CONSUMER)

    def restore(self, device: str, copy: Path) -> None:
        """Put a device back to an older copy, and let it write on and sync."""
        self._remove(device)
        shutil.copy(copy, self._path(device))
        self._write(device)
        self.sync(device)
        self.notes[device] = "put back to an older copy"

    def replace(self, device: str) -> None:
        """Replace a device by a new one with the same name."""
        self._remove(device)
        self._begin(device)
        self.sync(device)
        self.notes[device] = "replaced by a new device"

    def back_up(self, device: str) -> Path:
        """Return a copy of a device's file as it is now."""
        copy = self.folder / f"{device}.copy"
        with closing(sqlite3.connect(self._path(device))) as connection, closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
        return copy

    def rows(self, device: str) -> Rows:
        """Return the rows of a device by their id."""
        with closing(sqlite3.connect(self._path(device))) as connection:
            found = connection.execute("SELECT id, sensor, printf('%.3f', value), note FROM readings")
            return {row[0]: (row[1], row[2], row[3]) for row in found}

    def _path(self, device: str) -> Path:
        return self.folder / f"{device}.db"

    def _remove(self, device: str) -> None:
        for end in ("", "-wal", "-shm"):
            Path(f"{self._path(device)}{end}").unlink(missing_ok=True)

    def _begin(self, device: str) -> None:
        with closing(sqlite3.connect(self._path(device), isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_TABLE)
            ChangeTracking(connection).enable_tracking("readings")
            for _ in range(_FIRST_ROWS):
                self._insert(connection)

    def _write(self, device: str) -> None:
        """Insert, update, replace and delete rows, as a program does that knows nothing of the tracking."""
        with closing(sqlite3.connect(self._path(device), isolation_level=None)) as connection:
            for _ in range(self._random.randrange(5, 20)):
                self._insert(connection)
            some = [row[0] for row in connection.execute("SELECT id FROM readings ORDER BY random() LIMIT 9")]
            for id_ in some[:5]:
                connection.execute("UPDATE readings SET value = ? WHERE id = ?", (self._value(), id_))
            replaced = "REPLACE INTO readings (id, sensor, value, note) VALUES (?, 'flow', ?, 'replaced')"
            connection.execute(replaced, (some[5], self._value()))
            connection.execute("DELETE FROM readings WHERE id IN (?, ?)", (some[6], some[7]))
            connection.execute("UPDATE readings SET id = (SELECT max(id) + 7 FROM readings) WHERE id = ?", (some[8],))

    def _insert(self, connection: sqlite3.Connection) -> None:
        note = self._random.choice((None, "ok", "naïve 🌊"))
        values = (self._random.choice(_SENSORS), self._value(), note)
        connection.execute("INSERT INTO readings (sensor, value, note) VALUES (?, ?, ?)", values)

    def _value(self) -> float:
        return self._random.randrange(-999_999, 999_999) / 1000
