"""Metadata functions: names to ids and back, properties of the server, databases, objects and columns.

They read the emulator's catalog (schema emulator) through functions of schema tsql; the current database is an
argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.emission import quote_text
from sqlserver_emulator.engine.translate.expressions.functions.registry import Function, argument
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.conversion import ASSIGN, EXPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import storage_type
from sqlserver_emulator.engine.translate.values.value import TypeOrThunk, Value, VariantValue
from sqlserver_emulator.engine.translation import ScalarFunction
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import BIT, DATETIME, INT, LSN, SMALLINT, SYSNAME, TsqlType

_NUMBER_PROPERTIES = frozenset(
    (
        "productmajorversion", "productminorversion", "productbuild", "editionid", "engineedition", "isclustered",
        "ishadrenabled", "issingleuser", "isintegratedsecurityonly", "isfulltextinstalled", "isxtpsupported",
        "processid", "lcid", "issqlserveragentrunning", "version", "isautoclose", "isautoshrink", "isinstandby",
        "isansinullsenabled", "isfulltextenabled", "comparisonstyle", "codepage", "collationid", "sqlcharset",
        "sqlsortorder", "islocaldb", "ispolybaseinstalled", "isadvancedanalyticsinstalled", "isbigdatacluster",
        "filestreamconfiguredlevel", "filestreameffectivelevel", "buildclrversion_number", "numlicenses",
        "ischangetrackingenabled",
    )
)  # fmt: skip


def _metadata(function: str, kinds: str, result: TypeOrThunk, *, database: bool = True) -> Function:
    """``function(arguments…, current database)``; arguments after `?` are NULL when they are left out."""
    required, _, optional = kinds.partition("?")
    letters = required + optional

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        arguments = [argument(self, node, letters[i]) for i, node in enumerate(nodes)]
        arguments += ["NULL"] * (len(letters) - len(nodes))
        if database:
            arguments.append(quote_text(self.emission.database))
        call = f"{function}({', '.join(arguments)})"
        return Value(f"(SELECT {call})" if _is_one_value_of_a_filter(nodes) else call, result)

    return Function(handle, len(required), len(letters))


def _is_one_value_of_a_filter(nodes: list[exp.Expression]) -> bool:
    """Return whether a call with these arguments has one value for all rows that a WHERE clause filters.

    PostgreSQL calls a stable function for each row of a filter, and a subquery of its own once.
    """
    if not nodes or nodes[0].find_ancestor(exp.Where) is None:
        return False
    return not any(node.find(exp.Column, exp.Query, exp.Func) for node in nodes)


_MASK = TsqlType("varbinary", 128)
_SYSTEM_FUNCTIONS: dict[str, tuple[TsqlType, tuple[TsqlType, ...]]] = {
    "fn_cdc_get_max_lsn": (LSN, ()),
    "fn_cdc_get_min_lsn": (LSN, (SYSNAME,)),
    "fn_cdc_increment_lsn": (LSN, (LSN,)),
    "fn_cdc_decrement_lsn": (LSN, (LSN,)),
    "fn_cdc_map_time_to_lsn": (LSN, (TsqlType("nvarchar", 60), DATETIME)),
    "fn_cdc_map_lsn_to_time": (DATETIME, (LSN,)),
    "fn_cdc_get_column_ordinal": (INT, (SYSNAME, SYSNAME)),
    "fn_cdc_is_bit_set": (BIT, (INT, _MASK)),
    "fn_cdc_has_column_changed": (BIT, (SYSNAME, SYSNAME, _MASK)),
    "agent_datetime": (DATETIME, (INT, INT)),
}
"""Result and parameter types of system functions, which PostgreSQL's types do not show (binary(10) is bytea there)."""


def scalar_function(self: Expressions, postgres: str, call: exp.Anonymous) -> Value:
    """A call of a function of the catalog, such as sys.fn_cdc_get_max_lsn; ``postgres`` is its PostgreSQL name.

    Raises 313 for too few arguments and 8144 for too many, where the function's parameters are known.
    """
    self.emission.read_only = False
    result, parameters = _SYSTEM_FUNCTIONS.get(call.name.lower(), (None, None))
    nodes = call.expressions
    if parameters is None:
        return Value(f"{postgres}({', '.join(self.value(node).sql for node in nodes)})", None)
    if len(nodes) < len(parameters):
        message = "An insufficient number of arguments were supplied for the procedure or function"
        raise SqlServerError(313, f"{message} {call.name}.")
    if len(nodes) > len(parameters):
        raise SqlServerError(8144, f"Procedure or function {call.name} has too many arguments specified.")
    arguments = [convert(self.value(node), type, ASSIGN).sql for node, type in zip(nodes, parameters, strict=True)]
    return Value(f"{postgres}({', '.join(arguments)})", result)


