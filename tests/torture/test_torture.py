"""kill -9 at random moments of a run, a reload and a replay, of the source and of the warehouse, under a workload:
whatever was killed, in the end source and warehouse are equal, row by row.

FLOODMARK_TORTURE_KILLS: how often. FLOODMARK_TORTURE_SEED: which moments. FLOODMARK_TORTURE_SPARK=1: with Spark and
Great Expectations in every run, as ``make torture`` does.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from command_line import kill_session
from torture_rig import TABLES, TortureRig

KILLS = int(os.environ.get("FLOODMARK_TORTURE_KILLS", "20"))
SEED = int(os.environ.get("FLOODMARK_TORTURE_SEED", "20261121"))
WITH_SPARK = os.environ.get("FLOODMARK_TORTURE_SPARK") == "1"
# When a run has begun its work, and when it has done it, by and large: moments are drawn from between.
WORK_SECONDS = (2.0, 30.0) if WITH_SPARK else (1.5, 7.0)
RUN_LIMIT_SECONDS = 300.0
EXIT_TRY_AGAIN = 75

pytestmark = pytest.mark.timeout(300 + KILLS * (90 if WITH_SPARK else 15))


class Torturer:
    """Draws what is done, what is killed and when. ``pending``: loads and replays that were not seen to succeed."""

    def __init__(self, rig: TortureRig, seed: int) -> None:
        self._rig = rig
        self._random = random.Random(seed)
        self.pending: set[tuple[str, ...]] = set()
        self.kills = {"command": 0, "source": 0, "warehouse": 0}
        self._victims = self._draw_victims()
        self._next_victim = next(self._victims)

    def torture(self) -> None:
        """One command, and one kill of something while it is at work. A command that was faster is not counted."""
        arguments = self._draw_command()
        victim = self._next_victim
        moment = self._random.uniform(*WORK_SECONDS)
        command = self._rig.start(*arguments)
        if arguments != ("run", "shop"):
            self.pending.add(arguments)
        try:
            output, _ = command.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            self._kill(victim, command)
            return
        self._judge(arguments, command, output)

    def finish(self) -> None:
        """Until nothing is left to do. Each command may meet what the last kill has left, and then tries again."""
        for arguments in sorted(self.pending):
            self._succeed(arguments)
        while "Nothing to read" not in self._succeed(("run", "shop")):
            pass

    def _draw_victims(self) -> Iterator[str]:
        """Each of them among every five."""
        while True:
            yield from self._random.sample(("command", "command", "command", "source", "warehouse"), 5)

    def _draw_command(self) -> tuple[str, ...]:
        kind = self._random.choices(("run", "reload", "replay"), (7, 2, 2))[0]
        table = self._random.choice(TABLES)
        if kind == "run" or not self._is_loaded():
            return ("run", "shop")
        if begun := sorted(arguments for arguments in self.pending if arguments[0] == kind):
            return begun[0]
        if kind == "reload":
            return ("reload", "shop", f"dbo.{table}")
        now = datetime.now()
        begin, end = (f"{now - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}" for seconds in (30, 10))
        return ("replay", "shop", "--from-time", begin, "--to-time", end)

    def _is_loaded(self) -> bool:
        with psycopg.connect(self._rig.warehouse.conninfo()) as session:
            if session.execute("SELECT to_regclass('floodmark.windows')").fetchone() == (None,):
                return False
            return session.execute("SELECT FROM floodmark.windows WHERE state = 'advanced'").fetchone() is not None

    def _kill(self, victim: str, command: subprocess.Popen[str]) -> None:
        self.kills[victim] += 1
        self._next_victim = next(self._victims)
        if victim == "command":
            kill_session(command)
            return
        kill, restart = {
            "source": (self._rig.kill_source, self._rig.restart_source),
            "warehouse": (self._rig.kill_warehouse, self._rig.restart_warehouse),
        }[victim]
        kill()
        try:
            # It must notice, say so and end; that it succeeds is possible too, if it needed the dead no more.
            output, _ = command.communicate(timeout=RUN_LIMIT_SECONDS)
            assert "Traceback" not in output, output
        finally:
            restart()

    def _judge(self, arguments: tuple[str, ...], command: subprocess.Popen[str], output: str) -> None:
        """Nothing was killed this time."""
        assert command.returncode in (0, EXIT_TRY_AGAIN), f"{arguments}: {command.returncode}\n{output}"
        if command.returncode == 0:
            self.pending.discard(arguments)

    def _succeed(self, arguments: tuple[str, ...]) -> str:
        for _ in range(5):
            command = self._rig.start(*arguments)
            output, _ = command.communicate(timeout=RUN_LIMIT_SECONDS)
            self._judge(arguments, command, output)
            if command.returncode == 0:
                return output
            # Something holds what it needs: the main lane, most likely.
            self._rig.start("run", "shop").communicate(timeout=RUN_LIMIT_SECONDS)
        raise AssertionError(f"{arguments} never succeeded:\n{output}")


def test_whatever_is_killed_source_and_warehouse_end_equal(open_dir: Path) -> None:
    rig = TortureRig(open_dir, SEED, with_spark=WITH_SPARK)
    torturer = Torturer(rig, SEED)
    with rig.running():
        while sum(torturer.kills.values()) < KILLS:
            torturer.torture()
        assert all(torturer.kills.values()), torturer.kills
        rig.end_workload()
        torturer.finish()
        verified = rig.start("verify", "shop")
        output, _ = verified.communicate(timeout=RUN_LIMIT_SECONDS)
        assert verified.returncode == 0, f"seed {SEED}, kills {torturer.kills}\n{output}"
        with psycopg.connect(rig.warehouse.conninfo()) as session:
            states = session.execute("SELECT DISTINCT state FROM floodmark.windows").fetchall()
        assert states == [("advanced",)]
