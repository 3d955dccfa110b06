"""Bulk load: the announcement by INSERT BULK, and the rows that then come in a message of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from sqlserver_emulator.contract import BulkTarget
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import ArrowBatch, Command, Event, StatementDone
from sqlserver_emulator.syntax.statements import InsertBulk
from sqlserver_emulator.tsql.faults import BatchEnd, ScopeEnd
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.state.scope import Outcome, Scope, SessionState, Steps
from sqlserver_emulator.tsql.state.transactions import doomed_error
from sqlserver_emulator.tsql.triggers import TriggerRunner
from sqlserver_emulator.types import TsqlType


class BulkLoads:
    """The bulk loads of a session. ``triggers``: given by the session's wiring, as it needs the runner."""

    triggers: TriggerRunner

    def __init__(self, state: SessionState, runner: Runner) -> None:
        self._state = state
        self._runner = runner
        self._target: BulkTarget | None = None
        self._fires = False
        runner.register(InsertBulk, self._announce)

    def _announce(self, statement: InsertBulk, scope: Scope) -> Steps:
        names = [name for name, _ in statement.columns]
        self._fires = "FIRE_TRIGGERS" in statement.options
        table = statement.table
        self._target = self._state.engine.bulk_target(
            table.database, table.schema, table.name, names, statement.options
        )
        yield StatementDone()
        return Outcome.NEXT

    def load(self, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> Iterator[Event]:
        """Load the rows that the last INSERT BULK announced."""
        # One announcement is for one load: a second load without one is refused.
        target, self._target = self._target, None
        scope = self._state.new_scope()
        try:
            yield from self._load(target, types, batches, scope)
        except SqlServerError as error:
            try:
                yield from self._runner.fail(error, scope, 1)
            except (BatchEnd, ScopeEnd):
                return

    def _load(
        self, target: BulkTarget | None, types: Sequence[TsqlType], batches: Iterator[ArrowBatch], scope: Scope
    ) -> Iterator[Event]:
        state = self._state
        if target is None:
            message = "The incoming tabular data stream (TDS) protocol stream is incorrect: no INSERT BULK before it."
            raise SqlServerError(4002, message)
        # A client may describe other columns than it announced; rows cannot be assigned then.
        if len(types) != len(target.columns):
            message = f"Invalid number of columns from bcp client: {len(types)} instead of {len(target.columns)}."
            raise SqlServerError(4816, message)
        if state.options.implicit_transactions and state.transactions.count == 0:
            yield from state.transactions.begin()
        if state.transactions.is_doomed:
            raise doomed_error()
        load = partial(state.engine.load_bulk, target, types, batches)
        # Triggers stay silent by default in a bulk load; the hint FIRE_TRIGGERS turns them on.
        if self._fires and state.engine.triggers.may_fire:
            count = yield from self.triggers.around(load, scope, 1)
        else:
            count = load()
        state.system.set_row_count(count)
        yield StatementDone(Command.INSERT, count)
