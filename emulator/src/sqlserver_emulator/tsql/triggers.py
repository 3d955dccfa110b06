"""Firing triggers: a change and the triggers that it fires are one statement, and one transaction.

Inside a trigger XACT_ABORT is ON and @@TRANCOUNT is at least 1. A trigger that ends the transaction ends the batch
(3609). Which triggers there are, and the rows before and after, is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from sqlserver_emulator.contract import TableChange, TriggerSource
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Event
from sqlserver_emulator.syntax.parsing.modules import parse_trigger
from sqlserver_emulator.tsql.calls import Calls
from sqlserver_emulator.tsql.faults import Origin, RaisedError
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.state.scope import Scope, SessionState

_T = TypeVar("_T")


class TriggerRunner:
    """The runner of triggers."""

    def __init__(self, state: SessionState, runner: Runner, calls: Calls) -> None:
        self._state = state
        self._runner = runner
        self._calls = calls

    def around(self, change: Callable[[], _T], scope: Scope, line: int) -> Generator[Event, None, _T]:
        """Run a change, then what it fires. Outside a transaction both run in one of their own."""
        transactions = self._state.transactions
        own = transactions.count == 0
        if own:
            transactions.begin_statement()
        try:
            result = change()
            yield from self._fire(scope, line)
            if own:
                transactions.end_statement()
        except BaseException as error:
            if own:
                transactions.abandon_statement()
            # XACT_ABORT is ON in a trigger: a CATCH outside finds the transaction doomed.
            elif isinstance(error, RaisedError):
                transactions.doom()
            raise
        return result

    def _fire(self, scope: Scope, line: int) -> Iterator[Event]:
        triggers = self._state.engine.triggers
        for change in triggers.take_changes():
            for trigger in triggers.triggers(change):
                yield from self._run(change, trigger, scope, line)

    def _run(self, change: TableChange, trigger: TriggerSource, caller: Scope, line: int) -> Iterator[Event]:
        state = self._state
        parsed = parse_trigger(trigger.source, change.updated, change.columns)
        scope = self._calls.inner_scope(caller.depth + 1, procedure=trigger.name)
        state.system.set_row_count(change.row_count)
        events = self._inside(change, trigger, self._runner.run_scope(parsed.body, scope))
        # A trigger that ends the transaction is error 3609 below, not 266.
        yield from self._calls.run_inner(events, caller, line, keeps_count=False)
        if state.transactions.count == 0:
            text = "The transaction ended in the trigger. The batch has been aborted."
            yield from self._runner.fail(SqlServerError(3609, text), caller, line, Origin.THROW)

    def _inside(self, change: TableChange, trigger: TriggerSource, events: Iterator[Event]) -> Iterator[Event]:
        options = self._state.options.copy()
        options.switch("XACT_ABORT", True)
        self._state.apply_options(options)
        with self._state.engine.triggers.inside(change, trigger):
            yield from events
