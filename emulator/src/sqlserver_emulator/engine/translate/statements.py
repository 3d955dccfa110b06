"""The kinds of statements, and the translator of each.

DDL is parsed and handed over as a tree; everything that is neither a query, DML nor DDL is a syntax error here, because
the interpreter keeps control flow, EXEC and SET to itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.engine.translate.changes.assignments import assigns_variables, translate_assignment
from sqlserver_emulator.engine.translate.changes.inserts import translate_insert
from sqlserver_emulator.engine.translate.changes.merges import translate_merge
from sqlserver_emulator.engine.translate.changes.modifying import Modification
from sqlserver_emulator.engine.translate.changes.tracking_context import with_context
from sqlserver_emulator.engine.translate.changes.updates import translate_delete, translate_update
from sqlserver_emulator.engine.translate.expressions.clauses import is_wrapped_query
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.rows import finished, sent_as_texts
from sqlserver_emulator.engine.translate.expressions.scope import Scope, SourceColumn
from sqlserver_emulator.engine.translate.lexical import dialect
from sqlserver_emulator.engine.translate.queries.masked_results import masked, masked_value
from sqlserver_emulator.engine.translate.queries.query_translator import QueryTranslator, SetOperation
from sqlserver_emulator.engine.translate.queries.recursion import max_recursion
from sqlserver_emulator.engine.translate.values.conversion import EXPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import is_text
from sqlserver_emulator.engine.translation import SYSTEM, Translated
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.types import TsqlType

_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|;|\()*([A-Za-z_]+)", re.DOTALL)
_CONTEXT = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|;)*WITH\s+CHANGE_TRACKING_CONTEXT\b", re.IGNORECASE | re.DOTALL)
_INSERT_EXEC = re.compile(r"(?is)\s*insert\b.*?\bexec(?:ute)?\b\s+[\w\[@.(]")
_QUERIES = frozenset(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES"))
_DDL = {
    "CREATE": Command.CREATE_TABLE,
    "ALTER": Command.NONE,
    "DROP": Command.NONE,
    "TRUNCATE": Command.NONE,
    "GRANT": Command.NONE,
    "RECONFIGURE": Command.NONE,
    "DENY": Command.NONE,
    "REVOKE": Command.NONE,
    "ENABLE": Command.NONE,
    "DISABLE": Command.NONE,
}
_MODIFIERS: dict[type, tuple[Command, Callable[[QueryTranslator, Any], Modification]]] = {
    exp.Insert: (Command.INSERT, translate_insert),
    exp.Update: (Command.UPDATE, translate_update),
    exp.Delete: (Command.DELETE, translate_delete),
    exp.Merge: (Command.MERGE, translate_merge),
}


def translate_statement(text: str, emission: Emission) -> Translated:
    """Raises SqlServerError 102 for what is no statement of these kinds."""
    if _CONTEXT.match(text):
        return with_context(text, emission, translate_statement)
    match = _FIRST_WORD.match(text)
    word = match[1].upper() if match else ""
    if word in _DDL:
        return Translated(_DDL[word], ddl=dialect.parse_ddl(text))
    if word not in _QUERIES:
        raise dialect.syntax_error(match[1] if match else text.strip()[:20])
    if word == "INSERT" and _INSERT_EXEC.match(text) and not emission.is_folded:
        _refuse_insert_exec(text)
    tree = dialect.parse_query(text)
    while is_wrapped_query(tree):
        tree = tree.this
    emission.max_recursion = max_recursion(tree, emission)
    queries = QueryTranslator(emission)
    if type(tree) in _MODIFIERS:
        command, translate = _MODIFIERS[type(tree)]
        return _modification(command, emission, translate(queries, tree))
    if isinstance(tree, exp.Select) and tree.args.get("into"):
        raise NotSupportedByEmulatorError("SELECT ... INTO in this place")
    if isinstance(tree, exp.Select) and assigns_variables(tree):
        return translate_assignment(tree, queries)
    if isinstance(tree, (exp.Select, *SetOperation)):
        query = masked(queries.subquery(tree, None))
        sent_sql, unit_columns = sent_as_texts(query)
        return Translated(
            Command.SELECT,
            query.sql,
            returns_rows=True,
            column_types=known_types(query.columns),
            column_collations=known_collations(query.columns),
            column_names=tuple(column.name for column in query.columns),
            read_only=emission.read_only,
            max_recursion=emission.max_recursion,
            of_catalog=emission.table_kinds == {SYSTEM},
            sent_sql=sent_sql,
            unit_columns=unit_columns,
        )
    raise dialect.syntax_error(word)


def _refuse_insert_exec(text: str) -> None:
    try:
        dialect.parse_query(text)
    except Exception as error:
        raise NotSupportedByEmulatorError("INSERT ... EXEC in this place") from error


def known_types(columns: list[SourceColumn]) -> dict[int, TsqlType]:
    """The types of a result's columns, but for plain columns of tables, whose type the engine finds by itself."""
    return {i: column.type for i, column in enumerate(columns) if column.type is not None and not column.direct}


