"""EXEC in its forms: a procedure with arguments, a string, a procedure named by a variable; bare procedure calls, and
ODBC's `{call p (…)}`, which drivers that do not know it send as it is.
"""

from __future__ import annotations

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import GLOBAL, IDENTIFIERS, INTEGER, LITERALS, NAME, VARIABLE, identifier_value
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.syntax.parsing.expressions import expression_of, literal_of, take_expression
from sqlserver_emulator.syntax.statements import (
    Argument,
    Execute,
    ExecuteText,
    Expression,
    Literal,
    Name,
    Unsupported,
)
from sqlserver_emulator.types import TsqlType

_MOST_PARAMETERS = 2100


def take_execute(cursor: Cursor) -> Execute | ExecuteText | Unsupported:
    """EXEC or EXECUTE at the cursor (not EXECUTE AS, which is a statement for the engine)."""
    line = cursor.line
    cursor.take()
    if cursor.word == "(":
        return _take_text(cursor, line)
    return_variable = ""
    if cursor.token.kind == VARIABLE and cursor.word_after() == "=":
        return_variable = _declared(cursor, cursor.at)
        cursor.at += 2
    if cursor.token.kind == VARIABLE:
        procedure: Name | str = _declared(cursor, cursor.at)
        cursor.at += 1
    else:
        procedure = take_name(cursor)
    return _take_call(cursor, line, procedure, return_variable)


def take_bare_call(cursor: Cursor) -> Execute | Unsupported:
    """`sp_helpdb 'x'` as the first statement of a batch."""
    line = cursor.line
    return _take_call(cursor, line, take_name(cursor), "")


def take_odbc_call(cursor: Cursor) -> Execute | Unsupported:
    """`{call p}` and `{call p (1, @a OUTPUT)}`."""
    line = cursor.line
    cursor.expect("{")
    cursor.expect("CALL")
    procedure = take_name(cursor)
    arguments: tuple[Argument, ...] = ()
    if cursor.accept("(") and not cursor.accept(")"):
        arguments = _take_arguments(cursor)
        cursor.expect(")")
    cursor.expect("}")
    return Execute(line, procedure, arguments)


def take_name(cursor: Cursor) -> Name:
    """A name of one to three parts, of which all but the last may be empty (`master..sp_who`, `..t`)."""
    parts = ["" if cursor.word == "." else cursor.take_identifier()]
    while cursor.accept("."):
        parts.append("" if cursor.word == "." else cursor.take_identifier())
    if cursor.accept(";"):
        if cursor.token.kind != INTEGER:
            cursor.at -= 1
        elif cursor.take().text != "1":
            raise SqlServerError(102, "Incorrect syntax near ';'.", severity=15, line=cursor.line)
    if len(parts) > 3:
        message = f"Could not find server '{parts[0]}' in sys.servers."
        raise SqlServerError(7202, message, severity=11, state=2, line=cursor.line)
    database, schema, name = ["", ""][: 3 - len(parts)] + parts
    return Name(name, schema, database)


def _declared(cursor: Cursor, at: int) -> str:
    cursor.check_variables(at, at + 1)
    return cursor.tokens[at].text.lower()


def _take_text(cursor: Cursor, line: int) -> ExecuteText | Unsupported:
    cursor.expect("(")
    text = take_expression(cursor, frozenset((",",)))
    if cursor.word == ",":
        return _skip(cursor, line, "EXEC with parameters for a linked server")
    cursor.expect(")")
    if cursor.word in ("AT", "AS"):
        return _skip(cursor, line, f"EXEC (…) {cursor.word} …")
    return ExecuteText(line, text)


def _skip(cursor: Cursor, line: int, what: str) -> Unsupported:
    while not cursor.at_end and cursor.word != ";":
        cursor.take()
    return Unsupported(line, what)


def _take_call(cursor: Cursor, line: int, procedure: Name | str, return_variable: str) -> Execute | Unsupported:
    arguments = _take_arguments(cursor) if _at_argument(cursor) else ()
    if cursor.accept("WITH") and not cursor.accept("RECOMPILE"):
        return _skip(cursor, line, "EXEC … WITH RESULT SETS")
    return Execute(line, procedure, arguments, return_variable)


def _take_arguments(cursor: Cursor) -> tuple[Argument, ...]:
    arguments = [_take_argument(cursor, named=False)]
    while cursor.accept(","):
        named = bool(arguments[-1].name)
        arguments.append(_take_argument(cursor, named=named, position=len(arguments) + 1))
    check_parameter_count(len(arguments), "EXECUTE", cursor.line)
    return tuple(arguments)


def check_parameter_count(count: int, statement: str, line: int) -> None:
    """Raise 180 for more parameters than a procedure can have."""
    if count > _MOST_PARAMETERS:
        message = (
            f"There are too many parameters in this {statement} statement. The maximum number is {_MOST_PARAMETERS}."
        )
        raise SqlServerError(180, message, severity=15, line=line)


def _at_argument(cursor: Cursor) -> bool:
    token = cursor.token
    if token.kind in LITERALS or token.kind in (VARIABLE, GLOBAL):
        return True
    return token.word in ("-", "+", "DEFAULT", "NULL") or cursor.at_identifier()


def _take_argument(cursor: Cursor, *, named: bool, position: int = 1) -> Argument:
    name = ""
    if cursor.token.kind == VARIABLE and cursor.word_after() == "=":
        name = cursor.take().text.lower()
        cursor.expect("=")
    elif named:
        message = (
            f"Must pass parameter number {position} and subsequent parameters as '@name = value'. "
            "After the form '@name = value' has been used, all subsequent parameters must be passed in the form "
            "'@name = value'."
        )
        raise SqlServerError(119, message, severity=15, line=cursor.line)
    value = _take_value(cursor)
    if not (output := cursor.word in ("OUT", "OUTPUT")):
        cursor.accept("READONLY")
        return Argument(name, value)
    if value is None or not value.variable:
        message = "Cannot use the OUTPUT option when passing a constant to a stored procedure."
        raise SqlServerError(179, message, severity=15, line=cursor.line)
    cursor.at += 1
    return Argument(name, value, output)


def _take_value(cursor: Cursor) -> Expression | None:
    """A constant, a variable, DEFAULT, or a bare word, which represents a string."""
    if cursor.accept("DEFAULT"):
        return None
    start, token = cursor.at, cursor.token
    if token.kind in IDENTIFIERS and token.word != "NULL":
        if token.kind == NAME and not cursor.at_identifier():
            raise cursor.syntax_error()
        cursor.at += 1
        value = identifier_value(token)
        return Expression(token.text, literal=Literal(value, TsqlType("nvarchar", max(len(value), 1))))
    cursor.at += 2 if token.word in ("-", "+") else 1
    if token.kind in (VARIABLE, GLOBAL):
        return expression_of(cursor, start, cursor.at)
    literal = literal_of(cursor.tokens[start : cursor.at])
    if literal is None:
        raise cursor.syntax_error(cursor.at - 1)
    return Expression(cursor.between(start, cursor.at), literal=literal)
