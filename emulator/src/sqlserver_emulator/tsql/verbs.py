"""PRINT, RAISERROR, THROW, USE, SET options, WAITFOR, and the statements of transactions."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final

from sqlserver_emulator.code_units import first_units, unit_count
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Command, DatabaseChanged, Event, Info, ResultStart, Rows, StatementDone
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.syntax.parsing.settings import SWITCHES
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.tsql.faults import FATAL_SEVERITY, BatchEnd, Origin
from sqlserver_emulator.tsql.raiserror import format_message
from sqlserver_emulator.tsql.runner import Runner
from sqlserver_emulator.tsql.state.scope import Outcome, Scope, SessionState, Steps
from sqlserver_emulator.types import INT, MAX_LENGTH, SYSNAME, TsqlType

_USER_ERROR: Final = 50000
_LARGEST_INFO: Final = 10
_TRANSACTION_NAME: Final = TsqlType("nvarchar", 32)
# How often WAITFOR TIME reads the clock: procedures of schema `emulator` may move it meanwhile.
_POLL_SECONDS: Final = 0.5
_CLOCK: Final = re.compile(r"^\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.:](\d{1,3})\d*)?)?\s*$")
_OPTION_COLUMNS: Final = (Column("Set Option", SYSNAME), Column("Value", SYSNAME))
_HAS_ROW_VERSIONS: Final = "SELECT is_read_committed_snapshot_on FROM emulator.databases WHERE name = $1"
_PRINTED: Final = TsqlType("nvarchar", MAX_LENGTH)
_NATIONAL_UNITS: Final = 4000


class Verbs:
    """The handlers of the statements that need no engine of their own: messages, settings, waits, transactions."""

    def __init__(self, state: SessionState, runner: Runner) -> None:
        self._state = state
        self._runner = runner
        runner.register(nodes.Print, self._print)
        runner.register(nodes.RaiseError, self._raise_error)
        runner.register(nodes.Throw, self._throw)
        runner.register(nodes.Use, self._use)
        runner.register(nodes.SetOption, self._set_option)
        runner.register(nodes.SetIsolation, self._set_isolation)
        runner.register(nodes.ShowOptions, self._show_options)
        runner.register(nodes.WaitFor, self._wait)
        runner.register(nodes.BeginTransaction, self._begin)
        runner.register(nodes.CommitTransaction, self._commit)
        runner.register(nodes.RollbackTransaction, self._rollback)
        runner.register(nodes.SaveTransaction, self._save)

    # -- messages ---------------------------------------------------------------------------------------------------

    def _print(self, statement: nodes.Print, scope: Scope) -> Steps:
        value = self._state.evaluate(statement.message, scope, _PRINTED)
        text = "" if value is None else str(value)
        if unit_count(text) > _NATIONAL_UNITS:
            text = first_units(text, self._printed_units(statement.message, scope))
        self._state.system.set_row_count(0)
        yield Info(0, text or " ", procedure=scope.procedure, line=statement.line)
        yield from self._state.done()
        return Outcome.NEXT

    def _printed_units(self, message: nodes.Expression, scope: Scope) -> int:
        """The longest text that PRINT sends: it has fewer units of a national type."""
        if message.literal is not None:
            name = message.literal.type.name
        elif message.variable in scope.variables:
            name = scope.variables[message.variable].type.name
        else:
            columns = self._state.engine.describe(f"SELECT {message.text}", scope.variables)
            name = columns[0].type.name if columns else "nvarchar"
        return _NATIONAL_UNITS if BY_NAME[name].is_national else 2 * _NATIONAL_UNITS

    def _raise_error(self, statement: nodes.RaiseError, scope: Scope) -> Steps:
        evaluate = self._state.evaluate
        message = evaluate(statement.message, scope)
        severity = _integer(evaluate(statement.severity, scope, INT))
        number, text = self._raised_text(message, statement, scope)
        state = min(abs(_integer(evaluate(statement.state, scope, INT))), 255)
        self._state.system.set_row_count(0)
        if severity <= _LARGEST_INFO:
            yield Info(number, text, max(severity, 0), state, scope.procedure, statement.line)
            yield from self._state.done()
            self._state.system.error.value = number if "SETERROR" in statement.options else 0
            return Outcome.NEXT
        # Severities from 19 on need WITH LOG.
        if severity >= FATAL_SEVERITY - 1 and "LOG" not in statement.options:
            message = "Error severity levels greater than 18 can only be specified by members of the sysadmin role, "
            raise SqlServerError(2754, message + "using the WITH LOG option.")
        error = SqlServerError(number, text, severity=min(severity, 25), state=state)
        yield from self._runner.fail(error, scope, statement.line, Origin.RAISERROR)
        return Outcome.NEXT

    def _raised_text(self, message: object, statement: nodes.RaiseError, scope: Scope) -> tuple[int, str]:
        if isinstance(message, int):
            text = (
                f"Error {message}, severity {statement.severity.text}, state {statement.state.text} was raised, but no "
                "message with that error number was found in sys.messages."
            )
            return 18054, text
        arguments = [self._state.evaluate(argument, scope) for argument in statement.arguments]
        return _USER_ERROR, format_message("" if message is None else str(message), arguments)

    def _throw(self, statement: nodes.Throw, scope: Scope) -> Steps:
        error = self._state.caught_error
        if statement.number is not None and statement.message is not None and statement.state is not None:
            evaluate = self._state.evaluate
            number = _integer(evaluate(statement.number, scope, INT))
            if not _USER_ERROR <= number <= 2147483647:
                message = (
                    f"Error number {number} in the THROW statement is outside the valid range. Specify an error number "
                    "in the valid range of 50000 to 2147483647."
                )
                raise SqlServerError(35100, message, state=10)
            text = evaluate(statement.message, scope, TsqlType("nvarchar", 2048))
            state = _integer(evaluate(statement.state, scope, INT)) % 256
            error = SqlServerError(number, "" if text is None else str(text), state=state)
        if error is None:
            raise SqlServerError(10704, "To rethrow an error, a THROW statement must be used inside a CATCH block.")
        yield from self._runner.fail(error, scope, statement.line, Origin.THROW)
        return Outcome.NEXT

    # -- the session ------------------------------------------------------------------------------------------------

    def _use(self, statement: nodes.Use, scope: Scope) -> Steps:
        engine, before = self._state.engine, self._state.engine.database
        engine.use(statement.database)
        self._state.system.set_row_count(0)
        yield DatabaseChanged(before, engine.database, engine.collation)
        text = f"Changed database context to '{engine.database}'."
        yield Info(5701, text, procedure=scope.procedure, line=statement.line)
        yield from self._state.done()
        return Outcome.NEXT

    def _set_option(self, statement: nodes.SetOption, scope: Scope) -> Steps:
        state = self._state
        changed = state.options.copy()
        value = state.evaluate(statement.value, scope)
        for option in statement.options:
            if option in SWITCHES:
                changed.switch(option, value == "ON")
            elif option == "CONTEXT_INFO":
                state.engine.values.set_info(_context_info(value))
            else:
                changed.assign(option, value)
        state.apply_options(changed)
        state.system.set_row_count(0)
        if "LANGUAGE" in statement.options:
            yield Info(5703, f"Changed language setting to {value}.", line=statement.line)
        yield from self._state.done(Command.SET)
        return Outcome.NEXT

    def _set_isolation(self, statement: nodes.SetIsolation, scope: Scope) -> Steps:
        changed = self._state.options.copy()
        changed.isolation = statement.level
        self._state.apply_options(changed)
        self._state.system.set_row_count(0)
        yield from self._state.done(Command.SET)
        return Outcome.NEXT

    def _show_options(self, statement: nodes.ShowOptions, scope: Scope) -> Steps:
        state = self._state
        rows = [*state.options.listed(), ("isolation level", self._shown_isolation())]
        yield ResultStart(_OPTION_COLUMNS)
        yield Rows(rows)
        state.system.set_row_count(len(rows))
        yield StatementDone(Command.SELECT, None if state.options.nocount else len(rows))
        if not statement.is_quiet:
            text = "DBCC execution completed. If DBCC printed error messages, contact your system administrator."
            yield Info(2528, text, procedure=scope.procedure, line=statement.line)
        return Outcome.NEXT

    def _shown_isolation(self) -> str:
        """Return the level; READ_COMMITTED_SNAPSHOT of the database is in its name (DBCC USEROPTIONS, Remarks)."""
        level, engine = self._state.options.isolation.lower(), self._state.engine
        if level == "read committed" and engine.fetch_all(_HAS_ROW_VERSIONS, [engine.database]) == [(True,)]:
            return f"{level} snapshot"
        return level

    def _wait(self, statement: nodes.WaitFor, scope: Scope) -> Steps:
        value = self._state.evaluate(statement.time, scope)
        seconds = _seconds_of(value)
        if not (self._is_reached(seconds) if statement.until else self._is_over(seconds)):
            raise BatchEnd
        yield from self._state.done()
        return Outcome.NEXT

    def _is_over(self, seconds: float) -> bool:
        """Wait; False when the client cancelled."""
        return not self._state.cancelled.wait(seconds)

    def _is_reached(self, time_of_day: float) -> bool:
        """Wait until the server's clock shows that time, which may be moved; False when the client cancelled."""
        now = self._now()
        reached = now + datetime.timedelta(seconds=_seconds_until(time_of_day, now))
        while now < reached:
            if not self._is_over(min((reached - now).total_seconds(), _POLL_SECONDS)):
                return False
            now = self._now()
        return True

    def _now(self) -> datetime.datetime:
        ((now,),) = self._state.engine.fetch_all("SELECT emulator.now()")
        return datetime.datetime.fromisoformat(str(now))

    # -- transactions -----------------------------------------------------------------------------------------------

    def _begin(self, statement: nodes.BeginTransaction, scope: Scope) -> Steps:
        transactions = self._state.transactions
        if self._state.options.implicit_transactions and transactions.count == 0:
            # BEGIN TRANSACTION itself starts the implicit transaction, so that @@TRANCOUNT becomes 2.
            yield from transactions.begin()
        name = self._name(statement.name, scope)
        return (yield from self._end(transactions.begin(name), Command.BEGIN_TRANSACTION))

    def _commit(self, statement: nodes.CommitTransaction, scope: Scope) -> Steps:
        return (yield from self._end(self._state.transactions.commit(), Command.COMMIT_TRANSACTION))

    def _rollback(self, statement: nodes.RollbackTransaction, scope: Scope) -> Steps:
        name = self._name(statement.name, scope)
        return (yield from self._end(self._state.transactions.rollback(name), Command.ROLLBACK_TRANSACTION))

    def _save(self, statement: nodes.SaveTransaction, scope: Scope) -> Steps:
        name = self._name(statement.name, scope)
        return (yield from self._end(self._state.transactions.save(name), Command.NONE))

    def _end(self, events: Iterator[Event], command: Command) -> Steps:
        yield from events
        self._state.system.set_row_count(0)
        yield from self._state.done(command)
        return Outcome.NEXT

    def _name(self, name: str, scope: Scope) -> str:
        if not name.startswith("@"):
            return name
        value = scope.variables[name].value
        return "" if value is None else str(self._state.engine.convert(value, _TRANSACTION_NAME))


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _seconds_of(value: object) -> float:
    """The seconds that 'hh:mm[:ss[.mmm]]' or a time value say. Raises 148."""
    if isinstance(value, datetime.datetime):
        value = value.time()
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
    found = _CLOCK.match(str(value))
    if found is None or int(found[1]) > 23:
        raise SqlServerError(148, f"Incorrect time syntax in time string '{value}' used with WAITFOR.", severity=15)
    hours, minutes, seconds, fraction = (part or "0" for part in found.groups())
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(fraction.ljust(3, "0")) / 1000


def _seconds_until(seconds: float, now: datetime.datetime) -> float:
    since_midnight = now.hour * 3600 + now.minute * 60 + now.second + now.microsecond / 1e6
    # A time that has passed today is tomorrow's.
    return (seconds - since_midnight) % 86400


def _context_info(value: object) -> bytes:
    """Return a binary value. Raises 2743 for what is none."""
    if not isinstance(value, bytes):
        message = "SET CONTEXT_INFO option requires varbinary (128) NOT NULL parameter."
        raise SqlServerError(2743, message)
    return value
