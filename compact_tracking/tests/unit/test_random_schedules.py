"""Random schedules of transactions and plain writes on one file: every window, chained or not, is exact."""

import os
from pathlib import Path
from typing import Any

import pytest

from compact_files import ITEM, list_changes, make_file, open_file, read_rows
from compact_tracking import Anchor, Operation, Transaction, TransactionLostError
from random_writer import Statements

SCHEDULES = int(os.environ.get("COMPACT_TRACKING_SCHEDULES", "12"))
Rows = dict[str, tuple[Any, ...]]


class Schedule:
    """Up to three open transactions, of which one writes, and anchors between them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.statements = path, Statements(seed)
        self.file = make_file(path, ITEM, "INSERT INTO item (k, code, v) VALUES ('a', 1, 0), ('b', 2, 0)")
        self.file.execute(f"PRAGMA recursive_triggers = {seed % 2}")
        self.waiting: list[Transaction] = []
        self.cuts: list[tuple[Anchor, Rows]] = []

    def run(self, steps: int) -> None:
        self.cut()
        for _ in range(steps):
            self.statements.random.choice([self.begin, self.write, self.write, self.write_plainly, self.cut])()
        self.cut()

    def begin(self) -> None:
        if len(self.waiting) < 3:
            self.waiting.append(Transaction(open_file(self.path)))

    def write(self) -> None:
        if not self.waiting:
            return
        transaction = self.waiting.pop(self.statements.random.randrange(len(self.waiting)))
        try:
            for _ in range(self.statements.random.randrange(4)):
                self.statements.run(transaction)
        except TransactionLostError:
            return
        transaction.rollback() if self.statements.random.random() < 0.25 else transaction.commit()

    def write_plainly(self) -> None:
        for _ in range(self.statements.random.randrange(1, 4)):
            self.statements.run(self.file)

    def cut(self) -> None:
        """Check the windows from all earlier anchors to now."""
        now = read_rows(self.file, "item")
        for after, rows in self.cuts:
            self.check(after, rows, now)
        until, _ = list_changes(self.file, Anchor(csn=1, bsn=1))
        self.cuts.append((until, now))

    def check(self, after: Anchor, rows: Rows, now: Rows) -> None:
        _, changes = list_changes(self.file, after)
        found = {operation: set[str]() for operation in Operation}
        for change in changes:
            found[change.operation].add(change.key[0])
            assert change.row == now.get(change.key[0])
        assert sum(map(len, found.values())) == len(changes)
        assert found[Operation.INSERT] == now.keys() - rows.keys()
        assert found[Operation.DELETE] == rows.keys() - now.keys()
        assert found[Operation.UPDATE] >= {key for key in rows.keys() & now.keys() if rows[key] != now[key]}
        assert found[Operation.UPDATE] <= rows.keys() & now.keys()


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_every_window_is_exact(tmp_path: Path, seed: int) -> None:
    schedule = Schedule(tmp_path / "device.db", seed)
    schedule.run(40)
    assert len(schedule.cuts) > 2
