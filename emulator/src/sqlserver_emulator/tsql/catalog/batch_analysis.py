"""Reading a batch without running it: its statements in order, with the variables that each may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from sqlserver_emulator.contract import EngineSession, Variable, Variables
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.syntax.lexer import VARIABLE, Token, tokenize
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.syntax.parsing.modules import parse_procedure
from sqlserver_emulator.syntax.parsing.procedure import parse_parameters
from sqlserver_emulator.syntax.statements import Batch, Statement
from sqlserver_emulator.tsql.catalog.type_facts import SYSTEM_TYPE_IDS

_DEEPEST: Final = 32
_TYPE_WORDS: Final = frozenset(name.upper() for name in SYSTEM_TYPE_IDS) | {"TABLE", "CURSOR", "TIMESTAMP"}


@dataclass(frozen=True, slots=True)
class AnalyzedBatch:
    """``names``: each variable that the text names, lower-case with its @, as often as it does."""

    batch: Batch
    variables: Variables
    names: tuple[str, ...]

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The variables that nothing declares, in the order of their first use."""
        return tuple(dict.fromkeys(name for name in self.names if name not in self.variables))


def analyze(text: object, parameters: object) -> AnalyzedBatch:
    """Parse a batch with the declarations of its parameters, as sp_executesql takes them. Raises compile errors."""
    given = "" if text is None else str(text)
    tokens = tokenize(given)
    # A temp table would have to be created for its columns to be known, and a batch is not run here.
    if any(token.word.startswith("#") for token in tokens):
        shown = " ".join(given.split())[:100]
        raise SqlServerError(
            11526, f"The metadata could not be determined because statement '{shown}' uses a temp table."
        )
    names = [token.text.lower() for token in tokens if token.kind == VARIABLE]
    formals = parse_parameters("" if parameters is None else str(parameters))
    # The parser refuses unknown variables (137): here the undeclared ones are what is asked for.
    batch = parse_batch(given, frozenset(names) - _declared(tokens))
    for formal in _named_arguments(batch):
        names.remove(formal)
    variables = {formal.name: Variable(formal.type) for formal in formals}
    variables |= {declaration.name: Variable(declaration.type) for declaration in batch.declarations}
    return AnalyzedBatch(batch, variables, tuple(names))


def _declared(tokens: Sequence[Token]) -> frozenset[str]:
    """Return the variables that the text declares: after DECLARE, or between a comma and a type."""
    found = set()
    words = [token.word for token in tokens] + ["", ""]
    for at, (before, token) in enumerate(pairwise(tokens), 1):
        after = words[at + 2] if words[at + 1] == "AS" else words[at + 1]
        declares = before.word == "DECLARE" or (before.word == "," and after in _TYPE_WORDS)
        if token.kind == VARIABLE and declares:
            found.add(token.text.lower())
    return frozenset(found)


def _named_arguments(batch: Batch) -> Iterator[str]:
    """Yield the names before `=` in calls: `EXEC p @a = 1` names a parameter of the procedure and no variable."""
    for statement in batch.statements:
        if isinstance(statement, nodes.Execute):
            yield from (argument.name.lower() for argument in statement.arguments if argument.name)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a batch, or of a procedure that it calls, that may give a result."""

    statement: Statement
    variables: Variables


def steps(engine: EngineSession, analyzed: AnalyzedBatch) -> Iterator[Step]:
    """Yield every statement on every path, procedures of users entered."""
    for statement in analyzed.batch.statements:
        yield from _steps(engine, Step(statement, analyzed.variables), 0)


def _steps(engine: EngineSession, step: Step, depth: int) -> Iterator[Step]:
    for inner in _inside(step.statement):
        yield from _steps(engine, replace(step, statement=inner), depth)
    procedure = called_procedure(engine, step.statement)
    # A procedure that calls itself would be entered for ever.
    if procedure is None or depth >= _DEEPEST:
        yield step
        return
    variables = {formal.name: Variable(formal.type) for formal in procedure.parameters}
    variables |= {declaration.name: Variable(declaration.type) for declaration in procedure.body.declarations}
    for inner in procedure.body.statements:
        yield from _steps(engine, Step(inner, variables), depth + 1)


def _inside(statement: Statement) -> tuple[Statement, ...]:
    match statement:
        case nodes.Block(statements=inner):
            return inner
        case nodes.If(then=then, otherwise=otherwise):
            return (then,) if otherwise is None else (then, otherwise)
        case nodes.While(body=body):
            return (body,)
        case nodes.TryCatch(body=inner, handler=handler):
            return (*inner, *handler)
        case _:
            return ()


def called_procedure(engine: EngineSession, statement: Statement) -> nodes.Procedure | None:
    """Return the procedure of a user that the statement calls."""
    if not isinstance(statement, nodes.Execute) or isinstance(statement.procedure, str):
        return None
    name = statement.procedure
    source = engine.user_procedure(name.database or engine.database, name.schema or "dbo", name.name)
    return None if source is None else parse_procedure(source)
