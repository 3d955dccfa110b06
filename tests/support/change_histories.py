"""A table in plain Python, and the change rows that SQL Server writes for what happens to it
(docs/reference/sqlserver_cdc.md, "Row shapes" to "Types"). The truth that net changes are held to is the table
itself."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from floodmark.core.plan import LoadKind, TablePlan
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import NetSource, TableSettings
from floodmark.core.snapshot import Feed, FeedIdentity, LogEntry
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.ports import RowShape
from lsns import lsn

KEYS = 6
START_LSN, TO_LSN = lsn(1), Lsn(b"\xfe" * 10)
FULL_MASK = b"\x1f"
ID_BIT, A_BIT, LOB_BIT, OLD_BIT = 0x02, 0x04, 0x08, 0x10

HISTORIES = SourceTable(
    name=TableName("dbo", "Histories"),
    columns=(
        SourceColumn("history", "int", 1, nullable=False),
        SourceColumn("id", "nvarchar", 2, max_length=10, nullable=False),
        SourceColumn("a", "int", 3),
        SourceColumn("lob", "nvarchar", 4, max_length=-1),
        SourceColumn("old", "ntext", 5),
    ),
    key=("history", "id"),
)


def histories_plan(*, has_command_id: bool = True, net: NetSource = NetSource.SPARK) -> TablePlan:
    instance = Feed(FeedIdentity("dbo_Histories", 1, datetime(2026, 1, 1)), HISTORIES, START_LSN, True, has_command_id)
    return TablePlan(
        settings=TableSettings(HISTORIES.name, TableName("t", "histories"), net=net),
        kind=LoadKind.CHANGES,
        feed=instance,
        interval=Interval(START_LSN, TO_LSN),
        watermark=START_LSN,
    )


def histories_shape(*, has_command_id: bool = True) -> RowShape:
    return shape_of(histories_plan(has_command_id=has_command_id))


def shape_of(plan: TablePlan) -> RowShape:
    return CdcReader(plan, SqlServerConnection("unused", 0, "", ""), LogEntry(TO_LSN, None)).shape


@dataclass(frozen=True)
class Values:
    a: int | None
    lob: str | None
    old: str | None


@dataclass(frozen=True)
class Change:
    start_lsn: bytes
    command_id: int
    seqval: bytes
    operation: int
    mask: bytes
    history: int
    id: str
    a: int | None
    lob: str | None
    old: str | None


@dataclass
class History:
    """One table with keys '0'..'5'. ``before`` is its state when the window begins.

    ordered_seqvals: False lets seqvals disagree with the order of commands, as they may inside a transaction.
    declared_key: no index of the server's knows it, so that a new key is written in place.
    """

    number: int
    rng: random.Random
    ordered_seqvals: bool = False
    declared_key: bool = False
    before: dict[str, Values] = field(default_factory=dict)
    rows: dict[str, Values] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    _transactions: int = 0
    _commands: int = 0
    _steps: int = 0

    def begin_window(self) -> None:
        self.before, self.changes = dict(self.rows), []

    def run_transaction(self, actions: int) -> None:
        """Some random actions; one transaction in five is rolled back and leaves nothing."""
        saved = dict(self.rows), list(self.changes)
        self._transactions += 1
        self._commands = 0
        for _ in range(actions):
            self._act()
        if self.rng.random() < 0.2:
            self.rows, self.changes = saved

    def _act(self) -> None:
        key = str(self.rng.randrange(KEYS))
        if key not in self.rows:
            self.rows[key] = self._values()
            self._write(2, key, self.rows[key], FULL_MASK)
            return
        actions = [self._delete, self._update, self._update, self._move, self._rewrite]
        if self.declared_key:
            actions = [self._delete, self._update, self._move_in_place, self._move_in_place, self._hand_on]
        self.rng.choice(actions)(key)

    def _delete(self, key: str) -> None:
        self._write(1, key, replace(self.rows.pop(key), old=None), FULL_MASK)

    def _update(self, key: str) -> None:
        """In place: images 3 and 4 share seqval and command; LOBs that did not change are left out."""
        before = self.rows[key]
        fresh = self._values()
        choose = self.rng.choice
        after = Values(choose((before.a, fresh.a)), choose((before.lob, fresh.lob)), choose((before.old, fresh.old)))
        changed = [old != new for old, new in zip(_fields(before), _fields(after), strict=True)]
        if not any(changed):
            return  # an update that changes nothing writes no row
        mask = bytes(
            [sum(bit for bit, is_changed in zip((A_BIT, LOB_BIT, OLD_BIT), changed, strict=True) if is_changed)]
        )
        command, seqval = self._next_command()
        image = Values(before.a, before.lob if changed[1] else None, None)
        self._append(3, key, image, mask, (command, seqval))
        self._append(4, key, replace(after, old=after.old if changed[2] else None), mask, (command, seqval))
        self.rows[key] = after

    def _move(self, key: str) -> None:
        """A new key: a delete and an insert that share the seqval, one command apart."""
        free = [str(number) for number in range(KEYS) if str(number) not in self.rows]
        if free:
            self._pair(key, self.rng.choice(free))

    def _rewrite(self, key: str) -> None:
        """MERGE … SET id = s.id: the same pair for the same key."""
        self._pair(key, key)

    def _pair(self, key: str, new_key: str) -> None:
        values = self.rows.pop(key)
        command, seqval = self._next_command()
        self._append(1, key, replace(values, old=None), FULL_MASK, (command, seqval))
        self._commands += 1
        self._append(2, new_key, values, FULL_MASK, (self._commands, seqval))
        self.rows[new_key] = values

    def _move_in_place(self, key: str) -> None:
        """An ntext that did not change would be left out, and nothing would know it under the new key."""
        free = [str(number) for number in range(KEYS) if str(number) not in self.rows]
        if free:
            before = self.rows.pop(key)
            new_key = self.rng.choice(free)
            self.rows[new_key] = replace(before, old="older" if before.old == "old" else "old")
            self._write_moved(key, before, new_key, self.rows[new_key])

    def _hand_on(self, key: str) -> None:
        """SET id = CASE id WHEN …: keys go round among rows that can be distinguished, in one statement."""
        others = [other for other in self.rows if self.rows[other].a != self.rows[key].a]
        if others:
            keys = [key, self.rng.choice(others)]
            before = [self.rows[each] for each in keys]
            after = [replace(values, old="older" if values.old == "old" else "old") for values in before]
            for here, there in ((0, 1), (1, 0)):
                self._write_moved(keys[here], before[here], keys[there], after[here])
                self.rows[keys[there]] = after[here]

    def _write_moved(self, key: str, before: Values, new_key: str, after: Values) -> None:
        at = self._next_command()
        self._append(3, key, replace(before, lob=None, old=None), bytes([ID_BIT | OLD_BIT]), at)
        self._append(4, new_key, after, bytes([ID_BIT | OLD_BIT]), at)

    def _write(self, operation: int, key: str, values: Values, mask: bytes) -> None:
        self._append(operation, key, values, mask, self._next_command())

    def _next_command(self) -> tuple[int, bytes]:
        self._commands += 1
        self._steps += 1
        step = self._steps if self.ordered_seqvals else self.rng.getrandbits(60)
        return self._commands, step.to_bytes(10)

    def _append(self, operation: int, key: str, values: Values, mask: bytes, at: tuple[int, bytes]) -> None:
        command, seqval = at
        position = lsn(self._transactions + 1).value
        self.changes.append(Change(position, command, seqval, operation, mask, self.number, key, *_fields(values)))

    def _values(self) -> Values:
        pick = self.rng.choice
        return Values(pick([None, 1, 2, 3]), pick([None, "lob", "löb", ""]), pick([None, "old", "older"]))


def random_history(number: int, seed: int, *, ordered_seqvals: bool = False, declared_key: bool = False) -> History:
    """A history of up to eight transactions before the window and up to eight in it."""
    rng = random.Random(seed)
    history = History(number, rng, ordered_seqvals, declared_key)
    for _ in range(rng.randrange(8)):
        history.run_transaction(rng.randrange(1, 5))
    history.begin_window()
    for _ in range(rng.randrange(8)):
        history.run_transaction(rng.randrange(1, 6))
    return history


def change_batch(changes: list[Change], *, has_key: bool = True, is_log: bool = False) -> pa.RecordBatch:
    """The rows that ``statements.select_changes`` gets: images before an update only where it changed the key, and
    those after it with an operation of their own; in a log as a delete and an insert. Without a key, all as they
    are."""
    if not has_key:
        return _batch(changes)
    moved = [change.operation in (3, 4) and bool(change.mask[-1] & ID_BIT) for change in changes]
    operations = {3: 1, 4: 2} if is_log else {3: 3, 4: 6}
    read = [
        replace(change, operation=operations[change.operation]) if moves else change
        for change, moves in zip(changes, moved, strict=True)
        if moves or change.operation != 3
    ]
    return _batch(read)


def _batch(read: list[Change]) -> pa.RecordBatch:
    columns = {
        "__$start_lsn": pa.array([c.start_lsn for c in read], pa.binary()),
        "__$command_id": pa.array([c.command_id for c in read], pa.int32()),
        "__$seqval": pa.array([c.seqval for c in read], pa.binary()),
        "__$operation": pa.array([c.operation for c in read], pa.int32()),
        "__$update_mask": pa.array([c.mask for c in read], pa.binary()),
        "history": pa.array([c.history for c in read], pa.int32()),
        "id": pa.array([c.id for c in read], pa.string()),
        "a": pa.array([c.a for c in read], pa.int32()),
        "lob": pa.array([c.lob for c in read], pa.string()),
        "old": pa.array([c.old for c in read], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def expected_net(history: History) -> dict[str, tuple[int, bytes]]:
    """key -> net operation and LSN, by what was there before the window and what is there after it."""
    net = {}
    for change in history.changes:
        if change.operation != 3 or change.mask[-1] & ID_BIT:
            here = change.id in history.rows
            net[change.id] = ((4 if change.id in history.before else 2) if here else 1, change.start_lsn)
    return net


def merge(before: dict[str, Values], net_rows: list[dict[str, Any]]) -> dict[str, Values]:
    """Return what a target that held ``before`` holds after the net rows of one history."""
    after = dict(before)
    for row in net_rows:
        if row["__op"] == 1:
            after.pop(row["id"], None)
            continue
        values = {name: row[name] for name in ("a", "lob", "old")}
        for name in ("lob", "old"):
            if row[f"__keep_{name}"]:
                values[name] = getattr(before[row["id"]], name)
        after[row["id"]] = Values(**values)
    return after


def assert_net_is_true(history: History, net_rows: list[dict[str, Any]]) -> None:
    """One row per key, its operation and LSN those of the model, and the target equal to the table."""
    found = {row["id"]: (row["__op"], row["__lsn"]) for row in net_rows}
    assert len(found) == len(net_rows), f"history {history.number}: a key twice"
    expected = expected_net(history)
    if history.declared_key:  # where keys go round, a new row takes the place of an old one
        found, expected = _by_death(found), _by_death(expected)
    assert found == expected, f"history {history.number}"
    assert merge(history.before, net_rows) == history.rows, f"history {history.number}"


def _by_death(net: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    return {key: (int(operation == 1), lsn) for key, (operation, lsn) in net.items()}


def _fields(values: Values) -> tuple[int | None, str | None, str | None]:
    return values.a, values.lob, values.old
