"""The parts of a batch: the nodes that the parser makes and the interpreter runs.

Owns the shape of a parsed batch. Everything that is SQL proper (queries, DML, DDL) stays text in ``Sql`` and belongs to
the engine. Variable names are lower-case with their @; ``line`` counts from 1 within the batch or procedure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlserver_emulator.syntax.lexer import Token
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant whose value is known without the engine. ``value`` None is NULL."""

    value: object
    type: TsqlType


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar expression: its text, and where it is that simple, its constant or the one variable it names."""

    text: str
    literal: Literal | None = None
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`@@TRANCOUNT > 0`, `@i < 10`: two operands, each an integer constant or a variable, and = <> < <= > >=."""

    left: int | str
    operator: str
    right: int | str


@dataclass(frozen=True, slots=True)
class Condition:
    """The search condition of IF or WHILE. ``comparison`` is there when it can be tried without the engine."""

    text: str
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    line: int


@dataclass(frozen=True, slots=True)
class Sql(Statement):
    """One statement for the engine, as written. ``verb`` is its first word, of a WITH the word after the CTEs.

    ``tokens`` are those of the statement, positions counted in the batch. ``temp_table``: the #table that it creates.
    """

    text: str
    verb: str
    tokens: Sequence[Token] = field(default=(), compare=False, repr=False)
    temp_table: str = ""


@dataclass(frozen=True, slots=True)
class InsertBulk(Statement):
    """INSERT BULK: rows for ``columns`` (names and announced types) follow in a message of their own."""

    table: Name
    columns: tuple[tuple[str, TsqlType], ...]
    options: frozenset[str]


@dataclass(frozen=True, slots=True)
class Declaration:
    name: str
    type: TsqlType
    default: Expression | None = None


@dataclass(frozen=True, slots=True)
class Declare(Statement):
    declarations: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True)
class DeclareTable(Statement):
    """``text`` is the CREATE TABLE @name (…) that announces the table variable to the engine."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class SetVariable(Statement):
    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Assign(Statement):
    """SELECT @a = …, @b = … without FROM."""

    assignments: tuple[SetVariable, ...]


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """SET of one or more session options. ``value`` is ON, OFF, or what was given, as an expression."""

    options: tuple[str, ...]
    value: Expression


@dataclass(frozen=True, slots=True)
class SetIsolation(Statement):
    """``level`` in upper case: READ COMMITTED, SNAPSHOT…"""

    level: str


@dataclass(frozen=True, slots=True)
class Block(Statement):
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If(Statement):
    condition: Condition
    then: Statement
    otherwise: Statement | None = None


@dataclass(frozen=True, slots=True)
class While(Statement):
    condition: Condition
    body: Statement


@dataclass(frozen=True, slots=True)
class Break(Statement):
    """Leave the innermost WHILE."""


@dataclass(frozen=True, slots=True)
class Continue(Statement):
    """Next turn of the innermost WHILE."""


@dataclass(frozen=True, slots=True)
class TryCatch(Statement):
    body: tuple[Statement, ...]
    handler: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Print(Statement):
    message: Expression


@dataclass(frozen=True, slots=True)
class RaiseError(Statement):
    """``options``: LOG, NOWAIT, SETERROR."""

    message: Expression
    severity: Expression
    state: Expression
    arguments: tuple[Expression, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Throw(Statement):
    """Without a number: raise the error of the CATCH block again."""

    number: Expression | None = None
    message: Expression | None = None
    state: Expression | None = None


@dataclass(frozen=True, slots=True)
class Return(Statement):
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class Use(Statement):
    database: str


@dataclass(frozen=True, slots=True)
class Name:
    """A procedure's name as written: ``database`` and ``schema`` are '' when left out."""

    name: str
    schema: str = ""
    database: str = ""

    def __str__(self) -> str:
        if self.database:
            return f"{self.database}.{self.schema}.{self.name}"
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of EXEC. ``value`` None is the keyword DEFAULT; ``name`` '' is positional."""

    name: str
    value: Expression | None
    output: bool = False


@dataclass(frozen=True, slots=True)
class Execute(Statement):
    """EXEC of a procedure: ``procedure`` is its name, or the variable that holds it."""

    procedure: Name | str
    arguments: tuple[Argument, ...] = ()
    return_variable: str = ""


@dataclass(frozen=True, slots=True)
class ExecuteText(Statement):
    """EXEC (N'…' + @x): run a string as a batch."""

    text: Expression


@dataclass(frozen=True, slots=True)
class InsertExecute(Statement):
    """INSERT … EXEC: ``insert`` is the text before EXEC."""

    insert: str
    source: Execute | ExecuteText


@dataclass(frozen=True, slots=True)
class BeginTransaction(Statement):
    """``name`` may be a variable (starts with @)."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class CommitTransaction(Statement):
    name: str = ""


