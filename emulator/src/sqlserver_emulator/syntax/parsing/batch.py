"""A batch to statements: the statement table, and the statements that hold others (IF, WHILE, BEGIN, TRY).

The whole batch is parsed before anything runs, so that a syntax error stops it as a whole. What is SQL proper is only
cut out here; the engine reads it when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import NAME, Token
from sqlserver_emulator.syntax.parsing import administration, assignment, bulk, cursors, execute, settings, simple
from sqlserver_emulator.syntax.parsing.boundaries import SqlScan, is_module
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.expressions import take_condition
from sqlserver_emulator.syntax.parsing.function import take_function
from sqlserver_emulator.syntax.parsing.keywords import word_set
from sqlserver_emulator.syntax.parsing.procedure import take_procedure
from sqlserver_emulator.syntax.parsing.trigger import read_trigger
from sqlserver_emulator.syntax.statements import (
    Batch,
    Block,
    If,
    InsertExecute,
    NoEffect,
    Sql,
    Statement,
    TryCatch,
    Unsupported,
    While,
)

_CACHED_CHARACTERS = 8000
"""Longer texts (data loads) hardly ever come twice."""
_CACHED_BATCHES = 1024


def parse_batch(text: str, known: frozenset[str] = frozenset()) -> Batch:
    """The statements of ``text``. ``known``: lower-case names of variables declared outside (parameters).

    Raises SqlServerError 102, 156 and other compile errors, with the line.
    """
    return _parse_cached(text, known) if len(text) <= _CACHED_CHARACTERS else _parse(text, known)


def _parse(text: str, known: frozenset[str]) -> Batch:
    return take_batch(Cursor(text, known))


_parse_cached = lru_cache(_CACHED_BATCHES)(_parse)


def take_batch(cursor: Cursor) -> Batch:
    """Everything from the cursor to the end of the text."""
    statements: list[Statement] = []
    _skip_semicolons(cursor)
    if (refused := administration.take_unsupported(cursor)) is not None:
        statements.append(refused)
    elif _at_bare_call(cursor):
        statements.append(execute.take_bare_call(cursor))
    while True:
        _skip_semicolons(cursor)
        if cursor.at_end:
            return Batch(tuple(statements), tuple(cursor.declarations))
        statements.extend(take_statement(cursor))


def _skip_semicolons(cursor: Cursor) -> None:
    while cursor.word == ";":
        cursor.at += 1


def _at_bare_call(cursor: Cursor) -> bool:
    if not cursor.at_identifier() or cursor.word_after() == ":":
        return False
    return cursor.word != "THROW" and not _at_trigger_switch(cursor)


def _at_trigger_switch(cursor: Cursor) -> bool:
    return cursor.word in ("ENABLE", "DISABLE") and cursor.word_after() == "TRIGGER"


def take_statement(cursor: Cursor) -> list[Statement]:
    """The statement at the cursor; an empty list for a label."""
    refused = administration.take_unsupported(cursor)
    if refused is not None:
        return [refused]
    handler = _HANDLERS.get(cursor.word)
    if handler:
        return [handler(cursor)]
    if cursor.token.kind == NAME and cursor.word_after() == ":" and cursor.at_identifier():
        cursor.at += 2
        return []
    if _at_trigger_switch(cursor):
        return [_take_sql(cursor)]
    raise cursor.syntax_error()


def _take_one(cursor: Cursor) -> Statement:
    """The one statement that IF, ELSE or WHILE governs."""
    _refuse_end(cursor)
    found = take_statement(cursor)
    return found[0] if found else _take_one(cursor)


def _refuse_end(cursor: Cursor) -> None:
    if cursor.at_end or cursor.word == ";":
        raise cursor.syntax_error()


def _take_sql(cursor: Cursor) -> Statement:
    tokens, start = cursor.tokens, cursor.at
    scan = SqlScan(tokens, start)
    end = scan.end()
    line = tokens[start].line
    following = tokens[end].word
    if following == ")" or scan.verb == "WITH":
        raise cursor.syntax_error(end)
    cursor.at = end
    if scan.verb == "CHECKPOINT" or (scan.verb == "UPDATE" and tokens[start + 1].word == "STATISTICS"):
        return NoEffect(line)
    if what := _refused(cursor, start):
        return Unsupported(line, what)
    if scan.verb in ("CREATE", "ALTER"):
        end = _check_module(cursor, start, end)
    elif scan.verb == "MERGE" and following != ";":
        message = "A MERGE statement must be terminated by a semi-colon (;)."
        raise SqlServerError(10713, message, severity=15, line=tokens[end].line)
    text = cursor.between(start, end)
    if "CURRENT" in text.upper() and _has_current_of(tokens, start, end):
        return Unsupported(line, "WHERE CURRENT OF")
    if "@" in text and not is_module(tokens, start):
        cursor.check_variables(start, end)
    if scan.verb == "INSERT" and not scan.has_source and following in ("EXEC", "EXECUTE"):
        source = execute.take_execute(cursor)
        return source if isinstance(source, Unsupported) else InsertExecute(line, text, source)
    is_assignment = scan.verb == "SELECT" and assignment.is_assignment(cursor, start)
    if is_assignment and (assignments := assignment.take_assignments(cursor, start, end)):
        return assignments
    temp_table = _temp_table(cursor, scan.verb, start, end) if "#" in text else ""
    return Sql(line, text, scan.verb, tuple(tokens[start:end]), temp_table)


_REFUSED: Final = {
    "BACKUP": "BACKUP",
    "BULK": "BULK INSERT",
    "EXEC": "EXECUTE AS",
    "EXECUTE": "EXECUTE AS",
    "KILL": "KILL",
    "READTEXT": "READTEXT",
    "RESTORE": "RESTORE",
    "REVERT": "REVERT",
    "SETUSER": "SETUSER",
    "SHUTDOWN": "SHUTDOWN",
    "UPDATETEXT": "UPDATETEXT",
    "WRITETEXT": "WRITETEXT",
}


def _refused(cursor: Cursor, start: int) -> str:
    """The name of a statement that neither the interpreter nor the engine runs; else ''."""
    return _REFUSED.get(cursor.tokens[start].word, "")


_ALONE: Final = frozenset(("PROCEDURE", "PROC", "FUNCTION", "TRIGGER", "VIEW", "SCHEMA", "RULE", "DEFAULT"))


def _check_module(cursor: Cursor, start: int, end: int) -> int:
    """CREATE PROCEDURE and the like must come first (111) and reach to the end; a procedure's body must parse."""
    tokens = cursor.tokens
    kind_at = start + 3 if tokens[start + 1].word == "OR" else start + 1
    kind = tokens[min(kind_at, len(tokens) - 1)].word
    if kind not in _ALONE:
        return end
    if any(token.word != ";" for token in tokens[:start]):
        verb = "CREATE/ALTER PROCEDURE" if kind in ("PROCEDURE", "PROC") else f"{tokens[start].word} {kind}"
        message = f"'{verb}' must be the first statement in a query batch."
        raise SqlServerError(111, message, severity=15, line=tokens[start].line)
    while tokens[end - 1].word == ";":
        end -= 1
    if kind in ("PROCEDURE", "PROC"):
        cursor.at = start
        take_procedure(cursor, take_batch)
    elif kind == "FUNCTION":
        cursor.at = start
        take_function(cursor, take_batch)
    elif kind == "TRIGGER":
        read_trigger(cursor.text, take_batch)
    return end


