"""The promise of a log: any order, repetition or loss of attempts of windows ends in the list of all changes.

Random histories of a table are cut into random windows. What the log must hold is taken from the change rows of the
history itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from change_histories import Change, History, change_batch, histories_plan, shape_of
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, replay_lane
from floodmark.core.position import Interval, read_position
from floodmark.core.schema import TableName, is_changed
from floodmark.core.settings import Style
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.spark.stage import StageWriter
from floodmark.sync.ports import StagedPart, StagedRows
from lsns import lsn, number_of
from table_plans import with_settings

END = 100
"""Where the watermark is while windows are merged late and again."""
_names = count(1)
_NAMES = {0x02: "id", 0x04: "a", 0x08: "lob", 0x10: "old"}
_KINDS = {1: 1, 2: 2, 3: 1, 4: 4}
LOGGED = (
    "encode(__lsn, 'hex'), __command_id, encode(__seq, 'hex'), __op, history, id, a, lob, old, __changed,"
    " __committed_at"
)
Event = tuple[object, ...]


def make_history(seed: int) -> History:
    """Return some commits, the first of which is at position 2."""
    rng = random.Random(seed)
    history = History(7, rng, declared_key=rng.random() < 0.5)
    for _ in range(rng.randrange(1, 10)):
        history.run_transaction(rng.randrange(1, 5))
    return history


def committed_at(position: bytes) -> datetime:
    return datetime(2026, 5, 1, tzinfo=UTC) + timedelta(seconds=number_of(read_position(position)))


def event_of(change: Change) -> Event:
    """Return the row of the log for a change, by the definition of the log."""
    moves = change.operation in (3, 4) and is_changed(change.mask, 2)
    kind = 2 if change.operation == 4 and moves else _KINDS[change.operation]
    changed = [name for bit, name in _NAMES.items() if change.mask[-1] & bit] if kind == 4 else None
    place = (change.start_lsn.hex(), change.command_id, change.seqval.hex(), kind)
    return (
        *place,
        change.history,
        change.id,
        change.a,
        change.lob,
        change.old,
        changed,
        committed_at(change.start_lsn),
    )


def events_of(history: History) -> list[Event]:
    """Return all rows of the log, without the images before updates that leave the key."""
    kept = [each for each in history.changes if each.operation != 3 or is_changed(each.mask, 2)]
    return sorted(map(event_of, kept), key=lambda event: event[:4])


@dataclass
class LogRig:
    """A log behind a real ledger, and windows of it in any order, each as a replay."""

    ledger: PostgresLedger
    warehouse: PostgresWarehouse
    history: History
    rng: random.Random
    pipeline: str = field(init=False)
    target: TableName = field(init=False)

    def __post_init__(self) -> None:
        self.pipeline = f"log_{next(_names)}"
        self.target = TableName("shop", self.pipeline)
        table = replace(self.plan(1, 2), kind=LoadKind.FIRST_LOAD, interval=None, watermark=None)
        opened = self.ledger.open_window(self.pipeline, lsn(1), [table])
        plan = self._begin(opened)
        self.finish(plan, self.warehouse.merge_window(plan))
        self.ledger.advance_quiet(self.pipeline, lsn(END), {table.source: lsn(1)})

    def plan(self, after: int, to: int) -> TablePlan:
        table = with_settings(histories_plan(), style=Style.LOG, target=self.target)
        return replace(table, interval=Interval(lsn(after), lsn(to)), watermark=lsn(END))

    def open(self, after: int, to: int) -> WindowPlan:
        lane = replay_lane(Interval(lsn(after), lsn(to)))
        return self.ledger.open_window(self.pipeline, lsn(to), [self.plan(after, to)], lane=lane)

    def run(self, after: int, to: int, *, is_killed: bool = False) -> TableCounts:
        """Run a window. is_killed: a first attempt ends when some parts are staged, and a try of a part is lost."""
        opened = self.open(after, to)
        plan = self._begin(opened)
        if is_killed:
            self._stage(plan, self._parts(after, to)[:2])
            plan = self._begin(opened)
        parts = self._parts(after, to)
        if is_killed:
            self._stage(plan, parts[:1])
        staged = self._stage(plan, parts)
        rows = sum(part.rows for part in staged)
        counts = self.warehouse.merge_window(plan, {plan.tables[0].source: StagedRows(rows, rows, tuple(staged))})
        self.finish(plan, counts)
        return next(iter(counts.values()))

    def finish(self, plan: WindowPlan, counts: object) -> None:
        assert counts
        self.ledger.mark_checked(plan.window_id)
        self.ledger.advance(plan.window_id)
        self.warehouse.drop_staging(plan.window_id)

    def _begin(self, opened: WindowPlan) -> WindowPlan:
        plan = self.ledger.begin_load(opened.window_id).plan
        self.warehouse.prepare_window(plan)
        return plan

    def _parts(self, after: int, to: int) -> list[pa.RecordBatch]:
        """Return the changes of an interval in no order, in up to three parts."""
        chosen = [each for each in self.history.changes if after < number_of(read_position(each.start_lsn)) <= to]
        rows = change_batch(chosen)
        moments = [committed_at(position).replace(tzinfo=None) for position in rows.column(0).to_pylist()]
        rows = rows.append_column("__$committed_at", pa.array(moments, pa.timestamp("us")))
        rows = rows.take(pa.array(self.rng.sample(range(rows.num_rows), rows.num_rows), pa.int64()))
        cuts = sorted(self.rng.randrange(rows.num_rows + 1) for _ in range(2))
        return [rows.slice(begin, end - begin) for begin, end in pairwise([0, *cuts, rows.num_rows])]

    def _stage(self, plan: WindowPlan, parts: list[pa.RecordBatch]) -> list[StagedPart]:
        table, sink = plan.tables[0], self.warehouse.sink(plan, 0)
        writer = StageWriter(table, shape_of(table), b"", sink)
        return [sink.write(number, writer.net_rows([rows], number)) for number, rows in enumerate(parts)]


@pytest.fixture
def session(database: WarehouseConnection) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database.conninfo(), autocommit=True) as opened:
        yield opened


def read_log(session: psycopg.Connection, rig: LogRig) -> list[Event]:
    order = "__lsn, __command_id, __seq, __op"
    return session.execute(f'SELECT {LOGGED} FROM shop."{rig.target.name}" ORDER BY {order}').fetchall()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=11)
@given(seed=st.integers(0, 2**32))
def test_windows_in_order_late_again_and_after_a_kill_end_in_the_list_of_all_changes(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, seed: int
) -> None:
    rng = random.Random(seed)
    rig = LogRig(ledger, PostgresWarehouse(database), make_history(seed), rng)
    cuts = sorted({1, 20, *(rng.randrange(2, 12) for _ in range(rng.randrange(4)))})
    windows = list(pairwise(cuts))
    if rng.random() < 0.7:
        # Some overlap others, and some come twice.
        windows = [(max(1, after - rng.randrange(3)), to) for after, to in windows] + rng.choices(windows, k=2)
        rng.shuffle(windows)
    counts = [rig.run(*window, is_killed=rng.random() < 0.3) for window in windows]
    expected = events_of(rig.history)
    assert read_log(session, rig) == expected
    assert sum(each.inserted_rows for each in counts) == len(expected)
    assert all(each.staged_rows == each.inserted_rows + each.unchanged_rows for each in counts)


def test_window_that_is_merged_again_leaves_every_row_as_it_was(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection
) -> None:
    """A consumer that has read up to a window does not read a row of it again."""
    rig = LogRig(ledger, PostgresWarehouse(database), make_history(3), random.Random(3))
    rig.run(1, 20)
    whole = f'SELECT * FROM shop."{rig.target.name}" ORDER BY __lsn, __command_id, __seq, __op'
    before = session.execute(whole).fetchall()
    assert before
    assert rig.run(1, 20) == TableCounts(staged_rows=len(before), unchanged_rows=len(before))
    assert session.execute(whole).fetchall() == before
