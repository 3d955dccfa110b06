"""Commands at random, a kill or a pause in each, troubles that last for a while, columns that are added meanwhile, and
all of it brought to its end.

FLOODMARK_TORTURE_KILLS: how often, over all kinds of source. FLOODMARK_TORTURE_SEED: which moments.
FLOODMARK_TORTURE_WRITES: transactions of the workload in a second. FLOODMARK_TORTURE_SPARK=1: with Spark and Great
Expectations in every run, and also kills of Spark's processes alone. ``make torture`` does all of it.
FLOODMARK_TORTURE_CARDS: a regular expression; only the kills that it finds in lines such as "target dropped in run".
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg

from torture_cards import Card, Cards
from torture_command import RunningCommand, kill, wake
from torture_rig import SECOND, KillableRig
from torture_troubles import REFUSED, TROUBLES, Trouble

KILLS = int(os.environ.get("FLOODMARK_TORTURE_KILLS", "20"))
SEED = int(os.environ.get("FLOODMARK_TORTURE_SEED", "20261121"))
WITH_SPARK = os.environ.get("FLOODMARK_TORTURE_SPARK") == "1"
TIMEOUT_SECONDS = 300 + KILLS * (240 if WITH_SPARK else 30)
# The other table shows the rig how far capture has come, by the instance that it has.
SWITCHED = ("Customers", "Products", "Orders", "OrderLines")
COLUMNS = (("nvarchar(30) NOT NULL DEFAULT N'größe'", "CONCAT(N'was ', {})"), ("decimal(9,2) NULL", "{} / 7.0"))
RUN = ("run", "shop")
RUN_SECOND = ("run", SECOND)
SWITCH = ("drift", "switch", "shop")
LIMIT_SECONDS = 900.0
PAUSE_SECONDS = 8.0
EXIT_FAILED = 1
EXIT_WRONG_CONFIGURATION = 2
EXIT_TRY_AGAIN = 75
_END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_OVERTAKEN = re.compile(
    r"another (load|run)|attempt \d+ has begun since|: its watermark is|is read from capture instance"
    r"|is reloading it|is not finished|was read since the replay was planned"
)
"""What a command says that finds its work done, or begun again, by another one."""
_GAPS = ("target_lost", "ahead_of_source", "expired", "instance_replaced")
_LOST = f"""
SELECT pipeline, source_schema || '.' || source_name, '', verdict
FROM floodmark.verdicts WHERE verdict IN {(*_GAPS, "repairing")} UNION ALL
SELECT pipeline, source_schema || '.' || source_name, member, verdict
FROM floodmark.members WHERE verdict IN {_GAPS}
"""
"""Tables to be loaded again, and devices or partitions of them."""
_VERDICTS = re.compile(rf"\b({'|'.join(_GAPS)}|refused|instance_missing|not_plannable|no_permission|capture_stopped)\b")
_REFUSALS = re.compile(r"\bof_the_torture\b|locked for more than|waited \d+ s for a lock|every_staged_row_merged")
"""What a load in parallel to windows says about a table that it refuses."""
_LOCKS = (
    "LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE",
    "SELECT FROM {} FOR UPDATE",
)


def torture_source(make_rig: Callable[..., KillableRig], folder: Path, share: int) -> None:
    """Kill, and compare in the end. make_rig: of one kind of source. share: how many of 20 kills the kind gets."""
    kills = max(1, KILLS * share // 20)
    rig = make_rig(folder, SEED, with_spark=WITH_SPARK)
    few_kills = kills if KILLS <= 20 else 0
    torture = Torture(rig, SEED, with_spark=WITH_SPARK, has_time=KILLS >= 200, few_kills=few_kills)
    with rig.running():
        while torture.kills.total() < kills:
            torture.go_on()
        rig.end_workload()
        torture.finish()
        torture.assert_equal()
    print(f"seed {SEED}:", *(f"{count} x {card}" for card, count in sorted(torture.kills.items())), sep="\n")
    if torture.cards.size <= kills:
        assert {card.victim for card in torture.kills} >= torture.cards.victims
        assert {card.kind for card in torture.kills} >= torture.cards.kinds


class Torture:
    """kills: of each kind. pending: loads and replays that were not seen to succeed."""

    def __init__(
        self, rig: KillableRig, seed: int, *, with_spark: bool, has_time: bool = False, few_kills: int = 0
    ) -> None:
        """Prepare it. has_time: some locks are held until the command gives up. few_kills: there will be no more."""
        self._rig = rig
        self._random = random.Random(seed)
        self._has_time = has_time
        self._spread_seconds = 4.0 if with_spark else 0.4
        # Repairs take longer than kills: few kills meet few troubles.
        troubles = self._random.sample(rig.troubles, few_kills // 8) if few_kills else rig.troubles
        early = few_kills or sys.maxsize
        self.cards = Cards(self._random, rig.commands, troubles, early, with_spark=with_spark)
        self.kills: Counter[Card] = Counter()
        self._pending: set[tuple[str, ...]] = set()
        self._orphans: list[psutil.Process] = []
        self._added: list[tuple[str, str, str]] = []
        self._trouble: Trouble | None = None
        self._lasts_kills = 0
        self._excused: frozenset[str] = frozenset()
        """The verdicts with which a command may fail now."""

    def go_on(self) -> None:
        """One command, and a kill while it is at work. One that was faster is not counted."""
        if self._trouble and self._lasts_kills <= 0:
            self._end_trouble()
        card = self.cards.draw(self._possible())
        if card is None:
            self._make_possible()
            return
        arguments = self._arguments(card.kind)
        if card.kind in ("reload", "replay"):
            self._pending.add(arguments)
        if card.kind == "discard":
            # The rows stay as they were in the target, until they are read again.
            self._pending.add(("reload", "shop", arguments[-1]))
        command = self._rig.begin(*arguments)
        seen = not card.aim or command.says(card.aim, LIMIT_SECONDS)
        # Mostly at once, as some steps take a few milliseconds.
        moment = self._random.random() ** 3 * self._spread_seconds
        if seen and not command.wait_for_leader(moment) and self._kill(card, command):
            self.kills[card] += 1
            self._lasts_kills -= 1
            print(f"{datetime.now():%H:%M:%S} kill {self.kills.total()}: {card}")
            return
        self.cards.put_back(card)
        self._judge(command)
        if card.kind != "run":
            # It may have waited for an unfinished window, or for the watermarks to reach what is to be replayed.
            self._succeed(RUN)

    # -- what is possible now ---------------------------------------------------------------------------------------

    def _possible(self) -> set[str]:
        if not self._is_loaded():
            return {"run"}
        if self._random.random() < 1 / 3:
            self._write()
            self._rig.write_strange_rows()
        decides = self._trouble is None or not self._trouble.is_backup
        possible = {
            "run": True,
            "reload": True,
            SECOND: True,
            "replay": "replay" in self._rig.commands,
            "approve": decides and self._proposed(),
            "switch": decides and self._under_way(),
            "backfill": decides and self._backfills(),
            "release": self._quarantined(),
            "discard": self._quarantined(),
        }
        return {kind for kind, is_possible in possible.items() if is_possible and kind in self._rig.commands}

    def _make_possible(self) -> None:
        """Prepare what the cards that are left ask for, by commands that are not killed."""
        if self._trouble:
            self._end_trouble()
            return
        # An unfinished window holds its tables' switches up.
        self._succeed_pending()
        if self.cards.wanted & {"release", "discard"}:
            self._fill_quarantine()
        elif "approve" in self.cards.wanted or not (self._proposed() or self._under_way()):
            self._add_column()
            self._succeed(RUN)
        elif self._proposed():
            self._approve()
        else:
            self._succeed(SWITCH)
            self._write()
            self._succeed(RUN)
            self._succeed(RUN_SECOND)

    def _arguments(self, kind: str) -> tuple[str, ...]:
        if begun := sorted(arguments for arguments in self._pending if arguments[0] == kind):
            return begun[0]
        now = datetime.now()
        begin, end = (f"{now - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}" for seconds in (10, 3))
        match kind:
            case "reload":
                return ("reload", "shop", self._random.choice(self._rig.tables))
            case "replay":
                return ("replay", "shop", "--from-time", begin, "--to-time", end)
            case "backfill":
                return ("reload", *self._backfills()[0])
            case "approve":
                return ("drift", "approve", str(self._proposed()[0]))
            case "switch":
                return SWITCH
            case "release" | "discard":
                return ("quarantine", kind, *self._quarantined()[0])
            case "copy":
                return RUN_SECOND
        return RUN

    def _is_loaded(self) -> bool:
        if self._in_ledger("SELECT to_regclass('floodmark.windows')") == [(None,)]:
            return False
        return bool(self._in_ledger("SELECT FROM floodmark.windows WHERE state = 'advanced' AND pipeline = 'shop'"))

    def _proposed(self) -> list[int]:
        found = self._in_ledger(
            "SELECT event_id FROM floodmark.drift_events WHERE approved_at IS NULL AND proposal <> ''"
        )
        return [event_id for (event_id,) in found]

    def _under_way(self) -> list[str]:
        found = self._in_ledger(
            "SELECT source_name FROM floodmark.instance_switches WHERE state IN ('approved', 'made')"
        )
        return [table for (table,) in found]

    def _backfills(self) -> list[tuple[str, str]]:
        """The pipelines and tables whose new columns are to be loaded."""
        lanes = self._in_ledger(
            "SELECT w.pipeline, lane FROM floodmark.windows AS w JOIN floodmark.switched_pipelines USING (window_id)"
            " WHERE state <> 'advanced' ORDER BY window_id"
        )
        return [(pipeline, lane.removeprefix("load ")) for pipeline, lane in lanes]

    def _quarantined(self) -> list[tuple[str, str]]:
        """The pipelines and tables that have rows in quarantine."""
        return self._in_ledger(
            "SELECT DISTINCT pipeline, source_schema || '.' || source_name FROM floodmark.quarantine"
            " WHERE settled_at IS NULL"
        )

    def _in_ledger(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._rig.warehouse.conninfo()) as session:
            return session.execute(query).fetchall()

    # -- the source -------------------------------------------------------------------------------------------------

    def _add_column(self) -> None:
        """To a table that has no other one on its way."""
        unread = {table for table, column, _ in self._added if not self._is_read(table, column)}
        free = [table for table in SWITCHED if table not in {*unread, *self._under_way()}]
        if not free:
            return
        table, number = self._random.choice(free), len(self._added)
        kind, value = COLUMNS[number % len(COLUMNS)]
        self._rig.run_at_source(f"ALTER TABLE dbo.{table} ADD Extra{number} {kind}")
        self._added.append((table, f"Extra{number}", value))
        self._write()

    def _is_read(self, table: str, column: str) -> bool:
        ((instance,),) = self._in_ledger(
            f"SELECT instance_name FROM floodmark.tables WHERE source_name = '{table}' AND pipeline = 'shop'"
        )
        found = self._rig.run_at_source(
            "SELECT 1 FROM cdc.captured_columns AS c JOIN cdc.change_tables AS t ON t.object_id = c.object_id"
            f" WHERE t.capture_instance = N'{instance}' AND c.column_name = N'{column}'"
        )
        return bool(found)

    def _write(self) -> None:
        """Write to some rows of each table with a new column, in parallel with the workload."""
        for table, column, value in self._added:
            count, number = self._random.randrange(1, 40), self._random.randrange(1000)
            self._rig.run_at_source(f"UPDATE TOP ({count}) dbo.{table} SET {column} = {value.format(number)}")

    # -- kills ------------------------------------------------------------------------------------------------------

    def _kill(self, card: Card, command: RunningCommand) -> bool:
        """False: it was not there."""
        match card.victim:
            case "session":
                command.kill()
            case "command":
                command.kill_leader()
                self._orphans += command.processes()
            case "paused" | "cut off":
                return self._pause(command, is_cut_off=card.victim == "cut off")
            case "company":
                self._must_give_way(command, self._rig.begin(*(RUN if card.kind == SECOND else RUN_SECOND)))
            case "locked":
                return self._lock(command)
            case "source" | "warehouse":
                self._kill_server(card.victim, command)
            case victim if victim in TROUBLES:
                command.kill()
                self._begin_trouble(victim)
            case victim:
                found = command.processes_of(victim)
                kill(found)
                if found:
                    self._must_notice(command)
                return bool(found)
        return True

    def _pause(self, command: RunningCommand, *, is_cut_off: bool) -> bool:
        """Stop a command, or its load alone, let another run go on, and wake it. It ends, and changes nothing then."""
        paused = command.pause(part=self._random.choice(("", "load")))
        if not paused:
            return False
        try:
            if is_cut_off:
                self._in_ledger(_END_SESSIONS)
            other = self._rig.begin(*RUN)
            # It may wait for a lock of the one that is paused.
            other.wait_for_leader(PAUSE_SECONDS)
        finally:
            wake(paused)
        self._must_give_way(other, command)
        return True

    def _lock(self, command: RunningCommand) -> bool:
        """Hold a lock of a target, in a session that is not ours."""
        target = self._rig.targets[self._random.choice(self._rig.tables)]
        with psycopg.connect(self._rig.warehouse.conninfo(), application_name="a person") as session:
            try:
                session.execute("SET lock_timeout = '2s'")
                session.execute(self._random.choice(_LOCKS).format(target))
            except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable):
                return False
            is_kept = self._has_time and self._random.random() < 1 / 4
            has_ended = command.wait_for_leader(LIMIT_SECONDS if is_kept else self._random.uniform(0.5, 6))
            assert has_ended or not is_kept, f"{command.arguments} waits without end:\n{command.output}"
            session.rollback()
        self._must_notice(command, REFUSED)
        return True

    def _kill_server(self, victim: str, command: RunningCommand) -> None:
        stop, restart = {
            "source": (self._rig.kill_source, self._rig.restart_source),
            "warehouse": (self._rig.kill_warehouse, self._rig.restart_warehouse),
        }[victim]
        stop()
        try:
            self._must_notice(command)
        finally:
            restart()

    def _must_give_way(self, *commands: RunningCommand) -> None:
        """To each other, or succeed."""
        for command in commands:
            if command.wait(LIMIT_SECONDS) != EXIT_FAILED or not _OVERTAKEN.search(_error(command)):
                self._must_notice(command)
            assert "Traceback" not in command.output, command.output

    def _must_notice(self, command: RunningCommand, *verdicts: str) -> bool:
        """And say so, and end; that it succeeds is possible too, if it needed the dead no more.

        verdicts: with which it may fail, as it may with those of the trouble. False: it has failed.
        """
        status = command.wait(LIMIT_SECONDS)
        words = f"{command.arguments}: {status}\n{command.output}"
        assert "Traceback" not in command.output, words
        if status == EXIT_FAILED:
            found = {*_VERDICTS.findall(_error(command))} | ({REFUSED} if _REFUSALS.search(_error(command)) else set())
            # Before the log began, or the capture instance that is read now.
            may_fail = {"expired"} if command.arguments[0] == "replay" else set()
            assert found, words
            assert found <= {*self._excused, *verdicts, *may_fail}, words
            return False
        if status == EXIT_WRONG_CONFIGURATION:
            # A rule that cannot be evaluated is one, also where it ends a replay as a whole.
            assert REFUSED in self._excused and _REFUSALS.search(_error(command)), words
            return False
        assert status in (0, EXIT_TRY_AGAIN), words
        assert status == 0 or "floodmark: " in command.output, words
        return True

    # -- troubles ---------------------------------------------------------------------------------------------------

    def _begin_trouble(self, name: str) -> None:
        """With no command at work."""
        if self._trouble:
            self._end_trouble()
        self._wait_for_orphans()
        if not self._is_loaded():
            self._succeed(RUN)
        trouble = TROUBLES[name](self._rig, self._random)
        if trouble.is_backup or name == "ledger lost":
            self._complete()
        self._trouble, self._lasts_kills = trouble, self._random.randrange(1, 4)
        trouble.begin()
        self._excused |= trouble.verdicts
        if trouble.lost:
            # The checks of a window that was merged before do not find its rows. The next run says what is wrong.
            self._excused |= {REFUSED}
        for table in trouble.lost:
            self._must_be_lost(table)
        if name == "ledger lost":
            self._pending.clear()

    def _end_trouble(self) -> None:
        """And repair what it has left, as the documents say."""
        assert self._trouble
        self._wait_for_orphans()
        self._trouble.end()
        if self._trouble.is_backup:
            self._pending = {arguments for arguments in self._pending if arguments[0] == "reload"}
        print(f"{datetime.now():%H:%M:%S} end of {type(self._trouble).__name__}")
        self._trouble = None
        self._repair()

    def _must_be_lost(self, table: str) -> None:
        """The next runs say so; they may have to finish a window first."""
        for _ in range(4):
            self._succeed(RUN)
            verdicts = self._in_ledger(
                "SELECT verdict FROM floodmark.verdicts WHERE pipeline = 'shop'"
                f" AND source_schema || '.' || source_name = '{table}'"
            )
            if verdicts in ([("target_lost",)], [("repairing",)]):
                return
        raise AssertionError(f"{table} is not lost, but {verdicts}")

    def _repair(self) -> None:
        """Load what is lost, until runs succeed."""
        for _ in range(6):
            outputs = [self._succeed(RUN)]
            if self._in_ledger(f"SELECT FROM floodmark.tables WHERE pipeline = '{SECOND}' LIMIT 1"):
                outputs.append(self._succeed(RUN_SECOND))
            lost = self._in_ledger(_LOST)
            for pipeline, table, member, verdict in lost:
                # A load may have been merged before its target was spoilt: the table is lost when it is published.
                assert verdict in {"repairing", *self._excused}, (table, member, verdict)
                if member and self._rig.has_devices:
                    self._succeed(("source", "reload-device", pipeline, table, member))
            # A load of the whole table does not bring back a device that was restored.
            for table in sorted({tuple(each[:2]) for each in lost if not (each[2] and self._rig.has_devices)}):
                self._succeed(("reload", *table))
            # A run that only finished a window has not seen what the source is now.
            if not lost and not any("floodmark: " in output or "is unfinished" in output for output in outputs):
                self._excused = frozenset()
                self._rig.with_checks = False
                return
        raise AssertionError(f"{lost} stay lost:\n{outputs}")

    def _fill_quarantine(self) -> None:
        self._begin_trouble("rule for quarantine")
        for _ in range(10):
            self._succeed(RUN)
            if self._quarantined():
                break
        self._end_trouble()

    def _empty_quarantine(self) -> None:
        """Release rows, and load those that lack something, or that stay for a reason of their own."""
        for pipeline, table in self._quarantined():
            release = ("quarantine", "release", pipeline, table)
            if not self._rig.has_devices:
                self._succeed(release)
            if (pipeline, table) in self._quarantined():
                self._succeed(("quarantine", "discard", pipeline, table))
                self._succeed(("reload", pipeline, table))
        assert not self._quarantined()

    # -- commands that are not killed -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Until nothing is left to do. Each command may meet what the last kill has left, and then tries again."""
        self._wait_for_orphans()
        if self._trouble:
            self._end_trouble()
        self._complete(self._rig.end_workload)
        for run in self._runs():
            while "Nothing to read" not in self._succeed(run):
                pass

    def _complete(self, end_workload: Callable[[], None] = lambda: None) -> None:
        """Without a trouble, until each pipeline has all columns, and nothing is pending."""
        if self._trouble:
            self._end_trouble()
        self._succeed_pending()
        for run in self._runs():
            self._succeed(run)
        self._empty_quarantine()
        while self._proposed() or self._under_way():
            self._approve()
            self._succeed(SWITCH)
            for backfill in self._backfills():
                self._succeed(("reload", *backfill))
            # So that watermarks reach the start of the second instances.
            self._write()
            end_workload()
            for run in self._runs():
                self._succeed(run)

    def _runs(self) -> list[tuple[str, str]]:
        """Return the runs of the pipelines that have been run."""
        is_loaded = self._in_ledger(f"SELECT FROM floodmark.windows WHERE pipeline = '{SECOND}' LIMIT 1")
        return [RUN, RUN_SECOND] if is_loaded else [RUN]

    def _wait_for_orphans(self) -> None:
        _, alive = psutil.wait_procs(self._orphans, timeout=LIMIT_SECONDS)
        assert not alive, alive

    def _succeed_pending(self) -> None:
        for arguments in sorted(self._pending):
            self._succeed(arguments)

    def _approve(self) -> None:
        for event_id in self._proposed():
            self._succeed(("drift", "approve", str(event_id)))

    def _succeed(self, arguments: tuple[str, ...]) -> str:
        for _ in range(6):
            command = self._rig.begin(*arguments)
            command.wait(LIMIT_SECONDS)
            self._judge(command)
            if command.returncode != EXIT_TRY_AGAIN:
                return command.output
            # Something holds what it needs: the main lane, most likely.
            for run in self._runs():
                self._rig.begin(*run).wait(LIMIT_SECONDS)
        raise AssertionError(f"{arguments} never succeeded:\n{command.output}")

    def _judge(self, command: RunningCommand) -> None:
        """Nothing was killed this time."""
        has_ended = self._must_notice(command) and command.returncode == 0
        if has_ended or (command.arguments[0] == "replay" and command.returncode == EXIT_FAILED):
            self._pending.discard(command.arguments)

    # -- the end ----------------------------------------------------------------------------------------------------

    def assert_equal(self) -> None:
        """Rows of source and warehouse, with all columns that were added; and nothing is left lying about."""
        for _, pipeline in self._runs():
            verified = self._rig.begin("verify", pipeline, "--json")
            status = verified.wait(LIMIT_SECONDS)
            assert status == 0, f"{self.kills}\n{verified.output}"
        if "switch" in self._rig.commands:
            assert all(self._is_read(table, column) for table, column, _ in self._added)
            instances = self._rig.run_at_source("SELECT capture_instance FROM cdc.change_tables")
            assert len(instances) == len(self._rig.tables), instances
        assert self._in_ledger("SELECT DISTINCT state FROM floodmark.windows") == [("advanced",)]
        assert not self._in_ledger("SELECT kind, what FROM floodmark.alerts WHERE ended_at IS NULL")
        assert not self._in_ledger("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging'")
        assert not self._quarantined()


def _error(command: RunningCommand) -> str:
    """The message with which a command ends."""
    return command.output.rpartition("floodmark: ")[2]
