"""Two schedulers, a zombie, a cleared task, a command line, reloads and replays at once, step by step in random orders.

The lease is the window's row with its attempt, the hold of a load, and compare-and-set of the watermarks
(docs/adr/0011). Each actor is a thread that stops before every call of a port; a seeded choice says who goes on. So
the calls of a run interleave in any order, and each happens alone: what goes wrong comes from the order, and can be
repeated. FLOODMARK_INTERLEAVING_SEEDS=100 draws more orders than are drawn each time.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from small_replay import SmallLog, between
from small_source import NoChecks, SmallSource, SmallStager, settings
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.errors import (
    FloodmarkBugError,
    FloodmarkError,
    OperatorError,
    TransientError,
    WatermarkConflictError,
)
from floodmark.core.interval import Interval
from floodmark.core.policies import Deletes, NetSource
from floodmark.core.window.lane import replay_lane
from floodmark.core.window.plan import WindowState
from floodmark.postgres.connection import WarehouseConnection
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.sync.recovery.reload import LoadPlanner
from floodmark.sync.recovery.replay import Replay
from floodmark.sync.run.advance import advance_window
from floodmark.sync.run.check import check_window
from floodmark.sync.run.load import load_window
from floodmark.sync.run.open_window import open_window
from lsns import lsn, number_of

_LIMIT_SECONDS = 60.0
SEEDS = int(os.environ.get("FLOODMARK_INTERLEAVING_SEEDS", "5"))


class KilledError(Exception):
    """A substitute for kill -9 of an actor between two calls."""


@dataclass
class Actor:
    """A thread that does one call of a port at a time, on request. kills: ends before its next call."""

    work: Callable[[Actor], None]
    outcome: BaseException | None = None
    done: bool = False
    kills: bool = False
    _may_go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _waits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self._await()

    def step(self) -> None:
        self._may_go.release()
        self._await()

    def port(self, port: Any, loses_hold: bool = False) -> Any:
        actor = self

        class Stepwise:
            def __getattr__(self, name: str) -> Any:
                method = getattr(port, name)
                if not callable(method):
                    return method

                def call(*arguments: Any, **named: Any) -> Any:
                    actor._pause()
                    return method(*arguments, **named)

                return _lost if loses_hold and name == "hold_load" else call

        return Stepwise()

    def _pause(self) -> None:
        self._waits.release()
        self._may_go.acquire()
        if self.kills:
            raise KilledError

    def _run(self) -> None:
        try:
            self.work(self)
        except (FloodmarkError, KilledError, psycopg.Error) as error:
            self.outcome = error
        finally:
            self.done = True
            self._waits.release()

    def _await(self) -> None:
        assert self._waits.acquire(timeout=_LIMIT_SECONDS), "an actor waits for another, who waits for its turn"


@contextmanager
def _lost(window_id: int) -> Iterator[None]:
    """A hold that went with its connection: the load goes on all the same."""
    yield


@dataclass
class Stage:
    """Warehouse, ledger and source, and the parts that actors play on them."""

    shop: Shop
    source: SmallSource
    chance: random.Random
    chosen: dict[str, Any] = field(default_factory=dict)
    """Of the table's settings."""
    seen_windows: list[int] = field(default_factory=list)
    replayed: dict[str, Interval] = field(default_factory=dict)
    """By lane."""
    merged: Counter[int] = field(default_factory=Counter)

    def run(self, actor: Actor, loses_hold: bool = False) -> None:
        """A scheduled run, or one of the command line: they are the same."""
        ledger = actor.port(self.shop.ledger)
        opened = open_window(settings(**self.chosen), actor.port(self.source), ledger)
        if opened.window_id is not None:
            self.seen_windows.append(opened.window_id)
            self.finish(actor, opened.window_id, loses_hold)

    def replay(self, actor: Actor) -> None:
        known = range(self.source.min_lsn, max(self.watermark(), self.source.min_lsn + 1) + 1)
        after, to = sorted(self.chance.sample(known, 2))
        self.replay_interval(actor, between(after, to))

    def replay_interval(self, actor: Actor, interval: Interval) -> None:
        self.replayed[replay_lane(interval)] = interval
        log = actor.port(SmallLog(self.source))
        ledger, warehouse = actor.port(self.shop.ledger), actor.port(self.shop.warehouse)
        planner = Replay(settings(**self.chosen), actor.port(self.source), log, ledger, warehouse)
        opened = planner.open(interval)
        if opened.window_id is not None:
            self.seen_windows.append(opened.window_id)
            self.finish(actor, opened.window_id)

    def reload(self, actor: Actor) -> None:
        ledger, warehouse = actor.port(self.shop.ledger), actor.port(self.shop.warehouse)
        opened = LoadPlanner(settings(**self.chosen), actor.port(self.source), ledger, warehouse).open_reload(ORDERS)
        if opened.window_id is not None:
            self.seen_windows.append(opened.window_id)
            self.finish(actor, opened.window_id)

    def cleared(self, actor: Actor) -> None:
        """A task of some run of before, with the window that its XCom says."""
        if self.seen_windows:
            self.finish(actor, self.chance.choice(self.seen_windows))

    def zombie(self, actor: Actor) -> None:
        self.run(actor, loses_hold=True)

    def finish(self, actor: Actor, window_id: int, loses_hold: bool = False) -> None:
        """load, check and advance, each of which may be tried again whatever became of the one before."""
        ledger, warehouse = actor.port(self.shop.ledger, loses_hold), actor.port(Counted(self))
        stager = actor.port(SmallStager(self.shop, self.source))
        load_window(window_id, ledger, warehouse, actor.port(self.source), stager)
        check_window(window_id, ledger, NoChecks())
        advance_window(window_id, ledger, warehouse)

    def watermark(self) -> int:
        state = self.shop.ledger.read_tables(PIPELINE).get(ORDERS)
        return number_of(state.watermark) if state and state.watermark else 0

    def write(self) -> None:
        key = self.chance.randint(1, 5)
        gone = key in self.source.rows and self.chance.random() < 0.3
        self.source.write(key, None if gone else self.chance.randint(1, 99))


