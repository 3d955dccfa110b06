"""SELECT … INTO: a new table with the columns of a query, and its rows."""

from __future__ import annotations

import re

from sqlserver_emulator.contract import StatementResult, Variables
from sqlserver_emulator.engine.catalog import result_types
from sqlserver_emulator.engine.ddl.reading.declarations import ColumnDeclaration, TableDeclaration
from sqlserver_emulator.engine.ddl.reading.taking import take_name
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tables import tables
from sqlserver_emulator.engine.names import qualified, quote
from sqlserver_emulator.engine.values import bind
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Column, Command
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.system_types.others import SQL_VARIANT, VARIANT_VALUES

# A cheap test: only texts that may be SELECT INTO are cut into tokens.
MAYBE_SELECT_INTO = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:SELECT|WITH)\b.*\bINTO\b", re.IGNORECASE | re.DOTALL)


def find_into(statement: str) -> Cursor | None:
    """A cursor after INTO, when the statement is a SELECT that has one at its top level."""
    if MAYBE_SELECT_INTO.match(statement) is None:
        return None
    cursor = Cursor(statement)
    depth = 0
    while not cursor.at_end:
        word = cursor.take().word
        depth += (word == "(") - (word == ")")
        # The INTO of INSERT or MERGE behind a WITH clause is no SELECT INTO.
        if depth == 0 and word in ("INSERT", "UPDATE", "DELETE", "MERGE"):
            return None
        if depth == 0 and word == "INTO":
            return cursor
    return None


def run_select_into(scope: DdlScope, cursor: Cursor, variables: Variables) -> StatementResult:
    """The rows keep the query's types; identity is not carried over, nullability is."""
    into = cursor.tokens[cursor.at - 1]
    name = take_name(cursor)
    after = cursor.tokens[cursor.at - 1].end
    # The query without INTO and the name is an ordinary SELECT.
    query = f"{cursor.text[: into.start]} {cursor.text[after:]}"
    types = {key: variable.type for key, variable in variables.items()}
    translated = scope.translate(query, types)
    described = scope.access.connection.describe(translated.sql)
    columns = result_types.result_columns(described, translated, scope.access.catalog, scope.access.own_types)
    tables.create_table(scope, TableDeclaration(name, tuple(map(_declaration, columns))))
    # The new table is visible to this session's next lookup, which follows at once.
    if scope.changes_catalog:
        scope.access.catalog_changed()
    table = scope.existing_table(name)
    targets = ", ".join(quote(c.postgres_name) for c in table.columns)
    sql = f"INSERT INTO {qualified(table.postgres_schema, table.postgres_name)} ({targets}) {translated.sql}"
    values = bind.parameter_values(translated.parameters, variables, _no_engine_variable)
    scope.access.connection.limit_recursion(translated.max_recursion)
    result = scope.access.connection.run(sql, bind.to_parameters(values))
    return StatementResult(Command.SELECT, row_count=result.command_tuples)


def _declaration(column: Column) -> ColumnDeclaration:
    if not column.name:
        raise SqlServerError(
            1038,
            "An object or column name is missing or empty. For SELECT INTO statements, verify each column has a name. "
            "For other statements, look for empty alias names.",
            severity=15,
            state=5,
        )
    collation = column.collation.name if column.collation is not None else ""
    # The rows have values, of whatever base types.
    if column.type.name == SQL_VARIANT.name:
        raise NotSupportedByEmulatorError(VARIANT_VALUES)
    return ColumnDeclaration(column.name, column.type, nullable=column.nullable, collation=collation)


def _no_engine_variable(name: str) -> object:
    raise KeyError(name)
