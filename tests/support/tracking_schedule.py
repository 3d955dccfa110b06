"""``TrackingSchedule``: changes of tables with change tracking, and runs over them, in an order that a seed draws.

At the end each table equals the source, or a verdict that the schedule expects has left it out, and a load repairs it.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from floodmark.core.errors import (
    FloodmarkError,
    InstanceReplacedError,
    TableRefusedError,
    TransientError,
    WindowBusyError,
    WindowExpiredError,
)
from floodmark.core.plan import LoadChunk, LoadKind, WindowPlan
from floodmark.core.schema import TableName
from floodmark.core.snapshot import Verdict
from floodmark.iceberg.upkeep import LakeUpkeep
from floodmark.sync.ports import StagedPart, StagingSink
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from sql_client import SqlClient
from tracking_rig import TrackingRig
from tried_twice import Order, TriedTwice

ORDERS, LINES = TableName("dbo", "Orders"), TableName("dbo", "Lines")
TRACKED = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(9,2), Note nvarchar(max))",
    "CREATE TABLE dbo.Lines (Id int NOT NULL, B bigint NOT NULL, V nvarchar(20), PRIMARY KEY (Id, B))",
)
_KEYS = range(1, 7)
_MOST_LOADS = 4
_LATE_KEYS = range(21, 24)
"""The keys of a transaction that is open for long: nobody else writes them."""
_VERDICTS: Mapping[type[FloodmarkError], Verdict] = {
    InstanceReplacedError: Verdict.INSTANCE_REPLACED,
    WindowExpiredError: Verdict.EXPIRED,
    TableRefusedError: Verdict.REFUSED,
}


class _MetByWrites(InProcessStager):
    """A stager that calls something when the chunks of a first load have been read."""

    def __init__(self, rig: TrackingRig, after_chunks: Callable[[], None]) -> None:
        super().__init__(rig.open_reader(), rig.plan_reads)
        self.after_chunks = after_chunks

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        parts = super().stage_chunks(plan, index, chunks, parallel_reads, sink)
        self.after_chunks()
        return parts


@dataclass
class TrackingSchedule:
    """One schedule. ``other``: a session of its own in the database. ``run`` may be called once."""

    rig: TrackingRig
    other: SqlClient
    seed: int
    journal: list[str] = field(default_factory=list)
    allowed: dict[TableName, set[Verdict]] = field(default_factory=lambda: defaultdict(set))
    """The verdicts that something in the schedule explains."""
    keeps_snapshots: bool = False
    """SNAPSHOT stays allowed, as tables that keep changes need it."""
    is_open: bool = False
    """Whether the other session has an open transaction."""
    values: int = 0
    added: list[str] = field(default_factory=list)
    """The columns that dbo.Orders has got."""
    length: int = 20

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def note(self, line: str) -> None:
        self.journal.append(line)

    def execute(self, *statements: str, client: SqlClient | None = None) -> None:
        for statement in statements:
            self.note(statement if client is None else f"the other session: {statement}")
            (client or self.rig.client).run(statement)

    # The source

    def value(self) -> int:
        """Return a number that no row has had."""
        self.values += 1
        return self.values

    def statement(self, keys: range = _KEYS) -> str:
        name, key = self.chance.choice([ORDERS, LINES]), self.chance.choice(keys)
        drawn = self.chance.random()
        if drawn < 0.3:
            return f"DELETE {name} WHERE Id = {key}"
        if name == ORDERS:
            columns, change = f"(Id, Amount, Note) VALUES ({key}, {self.value()}, N'n')", f"Amount = {self.value()}"
            if self.added and drawn > 0.85:
                change = f"{self.chance.choice(self.added)} = {self.value()}"
        else:
            columns, change = f"(Id, B, V) VALUES ({key}, {key}, N'{self.value()}')", f"V = N'{self.value()}'"
        if drawn < 0.7:
            return f"IF NOT EXISTS (SELECT 1 FROM {name} WHERE Id = {key}) INSERT {name} {columns}"
        if drawn < 0.8 and name == LINES:
            return f"UPDATE dbo.Lines SET B = {self.value()} WHERE Id = {key}"
        return f"UPDATE {name} SET {change} WHERE Id = {key}"

    def write(self) -> None:
        """Change rows, in one transaction or in several."""
        statements = [self.statement() for _ in range(self.chance.randint(1, 3))]
        if self.chance.random() < 0.4:
            statements = [f"BEGIN TRAN; {'; '.join(statements)}; COMMIT"]
        self.execute(*statements)

    def write_late(self) -> None:
        """Begin a transaction that commits later, or commit it."""
        if self.is_open:
            self.execute("COMMIT", client=self.other)
        else:
            self.execute("BEGIN TRAN", self.statement(_LATE_KEYS), self.statement(_LATE_KEYS), client=self.other)
        self.is_open = not self.is_open

    def commit_late(self) -> None:
        if self.is_open:
            self.write_late()

    def clean_up(self) -> None:
        """Let the changes expire that are older than the retention."""
        self.commit_late()
        self.note("what is older than the retention is cleaned up")
        self.rig.clean_up()
        for name in (ORDERS, LINES):
            self.allowed[name].update((Verdict.EXPIRED, Verdict.REFUSED))

    def begin_again(self) -> None:
        """Lose the history of a table."""
        self.commit_late()
        name = self.chance.choice([ORDERS, LINES])
        if self.chance.random() < 0.5:
            self.execute(f"TRUNCATE TABLE {name}")
        else:
            self.execute(f"ALTER TABLE {name} DISABLE CHANGE_TRACKING")
            self.write()
            self.execute(f"ALTER TABLE {name} ENABLE CHANGE_TRACKING")
        self.allowed[name].update((Verdict.INSTANCE_REPLACED, Verdict.REFUSED))

    def switch_snapshots(self) -> None:
        """Allow SNAPSHOT, or do not."""
        self.commit_late()
        state = self.chance.choice(["ON", "OFF"])
        self.execute(f"ALTER DATABASE {self.rig.at.database} SET ALLOW_SNAPSHOT_ISOLATION {state}")

    def change_columns(self) -> None:
        """Add a column with values, drop one that was added, or make one longer."""
        self.commit_late()
        drawn = self.chance.random()
        if drawn < 0.5 or not self.added:
            column = f"C{self.value()}"
            self.execute(f"ALTER TABLE dbo.Orders ADD {column} int", f"UPDATE dbo.Orders SET {column} = {self.value()}")
            self.added.append(column)
        elif drawn < 0.75:
            self.execute(f"ALTER TABLE dbo.Orders DROP COLUMN {self.added.pop()}")
        else:
            self.length += 10
            self.execute(f"ALTER TABLE dbo.Lines ALTER COLUMN V nvarchar({self.length})")

    # Runs

    def interlude(self) -> None:
        """Anything that may happen while a run is on its way."""
        for _ in range(self.chance.randint(0, 2)):
            self.chance.choice([self.write, self.write, self.write_late])()
        if self.rig.lake and self.chance.random() < 0.1:
            self.upkeep()

    def sync(self, interlude: Callable[[], None] = lambda: None, *, is_tried_twice: bool = False) -> bool:
        """Run the pipeline once. interlude: called between its steps. Return whether a window was read."""
        self.note("a run")
        try:
            opened = self.rig.open()
            if opened.window_id is None:
                return False
            interlude()
            self.finish(opened, interlude, is_tried_twice=is_tried_twice)
        except FloodmarkError as error:
            self.expect(error)
            return False
        finally:
            self.rig.stager = None
            self.require_explained()
        return True

    def finish(self, opened: OpenResult, interlude: Callable[[], None], *, is_tried_twice: bool = False) -> None:
        if opened.window_id is None:
            return
        kinds = {table.kind for table in self.rig.ledger.read_window(opened.window_id).plan.tables}
        if LoadKind.FIRST_LOAD in kinds:
            # Tables are staged in parallel, and a session takes one statement at a time.
            lock = threading.Lock()

            def write() -> None:
                with lock:
                    interlude()

            self.rig.stager = _MetByWrites(self.rig, write)
        elif is_tried_twice:
            order = self.chance.choice(list(Order))
            self.note(f"tasks are tried twice: {order.value}")
            self.rig.stager = TriedTwice(InProcessStager(self.rig.open_reader(), self.rig.plan_reads), order, interlude)
        self.rig.finish(opened, before_table={0: interlude, 1: interlude}, after_read=interlude)

    def abandon(self) -> None:
        """Begin a run that dies before it publishes."""
        last = self.chance.choice(["opened", "loaded", "checked"])
        self.note(f"a run that dies when its window is {last}")
        try:
            opened = self.rig.open()
            if opened.window_id is not None and last != "opened":
                self.rig.load(opened.window_id)
                if last == "checked":
                    self.rig.check(opened.window_id)
        except FloodmarkError as error:
            self.expect(error)

    def load(self, name: TableName) -> None:
        """Load a table again."""
        self.note(f"a load of {name}")
        planner = self.planner()
        try:
            opened = planner.open_reload(name)
        except WindowBusyError:
            self.note("a window holds the table")
            return
        self.interlude()
        self.finish_load(opened)

    def planner(self) -> LoadPlanner:
        rig = self.rig
        return LoadPlanner(rig.settings, rig.source, rig.ledger, rig.targets)

    def finish_load(self, opened: OpenResult) -> None:
        try:
            self.finish(opened, self.interlude)
        except FloodmarkError as error:
            self.expect(error)

    def load_any(self) -> None:
        if self.rig.ledger.read_tables(self.rig.settings.name):
            self.load(self.chance.choice([ORDERS, LINES]))

    def repair(self) -> bool:
        """Finish the loads that runs have planned, and load each table that is left out. Return whether any was."""
        loads = 0
        while (opened := self.planner().open_pending()).window_id is not None and loads < _MOST_LOADS:
            self.note("a load that a run has planned")
            self.finish_load(opened)
            loads += 1
        stopped = self.stopped()
        for name in stopped:
            self.load(name)
        return loads > 0 or bool(stopped)

    def stopped(self) -> dict[TableName, set[Verdict]]:
        found: dict[TableName, set[Verdict]] = defaultdict(set)
        for each in self.rig.ledger.list_stopped(self.rig.settings.name):
            if each.verdict is not Verdict.REPAIRING:
                found[each.table].add(each.verdict)
        return found

    def require_explained(self) -> None:
        for name, verdicts in self.stopped().items():
            assert verdicts <= self.allowed[name], f"{name} is {verdicts}, and nothing explains it"

    def expect(self, error: FloodmarkError) -> None:
        """Require that something in the schedule explains an error."""
        self.note(f"{type(error).__name__}: {error}")
        if isinstance(error, TransientError) and self.is_open:
            return
        verdict = _VERDICTS.get(type(error))
        if verdict is None or not any(verdict in each for each in self.allowed.values()):
            raise error

    def upkeep(self) -> None:
        """Compact tables of a lake, and expire all snapshots but the newest."""
        assert self.rig.lake
        targets = [table.target for table in self.rig.settings.tables]
        for target, done in LakeUpkeep(self.rig.lake, lambda: None).keep_tables(targets, timedelta(0), rewrites=True):
            self.note(f"upkeep: {target} {done}")

    # Schedules

    def run(self, steps: int) -> None:
        tracked = [f"ALTER TABLE {name} ENABLE CHANGE_TRACKING" for name in (ORDERS, LINES)]
        inserts = [self.statement() for _ in range(6)]
        self.execute(*TRACKED, *((*inserts, *tracked) if self.chance.random() < 0.5 else (*tracked, *inserts)))
        choices: Sequence[tuple[Callable[[], object], int]] = [
            (self.write, 30),
            (self.write_late, 8),
            (self.sync, 8),
            (lambda: self.sync(self.interlude), 12),
            (lambda: self.sync(self.interlude, is_tried_twice=True), 12),
            (self.abandon, 4),
            (self.repair, 3),
            (self.load_any, 2),
            (self.clean_up, 2),
            (self.begin_again, 2),
            (self.change_columns, 3),
            (self.upkeep, 4 if self.rig.lake else 0),
            (self.switch_snapshots, 0 if self.keeps_snapshots else 2),
            (self.settle, 2),
        ]
        steps_of, weights = zip(*choices, strict=True)
        try:
            for _ in range(steps):
                self.chance.choices(steps_of, weights)[0]()
            self.settle()
        finally:
            self.commit_late()

    def settle(self) -> None:
        """Bring all to its end: runs and loads follow until nothing is left to do."""
        self.note("all is brought to its end")
        self.commit_late()
        interlude, self.interlude = self.interlude, lambda: None  # type: ignore[method-assign]
        for _ in range(8):
            is_read, is_loaded = self.sync(), self.repair()
            if not (is_read or is_loaded):
                break
        self.interlude = interlude  # type: ignore[method-assign]
        assert not self.stopped()
        assert self.rig.differing() == []