@dataclass
class Counted:
    """The warehouse; counts the merges that came to their end."""

    stage: Stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stage.shop.warehouse, name)

    def merge_window(self, plan: Any, staged_rows: Any = None) -> Any:
        counts = self.stage.shop.warehouse.merge_window(plan, staged_rows)
        self.stage.merged[plan.window_id] += 1
        return counts


def is_expected(error: BaseException | None) -> bool:
    """Return whether a run that was overtaken may end so; not with a bug of ours, nor where the operator must act."""
    # Who stages into the tables of an attempt that is over finds them gone.
    if isinstance(error, psycopg.errors.UndefinedTable) or (
        isinstance(error, FloodmarkBugError) and isinstance(error.__cause__, psycopg.errors.UndefinedTable)
    ):
        return True
    if isinstance(error, FloodmarkBugError | psycopg.Error):
        return False
    overtaken = (WatermarkConflictError, TransientError, OperatorError, KilledError)
    return error is None or isinstance(error, overtaken)


def chosen_by(chance: random.Random) -> dict[str, Any]:
    return {"deletes": chance.choice(list(Deletes)), "net": chance.choice(list(NetSource))}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_runs_that_interleave_at_random_apply_each_window_once_and_move_no_watermark_back(
    database: WarehouseConnection, ledger: PostgresLedger, seed: int
) -> None:
    chance = random.Random(seed)
    source = SmallSource()
    stage = Stage(Shop(database, ledger), source, chance, chosen_by(chance))
    parts = [stage.run, stage.run, stage.zombie, stage.cleared, stage.replay, stage.replay, stage.reload]
    actors: list[Actor] = []
    outcomes: list[BaseException | None] = []
    for _ in range(8):
        # Some of the rows come and go before anybody reads them.
        stage.write()
    watermark = 0
    for _ in range(300):
        if chance.random() < 0.1:
            stage.write()
        if len(actors) < 4:
            actors.append(Actor(chance.choice(parts)))
            actors[-1].start()
        else:
            actor = chance.choice(actors)
            actor.kills = chance.random() < 0.01
            actor.step()
            now = stage.watermark()
            assert now >= watermark, "the watermark moved back"
            watermark = now
        outcomes += [actor.outcome for actor in actors if actor.done]
        actors = [actor for actor in actors if not actor.done]
    for actor in actors:
        while not actor.done:
            actor.step()
        outcomes.append(actor.outcome)
    assert [error for error in outcomes if not is_expected(error)] == []
    assert set(stage.merged.values()) <= {1}, "a window was applied twice"
    finish_all(stage)
    assert_equal_to_the_model(stage)


def finish_all(stage: Stage) -> None:
    """Run one actor at a time until nothing is left to do."""
    for opened in stage.shop.ledger.list_unfinished(PIPELINE):
        window_id, interval = opened.plan.window_id, stage.replayed.get(opened.plan.lane)
        if interval is None:
            run_alone(Actor(partial(stage.finish, window_id=window_id)))
        else:
            # A replay that a load of the whole table overtook is given up when the interval is replayed again.
            run_alone(Actor(partial(stage.replay_interval, interval=interval)))
    assert stage.shop.ledger.list_unfinished(PIPELINE) == []
    while stage.watermark() < stage.source.position:
        run_alone(Actor(stage.run))


def run_alone(actor: Actor) -> None:
    actor.start()
    while not actor.done:
        actor.step()
    assert actor.outcome is None


def assert_equal_to_the_model(stage: Stage) -> None:
    """Rows as at the source; each change was read by one window of the main lane, or jumped over by one load."""
    target = {key: row[0] for key, row in stage.shop.target().items()}
    assert target == {key: Decimal(amount) for key, amount in stage.source.rows.items()}
    ledger = stage.shop.ledger
    assert ledger.list_unfinished(PIPELINE) == []
    rows = stage.shop.rows(
        "SELECT w.window_id, w.state, x.kind, x.read_rows FROM floodmark.windows AS w JOIN floodmark.window_tables AS x"
        " USING (window_id) WHERE NOT starts_with(w.lane, 'replay') ORDER BY w.window_id"
    )
    assert {row["state"] for row in rows} == {WindowState.ADVANCED.value}
    plans = [ledger.read_window(row["window_id"]).plan for row in rows]
    moved = [(plan.tables[0].watermark, plan.to_lsn) for plan in plans]
    assert moved[0][0] is None
    assert all(later is not None and later >= earlier for (_, earlier), (later, _) in pairwise(moved))
    windows = [row for row in rows if row["kind"] == "changes"]
    loads = [(after, to) for row, (after, to) in zip(rows, moved, strict=True) if row["kind"] == "first_load"]
    jumped = sum(
        any((after is None or lsn(row.lsn) > after) and lsn(row.lsn) <= to for after, to in loads)
        for row in stage.source.log
    )
    assert sum(row["read_rows"] for row in windows) == len(stage.source.log) - jumped