def _has_current_of(tokens: list[Token], start: int, end: int) -> bool:
    """UPDATE and DELETE at a cursor's row."""
    if tokens[start].word not in ("UPDATE", "DELETE"):
        return False
    return any(tokens[at].word == "CURRENT" and tokens[at + 1].word == "OF" for at in range(start, end))


def _temp_table(cursor: Cursor, verb: str, start: int, end: int) -> str:
    """The #table that CREATE TABLE or SELECT … INTO makes."""
    tokens = cursor.tokens
    maker = {"CREATE": "TABLE", "SELECT": "INTO"}.get(verb)
    for index in range(start + 1, end):
        if tokens[index].word.startswith("#") and tokens[index - 1].word == maker:
            return tokens[index].text
    return ""


def _take_execute(cursor: Cursor) -> Statement:
    if cursor.word_after() == "AS" and cursor.word_after(2) in ("USER", "LOGIN", "CALLER"):
        return _take_sql(cursor)
    return execute.take_execute(cursor)


def _take_reconfigure(cursor: Cursor) -> Statement:
    line, start = cursor.line, cursor.at
    cursor.expect("RECONFIGURE")
    cursor.accept("WITH", "OVERRIDE")
    return Sql(line, "RECONFIGURE", "RECONFIGURE", tuple(cursor.tokens[start : start + 1]))


