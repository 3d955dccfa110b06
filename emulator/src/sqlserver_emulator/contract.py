"""The interface of the engine to the interpreter, and to procedures written in Python.

One EngineSession is one PostgreSQL connection. The interpreter owns batches, control flow, variables, @@TRANCOUNT and
TRY/CATCH; the engine owns the meaning of a single SQL statement or expression and the transaction underneath.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.events import ArrowBatch, Column, Command, Event, Rows, RowsArrow
from sqlserver_emulator.session import TableValue
from sqlserver_emulator.types import TsqlType


@dataclass(slots=True)
class Variable:
    """A T-SQL scalar variable or parameter. ``value`` is a Python value as in ``events.Rows``."""

    type: TsqlType
    value: object = None


Variables = Mapping[str, Variable]
"""Lower-case name with its @ -> variable."""


@dataclass(slots=True)
class StatementResult:
    """The effects of one SQL statement.

    columns None: no result set. ``assigned_variables``: for `SELECT @a = x, …` (columns is then None) the values of
    the last row by lower-case variable name, empty when no row came. ``row_count`` None: the statement has no count;
    for a result set it is final only when ``batches`` is exhausted.
    """

    command: Command
    columns: tuple[Column, ...] | None = None
    batches: Iterator[Rows | RowsArrow] = field(default_factory=lambda: iter(()))
    row_count: int | None = None
    assigned_variables: Mapping[str, object] = field(default_factory=dict)


class TableChange(Protocol):
    """The effects of one statement on a table with triggers."""

    @property
    def row_count(self) -> int: ...

    @property
    def updated(self) -> frozenset[str] | None:
        """Lower-case names of the columns that it assigned; None: all."""

    @property
    def columns(self) -> tuple[tuple[str, int], ...]:
        """Lower-case name and id of each column of the table."""


class TriggerSource(Protocol):
    """A trigger that fires."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...


class Triggers(Protocol):
    @property
    def may_fire(self) -> bool:
        """Whether there is any trigger: only then need a change run in a transaction."""

    def forget(self) -> None: ...

    def take_changes(self) -> Sequence[TableChange]:
        """Return what the last statement did to tables with triggers, in the order it happened."""

    def triggers(self, change: Any) -> Sequence[TriggerSource]: ...

    def inside(self, change: Any, trigger: Any) -> AbstractContextManager[None]:
        """While a trigger runs: ``inserted`` and ``deleted`` are tables."""


class SessionValues(Protocol):
    """SESSION_CONTEXT and CONTEXT_INFO."""

    def set(self, key: str, value: object, *, read_only: bool) -> None:
        """Raises 15664 for a key that was set as read only."""

    def set_info(self, value: bytes) -> None: ...


class BulkTarget(Protocol):
    """Where bulk-loaded rows go, as ``EngineSession.bulk_target`` found it. ``columns``: their names."""

    @property
    def columns(self) -> Sequence[str]: ...


