"""New columns at random moments under a workload: tables go over to second capture instances while commands run and are
killed, and no row is lost, doubled, or left without what its new columns hold."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from command_line import kill_session
from floodmark_laptop import shop
from torture_rig import TABLES, TortureRig

pytestmark = pytest.mark.timeout(900)

SEED = 20261122
ACTIONS = 12
COLUMNS = ("Extra nvarchar(30) NOT NULL DEFAULT N'größe'", "Extra decimal(9,2) NULL")
VALUES = ("CONCAT(N'was ', %d)", "%d / 7.0")
# The other one tells the rig how far capture has come, by the instance that it has.
SWITCHED = ("Customers", "Products", "Orders", "OrderLines")
RUN_LIMIT_SECONDS = 240.0
EXIT_TRY_AGAIN = 75


class Changes:
    """Adds columns, writes to them, and takes the switches a step further, all in random order."""

    def __init__(self, rig: TortureRig) -> None:
        self.rig = rig
        self.random = random.Random(SEED)
        self.added: dict[str, int] = {}
        self.kills = 0
        self.tables = iter(self.random.sample(SWITCHED, len(COLUMNS)))

    def act(self) -> None:
        kinds = [self.run, self.run, self.step, self.step, self.approve, self.load, self.write]
        if len(self.added) < len(COLUMNS):
            kinds += [self.add_column, self.add_column]
        self.random.choice(kinds)()

    def add_column(self) -> None:
        table = next(self.tables)
        self.added[table] = len(self.added)
        self.at_source(f"ALTER TABLE dbo.{table} ADD {COLUMNS[self.added[table]]}")
        self.write()

    def write(self) -> None:
        """To some rows of each table with a new column, beside the workload."""
        for table, number in self.added.items():
            value = VALUES[number] % self.random.randrange(1000)
            self.at_source(f"UPDATE TOP ({self.random.randrange(1, 40)}) dbo.{table} SET Extra = {value}")

    def at_source(self, statement: str) -> None:
        with self.rig.source.connect_pymssql(shop.DATABASE, autocommit=True) as at, at.cursor() as cursor:
            cursor.execute(statement)

    def run(self) -> None:
        self.call("run", "shop")

    def step(self) -> None:
        self.call("drift", "switch", "shop")

    def approve(self) -> None:
        """What was found, if it was not decided before; a proposal that has changed since is refused."""
        for event_id in self.proposed():
            self.call("drift", "approve", str(event_id), may_be_killed=False, may_be_refused=True)

    def load(self) -> None:
        for table in self.tables_to_load():
            self.call("reload", "shop", table)

    def proposed(self) -> list[int]:
        found = self.in_ledger(
            "SELECT event_id FROM floodmark.drift_events WHERE approved_at IS NULL AND proposal <> ''"
        )
        return [event_id for (event_id,) in found]

    def tables_to_load(self) -> list[str]:
        lanes = self.in_ledger("SELECT lane FROM floodmark.windows WHERE state <> 'advanced' AND lane LIKE 'load %'")
        return [lane.removeprefix("load ") for (lane,) in lanes]

    def under_way(self) -> int:
        ((count,),) = self.in_ledger(
            "SELECT count(*) FROM floodmark.instance_switches WHERE state IN ('approved', 'made')"
        )
        return int(count)

    def in_ledger(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.rig.warehouse.conninfo()) as session:
            return session.execute(query).fetchall()

    def call(self, *arguments: str, may_be_killed: bool = True, may_be_refused: bool = False) -> str:
        """Every third one that may be is killed while it is at work."""
        command = self.rig.start(*arguments)
        patience = self.random.uniform(1.0, 6.0) if may_be_killed and self.random.random() < 1 / 3 else None
        try:
            output, _ = command.communicate(timeout=patience or RUN_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            assert patience, f"{arguments} took too long"
            kill_session(command)
            self.kills += 1
            return ""
        allowed = {0, EXIT_TRY_AGAIN, 1} if may_be_refused else {0, EXIT_TRY_AGAIN}
        assert command.returncode in allowed, f"{arguments}: {command.returncode}\n{output}"
        return output

    def finish(self) -> None:
        """Without kills, until nothing is left to do."""
        self.call_until_done("run", "shop")
        self.approve()
        while self.under_way():
            self.call("drift", "switch", "shop", may_be_killed=False)
            for table in self.tables_to_load():
                self.call_until_done("reload", "shop", table)
            # So that watermarks reach the start of the second instances.
            self.write()
            self.rig.end_workload()
            self.call_until_done("run", "shop")

    def call_until_done(self, *arguments: str) -> None:
        for _ in range(5):
            command = self.rig.start(*arguments)
            output, _ = command.communicate(timeout=RUN_LIMIT_SECONDS)
            if command.returncode == 0:
                return
            assert command.returncode == EXIT_TRY_AGAIN, output
        raise AssertionError(output)


@pytest.fixture
def rig(open_dir: Path) -> Iterator[TortureRig]:
    made = TortureRig(open_dir / "switch", SEED, with_spark=False)
    with made.running():
        yield made


def test_tables_go_over_to_second_instances_under_load_and_end_equal(rig: TortureRig) -> None:
    changes = Changes(rig)
    changes.call_until_done("run", "shop")
    changes.add_column()
    for _ in range(ACTIONS):
        changes.act()
    while len(changes.added) < len(COLUMNS):
        changes.add_column()
    rig.end_workload()
    changes.finish()
    changes.call_until_done("run", "shop")
    instances = changes.in_ledger("SELECT source_name, instance_name FROM floodmark.tables ORDER BY 1")
    expected = [(table, f"dbo_{table}" + ("_2" if table in changes.added else "")) for table in sorted(TABLES)]
    assert instances == expected
    output = changes.call("verify", "shop", "--json", may_be_killed=False)
    assert all(table["equal"] for table in json.loads(output)), output
    for table in changes.added:
        target = "order_lines" if table == "OrderLines" else table.lower()
        assert changes.in_ledger(f'SELECT FROM shop.{target} WHERE "Extra" IS NOT NULL LIMIT 1'), table