def user_function(self: Expressions, function: ScalarFunction, name: str, nodes: list[exp.Expression]) -> Value:
    """A call of a user's scalar function; DEFAULT represents a parameter's default. Raises 313 and 8144."""
    self.emission.read_only = self.emission.read_only and not function.is_volatile
    arguments = user_arguments(self, name, function.parameters, function.defaults, nodes)
    result = storage_type(function.returns)
    return Value(f"{function.postgres_function}({', '.join(arguments)})::{result}", function.returns)


def user_arguments(
    self: Expressions,
    name: str,
    parameters: Sequence[tuple[str, TsqlType]],
    defaults: Sequence[str | None],
    nodes: list[exp.Expression],
) -> list[str]:
    """The arguments of a user's function as its parameters' types. A longer string is cut, as in an assignment."""
    if len(nodes) < len(parameters):
        message = "An insufficient number of arguments were supplied for the procedure or function"
        raise SqlServerError(313, f"{message} {name}.", state=2)
    if len(nodes) > len(parameters):
        message = f"Procedure or function {name} has too many arguments specified."
        raise SqlServerError(8144, message, state=2)
    arguments: list[str] = []
    for node, (parameter, type), default in zip(nodes, parameters, defaults, strict=True):
        if not (isinstance(node, exp.Column) and node.name.lower() == "default" and not node.this.quoted):
            arguments.append(f"{convert(self.value(node), type, EXPLICIT).sql}::{storage_type(type)}")
        elif default is not None:
            arguments.append(default)
        else:
            message = f"Procedure or function '{name}' expects parameter '{parameter}', which was not supplied."
            raise SqlServerError(201, message, state=4)
    return arguments


def _property(function: str, kinds: str) -> Function:
    """A property as a sql_variant: an int or a string, by the property's name, which is nearly always a literal."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        arguments = [argument(self, node, kind) for node, kind in zip(nodes, kinds, strict=True)]
        sql = f"{function}({', '.join(arguments)})"
        name = self.emission.constant(nodes[-1]).lower() if isinstance(nodes[-1], (exp.Literal, exp.National)) else ""
        return VariantValue(sql, "integer" if name in _NUMBER_PROPERTIES else "text")

    return Function(handle, len(kinds), len(kinds))


FUNCTIONS: dict[str, Function] = {
    "col_length": _metadata("tsql.col_length", "tt", SMALLINT),
    "col_name": _metadata("tsql.col_name", "ii", SYSNAME, database=False),
    "collationproperty": _property("tsql.collationproperty", "tt"),
    "columnproperty": _metadata("tsql.columnproperty", "itt", INT, database=False),
    "database_principal_id": _metadata("tsql.database_principal_id", "?t", INT),
    "databasepropertyex": _property("tsql.databasepropertyex", "tt"),
    "db_id": _metadata("tsql.db_id", "?t", SMALLINT),
    "db_name": _metadata("tsql.db_name", "?i", SYSNAME),
    "ident_current": _metadata("tsql.ident_current", "t", TsqlType("numeric", precision=38)),
    "ident_incr": _metadata("tsql.ident_incr", "t", TsqlType("numeric", precision=38)),
    "ident_seed": _metadata("tsql.ident_seed", "t", TsqlType("numeric", precision=38)),
    "index_col": _metadata("tsql.index_col", "tii", SYSNAME),
    "object_definition": _metadata("tsql.object_definition", "i", TsqlType("nvarchar", -1), database=False),
    "object_id": _metadata("tsql.object_id", "t?t", INT),
    "object_name": _metadata("tsql.object_name", "i?i", SYSNAME),
    "object_schema_name": _metadata("tsql.object_schema_name", "i?i", SYSNAME),
    "objectproperty": _metadata("tsql.objectproperty", "it", INT, database=False),
    "objectpropertyex": _metadata("tsql.objectproperty", "it", INT, database=False),
    "schema_id": _metadata("tsql.schema_id", "?t", INT),
    "schema_name": _metadata("tsql.schema_name", "?i", SYSNAME),
    "serverproperty": _property("tsql.serverproperty", "t"),
    "session_context": _property("tsql.session_context", "t"),
    "type_id": _metadata("tsql.type_id", "t", INT),
    "type_name": _metadata("tsql.type_name", "i", SYSNAME),
}