def known_collations(columns: list[SourceColumn]) -> dict[int, Collation]:
    """The collations of a result's strings. Raises 451 for one that is made of strings of two collations."""
    found: dict[int, Collation] = {}
    for i, column in enumerate(columns):
        collated = column.collated
        if collated is None or not is_text(column.type):
            continue
        if collated.is_conflict and collated.other is not None:
            names = f'"{collated.collation.name}" and "{collated.other.name}"'
            message = f"Cannot resolve collation conflict between {names} in SELECT statement column {i + 1}."
            raise SqlServerError(451, message)
        found[i] = collated.collation
    return found


def _modification(command: Command, emission: Emission, done: Modification) -> Translated:
    columns = done.output or []
    return Translated(
        command,
        done.sql,
        returns_rows=done.output is not None,
        assigned_variables=done.assigned_variables,
        column_types=known_types(columns),
        column_collations=known_collations(columns),
        column_names=tuple(column.name for column in columns) if done.output is not None else None,
        identity_of=emission.identity_of,
        deferred_update_of=emission.deferred_update_of,
        assigned_columns=frozenset(emission.assigned_columns),
        assigned_ids=tuple(emission.assigned_ids),
        max_recursion=emission.max_recursion,
    )


def translate_expression(text: str, emission: Emission, *, condition: bool, as_type: TsqlType | None) -> Translated:
    """A scalar expression, or a search condition as 1 or 0, as a SELECT of one row and column."""
    prefix = "SELECT 1 WHERE " if condition else "SELECT "
    tree = dialect.parse_query(prefix + text)
    clauses = {key for key, value in tree.args.items() if value}
    wanted = {"expressions", "where"} if condition else {"expressions"}
    if not isinstance(tree, exp.Select) or clauses != wanted or len(tree.expressions) != 1:
        raise dialect.syntax_error(text.strip().split(None, 1)[0] if text.strip() else "")
    # The literals' places were found in the text without the prefix.
    emission.shift_literals(len(prefix))
    expressions = ExpressionTranslator(emission, Scope(), QueryTranslator(emission))
    if condition:
        test = expressions.condition(tree.args["where"].this)
        # A condition that is unknown counts as false.
        return _one_value(emission, f"CASE WHEN {test} THEN 1 ELSE 0 END", None)
    value = expressions.value(tree.expressions[0])
    if as_type is not None:
        value = convert(value, as_type, EXPLICIT)
    sql = masked_value(finished(value), value.type) if emission.masks.is_masked else finished(value)
    return _one_value(emission, sql, value.type)


def _one_value(emission: Emission, sql: str, type: TsqlType | None) -> Translated:
    return Translated(
        Command.SELECT,
        f"SELECT {sql}",
        returns_rows=True,
        column_types={0: type} if type is not None else {},
        column_names=("",),
        read_only=emission.read_only,
    )