@dataclass(frozen=True, slots=True)
class RollbackTransaction(Statement):
    name: str = ""


@dataclass(frozen=True, slots=True)
class SaveTransaction(Statement):
    name: str = ""


@dataclass(frozen=True, slots=True)
class WaitFor(Statement):
    """``until`` False: DELAY, a duration; True: TIME, a time of day."""

    time: Expression
    until: bool = False


@dataclass(frozen=True, slots=True)
class Unsupported(Statement):
    """A statement that the parser knows and the emulator does not run; ``what`` names it."""

    what: str


@dataclass(frozen=True, slots=True)
class ShowOptions(Statement):
    """DBCC USEROPTIONS. ``is_quiet``: WITH NO_INFOMSGS."""

    is_quiet: bool


@dataclass(frozen=True, slots=True)
class NoEffect(Statement):
    """UPDATE STATISTICS and CHECKPOINT: a client can see nothing of what they do."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``declarations``: every scalar variable of the batch. T-SQL declares them all before the first statement runs."""

    statements: tuple[Statement, ...]
    declarations: tuple[Declaration, ...] = ()


@dataclass(frozen=True, slots=True)
class SystemVariable:
    """A variable with @@ as the default of a parameter; ``name`` in lower case."""

    name: str


@dataclass(frozen=True, slots=True)
class ParameterDeclaration:
    """A parameter of a procedure or of sp_executesql. ``default`` None: it must be given. ``shown``: as written."""

    name: str
    type: TsqlType
    default: Literal | None = None
    output: bool = False
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Procedure:
    """A parsed CREATE PROCEDURE."""

    parameters: tuple[ParameterDeclaration, ...]
    body: Batch


@dataclass(frozen=True, slots=True)
class Function:
    """A parsed CREATE FUNCTION, of one of three kinds.

    ``returns``: a scalar function's type. ``query``: the text of an inline table-valued function. ``table``: the table
    variable that a table-valued function with statements returns.
    """

    parameters: tuple[ParameterDeclaration, ...]
    returns: TsqlType | None = None
    query: str = ""
    table: DeclareTable | None = None
    body: Batch | None = None
    is_strict: bool = False
    is_schema_bound: bool = False


@dataclass(frozen=True, slots=True)
class Trigger:
    """A parsed CREATE TRIGGER. ``events``: INSERT, UPDATE, DELETE."""

    name: Name
    table: Name
    events: frozenset[str]
    is_instead_of: bool
    body: Batch


@dataclass(frozen=True, slots=True)
class DeclareCursor(Statement):
    """DECLARE … CURSOR FOR query; ``name`` in lower case, a variable's with its @."""

    name: str
    query: str
    is_local: bool
    scrolls: bool


@dataclass(frozen=True, slots=True)
class OpenCursor(Statement):
    name: str


@dataclass(frozen=True, slots=True)
class FetchCursor(Statement):
    """``direction``: NEXT, PRIOR, FIRST, LAST, ABSOLUTE or RELATIVE, the last two with ``count``."""

    name: str
    direction: str
    count: Expression | None
    into: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CloseCursor(Statement):
    name: str


@dataclass(frozen=True, slots=True)
class AssignCursor(Statement):
    """SET @c = a cursor that was declared, by its name or another variable."""

    variable: str
    name: str


@dataclass(frozen=True, slots=True)
class DeallocateCursor(Statement):
    name: str
