"""One random history of a pipeline of two tables: who does what, in which order, and how it is brought to its end.

The ledger, the merge, the gate and the quarantine are the product's, on PostgreSQL. The source is in memory. A seed
draws the settings of the tables, who acts, which call comes next, and what happens in between: writes, cleanup, failing
checks, a target that is lost, a backup that is restored.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import psycopg
from history_source import BAD, ITEMS, KEYS, TARGETS, Change, HistorySource, HistoryTable, Key, batch_of, net_changes
from psycopg.rows import dict_row
from stepwise_actors import Actor, KilledError, run_alone
from warehouse_shop import INSERT, ORDERS, PIPELINE

from fast_warehouse import take_session
from floodmark.core.errors import (
    DataQualityError,
    FloodmarkBugError,
    FloodmarkError,
    OperatorError,
    TargetLostError,
    TransientError,
    WindowExpiredError,
)
from floodmark.core.plan import Bound, LoadChunk, TableCounts, WindowPlan, is_replay_lane, replay_lane
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import TableName, quote_table
from floodmark.core.settings import Deletes, NetSource, OnFailure, OnGap, PipelineSettings, Rule, TableSettings
from floodmark.core.upkeep import RetentionSettings
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresMarkLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sync.alerts import Alerts, find_stopped
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import StagedPart, StagedRows, StagingSink
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.replay import Replay
from floodmark.sync.upkeep import keep_retention
from lsns import lsn, number_of
from tables_in_turn import stage_in_turn

CHECK_FAILED = "a check of the history fails"
RULE = '"Amount" < 1000000'
assert str(BAD) in RULE
_THAWS = 0.03
_ROUNDS = 12
"""More than any state needs to come to its end: a load, a run that finishes a window, and one that opens the next."""


@dataclass
class Choices:
    """The settings that a seed has drawn for the whole of a history."""

    tables: tuple[TableSettings, ...]
    steps: int
    actors: int
    writes: float
    kills: float
    fails: float
    """How often a check fails."""
    parts: Sequence[str]
    events: Sequence[str]
    mishaps: float
    """How often one of the events happens."""
    freezes: float
    """How often an actor is paused for long, and others act in its place."""


def choose(chance: random.Random) -> Choices:
    """Draw the settings. Some histories have no rule, or checks that never fail, as most pipelines do."""
    rule = chance.choice((None, OnFailure.QUARANTINE, OnFailure.QUARANTINE, OnFailure.STOP, OnFailure.WARN))
    rules = () if rule is None else (Rule("small", RULE, rule),)
    on_gap = chance.choice(list(OnGap))
    tables = tuple(
        TableSettings(
            name,
            TARGETS[name],
            deletes=chance.choice(list(Deletes)),
            net=chance.choice(list(NetSource)),
            rules=rules if chance.random() < 0.7 else (),
            on_gap=on_gap,
        )
        for name in (ORDERS, ITEMS)
    )
    seldom = ["reload", "pending", "give_up", "release", "discard", "retention", "forget_windows"]
    parts = ["run"] * 4 + ["zombie", "cleared", "replay", "replay"]
    parts += [part for part in seldom for _ in range(chance.choice((0, 0, 1, 2)))]
    mishaps = ["clean_up", "truncate", "drop", "rewrite", "change_rules", "backup_and_restore"]
    events = [each for each in mishaps if chance.random() < 0.4]
    return Choices(
        tables,
        steps=chance.choice((30, 60, 120)),
        actors=chance.choice((1, 2, 3, 4)),
        writes=chance.choice((0.05, 0.1, 0.3)),
        kills=chance.choice((0.0, 0.01, 0.03)),
        fails=chance.choice((0.0, 0.0, 0.2, 0.5)),
        parts=parts,
        events=events,
        mishaps=chance.choice((0.02, 0.05, 0.1)) if events and chance.random() < 0.6 else 0.0,
        freezes=chance.choice((0.0, 0.02)),
    )


@dataclass
class RandomChecks:
    """A ``Quality`` that finds fault at random, or ends with an error that no one expects; later it passes."""

    history: RandomHistory

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        assert set(counts) == {table.source for table in plan.tables}
        chance, fails = self.history.chance, self.history.fails
        if chance.random() < fails / 3:
            raise ValueError(CHECK_FAILED)
        return {
            table.source: DataQualityError(str(table.source), CHECK_FAILED)
            for table in plan.tables
            if chance.random() < fails
        }


@dataclass
class HistoryStager:
    """Stages what the source has, through the sink of the warehouse, as Spark does; it pauses before each write."""

    history: RandomHistory
    pause: Callable[[str], None]

    def _table(self, plan: WindowPlan, index: int) -> HistoryTable:
        return self.history.source.tables[plan.tables[index].source]

    def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
        return sorted(self._table(plan, index).rows)[1::2]

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return None

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        parts = []
        for chunk in chunks:
            table, at = self._table(plan, index), number_of(plan.to)
            rows = [
                Change(key, INSERT, at, state.amount, state.notes)
                for key, state in table.rows.items()
                if (not chunk.after or key > tuple(chunk.after)) and (not chunk.to or key <= tuple(chunk.to))
            ]
            batch = batch_of(table, rows)
            self.pause("write chunk")
            parts.append(sink.write(chunk.number, iter([batch] if rows else [])))
        return parts

    def stage_changes(
        self, plan: WindowPlan, sinks: Mapping[int, StagingSink]
    ) -> Mapping[int, StagedRows | FloodmarkError]:
        return stage_in_turn(plan, sinks, lambda index, sink: self._stage_table(plan, index, sink))

    def _stage_table(self, plan: WindowPlan, index: int, sink: StagingSink) -> StagedRows:
        table, planned = self._table(plan, index), plan.tables[index]
        assert planned.interval is not None
        read_rows, rows = net_changes(table, planned.interval, planned.settings.net)
        if rows and self.history.chance.random() < 0.1:
            # A try of the part that nobody has heard of, with some of the rows as they were before.
            self.pause("write of another try")
            sink.write(0, iter([batch_of(table, rows[: self.history.chance.randint(1, len(rows))])]))
        self.pause("write part")
        part = sink.write(0, iter([batch_of(table, rows)] if rows else []))
        return StagedRows(read_rows, part.rows, (part,))


@dataclass
class Watched:
    """The warehouse; counts the merges that came to their end, and remembers which keys the targets have had."""

    history: RandomHistory

    def __getattr__(self, name: str) -> Any:
        return getattr(self.history.warehouse, name)

    def merge_window(self, plan: Any, staged: Any = None) -> Any:
        counts = self.history.warehouse.merge_window(plan, staged)
        self.history.merged[plan.window_id] += 1
        self.history.remember_keys()
        return counts


@dataclass(repr=False)
class RandomHistory:
    """Source, warehouse and ledger of one history, and the parts that actors play on them."""

    connection: WarehouseConnection
    seed: int
    source: HistorySource = field(default_factory=HistorySource)
    seen_windows: list[int] = field(default_factory=list)
    replayed: dict[str, Interval] = field(default_factory=dict)
    """By lane."""
    merged: Counter[int] = field(default_factory=Counter)
    had: dict[TableName, set[Key]] = field(default_factory=lambda: {name: set() for name in TARGETS})
    """The keys that the target has had alive since it was last lost."""
    backup: Backup | None = None
    happened: Counter[str] = field(default_factory=Counter)
    set_aside: set[TableName] = field(default_factory=set)
    """The tables with rows that a rule may have set aside."""
    let_through: set[TableName] = field(default_factory=set)
    """The tables whose target may have rows that break their rule."""
    watermarks: dict[TableName, int] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    """What has happened, for a person who reads a failure."""
    actors: list[Actor] = field(default_factory=list)
    """Those that are not done."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.choices = choose(self.chance)
        self.fails = self.choices.fails
        self.note_rules()
        self.ledger = PostgresLedger(self.connection)
        self.warehouse = PostgresWarehouse(self.connection)

    def __str__(self) -> str:
        """Return the settings that the seed has drawn."""
        return "; ".join(
            f"{table.source}: deletes {table.deletes.value}, net {table.net.value}, on_gap {table.on_gap.value}, "
            f"rule {', '.join(rule.on_failure.value for rule in table.rules) or 'none'}"
            for table in self.choices.tables
        )

    @property
    def settings(self) -> PipelineSettings:
        return PipelineSettings(PIPELINE, self.choices.tables)

    def settings_of(self, name: TableName) -> TableSettings:
        return next(table for table in self.choices.tables if table.source == name)

    # The parts of actors.

    def run(self, actor: Actor, loses_hold: bool = False) -> None:
        """A scheduled run, or one of the command line: they are the same."""
        ledger = actor.port(self.ledger)
        opened = open_window(self.settings, actor.port(self.source), ledger)
        if opened.window_id is not None:
            self.finish(actor, opened.window_id, loses_hold)
        if error := find_stopped(self.settings, ledger):
            raise error

    def zombie(self, actor: Actor) -> None:
        self.run(actor, loses_hold=True)

    def cleared(self, actor: Actor) -> None:
        """A task of some run of before, with the window that its XCom says."""
        if self.seen_windows:
            self.finish(actor, self.chance.choice(self.seen_windows))

    def replay(self, actor: Actor) -> None:
        ends = range(min(table.oldest for table in self.source.tables.values()) - 1, self.source.position + 1)
        if len(ends) > 1:
            after, to = sorted(self.chance.sample(ends, 2))
            self.replay_interval(actor, Interval(lsn(after), lsn(to)))

    def replay_interval(self, actor: Actor, interval: Interval) -> None:
        self.replayed[replay_lane(interval)] = interval
        source, ledger = actor.port(self.source), actor.port(self.ledger)
        opened = Replay(self.settings, source, source, ledger, actor.port(self.warehouse)).open(interval)
        if opened.window_id is not None:
            self.finish(actor, opened.window_id)

    def planner(self, actor: Actor) -> LoadPlanner:
        return LoadPlanner(self.settings, actor.port(self.source), actor.port(self.ledger), actor.port(self.warehouse))

    def reload(self, actor: Actor, name: TableName | None = None) -> None:
        opened = self.planner(actor).open_reload(name or self.chance.choice(list(TARGETS)))
        if opened.window_id is not None:
            self.finish(actor, opened.window_id)

    def pending(self, actor: Actor) -> None:
        """A run of the DAG for loads."""
        opened = self.planner(actor).open_pending()
        if opened.window_id is not None:
            self.finish(actor, opened.window_id)

    def give_up(self, actor: Actor) -> None:
        self.planner(actor).give_up(self.chance.choice(list(TARGETS)))
        # While the load was under way, cleanup had to keep what comes after its beginning, and no more.
        self.happened["cleanup"] += 1

    def release(self, actor: Actor) -> None:
        settings = self.settings_of(self.chance.choice(list(TARGETS)))
        if self.chance.random() < 0.3:
            settings = replace(settings, rules=())
            self.let_through.add(settings.source)
        self.release_rows(actor, settings)

    def release_rows(self, actor: Actor, settings: TableSettings) -> None:
        actor.port(PostgresQuarantine(self.connection)).release(PIPELINE, settings, "anna")
        self.remember_keys()

    def discard(self, actor: Actor) -> None:
        actor.port(PostgresQuarantine(self.connection)).discard(
            PIPELINE, self.chance.choice(list(TARGETS)), None, "anna"
        )

    def retention(self, actor: Actor) -> None:
        """Clean up the changes that every watermark has passed."""
        keep_retention(
            "shop",
            RetentionSettings(margin_seconds=float(self.chance.choice((0, 2)))),
            {PIPELINE: self.settings.sources},
            control=actor.port(self.source),
            ledger=actor.port(PostgresMarkLedger(self.connection)),
            alerts=Alerts(),
        )

    def forget_windows(self, actor: Actor) -> None:
        """Delete old windows from the ledger, all of which end before the changes that the source still has."""
        if max(self.read_watermarks().values()) < min(table.oldest for table in self.source.tables.values()):
            actor.port(self.ledger).delete_old_windows(PIPELINE, 0.0, 100)
            self.happened["windows forgotten"] += 1

    def finish(self, actor: Actor, window_id: int, loses_hold: bool = False) -> None:
        """load, check and advance, each of which may be tried again whatever became of the one before."""
        self.seen_windows.append(window_id)
        ledger, warehouse = actor.port(self.ledger, loses_hold), actor.port(Watched(self))
        stager = HistoryStager(self, actor.pause)
        load_window(window_id, ledger, warehouse, actor.port(self.source), stager)
        check_window(window_id, ledger, RandomChecks(self))
        advance_window(window_id, ledger, warehouse)

    # What happens in between.

    def write(self) -> None:
        """Commit a transaction, of one table or of both."""
        self.source.position += 1
        for name in self.chance.choice(((ORDERS,), (ITEMS,), (ORDERS, ITEMS))):
            table, key = self.source.tables[name], self.chance.choice(KEYS[name])
            if key in table.rows and self.chance.random() < 0.35:
                table.delete(self.source.position, key)
                continue
            amount = self.source.amount(is_bad=self.chance.random() < 0.2)
            notes = self.chance.choice((None, f"note {amount}"))
            table.write(self.source.position, key, amount, notes, keeps=self.chance.random() < 0.5)

    def clean_up(self) -> None:
        """Clean up changes whether they have been read or not."""
        table = self.source.tables[self.chance.choice(list(TARGETS))]
        table.oldest = self.chance.randint(table.oldest, self.source.position)
        self.happened["cleanup"] += 1

    def truncate(self) -> None:
        self.lose("TRUNCATE {}")

    def drop(self) -> None:
        self.lose("DROP TABLE {}")

    def lose(self, statement: str) -> None:
        name = self.chance.choice(list(TARGETS))
        if self.target(name):
            self.execute(statement.format(quote_table(TARGETS[name])))
            self.note_loss(name)

    def rewrite(self) -> None:
        """Write a target into another file. With hard deletes it may count as lost; its rows are all there."""
        name = self.chance.choice(list(TARGETS))
        if self.target(name):
            self.execute(f"VACUUM FULL {quote_table(TARGETS[name])}")
            if self.settings_of(name).deletes is Deletes.HARD:
                self.happened["loss"] += 1

    def change_rules(self) -> None:
        """Remove the rule that sets rows aside from a table, or add it."""
        name = self.chance.choice(list(TARGETS))
        table = self.settings_of(name)
        rules = () if table.rules else (Rule("small", RULE, OnFailure.QUARANTINE),)
        self.choices.tables = tuple(
            replace(each, rules=rules) if each.source == name else each for each in self.choices.tables
        )
        self.note_rules()

    def note_rules(self) -> None:
        for table in self.choices.tables:
            sets_aside = any(rule.on_failure is OnFailure.QUARANTINE for rule in table.rules)
            (self.set_aside if sets_aside else self.let_through).add(table.source)

    def backup_and_restore(self) -> None:
        """Take a backup, or restore the ledger or the targets from it, once: nothing of Floodmark runs meanwhile."""
        if self.backup is None:
            self.backup = Backup(self)
            self.backup.take()
        elif not self.happened["restore"]:
            self.happened["restore"] += 1
            self.backup.restore(ledger=self.chance.random() < 0.5)

    def note_loss(self, *names: TableName) -> None:
        self.happened["loss"] += 1
        for name in names:
            self.had[name].clear()

    def execute(self, *statements: str) -> None:
        session = take_session(self.connection.conninfo())
        try:
            for statement in statements:
                session.execute(statement)
        finally:
            session.close()

    def remember_keys(self) -> None:
        for name in TARGETS:
            self.had[name].update(row_key(name, row) for row in self.target(name) if not row["__deleted"])

    # What is read for the model.

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        session = take_session(self.connection.conninfo())
        try:
            return session.cursor(row_factory=dict_row).execute(statement, parameters).fetchall()
        finally:
            session.close()

    def target(self, name: TableName) -> list[dict[str, Any]]:
        """Return the rows of a target; none where there is no table."""
        try:
            return self.rows(f"SELECT * FROM {quote_table(TARGETS[name])}")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return []

    def read_watermarks(self) -> dict[TableName, int]:
        """Return the watermarks as the ledger has them, 0 for a table without one."""
        found = {row["source_name"]: row["watermark"] for row in self.rows("SELECT * FROM floodmark.tables")}
        return {name: _position(found.get(name.name)) for name in TARGETS}

    # The course of the history.

    def play(self) -> None:
        """Let the actors act. Raises AssertionError for what may not be."""
        frozen: list[Actor] = []
        for _ in range(8):
            # Some of the rows come and go before anybody reads them.
            self.write()
        for _ in range(self.choices.steps):
            if self.chance.random() < self.choices.writes:
                self.write()
            if self.chance.random() < self.choices.mishaps:
                self.meet(self.chance.choice(self.choices.events))
            awake = [actor for actor in self.actors if actor not in frozen]
            if len(awake) < self.choices.actors:
                part = self.chance.choice(self.choices.parts)
                self.actors.append(Actor(getattr(self, part), part))
                self.actors[-1].start()
            else:
                actor = self.chance.choice(awake)
                actor.kills = self.chance.random() < self.choices.kills
                self.step(actor)
                if self.chance.random() < self.choices.freezes:
                    frozen.append(actor)
            if frozen and self.chance.random() < _THAWS:
                frozen.pop(0)
            self.collect()
        for actor in self.actors:
            while not actor.done:
                self.step(actor)
        self.collect()

    def meet(self, event: str) -> None:
        """Let an event happen."""
        self.story.append(f"{event}, at {self.source.position}")
        if event == "backup_and_restore":
            self.kill_actors()
            self.collect()
        getattr(self, event)()

    def kill_actors(self) -> None:
        """Kill all actors. A history that failed leaves none behind: its database serves other histories."""
        for actor in self.actors:
            actor.kills = True
            while not actor.done:
                actor.step()

    def step(self, actor: Actor) -> None:
        actor.step()
        if actor.calls[-1].startswith("advance"):
            self.check_watermarks()

    def collect(self) -> None:
        """Take the actors that are done from the others. Raises AssertionError for one that may not end so."""
        ended = [actor for actor in self.actors if actor.done]
        self.actors = [actor for actor in self.actors if not actor.done]
        for actor in ended:
            self.story.append(f"{actor.name}: {', '.join(actor.calls)} -> {actor.outcome!r}")
            assert self.is_expected(actor.name, actor.outcome), f"{actor.name} ended with {actor.outcome!r}"

    def check_watermarks(self) -> None:
        for name, now in self.read_watermarks().items():
            assert now >= self.watermarks.get(name, 0), f"the watermark of {name} moved back"
            self.watermarks[name] = now

    def is_expected(self, part: str, error: BaseException | None) -> bool:
        """Return whether an actor may end so: overtaken, killed, refused by a check or a rule; not with a bug."""
        if error is None or isinstance(error, KilledError):
            return True
        if isinstance(error, FloodmarkBugError):
            return "unexpected error (ValueError)" in str(error)
        if isinstance(error, DataQualityError):
            return CHECK_FAILED in str(error) or "broke rule small" in str(error)
        if isinstance(error, TargetLostError):
            return self.happened["loss"] > 0
        if isinstance(error, WindowExpiredError):
            # A run that has read a watermark may be overtaken by another one, and by the cleanup that follows it.
            return part == "replay" or self.happened["cleanup"] > 0 or not self.is_expired()
        return isinstance(error, TransientError | OperatorError)

    def is_expired(self) -> bool:
        """Return whether changes after some watermark are gone."""
        marks = self.read_watermarks()
        return any(0 < marks[name] < table.oldest - 1 for name, table in self.source.tables.items())

    # The end.

    def end(self) -> None:
        """Run one actor at a time until nothing is left to do, as an operator who reads the verdicts would."""
        self.fails = 0.0
        self.correct_stopping_rows()
        for _ in range(_ROUNDS):
            self.end_replays()
            # What was planned, or staged, before the rows were corrected is refused once more.
            self.expect(self.pending, TransientError, DataQualityError)
            for validity in self.ledger.list_stopped(PIPELINE):
                self.expect(partial(self.reload, name=validity.table), TransientError, DataQualityError)
            # A run that only finishes the window of another one does not compare the targets with the ledger.
            opens_its_own = not self.ledger.list_unfinished(PIPELINE)
            self.expect(self.run, OperatorError, DataQualityError)
            is_complete = opens_its_own and set(self.read_watermarks().values()) == {self.source.position}
            if is_complete and not self.ledger.list_unfinished(PIPELINE) and not self.ledger.list_stopped(PIPELINE):
                break
        else:
            raise AssertionError(f"not at its end after {_ROUNDS} rounds: {self.ledger.list_unfinished(PIPELINE)}")

    def expect(self, work: Callable[[Actor], None], *allowed: type[FloodmarkError]) -> None:
        error = run_alone(work)
        self.story.append(f"at the end: {getattr(work, '__name__', 'reload or replay')} -> {error!r}")
        assert error is None or isinstance(error, allowed), f"at the end: {error!r}"

    def end_replays(self) -> None:
        """Finish the replays, each by another replay of its interval, which gives it up where it is impossible."""
        for opened in self.ledger.list_unfinished(PIPELINE):
            if is_replay_lane(opened.plan.lane):
                self.replay_again(self.replayed[opened.plan.lane], WindowExpiredError, TargetLostError)

    def replay_again(self, interval: Interval, *allowed: type[FloodmarkError]) -> None:
        """Replay an interval alone, without the rules that would stop it at a row that was corrected since."""
        tables = self.choices.tables
        self.choices.tables = tuple(replace(table, rules=_going_on(table.rules)) for table in tables)
        self.expect(partial(self.replay_interval, interval=interval), *allowed)
        self.choices.tables = tables

    def correct_stopping_rows(self) -> None:
        """Correct the rows at the source that a rule stops at."""
        for name, table in self.source.tables.items():
            if any(rule.on_failure is OnFailure.STOP for rule in self.settings_of(name).rules):
                for key in [key for key, state in table.rows.items() if state.amount >= BAD]:
                    self.source.position += 1
                    table.write(self.source.position, key, self.source.amount(is_bad=False), None, keeps=True)


