"""An engine without storage: answers from a script, keeps a log, and evaluates simple expressions by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

from sqlserver_emulator.collations import DEFAULT_COLLATION
from sqlserver_emulator.contract import (
    DeclaredType,
    EngineSession,
    Parameter,
    SessionValues,
    StatementResult,
    TableChange,
    Variables,
)
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Column, Command, Rows
from sqlserver_emulator.session import TableValue
from sqlserver_emulator.types import INT, TsqlType

Answer = StatementResult | SqlServerError
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint", "bit"})
_TEXT = frozenset({"char", "varchar", "nchar", "nvarchar", "sysname"})


def rows(*values: object, name: str = "c", type: TsqlType = INT) -> StatementResult:
    return StatementResult(
        Command.SELECT, (Column(name, type),), iter([Rows([(value,) for value in values])]), row_count=len(values)
    )


def broken_rows(error: SqlServerError) -> StatementResult:
    """A result that fails after its first row."""

    def batches() -> Iterator[Rows]:
        yield Rows([(1,)])
        raise error

    return StatementResult(Command.SELECT, (Column("c", INT),), batches())


class NoTriggers:
    may_fire = False

    def forget(self) -> None:
        raise AssertionError("there is nothing to forget")

    def take_changes(self) -> Sequence[TableChange]:
        raise AssertionError("no trigger may fire")

    def triggers(self, change: object) -> NoReturn:
        raise AssertionError("no trigger may fire")

    def inside(self, change: object, trigger: object) -> NoReturn:
        raise AssertionError("no trigger may fire")


class FakeEngine:
    triggers = NoTriggers()
    collation = DEFAULT_COLLATION

    def __init__(self, answers: Mapping[str, Callable[[], Answer] | Answer] | None = None) -> None:
        self.login = "sa"
        self.database = "master"
        self.databases = {"master", "shop"}
        self.answers = dict(answers or {})
        self.procedures: dict[str, str] = {}
        self.log: list[str] = []
        self.in_transaction = False
        self.savepoints: list[str] = []
        self.isolation = "READ COMMITTED"
        self.lock_timeout = -1

    def inner_scope(self) -> AbstractContextManager[None]:
        return nullcontext()

    def use(self, database: str) -> None:
        found = next((name for name in self.databases if name.lower() == database.lower()), None)
        if found is None:
            raise SqlServerError(911, f"Database '{database}' does not exist.")
        self.database = found

    def check_batch(self, text: str) -> None:
        return

    def execute(self, statement: str, variables: Variables) -> StatementResult:
        self.log.append(statement)
        answer = self.answers.get(statement)
        if callable(answer):
            answer = answer()
        if isinstance(answer, SqlServerError):
            raise answer
        if answer is not None:
            return answer
        return self._simple(statement, variables)

    def _simple(self, statement: str, variables: Variables) -> StatementResult:
        verb = statement.split(None, 1)[0].upper()
        if verb == "SELECT" and (found := re.fullmatch(r"(?is)SELECT\s+(@\w+)\s*=\s*(.*)", statement)):
            value = self.evaluate(found[2], variables)
            return StatementResult(Command.SELECT, row_count=1, assigned_variables={found[1].lower(): value})
        if verb == "SELECT":
            return rows(self.evaluate(statement.split(None, 1)[1], variables))
        if verb in ("INSERT", "UPDATE", "DELETE"):
            return StatementResult(Command[verb], row_count=1)
        return StatementResult(Command.NONE)

    def evaluate(self, expression: str, variables: Variables, as_type: TsqlType | None = None) -> object:
        self.log.append(f"? {expression}")
        answer = self.answers.get(expression)
        if isinstance(answer, SqlServerError):
            raise answer
        value = _evaluate(expression, variables)
        return value if as_type is None or value is None else self.convert(value, as_type)

    def evaluate_condition(self, condition: str, variables: Variables) -> bool:
        self.log.append(f"? {condition}")
        return bool(_evaluate(condition, variables))

    def convert(self, value: object, to: TsqlType) -> object:
        if value is None:
            return None
        if to.name in _WHOLE:
            try:
                return int(Decimal(str(value)))
            except ArithmeticError:
                text = f"Conversion failed when converting the varchar value '{value}' to data type {to.name}."
                raise SqlServerError(245, text) from None
        if to.name in _TEXT:
            return str(value) if to.is_max else str(value)[: to.length]
        return value

    def describe(self, statement: str, variables: Variables) -> tuple[Column, ...] | None:
        self.log.append(f"describe {statement}")
        return (Column("c", INT),)

    def begin(self) -> None:
        assert not self.in_transaction
        self.log.append("begin")
        self.in_transaction = True

    def commit(self) -> None:
        assert self.in_transaction
        self.log.append("commit")
        self.in_transaction = False

    def rollback(self) -> None:
        self.log.append("rollback")
        self.in_transaction = False
        self.savepoints.clear()

    def save(self, name: str) -> None:
        self.log.append(f"save {name}")
        self.savepoints.append(name)

    def rollback_to(self, name: str) -> None:
        if name not in self.savepoints:
            text = f"Cannot roll back {name}. No transaction or savepoint of that name was found."
            raise SqlServerError(6401, text)
        self.log.append(f"rollback to {name}")

    def set_isolation(self, level: str) -> None:
        self.isolation = level

    def set_lock_timeout(self, milliseconds: int) -> None:
        self.lock_timeout = milliseconds

    def set_date_format(self, order: str) -> None:
        self.date_format = order

    def user_procedure(self, database: str, schema: str, name: str) -> str | None:
        return self.procedures.get(name.lower())

    def function_parameters(self, schema: str, name: str) -> tuple[Parameter, ...] | None:
        return None

    @property
    def values(self) -> SessionValues:
        raise AssertionError("no test of the interpreter asks for the session's values")

    def declared_type(self, schema: str, name: str) -> DeclaredType | None:
        return None

    def table_variable(self, name: str) -> object | None:
        return None

    def share_table(self, name: str, table: object) -> None:
        raise AssertionError("there are no tables to share")

    def given_table(self, name: str, columns: str, value: TableValue) -> AbstractContextManager[None]:
        raise AssertionError("there are no table types")

    def fetch_all(self, postgres_sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        raise AssertionError("the interpreter runs no PostgreSQL SQL itself")

    @contextmanager
    def atomic(self) -> Iterator[None]:
        self.log.append("atomic")
        yield

    def catalog_changed(self) -> None:
        raise AssertionError("not the interpreter's to say")

    def bulk_target(
        self, database: str, schema: str, table: str, columns: Sequence[str], options: frozenset[str]
    ) -> NoReturn:
        raise AssertionError("there are no tables to load")

    def load_bulk(self, target: object, types: object, batches: object) -> NoReturn:
        raise AssertionError("there are no tables to load")

    def undeclared_types(self, statement: str, variables: Variables) -> Mapping[str, TsqlType | None]:
        raise AssertionError("no test of the interpreter asks for them")

    def caller_is(self, role: str) -> bool:
        return True

    def cancel(self) -> None:
        self.log.append("cancel")

    def reset(self) -> None:
        self.log.append("reset")
        self.in_transaction = False

    def close(self) -> None:
        self.log.append("close")


if TYPE_CHECKING:
    # The tests that pass it to the interpreter are not read by mypy.
    _engine: EngineSession = FakeEngine()


def _evaluate(expression: str, variables: Variables) -> object:
    """Numbers, strings, variables, + - * / % and comparisons, by Python's own rules."""
    names: dict[str, object] = {}

    def name_of(found: re.Match[str]) -> str:
        key = found[0].lower()
        names[f"v{len(names)}"] = variables[key].value
        return f"v{len(names) - 1}"

    text = re.sub(
        r"@@?\w+|(?i:\b(?:ERROR_NUMBER|ERROR_MESSAGE|XACT_STATE|ERROR_LINE|ERROR_PROCEDURE)\(\))",
        lambda found: name_of(found) if found[0].startswith("@") else _function(found, names, variables),
        expression,
    )
    text = re.sub(r"N?('(?:[^']|'')*')", lambda found: repr(found[1][1:-1].replace("''", "'")), text)
    text = re.sub(r"(?i)\bNULL\b", "None", text).replace("<>", "!=")
    text = re.sub(r"(?<![<>!=])=(?!=)", "==", text)
    text = re.sub(r"(?i)\b(AND|OR|NOT)\b", lambda found: found[0].lower(), text)
    return eval(text, {"__builtins__": {}}, names)  # noqa: S307 - texts of these tests only


def _function(found: re.Match[str], names: dict[str, object], variables: Variables) -> str:
    names[f"v{len(names)}"] = variables["@@" + found[0][:-2].lower()].value
    return f"v{len(names) - 1}"
