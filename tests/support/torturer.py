"""Commands at random, a kill or a pause in each, columns that are added meanwhile, and all of it brought to its end."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import psutil
import psycopg

from torture_cards import Card, Cards
from torture_command import RunningCommand, kill, wake
from torture_rig import KillableRig

# The other table shows the rig how far capture has come, by the instance that it has.
SWITCHED = ("Customers", "Products", "Orders", "OrderLines")
COLUMNS = (("nvarchar(30) NOT NULL DEFAULT N'größe'", "CONCAT(N'was ', {})"), ("decimal(9,2) NULL", "{} / 7.0"))
RUN = ("run", "shop")
SWITCH = ("drift", "switch", "shop")
LIMIT_SECONDS = 240.0
PAUSE_SECONDS = 8.0
EXIT_FAILED = 1
EXIT_TRY_AGAIN = 75
_END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_OVERTAKEN = re.compile(
    r"floodmark: .*(another (load|run)|attempt \d+ has begun since|: its watermark is|is read from capture instance"
    r"|is reloading it|is not finished|was read since the replay was planned)"
)
"""What a command says that finds its work done, or begun again, by another one."""


class Torture:
    """kills: of each kind. pending: loads and replays that were not seen to succeed."""

    def __init__(self, rig: KillableRig, seed: int, *, with_spark: bool) -> None:
        self._rig = rig
        self._random = random.Random(seed)
        self._spread_seconds = 4.0 if with_spark else 0.4
        self.cards = Cards(self._random, rig.commands, with_spark=with_spark)
        self.kills: Counter[Card] = Counter()
        self._pending: set[tuple[str, ...]] = set()
        self._orphans: list[psutil.Process] = []
        self._added: list[tuple[str, str, str]] = []

    def go_on(self) -> None:
        """One command, and a kill while it is at work. One that was faster is not counted."""
        card = self.cards.draw(self._possible())
        if card is None:
            self._make_possible()
            return
        arguments = self._arguments(card.kind)
        if card.kind in ("reload", "replay"):
            self._pending.add(arguments)
        command = self._rig.begin(*arguments)
        seen = not card.aim or command.says(card.aim, LIMIT_SECONDS)
        # Mostly at once, as some steps take a few milliseconds.
        moment = self._random.random() ** 3 * self._spread_seconds
        if seen and not command.wait_for_leader(moment) and self._kill(card.victim, command):
            self.kills[card] += 1
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
        possible = {
            "run": True,
            "reload": True,
            "replay": "replay" in self._rig.commands,
            "approve": self._proposed(),
            "switch": self._under_way(),
            "backfill": self._backfills(),
        }
        return {kind for kind, is_possible in possible.items() if is_possible}

    def _make_possible(self) -> None:
        """Prepare what the cards that are left ask for, by commands that are not killed."""
        # An unfinished window holds its tables' switches up.
        for arguments in sorted(self._pending):
            self._succeed(arguments)
        if "approve" in self.cards.wanted or not (self._proposed() or self._under_way()):
            self._add_column()
            self._succeed(RUN)
        elif self._proposed():
            self._approve()
        else:
            self._succeed(SWITCH)
            self._write()
            self._succeed(RUN)

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
                return ("reload", "shop", self._backfills()[0])
            case "approve":
                return ("drift", "approve", str(self._proposed()[0]))
            case "switch":
                return SWITCH
        return RUN

    def _is_loaded(self) -> bool:
        if self._in_ledger("SELECT to_regclass('floodmark.windows')") == [(None,)]:
            return False
        return bool(self._in_ledger("SELECT FROM floodmark.windows WHERE state = 'advanced'"))

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

    def _backfills(self) -> list[str]:
        """The tables whose new columns are to be loaded."""
        lanes = self._in_ledger(
            "SELECT lane FROM floodmark.windows JOIN floodmark.switched_pipelines USING (window_id)"
            " WHERE state <> 'advanced' ORDER BY window_id"
        )
        return [lane.removeprefix("load ") for (lane,) in lanes]

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
        ((instance,),) = self._in_ledger(f"SELECT instance_name FROM floodmark.tables WHERE source_name = '{table}'")
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

    def _kill(self, victim: str, command: RunningCommand) -> bool:
        """False: it was not there."""
        if victim == "session":
            command.kill()
            return True
        if victim == "command":
            command.kill_leader()
            self._orphans += command.processes()
            return True
        if victim in ("paused", "cut off"):
            return self._pause(command, is_cut_off=victim == "cut off")
        if victim in ("source", "warehouse"):
            self._kill_server(victim, command)
            return True
        found = command.processes_of(victim)
        kill(found)
        if found:
            self._must_notice(command)
        return bool(found)

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
        for each in (other, command):
            self._must_give_way(each)
        return True

    def _must_give_way(self, command: RunningCommand) -> None:
        """To another run, or succeed."""
        status = command.wait(LIMIT_SECONDS)
        if status == EXIT_FAILED and _OVERTAKEN.search(command.output):
            assert "Traceback" not in command.output, command.output
            return
        self._must_notice(command)

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

    def _must_notice(self, command: RunningCommand) -> None:
        """And say so, and end; that it succeeds is possible too, if it needed the dead no more."""
        status = command.wait(LIMIT_SECONDS)
        assert status in (0, EXIT_TRY_AGAIN), f"{command.arguments}: {status}\n{command.output}"
        assert "Traceback" not in command.output, command.output
        assert status == 0 or "floodmark: " in command.output, command.output

    # -- commands that are not killed -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Until nothing is left to do. Each command may meet what the last kill has left, and then tries again."""
        _, alive = psutil.wait_procs(self._orphans, timeout=LIMIT_SECONDS)
        assert not alive, alive
        for arguments in sorted(self._pending):
            self._succeed(arguments)
        self._succeed(RUN)
        while self._proposed() or self._under_way():
            self._approve()
            self._succeed(SWITCH)
            for table in self._backfills():
                self._succeed(("reload", "shop", table))
            # So that watermarks reach the start of the second instances.
            self._write()
            self._rig.end_workload()
            self._succeed(RUN)
        while "Nothing to read" not in self._succeed(RUN):
            pass

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
            self._rig.begin(*RUN).wait(LIMIT_SECONDS)
        raise AssertionError(f"{arguments} never succeeded:\n{command.output}")

    def _judge(self, command: RunningCommand) -> None:
        """Nothing was killed this time."""
        status = command.wait(LIMIT_SECONDS)
        # Before the log began, or the capture instance that is read now.
        refused = command.arguments[0] == "replay" and status == EXIT_FAILED and ": expired: " in command.output
        assert refused or status in (0, EXIT_TRY_AGAIN), f"{command.arguments}: {status}\n{command.output}"
        assert "Traceback" not in command.output, command.output
        if refused or status == 0:
            self._pending.discard(command.arguments)

    # -- the end ----------------------------------------------------------------------------------------------------

    def assert_equal(self) -> None:
        """Rows of source and warehouse, with all columns that were added; and nothing is left lying about."""
        verified = self._rig.begin("verify", "shop", "--json")
        status = verified.wait(LIMIT_SECONDS)
        assert status == 0, f"{self.kills}\n{verified.output}"
        if "switch" in self._rig.commands:
            assert all(self._is_read(table, column) for table, column, _ in self._added)
            instances = self._rig.run_at_source("SELECT capture_instance FROM cdc.change_tables")
            assert len(instances) == len(self._rig.tables), instances
        assert self._in_ledger("SELECT DISTINCT state FROM floodmark.windows") == [("advanced",)]
        assert not self._in_ledger("SELECT kind, what FROM floodmark.alerts WHERE ended_at IS NULL")
        assert not self._in_ledger("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging'")
