"""PostgreSQL's errors as SQL Server words them: one map by SQLSTATE.

Functions of the emulator raise SQL Server's own errors with SQLSTATE 'MSSQL' (message text in MESSAGE, the rest as JSON
in DETAIL). Names of constraints and columns are searched in the catalog through ``ErrorContext``.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.engine.names import IDENTITY_SUFFIX, LENGTH_SUFFIX, RANGE_SUFFIX
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError, read_only_database

_LOG = logging.getLogger(__name__)
CANCELLED = 3617
VALUE_TOO_LONG = "22001"
UNIQUE_VIOLATION = "23505"
"""``truncation`` finds the column such a failure is about."""
_KEY_DETAIL = re.compile(r"^Key \(.*?\)=(\(.*\)) (?:already exists|is duplicated)", re.DOTALL)
_NULL_IN_KEY = re.compile(r"(?<=[( ])null(?=[,)])")
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_RELATION_MISSING = re.compile(r'^relation "(.*)" does not exist$')
_SEQUENCE_LIMIT = re.compile(r'sequence "(.*)" \((-?\d+)\)$')
# As PostgreSQL names the sequence of an identity column.
_OF_IDENTITY = re.compile(r"_seq\d*$")
_BIGINT_LIMIT = 2**63 - 1
_IDENTITY_TYPES = {
    limit + below: name
    for name, limit in (("tinyint", 255), ("smallint", 2**15 - 1), ("int", 2**31 - 1), ("bigint", _BIGINT_LIMIT))
    for below in (0, 1)
}
_VERBS = {"INSERT": "INSERT", "UPDATE": "UPDATE", "DELETE": "DELETE", "MERGE": "MERGE"}


@dataclass(frozen=True, slots=True)
class ConstraintNames:
    """A constraint or index as T-SQL names it. kind: PK, UQ, C, F, or IX for a unique index."""

    kind: str
    name: str
    schema: str
    table: str
    column: str = ""
    referenced_schema: str = ""
    referenced_table: str = ""
    referenced_column: str = ""


class ErrorContext(Protocol):
    """The part of the session that the map uses."""

    database: str

    def constraint(self, postgres_schema: str, table: str, constraint: str) -> ConstraintNames | None: ...

    def table_name(self, postgres_schema: str, table: str) -> tuple[str, str] | None:
        """T-SQL schema and name of a PostgreSQL table."""

    def object_name(self, relation: str) -> tuple[str, str] | None:
        """T-SQL schema and name of a relation of the current database, of which the PostgreSQL name alone is known."""


def to_sql_server(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    """``verb``: INSERT, UPDATE, … of the statement that failed; some messages name it."""
    if failure.sqlstate == "MSSQL":
        return _raised_on_purpose(failure)
    handler = _HANDLERS.get(failure.sqlstate)
    if handler is not None:
        return handler(failure, context, verb)
    return _unforeseen(failure, verb)


def _unforeseen(failure: StatementFailedError, verb: str) -> SqlServerError:
    """A refusal without PostgreSQL's words, which mean nothing to a client of SQL Server; the log has them."""
    _LOG.error("a statement failed in PostgreSQL: %s [%s]", failure.message, failure.sqlstate)
    return NotSupportedByEmulatorError(f"this form of the {verb} statement ({failure.sqlstate} in the server's log)")


def _raised_on_purpose(failure: StatementFailedError) -> SqlServerError:
    fields = json.loads(failure.detail) if failure.detail else {}
    return SqlServerError(
        int(fields.get("number", 50000)),
        failure.message,
        severity=int(fields.get("severity", 16)),
        state=int(fields.get("state", 1)),
        procedure=str(fields.get("procedure", "")),
    )