@dataclass
class Backup:
    """Copies of the ledger and of the targets in a schema of their own."""

    history: RandomHistory
    tables: list[str] = field(default_factory=list)
    """Of the ledger."""
    targets: list[TableName] = field(default_factory=list)

    def take(self) -> None:
        found = self.history.rows(
            "SELECT relname FROM pg_class WHERE relnamespace = 'floodmark'::regnamespace AND relkind = 'r'"
            " AND relname <> 'ledger_version' ORDER BY relname"
        )
        self.tables = [row["relname"] for row in found]
        self.targets = [name for name in TARGETS if self.exists(name)]
        self.history.execute(
            "CREATE SCHEMA backup",
            *(f"CREATE TABLE backup.ledger_{name} AS SELECT * FROM floodmark.{name}" for name in self.tables),
            "CREATE TABLE backup.ids AS"
            " SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'floodmark'",
            *(
                f"CREATE TABLE backup.{name.name} (LIKE {quote_table(TARGETS[name])} INCLUDING ALL)"
                for name in self.targets
            ),
            *(f"INSERT INTO backup.{name.name} SELECT * FROM {quote_table(TARGETS[name])}" for name in self.targets),
        )

    def exists(self, name: TableName) -> bool:
        (found,) = self.history.rows("SELECT to_regclass(%s) IS NOT NULL AS is_there", quote_table(TARGETS[name]))
        return bool(found["is_there"])

    def restore(self, *, ledger: bool) -> None:
        history = self.history
        if ledger:
            history.execute(
                "SET session_replication_role = replica",  # no foreign keys
                f"TRUNCATE {', '.join(f'floodmark.{name}' for name in self.tables)}",
                *(
                    f"INSERT INTO floodmark.{name} OVERRIDING SYSTEM VALUE SELECT * FROM backup.ledger_{name}"
                    for name in self.tables
                ),
                "SELECT setval('floodmark.' || sequencename, coalesce(last_value, 1), last_value IS NOT NULL)"
                " FROM backup.ids",
                "SET session_replication_role = origin",
            )
            history.watermarks.clear()
            history.merged.clear()
        else:
            present = [name for name in TARGETS if self.exists(name)]
            history.execute(
                *(f"DROP TABLE {quote_table(TARGETS[name])}" for name in present),
                "CREATE SCHEMA IF NOT EXISTS shop",
                *(
                    f"CREATE TABLE {quote_table(TARGETS[name])} (LIKE backup.{name.name} INCLUDING ALL)"
                    for name in self.targets
                ),
                *(
                    f"INSERT INTO {quote_table(TARGETS[name])} SELECT * FROM backup.{name.name}"
                    for name in self.targets
                ),
            )
        history.story.append(f"restored: {'ledger' if ledger else 'targets'}")
        history.note_loss(*TARGETS)
        history.happened["cleanup"] += 1  # an older watermark may be below the low end


def _going_on(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.on_failure is not OnFailure.STOP)


def _position(value: bytes | None) -> int:
    return number_of(Lsn(bytes(value))) if value else 0


def row_key(name: TableName, row: Mapping[str, Any]) -> Key:
    """Return the key of a row of a target."""
    return (row["Id"],) if name == ORDERS else (row["Region"], row["No"])