class EngineSession(Protocol):
    """One client's access to the databases. Every method raises SqlServerError for a fault of the statement."""

    database: str
    """The current database; assign through ``use``."""

    login: str

    @property
    def collation(self) -> Collation:
        """The collation of the current database."""

    def use(self, database: str) -> None:
        """Raises 911 when there is no such database."""

    def check_batch(self, text: str) -> None:
        """Before a batch that has CHANGETABLE runs: its tables that are there are tracked. Raises 22105."""

    def execute(self, statement: str, variables: Variables) -> StatementResult:
        """Run one T-SQL statement (SELECT, INSERT, UPDATE, DELETE, MERGE, any DDL, GRANT…), without its semicolon.

        Variables are bound, never pasted into the text. ``@@ROWCOUNT``, ``@@TRANCOUNT``, ``@@SPID``… are in
        ``variables`` under their names. In an open transaction the statement runs under a savepoint: its failure undoes
        the statement only.
        """

    def evaluate(self, expression: str, variables: Variables, as_type: TsqlType | None = None) -> object:
        """The value of a scalar T-SQL expression (also a scalar subquery), converted to ``as_type`` as T-SQL would."""

    def evaluate_condition(self, condition: str, variables: Variables) -> bool:
        """A search condition of IF or WHILE; UNKNOWN is False."""

    def convert(self, value: object, to: TsqlType) -> object:
        """Convert a Python value to the type (assignment to a variable or parameter): rounding, truncation, errors."""

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def save(self, name: str) -> None: ...

    def rollback_to(self, name: str) -> None:
        """Raises 6401 when there is no such savepoint."""

    def user_procedure(self, database: str, schema: str, name: str) -> str | None:
        """The source text of a stored procedure created by the user, or None."""

    def function_parameters(self, schema: str, name: str) -> tuple[Parameter, ...] | None:
        """Return the parameters of a user's scalar function in the current database, or None.

        Of a default it is only known that there is one.
        """

    def declared_type(self, schema: str, name: str) -> DeclaredType | None:
        """``schema`` '': the caller's default schema."""

    def table_variable(self, name: str) -> object | None:
        """A table variable of the running scope, to be passed to an inner one."""

    def share_table(self, name: str, table: object) -> None:
        """Enter another scope's table variable under a name of this scope, to be read only."""

    def given_table(self, name: str, columns: str, value: TableValue) -> AbstractContextManager[None]:
        """Have a client's table under a name of this scope, to be read only. ``columns``: as in ``DeclaredType``.

        Raises 500, 1077 and 8052 for columns that do not fit, and ``TableDataError`` for rows.
        """

    def fetch_all(self, postgres_sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """For procedures written in Python: run PostgreSQL SQL on this session's connection, in its transaction.

        Runs with the emulator's own rights, not the caller's.
        """

    @property
    def triggers(self) -> Triggers:
        """The triggers that this session's changes fire."""

    @property
    def values(self) -> SessionValues:
        """The values that the session keeps for its own statements and triggers."""

    def inner_scope(self) -> AbstractContextManager[None]:
        """A procedure, trigger or dynamic batch: its table variables and its SCOPE_IDENTITY() are its own."""

    def atomic(self) -> AbstractContextManager[None]:
        """Several ``fetch_all`` that succeed or fail as one, in the open transaction or in one of their own."""

    def catalog_changed(self) -> None:
        """``fetch_all`` changed ``emulator.*`` or a table's columns: cached names and translations are stale."""

    def bulk_target(
        self, database: str, schema: str, table: str, columns: Sequence[str], options: frozenset[str]
    ) -> BulkTarget:
        """For INSERT BULK. '' represents the current database and the default schema. Raises 208, 207, 271, 273."""

    def load_bulk(self, target: BulkTarget, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> int:
        """All rows or none; returns how many. ``types``: of the batches' columns (``session.Session.load_bulk``)."""

    def describe(self, statement: str, variables: Variables) -> tuple[Column, ...] | None:
        """The result columns ``execute`` would give, without running the statement (SET FMTONLY, sp_prepare…)."""

    def undeclared_types(self, statement: str, variables: Variables) -> Mapping[str, TsqlType | None]:
        """Return the types of parameters that the statement uses and ``variables`` lacks; None: nothing shows it."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open underneath: errors 1205 and 3960 end it, and @@TRANCOUNT with it."""

    def set_isolation(self, level: str) -> None:
        """Set the level of transactions that begin from now on: READ COMMITTED, SNAPSHOT, SERIALIZABLE…"""

    def set_lock_timeout(self, milliseconds: int) -> None:
        """-1: wait for ever."""

    def set_date_format(self, order: str) -> None:
        """Set the order of a date of which only two digits of the year are given: mdy or ymd."""

    def caller_is(self, role: str) -> bool:
        """Whether the login is in a fixed role: 'sysadmin', or in the current database 'db_owner', 'db_ddladmin'…"""

    def cancel(self) -> None:
        """From another thread."""

    def reset(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A type that a user made. ``type``: the system type that an alias represents; a table type's own name.

    ``columns``: of a table type, as declared, in parentheses.
    """

    type: TsqlType
    columns: str = ""


REQUIRED = object()
"""Default of a procedure parameter that must be given (else error 201)."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a system procedure. ``name`` with its @, in SQL Server's spelling."""

    name: str
    type: TsqlType
    default: object = REQUIRED
    output: bool = False


@dataclass(slots=True)
class ProcedureCall:
    """A running call of a system procedure: who calls, with what. Set ``outputs[name]`` for OUTPUT parameters.

    ``arguments`` holds every declared parameter by its lower-case name with @, converted to the declared type.
    ``in_transaction``: the caller's @@TRANCOUNT > 0.
    """

    engine: EngineSession
    arguments: Mapping[str, object]
    in_transaction: bool
    run_batch: Callable[[str], Iterator[Event]]
    """Run T-SQL in the caller's session, for procedures that are easiest said in T-SQL."""
    outputs: dict[str, object] = field(default_factory=dict)
    return_code: int = 0


@dataclass(frozen=True, slots=True)
class SystemProcedure:
    """A procedure of schema sys in Python. ``run`` yields events (result sets, Info) and raises SqlServerError."""

    name: str
    parameters: tuple[Parameter, ...]
    run: Callable[[ProcedureCall], Iterator[Event]]
    does: str = ""
    """What it does, in a sentence or several; "" for a procedure of SQL Server, whose documentation says it."""


ProcedureRegistry = Mapping[str, SystemProcedure]
"""Lower-case procedure name -> procedure. Found as name, sys.name and db.sys.name; with a schema, there alone."""
