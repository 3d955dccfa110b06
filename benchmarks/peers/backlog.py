"""A backlog of captured changes, which Floodmark and Debezium read one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks import many_tables, wide_table, window
from benchmarks.emulator import wait_until_captured
from floodmark_laptop.stack import Stack


@dataclass(frozen=True)
class Backlog:
    """One source database. Every row of its tables is there before, and is changed once."""

    tables: int
    changes: int
    """The changes of each table."""
    config: Path
    """Floodmark's configuration, whose name is that of the database."""
    targets: dict[str, str]
    """Floodmark's target by the name of the source's table in dbo."""

    @property
    def database(self) -> str:
        return self.config.stem

    @property
    def whole(self) -> int:
        """The changes of all tables."""
        return self.tables * self.changes

    def change(self, stack: Stack) -> None:
        """Update every row once. Return when all changes are captured."""
        if self.tables > 1:
            many_tables.change_all(stack, self.database, list(self.targets))
            return
        with stack.connect_source(self.database) as connection:
            wide_table.change_all(connection, self.changes)
        wait_until_captured(stack, self.database, 2 * self.changes, "WHERE __$operation <> 3")

    def read_source(self, stack: Stack) -> list[tuple[object, ...]]:
        """Return rows and sum of each table at the source."""
        with stack.connect_source(self.database) as connection:
            cursor = connection.cursor()
            found = []
            for name in self.targets:
                cursor.execute(f"SELECT COUNT(*), SUM(Amount) FROM dbo.{name}")
                found.append(_one(cursor.fetchone()))
        return found

    def read_target(self, stack: Stack, targets: list[str]) -> list[tuple[object, ...]]:
        """Return the same of tables in the warehouse."""
        with stack.connect_warehouse() as connection:
            return [
                _one(connection.execute(f'SELECT count(*), sum("Amount") FROM {target}').fetchone())
                for target in targets
            ]


def _one(row: tuple[object, ...] | None) -> tuple[object, ...]:
    if row is None:
        raise RuntimeError("a count gave no row")
    return tuple(row)


def prepare(stack: Stack, folder: Path, tables: int, rows: int) -> Backlog:
    """Make a database with tables of so many rows: one wide table, or many narrow ones."""
    if tables == 1:
        database = f"Window{rows}"
        config = window.prepare(stack, folder, database, rows)
        return Backlog(tables, rows, config, {"Wide": f"speed.{database.lower()}"})
    config, names = many_tables.prepare(stack, folder, tables, rows)
    return Backlog(tables, rows, config, {name: f"{config.stem}.{name.lower()}" for name in names})
