"""CREATE, ALTER and DROP FUNCTION.

A scalar function and a table-valued one with statements become PL/pgSQL functions (``plpgsql``); an inline table-valued
one becomes a query that is expanded where it is called. The catalog keeps the text and the declared types.
"""

# ruff: noqa: S608  (names are quoted by ``names``)

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlserver_emulator.engine.catalog import result_types
from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.engine.ddl.programs import views
from sqlserver_emulator.engine.ddl.programs.plpgsql import FunctionCompiler, with_variables
from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.scope import DdlScope, SchemaEntry
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.ddl.tables.filters import refuse_bound, refuse_filtered
from sqlserver_emulator.engine.names import postgres_name, qualified, quote, quote_literal
from sqlserver_emulator.engine.translation import CatalogColumn, Translated
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.parsing.modules import parse_function
from sqlserver_emulator.syntax.statements import Batch, Function, ParameterDeclaration, SystemVariable
from sqlserver_emulator.types import TsqlType

_FUNCTION = """
SELECT o.object_id, o.type FROM emulator.objects o WHERE o.database_id = $1::int AND o.schema_id = $2::int
AND lower(o.name) = lower($3) AND o.type IN ('FN', 'IF', 'TF') AND NOT o.is_ms_shipped
"""
_TEMPLATES = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'emulator' AND c.relkind = 'r' AND c.relname LIKE $1
"""
_OVERLOADS = """
SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname = $2
"""
_DEFERRED = "-- deferred"
# Scalar functions whose body waits for a table or function, by the first line of that body.
_WAITING = """
SELECT o.object_id, s.name, o.name, o.definition FROM emulator.objects o
JOIN emulator.databases d ON d.database_id = o.database_id
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.functions f ON f.object_id = o.object_id
JOIN pg_proc p ON p.oid = to_regproc(f.postgres_function)
WHERE o.type = 'FN' AND NOT o.is_system AND d.name = $1 AND starts_with(p.prosrc, $2) ORDER BY o.create_date
"""
# No such object or function, or a column of a table that was made meanwhile.
_NOT_YET_THERE = frozenset((208, 4121))
_CHANGING = frozenset(("FROM", "JOIN", "GETDATE", "GETUTCDATE", "SYSDATETIME", "SYSUTCDATETIME", "NEWID", "RAND"))
# SQLSTATE of "other objects depend on it".
_DEPENDENT_OBJECTS = "2BP01"


def create_function(scope: DdlScope, name: ObjectName, *, replace: str) -> None:
    """``replace``: '' for CREATE, 'ALTER' (must exist: 208), 'CREATE OR ALTER'."""
    function = _with_real_types(scope, parse_function(scope.statement))
    home = scope.schema(name)
    existing = scope.fetch(_FUNCTION, [home.database_id, home.schema_id, name.name])
    if existing and replace:
        # PostgreSQL cannot change a function's result type or parameter names, so ALTER drops and creates it.
        _remove(scope, home, name.name, int(existing[0][0]), alters=True)
    elif replace == "ALTER":
        raise SqlServerError(208, f"Invalid object name '{name}'.", state=6)
    kind = "FN" if function.returns is not None else "IF" if function.table is None else "TF"
    object_id = rows.insert_object(
        # ALTER keeps the object's number, which permissions refer to.
        scope,
        home,
        name.name,
        kind,
        object_id=int(existing[0][0]) if existing and replace else None,
        postgres_name=postgres_name(name.name),
        definition=scope.statement,
    )
    parameters = [_parameter(scope, parameter) for parameter in function.parameters]
    target = qualified(home.postgres_name, postgres_name(name.name))
    scope.fetch(
        "INSERT INTO emulator.functions (object_id, postgres_function, parameters, returns)"
        " VALUES ($1::int, $2, $3::jsonb, $4::jsonb)",
        [object_id, target, json.dumps(parameters), _json_of(function.returns)],
    )
    if function.body is None:
        _make_inline(scope, object_id, function, parameters)
    else:
        made = _Making(object_id, target, parameters)
        _make_or_defer(scope, made, function, function.body)
    # Views that the replaced function took with it are made again.
    views.attach_views(scope, home.database)
    attach_functions(scope, home.database, beyond=object_id)


def _with_real_types(scope: DdlScope, function: Function) -> Function:
    """With the system types that alias types stand for."""
    parameters = tuple(
        replace(parameter, type=scope.real_type(parameter.type, i))
        for i, parameter in enumerate(function.parameters, 1)
    )
    returns = scope.real_type(function.returns) if function.returns is not None else None
    return replace(function, parameters=parameters, returns=returns)


def _parameter(scope: DdlScope, parameter: ParameterDeclaration) -> dict[str, object]:
    described: dict[str, object] = {"name": parameter.name, **_described(parameter.type)}
    if parameter.default is not None:
        if isinstance(parameter.default.value, SystemVariable):
            name = parameter.default.value.name.upper()
            raise NotSupportedByEmulatorError(f"{name} as the default of a function's parameter")
        described["default_sql"] = scope.literal(parameter.default.value, parameter.type)
    return described


def _described(type_: TsqlType) -> dict[str, object]:
    return {"type": type_.name, "length": type_.length, "precision": type_.precision, "scale": type_.scale}


def _json_of(type_: TsqlType | None) -> str | None:
    return None if type_ is None else json.dumps(_described(type_))


def _make_inline(scope: DdlScope, object_id: int, function: Function, parameters: Sequence[dict[str, Any]]) -> None:
    types = {parameter.name: parameter.type for parameter in function.parameters}
    places = {name: f"${i}" for i, name in enumerate(types, 1)}
    translated = scope.translate(function.query, types)
    if not translated.returns_rows:
        raise SqlServerError(102, "Incorrect syntax near 'RETURN'.", severity=15)
    refuse_filtered(translated.sql)
    columns = _result_columns(scope, translated, types)
    names = ", ".join(quote(column.postgres_name) for column in columns)
    listed = ", ".join(f"q.{quote(column.postgres_name)}" for column in columns)
    # The placeholders $1, $2 are filled with the call's arguments when the function is expanded.
    body = f"SELECT {listed} FROM ({with_variables(translated, places.__getitem__)}) AS q({names})"
    _insert_inline(scope, object_id, parameters, body, columns)


def _insert_inline(
    scope: DdlScope,
    object_id: int,
    parameters: Sequence[dict[str, Any]],
    body: str,
    columns: Sequence[CatalogColumn],
) -> None:
    described = [{"name": c.name, "nullable": c.nullable, **_described(c.type)} for c in columns]
    scope.fetch(
        "INSERT INTO emulator.inline_functions (object_id, parameters, body, columns)"
        " VALUES ($1::int, $2::jsonb, $3, $4::jsonb)",
        [object_id, json.dumps(parameters), body, json.dumps(described)],
    )


def _result_columns(scope: DdlScope, translated: Translated, types: dict[str, TsqlType]) -> list[CatalogColumn]:
    """The columns of an inline function, described with NULL in place of its parameters."""

    def null(name: str) -> str:
        return f"NULL::{scope.postgres_type(types[name])}"

    described = scope.access.connection.describe(with_variables(translated, null))
    typed = result_types.result_columns(described, translated, scope.access.catalog, scope.access.own_types)
    for i, column in enumerate(typed, 1):
        if not column.name:
            message = f"Create View or Function failed because no column name was specified for column {i}."
            raise SqlServerError(4511, message)
    return [
        CatalogColumn(c.name, i, c.type, c.nullable, postgres_name=postgres_name(c.name))
        for i, c in enumerate(typed, 1)
    ]


@dataclass(frozen=True, slots=True)
class _Making:
    """A function on its way into the catalog. ``target``: its PostgreSQL name."""

    object_id: int
    target: str
    parameters: Sequence[dict[str, Any]]


def _make_plpgsql(scope: DdlScope, making: _Making, function: Function, statements: Batch) -> None:
    object_id, target = making.object_id, making.target
    types = {parameter.name: parameter.type for parameter in function.parameters}
    catalog = scope.access.catalog
    scope.access.catalog_changed()  # its own name is known in its body
    # Its table variables must not replace those of the session.
    with catalog.table_variables():
        compiler = FunctionCompiler(scope, object_id, types, function.returns, function.table)
        body = compiler.compile(statements)
        refuse_filtered(body)
        made = compiler.table_variables
    declared = ", ".join(f"{quote(name)} {scope.postgres_type(type_)}" for name, type_ in types.items())
    if function.returns is not None:
        result = scope.postgres_type(function.returns)
    else:
        columns = made[0].columns
        listed = ", ".join(f"{quote(c.postgres_name)} {scope.postgres_type(c.type)}" for c in columns)
        result = f"TABLE ({listed})"
        arguments = ", ".join(f"${i}" for i in range(1, len(types) + 1))
        names = ", ".join(f"q.{quote(c.postgres_name)}" for c in columns)
        # A call is expanded like that of an inline function, as a SELECT over the PL/pgSQL function.
        _insert_inline(scope, object_id, making.parameters, f"SELECT {names} FROM {target}({arguments}) AS q", columns)
    volatility = _volatility(scope, function, has_tables=bool(made), reads_tables=compiler.reads_tables)
    strict = " STRICT" if function.is_strict else ""
    scope.run(
        f"CREATE FUNCTION {target}({declared}) RETURNS {result} LANGUAGE plpgsql {volatility}{strict}"
        # SECURITY DEFINER: a caller needs no rights on what a function of the same owner reads.
        f" SECURITY DEFINER AS {quote_literal(body)}"
    )
    sql = "UPDATE emulator.functions SET is_volatile = $2::boolean WHERE object_id = $1::int"
    scope.fetch(sql, [object_id, volatility == "VOLATILE"])


def _make_or_defer(scope: DdlScope, making: _Making, function: Function, statements: Batch) -> None:
    """A scalar function may name what is not there yet: until then a call raises the error that was found."""
    try:
        with scope.access.connection.nested():
            _make_plpgsql(scope, making, function, statements)
    except SqlServerError as error:
        if function.returns is None or function.is_schema_bound or error.number not in _NOT_YET_THERE:
            raise
        scope.access.catalog_changed()
        _defer(scope, making, function, function.returns, error)


def _defer(scope: DdlScope, making: _Making, function: Function, returns: TsqlType, error: SqlServerError) -> None:
    types = {parameter.name: parameter.type for parameter in function.parameters}
    declared = ", ".join(f"{quote(name)} {scope.postgres_type(type_)}" for name, type_ in types.items())
    failure = f"tsql.fail({error.number}, {quote_literal(error.message)}, '', {error.severity}, {error.state})"
    body = f"{_DEFERRED}\nBEGIN PERFORM {failure}; RETURN NULL; END"
    scope.run(
        f"CREATE FUNCTION {making.target}({declared}) RETURNS {scope.postgres_type(returns)} LANGUAGE plpgsql VOLATILE"
        f" SECURITY DEFINER AS {quote_literal(body)}"
    )
    scope.fetch("UPDATE emulator.functions SET is_volatile = true WHERE object_id = $1::int", [making.object_id])


def attach_functions(scope: DdlScope, database: str, *, beyond: int = 0) -> None:
    """Make the functions again that named what was not there, except the one of number ``beyond``."""
    for object_id, schema, name, definition in scope.fetch(_WAITING, [database, _DEFERRED]):
        if int(object_id) == beyond:
            continue
        inner = DdlScope.like(scope, database, str(definition))
        target = ObjectName(str(name), str(schema), database)
        home = scope.schema(target)
        function = _with_real_types(inner, parse_function(inner.statement))
        parameters = [_parameter(inner, parameter) for parameter in function.parameters]
        making = _Making(int(object_id), qualified(home.postgres_name, postgres_name(str(name))), parameters)
        # What is still missing leaves the function as it was.
        with suppress(SqlServerError, StatementFailedError), scope.access.connection.nested():
            for (signature,) in scope.fetch(_OVERLOADS, [home.postgres_name, postgres_name(str(name))]):
                scope.run(f"DROP FUNCTION {signature}")
            if function.body is not None:
                _make_plpgsql(inner, making, function, function.body)
    scope.access.catalog_changed()


def _volatility(scope: DdlScope, function: Function, *, has_tables: bool, reads_tables: bool) -> str:
    """Computed columns and their indexes want IMMUTABLE, which T-SQL says by WITH SCHEMABINDING."""
    if has_tables:
        # GETDATE and the like give other values at each call, although they read no table.
        return "VOLATILE"
    if function.is_schema_bound and not reads_tables and not _CHANGING & scope.words():
        return "IMMUTABLE"
    return "STABLE"


def drop_function(scope: DdlScope, name: ObjectName, *, if_exists: bool) -> None:
    """Raises 3701 (no such function) and 3729 (a table or view is built on it)."""
    home = scope.schema(name)
    existing = scope.fetch(_FUNCTION, [home.database_id, home.schema_id, name.name])
    if existing:
        _remove(scope, home, name.name, int(existing[0][0]), alters=False)
    elif not if_exists:
        message = f"Cannot drop the function '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11, state=5)


def _remove(scope: DdlScope, home: SchemaEntry, name: str, object_id: int, *, alters: bool) -> None:
    refuse_bound(scope, object_id, f"{home.name}.{name}")
    for (signature,) in scope.fetch(_OVERLOADS, [home.postgres_name, postgres_name(name)]):
        views.detach_views_of_function(scope, str(signature))
        try:
            scope.run(f"DROP FUNCTION {signature}")
        except StatementFailedError as failure:
            if failure.sqlstate != _DEPENDENT_OBJECTS:
                raise
            verb = "ALTER" if alters else "DROP FUNCTION"
            full = f"{home.name}.{name}"
            message = f"Cannot {verb} '{full}' because it is being referenced by object '{_dependent(failure)}'."
            raise SqlServerError(3729, message) from failure
    # Templates of the function's table variables are named by its number.
    for (template,) in scope.fetch(_TEMPLATES, [f"{object_id}~@%"]):
        scope.run(f"DROP TABLE {qualified('emulator', str(template))}")
    scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [object_id])


def _dependent(failure: StatementFailedError) -> str:
    """The object that PostgreSQL names in `default value for column … of table "Shop.dbo"."T"`, or its words."""
    return failure.detail.partition(" depends on ")[0].rpartition(" ")[2].strip('"').rpartition('."')[2]