def _take_alter(cursor: Cursor) -> Statement:
    if [cursor.word_after(place) for place in (1, 2, 3)] == ["DATABASE", "SCOPED", "CONFIGURATION"]:
        return administration.take_scoped_configuration(cursor)
    return _take_sql(cursor)


def _take_insert(cursor: Cursor) -> Statement:
    return bulk.take_insert_bulk(cursor) if cursor.word_after() == "BULK" else _take_sql(cursor)


def _take_if(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("IF")
    condition = take_condition(cursor)
    then = _take_one(cursor)
    after = cursor.at
    if cursor.word == ";":
        cursor.at += 1
    if cursor.accept("ELSE"):
        return If(line, condition, then, _take_one(cursor))
    cursor.at = after
    return If(line, condition, then)


def _take_while(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("WHILE")
    condition = take_condition(cursor)
    cursor.loops += 1
    body = _take_one(cursor)
    cursor.loops -= 1
    return While(line, condition, body)


def _take_begin(cursor: Cursor) -> Statement:
    line, word = cursor.line, cursor.word_after()
    if word in ("TRAN", "TRANSACTION"):
        return simple.take_begin_transaction(cursor)
    if word == "TRY":
        return _take_try(cursor)
    if word in ("DISTRIBUTED", "DIALOG", "CONVERSATION", "ATOMIC"):
        cursor.at += 1
        while not cursor.at_end and cursor.word != ";":
            cursor.at += 1
        return Unsupported(line, f"BEGIN {word}")
    cursor.at += 1
    statements = _take_until_end(cursor)
    if not statements:
        raise cursor.syntax_error(cursor.at - 1)
    return Block(line, statements)


def _take_until_end(cursor: Cursor) -> tuple[Statement, ...]:
    statements: list[Statement] = []
    while True:
        _skip_semicolons(cursor)
        if cursor.accept("END"):
            return tuple(statements)
        if cursor.at_end:
            raise cursor.syntax_error()
        statements.extend(take_statement(cursor))


def _take_try(cursor: Cursor) -> Statement:
    line = cursor.line
    cursor.expect("BEGIN", "TRY")
    body = _take_until_end(cursor)
    cursor.expect("TRY")
    _skip_semicolons(cursor)
    cursor.expect("BEGIN", "CATCH")
    cursor.catches += 1
    handler = _take_until_end(cursor)
    cursor.catches -= 1
    cursor.expect("CATCH")
    return TryCatch(line, body, handler)


_SQL = word_set(
    """SELECT INSERT UPDATE DELETE MERGE WITH CREATE ALTER DROP TRUNCATE GRANT DENY REVOKE BULK BACKUP RESTORE
    KILL CHECKPOINT RECONFIGURE SHUTDOWN REVERT SETUSER READTEXT WRITETEXT UPDATETEXT ("""
)
_Handler = Callable[[Cursor], Statement]

_HANDLERS: Final[dict[str, _Handler]] = {
    **dict.fromkeys(_SQL, _take_sql),
    "ALTER": _take_alter,
    "DBCC": administration.take_dbcc,
    "BEGIN": _take_begin,
    "BREAK": simple.take_loop_exit,
    "CLOSE": cursors.take_close,
    "COMMIT": simple.take_commit,
    "CONTINUE": simple.take_loop_exit,
    "DEALLOCATE": cursors.take_deallocate,
    "DECLARE": settings.take_declare,
    "EXEC": _take_execute,
    "EXECUTE": _take_execute,
    "FETCH": cursors.take_fetch,
    "GOTO": simple.take_goto,
    "IF": _take_if,
    "INSERT": _take_insert,
    "OPEN": cursors.take_open,
    "PRINT": simple.take_print,
    "RECONFIGURE": _take_reconfigure,
    "RAISERROR": simple.take_raiserror,
    "RETURN": simple.take_return,
    "ROLLBACK": simple.take_rollback,
    "SAVE": simple.take_save,
    "SET": settings.take_set,
    "THROW": simple.take_throw,
    "USE": simple.take_use,
    "WAITFOR": simple.take_waitfor,
    "WHILE": _take_while,
    "{": execute.take_odbc_call,
}