def _duplicate_key(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    names = context.constraint(failure.schema, failure.table, failure.constraint)
    found = _KEY_DETAIL.match(failure.detail)
    value = f" The duplicate key value is {_NULL_IN_KEY.sub('<NULL>', found.group(1))}." if found else ""
    kind, name = (names.kind, names.name) if names else ("IX", failure.constraint)
    target = f"{names.schema}.{names.table}" if names else failure.table
    if kind == "IX":
        text = f"Cannot insert duplicate key row in object '{target}' with unique index '{name}'.{value}"
        return SqlServerError(2601, text, severity=14)
    what = "PRIMARY KEY" if kind == "PK" else "UNIQUE KEY"
    text = f"Violation of {what} constraint '{name}'. Cannot insert duplicate key in object '{target}'.{value}"
    return SqlServerError(2627, text, severity=14)


def _conflict(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    # CHECK constraints that the emulator adds itself, as PostgreSQL has no type of that range or length.
    if failure.constraint.endswith(RANGE_SUFFIX):
        return SqlServerError(8115, "Arithmetic overflow error converting expression to data type tinyint.", state=2)
    if failure.constraint.endswith(LENGTH_SUFFIX):
        return SqlServerError(8152, "String or binary data would be truncated.", state=30)
    names = context.constraint(failure.schema, failure.table, failure.constraint)
    if names is None:
        names = ConstraintNames("C", failure.constraint, failure.schema, failure.table)
    if names.kind == "C":
        kind, schema, table, where = "CHECK", names.schema, names.table, names.column
    # PostgreSQL reports both sides of a foreign key by one SQLSTATE; only its detail says which side failed.
    elif "is still referenced" in failure.detail:
        kind, schema, table, where = "REFERENCE", names.schema, names.table, names.column
    else:
        kind, schema, table, where = (
            "FOREIGN KEY",
            names.referenced_schema,
            names.referenced_table,
            names.referenced_column,
        )
    column = f", column '{where}'" if where else ""
    return SqlServerError(
        547,
        f'The {_VERBS.get(verb, verb)} statement conflicted with the {kind} constraint "{names.name}". The conflict '
        f'occurred in database "{context.database}", table "{schema}.{table}"{column}.',
    )


def _null_value(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    found = context.table_name(failure.schema, failure.table)
    # The part behind ~ is the depth and checksum of a table variable.
    table = f"{context.database}.{found[0]}.{found[1]}" if found else failure.table.partition("~")[0]
    return SqlServerError(
        515,
        f"Cannot insert the value NULL into column '{failure.column}', table '{table}'; column does not allow nulls. "
        f"{'UPDATE' if verb == 'UPDATE' else 'INSERT'} fails.",
        state=2,
    )


def _missing_relation(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    found = _RELATION_MISSING.match(failure.message)
    return SqlServerError(208, f"Invalid object name '{found.group(1) if found else failure.message}'.")


def _name_taken(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    """42P07 and 42710: a key or constraint whose name another object of the schema has."""
    found = _QUOTED.search(failure.message)
    name = found.group(1) if found else failure.constraint
    return SqlServerError(2714, f"There is already an object named '{name}' in the database.", state=5)


def _view_not_updatable(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    """55000: a change of rows through a view that is more than a selection of one table's rows."""
    found = _QUOTED.search(failure.message)
    if found is None or "view" not in failure.message:
        return _unforeseen(failure, verb)
    reason = failure.detail
    if "DISTINCT" in reason or "GROUP BY" in reason or "aggregate" in reason or "HAVING" in reason:
        message = f"Cannot update the view or function '{found.group(1)}' because it contains aggregates, or a DISTINCT"
        return SqlServerError(4403, f"{message} or GROUP BY clause, or PIVOT or UNPIVOT operator.")
    if "UNION" in reason:
        message = f"View '{found.group(1)}' is not updatable because the definition contains a set operator."
        return SqlServerError(4426, message)
    if verb == "DELETE":
        message = f"View or function '{found.group(1)}' is not updatable because the modification affects multiple base"
        return SqlServerError(4405, f"{message} tables.")
    return NotSupportedByEmulatorError(f"{verb} through a view of several tables")


def _derived_column(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    """0A000: a view's column that is computed from others, among what PostgreSQL does not do."""
    names = _QUOTED.findall(failure.message)
    if " of view " not in failure.message or len(names) != 2:
        return _unforeseen(failure, verb)
    message = f"Update or insert of view or function '{names[1]}' failed because it contains a derived or constant"
    return SqlServerError(4406, f"{message} field.")


def _missing_column(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    # The column may come qualified by an alias of the translation, which the client never wrote.
    found = _QUOTED.search(failure.message)
    name = found.group(1) if found else failure.message.removeprefix("column ").split(" does not exist")[0]
    return SqlServerError(207, f"Invalid column name '{name.rpartition('.')[2]}'.")


def _not_a_value(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    """22P02: text that is not a value of the type it is compared with or stored as."""
    type_name, _, _ = failure.message.partition(":")
    value = failure.message.partition(': "')[2].removesuffix('"')
    if "uuid" in type_name:
        return SqlServerError(
            8169, "Conversion failed when converting from a character string to uniqueidentifier.", state=2
        )
    if "numeric" in type_name or "double" in type_name or "real" in type_name:
        target = "numeric" if "numeric" in type_name else "float"
        return SqlServerError(8114, f"Error converting data type nvarchar to {target}.", state=5)
    for postgres, tsql in (("bigint", "bigint"), ("smallint", "smallint"), ("integer", "int"), ("boolean", "bit")):
        if postgres in type_name:
            text = f"Conversion failed when converting the nvarchar value '{value}' to data type {tsql}."
            return SqlServerError(245, text)
    return SqlServerError(245, f"Conversion failed when converting the nvarchar value '{value}'.")


def _out_of_range(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    message = failure.message
    # PostgreSQL uses one SQLSTATE for several messages; the text decides between them.
    if message.startswith("input is out of range"):
        return _INVALID_OPERATION(failure, context, verb)
    if message.startswith("value out of range"):
        return SqlServerError(8115, "Arithmetic overflow error converting expression to data type float.", state=2)
    for postgres, tsql in (("bigint", "bigint"), ("smallint", "smallint"), ("integer", "int")):
        if message.startswith(f"{postgres} out of range"):
            return SqlServerError(
                8115, f"Arithmetic overflow error converting expression to data type {tsql}.", state=2
            )
        if f"out of range for type {postgres}" in message:
            value = message.partition('"')[2].partition('"')[0]
            text = f"The conversion of the nvarchar value '{value}' overflowed an {tsql} column."
            return SqlServerError(248, text)
    return SqlServerError(8115, "Arithmetic overflow error converting numeric to data type numeric.", state=8)


def _bad_date(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    return SqlServerError(241, "Conversion failed when converting date and/or time from character string.")


def _date_out_of_range(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    return SqlServerError(
        242, "The conversion of a varchar data type to a datetime data type resulted in an out-of-range value.", state=3
    )


def _view_of_temporary_table(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    if "temporary" not in failure.message:
        return _unforeseen(failure, verb)
    return SqlServerError(
        4508,
        "Views or functions are not allowed on temporary tables. Table names that begin with '#' denote temporary"
        " tables.",
    )


def _nested_windows() -> SqlServerError:
    text = "Windowed functions cannot be used in the context of another windowed function or aggregate."
    return SqlServerError(4109, text, severity=15)


def _windowing(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    """A window function where none may be. Other clauses of a window have the same SQLSTATE."""
    if "cannot be nested" in failure.message or "not allowed in window definitions" in failure.message:
        return _nested_windows()
    if "window functions are not allowed in" in failure.message:
        text = "Windowed functions can only appear in the SELECT or ORDER BY clauses."
        return SqlServerError(4108, text, severity=15)
    return _unforeseen(failure, verb)


def _grouping(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    if "cannot contain window function calls" in failure.message:
        return _nested_windows()
    return _unforeseen(failure, verb)


def _permission(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    # "permission denied for table x": the kind of object is the next word, the rest is the name.
    name = failure.message.removeprefix("permission denied for ").partition(" ")[2] or failure.message
    schema, table = context.object_name(name) or ("dbo", name)
    return SqlServerError(
        229,
        f"The {verb} permission was denied on the object '{table}', database '{context.database}', schema '{schema}'.",
        severity=14,
        state=5,
    )


def _read_only(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    return read_only_database(context.database)


def _generated_always(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    # PostgreSQL's report has no column field here; the name is only in the message.
    column = (_QUOTED.search(failure.message) or [None, failure.column])[1]
    if verb == "UPDATE":
        return SqlServerError(8102, f"Cannot update identity column '{column}'.")
    return SqlServerError(544, f"Cannot insert explicit value for identity column '{column}'.")


def _exhausted(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
    """A sequence object at its end, or an identity column: the limit in the message shows its type."""
    found = _SEQUENCE_LIMIT.search(failure.message)
    name, limit = (found[1], abs(int(found[2]))) if found else ("", 0)
    is_decimal = name.endswith(IDENTITY_SUFFIX)
    is_identity = is_decimal or (_OF_IDENTITY.search(name) is not None and context.object_name(name) is None)
    if not is_identity:
        message = (
            "The sequence object has reached its minimum or maximum value. Restart the sequence object to allow new"
        )
        return SqlServerError(11728, f"{message} values to be generated.")
    if is_decimal and limit >= _BIGINT_LIMIT:
        return NotSupportedByEmulatorError("identity values beyond bigint")
    type_name = "numeric" if is_decimal else _IDENTITY_TYPES.get(limit, "int")
    return SqlServerError(8115, f"Arithmetic overflow error converting IDENTITY to data type {type_name}.")


def _fixed(number: int, message: str, severity: int = 16, state: int = 1) -> _Handler:
    def handle(failure: StatementFailedError, context: ErrorContext, verb: str) -> SqlServerError:
        return SqlServerError(number, message, severity=severity, state=state)

    return handle


_Handler = Callable[[StatementFailedError, ErrorContext, str], SqlServerError]
_INVALID_OPERATION = _fixed(3623, "An invalid floating point operation occurred.")
_HANDLERS: dict[str, _Handler] = {
    "2201E": _INVALID_OPERATION,
    "2201F": _INVALID_OPERATION,
    UNIQUE_VIOLATION: _duplicate_key,
    "23503": _conflict,
    "23514": _conflict,
    "23502": _null_value,
    "42P01": _missing_relation,
    "42703": _missing_column,
    VALUE_TOO_LONG: _fixed(8152, "String or binary data would be truncated.", state=30),
    "2200H": _exhausted,
    "44000": _fixed(
        550,
        "The attempted insert or update failed because the target view either specifies WITH CHECK OPTION or spans a"
        " view that specifies WITH CHECK OPTION and one or more rows resulting from the operation did not qualify under"
        " the CHECK OPTION constraint.",
    ),
    "0A000": _derived_column,
    "42P20": _windowing,
    "42803": _grouping,
    "42P07": _name_taken,
    "42710": _name_taken,
    "42P16": _view_of_temporary_table,
    "54023": _fixed(
        NotSupportedByEmulatorError.NUMBER,
        "sqlserver_emulator does not support more than 100 arguments of a function. See docs/emulator.md.",
    ),
    "55000": _view_not_updatable,
    "42P17": _fixed(
        NotSupportedByEmulatorError.NUMBER,
        "sqlserver_emulator does not support computed columns whose value changes by itself. See docs/emulator.md.",
    ),
    "22012": _fixed(8134, "Divide by zero error encountered."),
    "22P02": _not_a_value,
    "22003": _out_of_range,
    "22007": _bad_date,
    "22008": _date_out_of_range,
    "42501": _permission,
    "25006": _read_only,
    "428C9": _generated_always,
    "40P01": _fixed(
        1205,
        "Transaction was deadlocked on lock resources with another process and has been chosen as the deadlock victim. "
        "Rerun the transaction.",
        severity=13,
        state=51,
    ),
    "40001": _fixed(
        3960,
        "Snapshot isolation transaction aborted due to update conflict. Retry the transaction or change the isolation "
        "level for the update/delete statement.",
        state=2,
    ),
    "54001": _fixed(
        191,
        "Some part of your SQL statement is nested too deeply. Rewrite the query or break it up into smaller queries.",
        severity=15,
    ),
    "54011": _fixed(
        NotSupportedByEmulatorError.NUMBER, "sqlserver_emulator does not support more than 1,664 columns in a result."
    ),
    "55P03": _fixed(1222, "Lock request time out period exceeded.", state=51),
    "57014": _fixed(CANCELLED, "The statement was cancelled.", severity=11),
    "21000": _fixed(
        512,
        "Subquery returned more than 1 value. This is not permitted when the subquery follows =, !=, <, <= , >, >= or "
        "when the subquery is used as an expression.",
    ),
}
