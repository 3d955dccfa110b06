"""T-SQL's built-in functions: which exist, and how a call is translated.

The PostgreSQL side of them is engine/sql/functions_*.sql.
"""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.functions import (
    aggregates,
    dates,
    json,
    metadata,
    numbers,
    session,
    text,
    tracking,
)
from sqlserver_emulator.engine.translate.expressions.functions.registry import REFUSED, Function
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.known_names import FUNCTIONS as KNOWN

FUNCTIONS: dict[str, Function] = {
    **text.FUNCTIONS,
    **dates.FUNCTIONS,
    **numbers.FUNCTIONS,
    **metadata.FUNCTIONS,
    **session.FUNCTIONS,
    **json.FUNCTIONS,
    **aggregates.FUNCTIONS,
    **tracking.FUNCTIONS,
}


_XML_METHODS = ("value", "query", "nodes", "exist", "modify")


def call(self: Expressions, name: str, arguments: list[exp.Expression], *, quoted: bool = False) -> Value:
    """`name(arguments)`. Raises 195 for a name that is no function, 174 and 189 for a wrong number of arguments."""
    folded = name.lower()
    function = None if quoted else FUNCTIONS.get(folded)
    if function is None:
        if not quoted and (folded in REFUSED or folded in KNOWN):
            raise NotSupportedByEmulatorError(f"the function {name.upper()}")
        raise SqlServerError(195, f"'{name}' is not a recognized built-in function name.", severity=15)
    function.check(folded, len(arguments))
    return function.handler(self, arguments)


def call_qualified(self: Expressions, node: exp.Expression) -> Value:
    """`schema.f(…)` and `database.schema.f(…)`. Raises 4121 when there is no such function."""
    target = node
    names: list[exp.Expression] = []
    while isinstance(target, exp.Dot):
        names.insert(0, target.expression)
        target = target.this
    names.insert(0, target)
    function = names.pop()
    parts = [part.name for part in names]
    if not isinstance(function, exp.Anonymous):
        raise NotSupportedByEmulatorError(f"the expression {node.sql(dialect='tsql')[:80]!r}")
    schema = parts[-1]
    database = parts[-2] if len(parts) > 1 else self.emission.database
    real_database = self.emission.catalog.database(database)
    user = self.emission.catalog.user_function(real_database, schema, function.name) if real_database else None
    if user is not None:
        return metadata.user_function(self, user, ".".join([*parts, function.name]), function.expressions)
    postgres = real_database and self.emission.catalog.scalar_function(real_database, schema, function.name)
    if not postgres and function.name.lower() in _XML_METHODS:
        raise NotSupportedByEmulatorError(f"the xml method {function.name}()")
    if not postgres:
        raise _unknown_function(parts, function.name)
    return metadata.scalar_function(self, postgres, function)


def _unknown_function(parts: list[str], name: str) -> SqlServerError:
    full = ".".join([*parts, name])
    return SqlServerError(
        4121,
        f'Cannot find either column "{parts[0]}" or the user-defined function or aggregate "{full}", or the name is'
        " ambiguous.",
    )
