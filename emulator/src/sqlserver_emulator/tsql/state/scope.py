"""A running scope (batch, procedure, dynamic batch), and the state of the session that all scopes share."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum

from sqlserver_emulator.contract import EngineSession, Variable
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Command, DatabaseChanged, Event, StatementDone
from sqlserver_emulator.release import Release
from sqlserver_emulator.syntax.statements import Expression
from sqlserver_emulator.system_types import names_where
from sqlserver_emulator.system_types.record import TEMPORAL
from sqlserver_emulator.tsql.state.opened_cursor import OpenedCursor
from sqlserver_emulator.tsql.state.options import Options
from sqlserver_emulator.tsql.state.system_variables import SystemVariables
from sqlserver_emulator.tsql.state.transactions import Transactions
from sqlserver_emulator.types import TsqlType


class Outcome(Enum):
    """How a statement leaves the statements around it."""

    NEXT = "next"
    BREAK = "break"
    CONTINUE = "continue"
    RETURN = "return"


Steps = Generator[Event, None, Outcome]
"""A statement while it runs: its events, then its outcome."""


@dataclass(slots=True)
class Scope:
    """``variables``: the session's @@ variables and this scope's own. ``depth`` 0 is the client's batch.

    ``tries``: TRY blocks of this scope that are being run. ``tables``: table variables and #tables to drop at its end.
    ``table_types``: of the tables that have a table type, by variable. ``cursors``: its local ones.
    ``return_value`` None until RETURN gives one; ``worst_severity`` of the errors reported in it.
    """

    variables: dict[str, Variable]
    depth: int = 0
    procedure: str = ""
    tries: int = 0
    tables: list[str] = field(default_factory=list)
    table_types: dict[str, TsqlType] = field(default_factory=dict)
    cursors: dict[str, OpenedCursor] = field(default_factory=dict)
    return_value: int | None = None
    worst_severity: int = 0

    @property
    def status(self) -> int:
        """The return status: without a RETURN value it is 0, or less after an error, by its severity."""
        if self.return_value is not None:
            return self.return_value
        return min(10 - self.worst_severity, 0)


_TEXT_TYPES = names_where(lambda type: type.has_collation)
_DATE_TYPES = names_where(lambda type: type.family == TEMPORAL)


def _has_rules_of_its_own(value: object, to: TsqlType) -> bool:
    """Return whether a conversion depends on more than the value: on its type, or on a date's style."""
    return to.name in (_DATE_TYPES if isinstance(value, str) else _TEXT_TYPES)


class SessionState:
    """The state that all scopes of a session share."""

    def __init__(self, engine: EngineSession, session_id: int, release: Release) -> None:
        self.engine = engine
        self._release = release
        self.session_id = session_id
        self.cancelled = threading.Event()
        self.late_events: list[Event] = []
        """Events of clean-up that could not be yielded when it happened."""
        self.start_over()

    def start_over(self) -> None:
        """Set everything as it is after the login."""
        self.system = SystemVariables(self.session_id, self._release)
        self.transactions = Transactions(self.engine, self.system)
        self.options = Options()
        self.options.show(self.system)
        self.tries = 0
        self.caught_error: SqlServerError | None = None
        self.is_inserting = False
        self.cursors: dict[str, OpenedCursor] = {}

    def show_error(self, error: SqlServerError | None) -> None:
        """Enter or leave a CATCH block, which decides what ERROR_NUMBER() and THROW mean."""
        self.caught_error = error
        self.system.show_error(error)

    def done(self, command: Command = Command.NONE, row_count: int | None = None) -> Iterator[StatementDone]:
        """Yield the end of a statement that has no result set; none under NOCOUNT ON."""
        if not self.options.nocount:
            yield StatementDone(command, row_count)

    def new_scope(self, *, depth: int = 0, procedure: str = "") -> Scope:
        """Return a scope that has the session's @@ variables."""
        # The dictionary is the scope's own and takes its variables; the @@ variables in it are shared objects.
        return Scope(dict(self.system.all), depth, procedure)

    def evaluate(self, expression: Expression, scope: Scope, as_type: TsqlType | None = None) -> object:
        """Return the value of an expression. Constants and variables need no engine, unless their conversion does."""
        if expression.literal is not None:
            value = expression.literal.value
        elif expression.variable in scope.variables:
            value = scope.variables[expression.variable].value
        else:
            return self.engine.evaluate(expression.text, scope.variables, as_type)
        if value is None or as_type is None:
            return value
        if _has_rules_of_its_own(value, as_type):
            return self.engine.evaluate(expression.text, scope.variables, as_type)
        return self.engine.convert(value, as_type)

    def apply_options(self, options: Options) -> None:
        """Put options in force, and pass to the engine those of its own that differ."""
        before, self.options = self.options, options
        if options.lock_timeout != before.lock_timeout:
            self.engine.set_lock_timeout(options.lock_timeout)
        if options.date_format != before.date_format:
            self.engine.set_date_format(options.date_format)
        if options.isolation != before.isolation:
            self.engine.set_isolation(options.isolation)
        options.show(self.system)

    def return_to(self, database: str) -> None:
        """Return to the database from which a scope was entered."""
        left = self.engine.database
        if left != database:
            self.engine.use(database)
            # Not yielded: this runs while a scope is left, perhaps by an exception.
            self.late_events.append(DatabaseChanged(left, database, self.engine.collation))
