"""``FleetSchedule``: changes on devices, devices that come, go and begin again, and runs, in an order of a seed.

At the end the target has the rows of each device, or a verdict that the schedule expects has left the device out, and
it is read again.
"""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from compact_tracking import ChangeTracking, PurgeType
from fleet_rig import ORDERS, PIPELINE, FleetRig
from floodmark.core.settings import Style
from floodmark.core.snapshot import Verdict
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from tried_twice import Order, TriedTwice

_DEVICES = ("van-1", "van-2", "van-3")
_KEYS = range(1, 7)
_LOST = {Verdict.AHEAD_OF_SOURCE, Verdict.INSTANCE_REPLACED, Verdict.EXPIRED}


@dataclass
class FleetSchedule:
    """One schedule. ``run`` may be called once."""

    rig: FleetRig
    seed: int
    journal: list[str] = field(default_factory=list)
    allowed: dict[str, set[Verdict]] = field(default_factory=lambda: defaultdict(set))
    """By device: the verdicts that something in the schedule explains."""
    copies: dict[str, Path] = field(default_factory=dict)
    """By device: a copy of its file."""
    away: dict[str, Path] = field(default_factory=dict)
    """The devices that are away, with their files."""
    ends: dict[bytes, list[tuple[Any, ...]]] = field(default_factory=dict)
    """By the end of each window: the living rows of a history at that time."""
    values: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    @property
    def style(self) -> Style:
        return self.rig.settings.tables[0].style

    def note(self, line: str) -> None:
        self.journal.append(line)

    # Devices

    def value(self) -> int:
        """Return a number that no row has had."""
        self.values += 1
        return self.values

    def present(self) -> list[str]:
        return [device for device in _DEVICES if self.rig.path(device).exists()]

    def execute(self, device: str, *statements: str) -> None:
        self.journal += [f"{device}: {statement}" for statement in statements]
        self.rig.run(device, *statements)

    def statement(self) -> str:
        key, drawn = self.chance.choice(_KEYS), self.chance.random()
        if drawn < 0.3:
            return f"DELETE FROM orders WHERE id = {key}"
        if drawn < 0.7:
            return f"INSERT OR REPLACE INTO orders (id, amount, note) VALUES ({key}, {self.value()}, 'n')"
        if drawn < 0.8:
            return f"UPDATE OR REPLACE orders SET id = {self.chance.choice(_KEYS)} WHERE id = {key}"
        return f"UPDATE orders SET amount = {self.value()} WHERE id >= {key}"

    def write(self) -> None:
        if present := self.present():
            self.execute(self.chance.choice(present), *(self.statement() for _ in range(self.chance.randint(1, 3))))

    def make(self) -> None:
        """Make a device, or another one of the same name."""
        device = self.chance.choice(_DEVICES)
        if device in self.away:
            return
        if device in self.present():
            self.allowed[device] |= _LOST
            self.rig.remove(device)
        self.note(f"{device} is made")
        self.rig.make(device, self.statement(), self.statement())

    def back_up(self) -> None:
        if present := self.present():
            device = self.chance.choice(present)
            self.note(f"{device} is copied")
            self.copies[device] = self.rig.back_up(device)

    def restore(self) -> None:
        """Put a copy of a device back, and go on there."""
        if not self.copies:
            return
        device = self.chance.choice(sorted(self.copies))
        if device in self.away:
            return
        self.note(f"the copy of {device} is put back")
        self.allowed[device] |= _LOST
        self.rig.put_back(device, self.copies.pop(device))
        for _ in range(self.chance.randint(0, 6)):
            self.execute(device, self.statement())

    def begin_again(self) -> None:
        """Switch the tracking of a device off and on."""
        if present := self.present():
            device = self.chance.choice(present)
            self.note(f"the tracking of {device} begins again")
            self.allowed[device] |= _LOST
            with closing(sqlite3.connect(self.rig.path(device), isolation_level=None)) as file:
                ChangeTracking(file).disable_tracking("orders")
                file.execute(self.statement())
                ChangeTracking(file).enable_tracking("orders")

    def purge(self) -> None:
        """Clean up what is recorded of deleted rows."""
        if present := self.present():
            device = self.chance.choice(present)
            self.note(f"{device} is cleaned up")
            self.allowed[device] |= _LOST
            with closing(sqlite3.connect(self.rig.path(device), isolation_level=None)) as file:
                tracking = ChangeTracking(file)
                tracking.take_anchor()
                csn = tracking.get_last_committed_csn() + 1
                tracking.purge_tombstone_table_data("orders", PurgeType.CSN_BASED, csn)

    def leave(self) -> None:
        """Let a device leave, or come back."""
        if self.away and self.chance.random() < 0.6:
            self.come_back(self.chance.choice(sorted(self.away)))
        elif len(present := self.present()) > 1:
            device = self.chance.choice(present)
            self.note(f"{device} is away")
            # All of it is in the one file, as nobody has it open.
            self.rig.run(device, "PRAGMA wal_checkpoint(TRUNCATE)")
            self.away[device] = self.rig.path(device).rename(self.rig.folder.parent / f"{device}.away")

    def come_back(self, device: str) -> None:
        self.note(f"{device} is back")
        self.away.pop(device).rename(self.rig.path(device))

    # Runs

    def interlude(self) -> None:
        """Anything that may happen while a run is on its way."""
        for _ in range(self.chance.randint(0, 2)):
            self.chance.choices([self.write, self.make, self.begin_again], [8, 1, 1])[0]()

    def sync(self, interlude: Callable[[], None] = lambda: None, *, is_tried_twice: bool = False) -> None:
        """Run the pipeline once. interlude: called between its steps."""
        self.note("a run")
        opened = self.rig.open()
        if opened.window_id is not None:
            interlude()
            self.load(opened, interlude, is_tried_twice=is_tried_twice)
            interlude()
            self.rig.publish(opened)
            self.note_rows(opened.window_id)
        stopped = {each.table.name: each.verdict for _, each in self.rig.ledger.list_stopped_members(PIPELINE)}
        for device, verdict in stopped.items():
            assert verdict in self.allowed[device], f"{device} is {verdict}, and nothing explains it"

    def note_rows(self, window_id: int) -> None:
        """Keep the living rows of a history as they are at the end of a window."""
        if self.style is Style.HISTORY:
            ((end,),) = self.rig.rows(f"SELECT to_lsn FROM floodmark.windows WHERE window_id = {window_id}")
            self.ends[bytes(end)] = self.rig.living()

    def load(self, opened: OpenResult, interlude: Callable[[], None], *, is_tried_twice: bool) -> None:
        if is_tried_twice:
            order = self.chance.choice(list(Order))
            self.note(f"tasks are tried twice: {order.value}")
            self.rig.stager = TriedTwice(InProcessStager(self.rig.open_reader()), order, interlude)
        try:
            self.rig.load(opened)
        finally:
            self.rig.stager = None

    def abandon(self) -> None:
        """Begin a run that dies before it publishes."""
        self.note("a run that dies")
        opened = self.rig.open()
        if opened.window_id is not None and self.chance.random() < 0.5:
            self.rig.load(opened)

    def repair(self) -> None:
        """Choose each device that is left out to be read as a whole."""
        for _, each in self.rig.ledger.list_stopped_members(PIPELINE):
            self.note(f"{each.table.name} is to be read again")
            self.rig.ledger.forget_mark(PIPELINE, ORDERS, each.table.name)

    # Schedules

    def run(self, steps: int) -> None:
        for device in _DEVICES[: self.chance.randint(1, 3)]:
            self.note(f"{device} is made")
            self.rig.make(device, self.statement(), self.statement())
        choices: Sequence[tuple[Callable[[], object], int]] = [
            (self.write, 30),
            (self.sync, 8),
            (lambda: self.sync(self.interlude), 8),
            (lambda: self.sync(self.interlude, is_tried_twice=True), 14),
            (self.abandon, 4),
            (self.make, 3),
            (self.back_up, 4),
            (self.restore, 4),
            (self.begin_again, 2),
            (self.purge, 2),
            (self.leave, 4),
            (self.repair, 3),
            (self.settle, 2),
        ]
        steps_of, weights = zip(*choices, strict=True)
        for _ in range(steps):
            self.chance.choices(steps_of, weights)[0]()
        self.settle()

    def settle(self) -> None:
        """Bring all to its end: devices are back, and runs follow until nothing is left to do."""
        self.note("all is brought to its end")
        for device in sorted(self.away):
            self.come_back(device)
        for _ in range(4):
            self.sync()
            if not self.rig.ledger.list_stopped_members(PIPELINE):
                break
            self.repair()
        self.sync()
        assert not self.rig.ledger.list_stopped_members(PIPELINE)
        if self.style is Style.LOG:
            self.check_log()
        else:
            assert self.rig.differing() == []
            assert self.rig.living() == self.read_devices()
        if self.style is Style.HISTORY:
            self.check_history()

    def read_devices(self) -> list[tuple[Any, ...]]:
        """Return the rows of the devices that pass the filter, as SQLite evaluates it."""
        where = self.rig.settings.tables[0].where
        found = []
        for device in sorted(self.present()):
            with closing(sqlite3.connect(self.rig.path(device))) as file:
                condition = where.sql if where else "true"
                rows = file.execute(f"SELECT id, amount, note FROM orders WHERE {condition} ORDER BY id")
                found += [
                    (device, key, None if amount is None else Decimal(amount), note) for key, amount, note in rows
                ]
        return found

    def check_history(self) -> None:
        """Compare the history with the rows that it had at the end of each window, and each version with the next."""
        for end, rows in self.ends.items():
            lsn = f"'\\x{end.hex()}'"
            assert (
                self.rig.rows(
                    "SELECT __device, id, amount, note FROM edge.orders_history WHERE NOT __deleted AND __lsn <="
                    f" {lsn} AND (__next_lsn > {lsn} OR __next_lsn IS NULL) ORDER BY 1, 2"
                )
                == rows
            )
        chained = (
            "SELECT __device, id, amount, note, __deleted, __op, lead((amount, note, __deleted)) OVER w IS NOT DISTINCT"
            " FROM (amount, note, __deleted) AS is_same, lag(__deleted, 1, true) OVER w AS was_deleted"
            " FROM edge.orders_history WINDOW w AS (PARTITION BY __device, id ORDER BY __load, __lsn)"
        )
        wrong = "is_same OR __op <> CASE WHEN __deleted THEN 1 WHEN was_deleted THEN 2 ELSE 4 END"
        assert self.rig.rows(f"SELECT * FROM ({chained}) AS chained WHERE {wrong}") == []

    def check_log(self) -> None:
        """Compare the rows that follow from the log with those of the devices."""
        newest = (
            "SELECT DISTINCT ON (o.__device, id) o.__device, id, amount, note, __op FROM edge.orders AS o"
            " LEFT JOIN (SELECT __device, max(__lsn) AS lsn FROM edge.orders WHERE __op = 0 GROUP BY 1) AS whole"
            " ON whole.__device = o.__device WHERE whole.lsn IS NULL OR o.__lsn >= whole.lsn"
            " ORDER BY o.__device, id, __lsn DESC"
        )
        logged = self.rig.rows(f"SELECT __device, id, amount, note FROM ({newest}) AS n WHERE __op <> 1 ORDER BY 1, 2")
        found = self.read_devices()
        assert [row for row in found if row not in logged] == []
        # A device that had no row when it was read as a whole again has no entry of that.
        assert {row[0] for row in logged if row not in found} <= {device for device in _DEVICES if self.allowed[device]}
