"""Rows, keys, DDL, late capture, cleanup, dying runs, repairs, switches, in any order: the target ends as the table.

A state machine of hypothesis against a table in plain Python. Capture and cleanup happen when the machine says so, so
that runs meet every lag and every expired change; nothing of the pipeline but Spark is replaced.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from switch_rig import SwitchRig

from cdc_database import cdc_database
from embedded_postgres import EmbeddedPostgres
from emulator_process import Emulator
from floodmark.core.errors import CaptureStoppedError, FloodmarkError, NotCapturedYetError
from floodmark.core.settings import OnGap
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.load import load_window
from in_process_stager import InProcessStager
from row_verification import reading

EXAMPLES = int(os.environ.get("FLOODMARK_MACHINE_EXAMPLES", "4"))
STEPS = 40
KEYS = st.integers(1, 9)
AMOUNTS = st.one_of(st.none(), st.integers(-100, 100))
NEW_COLUMNS = ("First", "Second", "Third")


class PipelineMachine(RuleBasedStateMachine):
    """rows: of the table, by key; a new column's value is None where nothing was written to it."""

    emulator: Emulator
    postgres: EmbeddedPostgres

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        source = self.stack.enter_context(cdc_database(self.emulator))
        self.stack.callback(self._drop_warehouse)
        with psycopg.connect(self.postgres.conninfo(), autocommit=True) as session:
            session.execute("CREATE DATABASE machine")
        source.run("CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)")
        source.enable("Orders")
        warehouse = WarehouseConnection(str(self.postgres.socket_dir), 5432, "machine", "postgres")
        self.rig = SwitchRig(self.emulator, source, warehouse)
        self.rig.pipelines = [
            replace(each, tables=tuple(replace(table, on_gap=OnGap.REPAIR) for table in each.tables))
            for each in self.rig.pipelines
        ]
        self.rows: dict[int, dict[str, int | None]] = {}
        self.columns: list[str] = []
        self.unused = list(NEW_COLUMNS)
        self.capture()

    def _drop_warehouse(self) -> None:
        with psycopg.connect(self.postgres.conninfo(), autocommit=True) as session:
            session.execute("DROP DATABASE machine WITH (FORCE)")

    # -- the table --------------------------------------------------------------------------------------------------

    @rule(key=KEYS, amount=AMOUNTS)
    def insert_or_update(self, key: int, amount: int | None) -> None:
        value = "NULL" if amount is None else str(amount)
        if key in self.rows:
            self._sql(f"UPDATE dbo.Orders SET Amount = {value} WHERE Id = {key}")
            self.rows[key]["Amount"] = amount
        else:
            self._sql(f"INSERT INTO dbo.Orders (Id, Amount) VALUES ({key}, {value})")
            self.rows[key] = {"Amount": amount}

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        self._sql(f"DELETE FROM dbo.Orders WHERE Id = {key}")
        self.rows.pop(key, None)

    @rule(old=KEYS, new=KEYS)
    def move(self, old: int, new: int) -> None:
        if old in self.rows and new not in self.rows:
            self._sql(f"UPDATE dbo.Orders SET Id = {new} WHERE Id = {old}")
            self.rows[new] = self.rows.pop(old)

    @rule(key=KEYS, amount=AMOUNTS)
    def change_and_roll_back(self, key: int, amount: int | None) -> None:
        value = "NULL" if amount is None else str(amount)
        self._sql(
            f"BEGIN TRAN; DELETE FROM dbo.Orders; INSERT INTO dbo.Orders (Id, Amount) VALUES ({key}, {value}); ROLLBACK"
        )

    @precondition(lambda self: self.unused)
    @rule()
    def add_column(self) -> None:
        self.columns.append(self.unused.pop(0))
        self._sql(f"ALTER TABLE dbo.Orders ADD {self.columns[-1]} int NULL")

    @precondition(lambda self: self.columns)
    @rule(key=KEYS, value=st.integers(0, 99), data=st.data())
    def write_new_column(self, key: int, value: int, data: st.DataObject) -> None:
        column = data.draw(st.sampled_from(self.columns))
        self._sql(f"UPDATE dbo.Orders SET {column} = {value} WHERE Id = {key}")
        if key in self.rows:
            self.rows[key][column] = value

    @precondition(lambda self: len(self.columns) > 1)
    @rule()
    def drop_column(self) -> None:
        """The target keeps what it has of it."""
        column = self.columns.pop(0)
        self._sql(f"ALTER TABLE dbo.Orders DROP COLUMN {column}")
        for row in self.rows.values():
            row.pop(column, None)

    # -- capture and cleanup ----------------------------------------------------------------------------------------

    @rule()
    def capture(self) -> None:
        self.rig.database.scan()

    @rule()
    def clean_up(self) -> None:
        """All that has been captured but the newest, whether it was read or not."""
        self._sql("EXEC emulator.run_cleanup @retention = 0")

    # -- the pipeline -----------------------------------------------------------------------------------------------

    @rule()
    def run(self) -> None:
        self._try(self.rig.run)

    @rule()
    def run_and_die_before_the_load(self) -> None:
        self._try(self.rig.open)

    @rule()
    def run_and_die_after_the_merge(self) -> None:
        self._try(lambda: self._load(self.rig.open().window_id))

    @rule()
    def load_pending(self) -> None:
        self._try(lambda: self.rig.finish(self.rig.load_planner().open_pending()))

    @rule()
    def load_pending_and_die_after_the_merge(self) -> None:
        self._try(lambda: self._load(self.rig.load_planner().open_pending().window_id))

    @rule()
    def watch(self) -> None:
        self._try(self.rig.watch_closely)

    @rule()
    def approve(self) -> None:
        for event, _ in self.rig.switches.list_proposed():
            self.rig.switches.approve(event.event_id, "operator")

    @rule()
    def step(self) -> None:
        self._try(self.rig.switches.take)

    # -- the end ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self._settle()
            assert self.rig.differing() == []
            columns = ["Id", "Amount", *self.columns]
            names = ", ".join(f'"{name}"' for name in columns)
            found = self.rig.rows(f"SELECT {names} FROM shop.orders WHERE NOT __deleted ORDER BY 1")
            assert found == [(key, *(row.get(name) for name in columns[1:])) for key, row in sorted(self.rows.items())]
        finally:
            self.stack.close()

    def _settle(self) -> None:
        """Do as an operator does who answers every question and lets everything run that is to run."""
        for number in range(12):
            # A change, so that no table is caught up: the capture job is stopped, which would be an incident then.
            self._sql("DELETE FROM dbo.Orders WHERE Id = 100")
            self._sql(f"INSERT INTO dbo.Orders (Id, Amount) VALUES (100, {number})")
            self.capture()
            self.rig.run()
            self.rig.watch_closely()
            self.approve()
            said = self.rig.switches.take()
            self.rig.finish(self.rig.load_planner().open_pending())
            arrived = self.rig.rows('SELECT "Amount" FROM shop.orders WHERE "Id" = 100') == [(number,)]
            if arrived and not said and not self.rig.switches.list_proposed():
                break
        else:
            raise AssertionError(f"it never came to an end: {said}")
        self.rows[100] = {"Amount": number}

    def _load(self, window_id: int | None) -> None:
        if window_id is not None:
            rig = self.rig
            stager = InProcessStager(reading(rig.at))
            load_window(window_id, rig.ledger, rig.warehouse, SqlServerSource(rig.at), stager)

    def _sql(self, statement: str) -> None:
        self.rig.database.run(statement)

    @staticmethod
    def _try(work: Any) -> None:
        """Allow the errors of a run while the capture job is stopped, or has not come to the table."""
        try:
            work()
        except (CaptureStoppedError, NotCapturedYetError):
            pass
        except FloodmarkError as error:
            if not error.retryable:
                raise


@pytest.mark.timeout(600)
def test_target_ends_as_the_table_whatever_happens_in_whatever_order(
    emulator: Emulator, postgres: EmbeddedPostgres
) -> None:
    PipelineMachine.emulator, PipelineMachine.postgres = emulator, postgres
    run_state_machine_as_test(
        PipelineMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=EXAMPLES < 10,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate),
            print_blob=True,
        ),
    )
